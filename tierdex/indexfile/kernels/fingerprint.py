"""128 bits that stand for a row of numbers: which entry it is, whatever form its file has.

Depends on compile only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import direct_call, kernel, short_kernel, types

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)
_ROUNDS = 2
_ZERO, _ONE = np.uint64(0), np.uint64(1)


@kernel
def _mixed(mixed: Any, value: Any, multiplier: Any) -> Any:
    mixed ^= value
    for _ in range(_ROUNDS):
        mixed *= multiplier
        mixed ^= mixed >> _SHIFT
    return mixed


@kernel
def mix_rows(values: Any, found: Any) -> None:
    """Write the fingerprints of the rows of `values` (u8[n, c]) to `found` (u8[n, 2])."""
    width = np.uint64(values.shape[1])
    for i in range(values.shape[0]):
        first, second = _mixed(_SECOND, width, _FIRST), _mixed(_FIRST, width, _SECOND)
        for c in range(values.shape[1]):
            first = _mixed(first, values[i, c], _FIRST)
            second = _mixed(second, values[i, c], _SECOND)
        found[i, 0], found[i, 1] = first, second


@short_kernel
def _mix_message(topic: int, offset: int, size: int, queue_id: int, time: int) -> Any:
    """Return the two halves (bits as i8) of what `mix_rows` makes of one message."""
    first = _mixed(_SECOND, np.uint64(5), _FIRST)
    second = _mixed(_FIRST, np.uint64(5), _SECOND)
    for value in (topic, offset, size, queue_id, time):
        first = _mixed(first, np.uint64(value), _FIRST)
        second = _mixed(second, np.uint64(value), _SECOND)
    return np.int64(first), np.int64(second)


@cache
def load_mix_message() -> Any:
    """Return `mix_message`: what calls it, from numba's cache, or compiled in a second."""
    return direct_call(_mix_message, *(types.int64,) * 5)


@kernel
def add_keys(table: Any, keys: Any, is_new: Any) -> None:
    """Add `keys` (u8[n, 2], not zero) to an open hash table; note which were not there (b1[n]).

    `table` (u8[size, 2], zero where empty) is a power of two long, and longer than all its keys together.
    """
    mask = np.uint64(table.shape[0] - 1)
    for i in range(keys.shape[0]):
        first, second = keys[i, 0], keys[i, 1]
        place = first & mask
        while (table[place, 0] != first or table[place, 1] != second) and (
            table[place, 0] != _ZERO or table[place, 1] != _ZERO
        ):
            place = (place + _ONE) & mask
        is_new[i] = table[place, 0] == _ZERO and table[place, 1] == _ZERO
        table[place, 0], table[place, 1] = first, second
