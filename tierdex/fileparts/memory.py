"""Memory as kernels take it: where bytes of arrays and columns begin, and buffers that a thread uses again.

Depends on numpy only.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np


class StringAddresses(NamedTuple):
    """A column of strings: offsets of 4 or 8 bytes into `data`; `indices` (i8) by row, 0 for none."""

    offsets: int
    offset_bytes: int
    data: int
    indices: int


def address(array: np.ndarray) -> int:
    """Return where an array's bytes begin; faster than `array.ctypes.data`.

    Not for structured arrays: there numpy describes every field first, which takes microseconds.
    """
    place: int = array.__array_interface__["data"][0]
    return place


_THREADS = threading.local()


def thread_buffer(length: int) -> tuple[bytearray, int]:
    """Return a buffer of this thread with at least `length` bytes, and its address.

    What is in it lasts until the thread asks again. A slice of a bytearray is a copy, several times
    cheaper than that of a structured array.
    """
    found: tuple[bytearray, int] | None = getattr(_THREADS, "buffer", None)
    if found is None or len(found[0]) < length:
        buffer = bytearray(length)
        found = buffer, address(np.frombuffer(buffer, np.uint8))
        _THREADS.buffer = found
    return found
