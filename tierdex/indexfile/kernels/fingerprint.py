"""128 bits that stand for a row of numbers: which entry it is, whatever form its file has.

Depends on the kernel decorator only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel

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
def mix_rows(values: Any, found: Any) -> None:
    """Write the fingerprints of the rows of `values` (u8[n, c]) to `found` (u8[n, 2])."""
    width = np.uint64(values.shape[1])
    for i in range(values.shape[0]):
        first, second = _mixed(_SECOND, width, _FIRST), _mixed(_FIRST, width, _SECOND)
        for c in range(values.shape[1]):
            first = _mixed(first, values[i, c], _FIRST)
            second = _mixed(second, values[i, c], _SECOND)
        found[i, 0], found[i, 1] = first, second
