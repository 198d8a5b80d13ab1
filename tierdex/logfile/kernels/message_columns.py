"""Messages by column, as an append brings them: where extra and body of a row lie, and how long values are.

Depends on intrinsics and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64

# Places in the array of columns that Python fills.
(
    C_QUEUES, C_QUEUE_STRIDE, C_OFFSETS, C_OFFSET_BYTES, C_BODIES, C_TIMES, C_TIME_STRIDE,
    C_EXTRA_OFFSETS, C_EXTRAS, C_HELD,
) = range(10)  # fmt: skip
COLUMN_WORDS: Final = 10


@kernel
def bound(offsets: int, width: int, index: int) -> Any:
    """Return element `index` of offsets of `width` bytes each."""
    if width == 4:
        return np.int64(load_i32(offsets + 4 * index))
    return load_i64(offsets + 8 * index)


@kernel
def extra_of(columns: Any, i: int) -> Any:
    """Return (address, bytes) of extra `i`; no bytes where a message has none."""
    if columns[C_EXTRA_OFFSETS] == 0:
        return np.int64(0), np.int64(0)
    begin = load_i64(columns[C_EXTRA_OFFSETS] + 8 * i)
    return columns[C_EXTRAS] + begin, load_i64(columns[C_EXTRA_OFFSETS] + 8 * (i + 1)) - begin


@kernel
def greatest_length(offsets: int, width: int, count: int, data_bytes: int) -> Any:
    """Return the bytes of the longest of `count` values; -1 when an offset falls or leads outside."""
    previous = bound(offsets, width, 0)
    lowest, greatest = previous, np.int64(0)
    for i in range(1, count + 1):
        end = bound(offsets, width, i)
        lowest = min(lowest, end - previous)
        greatest = max(greatest, end - previous)
        previous = end
    return greatest if lowest >= 0 and previous <= data_bytes else np.int64(-1)


@kernel
def first_longer(offsets: int, width: int, count: int, most: int) -> Any:
    """Return the first of `count` values that has more than `most` bytes, or -1."""
    for i in range(count):
        if bound(offsets, width, i + 1) - bound(offsets, width, i) > most:
            return np.int64(i)
    return np.int64(-1)
