"""128 bits that stand for a row of numbers: which entry it is, whatever form its file has.

Depends on the kernel decorator only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile.kernels.compile import kernel

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)
_ROUNDS = 2


@kernel
def _mixed(mixed: Any, value: Any, multiplier: Any) -> Any:
    mixed ^= value
    for _ in range(_ROUNDS):
        mixed *= multiplier
        mixed ^= mixed >> _SHIFT
    return mixed


@kernel
def mix_columns(columns: Any, found: Any) -> None:
    """Write the fingerprints of `columns` (u8[c, n]) to `found` (u8[n, 2])."""
    width = np.uint64(columns.shape[0])
    for i in range(columns.shape[1]):
        first, second = _mixed(_SECOND, width, _FIRST), _mixed(_FIRST, width, _SECOND)
        for c in range(columns.shape[0]):
            first = _mixed(first, columns[c, i], _FIRST)
            second = _mixed(second, columns[c, i], _SECOND)
        found[i, 0], found[i, 1] = first, second
