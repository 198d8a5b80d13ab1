"""The text of rows that have the same form: constant texts, and decimal numbers between them.

Depends on compile and intrinsics.
"""

from __future__ import annotations

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import copy_bytes, load_i32, load_i64, store_u8

DIGITS_MAX = 20  # of an int64, the sign included
_MINUS = np.uint8(ord("-"))
_ZERO = np.uint64(ord("0"))
_TEN = np.uint64(10)


@primitive
def _write_decimal(place: int, value: int) -> int:
    """Write a number at `place` and return where it ends."""
    rest = np.uint64(value)
    if value < 0:
        store_u8(place, _MINUS)
        place += 1
        rest = np.uint64(0) - rest  # also of the least int64, whose negative is no int64
    end = place + 1
    above = rest // _TEN
    while above > 0:
        end += 1
        above //= _TEN
    for at in range(end - 1, place - 1, -1):
        store_u8(at, np.uint8(_ZERO + rest % _TEN))
        rest //= _TEN
    return end


@kernel
def write_rows(
    place: int, rows: int, pool: int, ends: int, choices: int, texts: int, numbers: int
) -> int:
    """Write `rows` rows at `place`, and return where they end.

    `choices` (rows x texts, i4) tells which texts of the pool a row has; text `n` ends at `ends[n + 1]`
    of the `pool` (i8). `numbers` (rows x (texts - 1), i8) follow each text but the last.
    """
    for row in range(rows):
        for column in range(texts):
            text = np.int64(load_i32(choices + 4 * (row * texts + column)))
            begin = load_i64(ends + 8 * text)
            length = load_i64(ends + 8 * (text + 1)) - begin
            copy_bytes(place, pool + begin, length)
            place += length
            if column < texts - 1:
                number = load_i64(numbers + 8 * (row * (texts - 1) + column))
                place = _write_decimal(place, number)
    return place
