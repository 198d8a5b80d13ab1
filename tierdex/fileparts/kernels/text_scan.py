"""One look at all strings of a column: how long they are, and whether they are plain ASCII.

Keys are ASCII nearly always; then their bytes need no further validation as UTF-8. The offsets were
checked before (`hashing.bounds_are_sound`). Depends on intrinsics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64, load_u8, load_u64

_HIGH_BITS = np.uint64(0x8080808080808080)


@kernel
def is_ascii(begin: int, end: int) -> bool:
    """Return whether no byte of [begin, end) has its high bit set."""
    bits = np.uint64(0)
    words = begin + ((end - begin) & ~np.int64(7))
    for place in range(begin, words, 8):
        bits |= load_u64(place)
    for place in range(words, end):
        bits |= np.uint64(load_u8(place))
    return bool((bits & _HIGH_BITS) == np.uint64(0))


@kernel
def scan_texts(offsets: int, offset_bytes: int, data: int, count: int) -> Any:
    """Return (least length, greatest length, whether all is ASCII) of `count` > 0 strings."""
    if offset_bytes == 4:
        begin = np.int64(load_i32(offsets))
    else:
        begin = load_i64(offsets)
    first, previous = begin, begin
    least, greatest = np.int64(0x7FFFFFFFFFFFFFFF), np.int64(0)
    for i in range(1, count + 1):
        if offset_bytes == 4:
            place = np.int64(load_i32(offsets + 4 * i))
        else:
            place = load_i64(offsets + 8 * i)
        least = min(least, place - previous)
        greatest = max(greatest, place - previous)
        previous = place
    return least, greatest, is_ascii(data + first, data + previous)
