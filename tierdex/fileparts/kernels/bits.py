"""Bit-packed columns: values of one width from a byte boundary, least significant bit first.

Widths are 0 to 56 bits, or 64, so that one unaligned 8-byte load holds any value: code that stores a column
leaves 7 bytes behind it. Depends on the kernel decorator and intrinsics.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_u64, store_u64

_WIDTH_MAX: Final = 56  # above it, 64
_U0 = np.uint64(0)
_U1 = np.uint64(1)
_U64 = np.uint64(64)


@kernel
def packed_value(column: int, index: int, width: int) -> Any:
    """Return packed value `index` (u8) of the column that begins at address `column`."""
    if width == 64:
        return load_u64(column + 8 * index)
    bit = index * width
    mask = (_U1 << np.uint64(width)) - _U1
    return (load_u64(column + (bit >> 3)) >> np.uint64(bit & 7)) & mask


@kernel
def bit_width(value: Any) -> Any:
    """Return the stored width in bits of u8 `value`: 0..56 or 64."""
    width = 0
    while value > _U0:
        value >>= _U1
        width += 1
    return width if width <= _WIDTH_MAX else 64


@kernel
def pack_values(values: Any, count: int, width: int, at: int) -> Any:
    """Bit-pack `values` (u8, below 2**width) at address `at`; return the bytes that they take."""
    if width == 0:
        return 0
    if width == 64:
        for i in range(count):
            store_u64(at + 8 * i, values[i])
        return 8 * count
    gathered = _U0
    used = _U0
    step = np.uint64(width)
    for i in range(count):
        value = values[i]
        gathered |= value << used
        used += step
        if used >= _U64:
            store_u64(at, gathered)
            at += 8
            used -= _U64
            gathered = value >> (step - used)
    store_u64(at, gathered)
    return (count * width + 7) >> 3
