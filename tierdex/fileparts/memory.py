"""Memory as kernels take it: where bytes of arrays and columns begin, and buffers that a thread uses again.

Depends on numpy only.
"""

from __future__ import annotations

import ctypes
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
    """Return where an array's bytes begin.

    Read from the array's C struct: 0.1 us, where numpy's own ways take 0.8, and several for structured
    arrays. A kernel takes up to ten of them.
    """
    place: int = _pointer_at(id(array) + _DATA).value
    return place


_pointer_at = ctypes.c_ssize_t.from_address
_DATA = (
    object.__basicsize__
)  # PyArrayObject: what every object begins with, then the data's address


def _slow_address(array: np.ndarray) -> int:
    place: int = array.ctypes.data
    return place


if address(_checked := np.zeros(1)) != _slow_address(_checked):
    address = _slow_address  # a numpy that lays out its arrays in another way


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
