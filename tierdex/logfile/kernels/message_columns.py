"""Messages by column, as an append brings them: where body and extra of a row lie, and how large all are.

Depends on intrinsics, layout and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64
from tierdex.logfile import layout

# Places in the array of columns that Python fills.
(
    C_QUEUES, C_QUEUE_STRIDE, C_OFFSETS, C_OFFSET_BYTES, C_BODIES, C_TIMES, C_TIME_STRIDE,
    C_EXTRA_OFFSETS, C_EXTRAS, C_HELD,
) = range(10)  # fmt: skip
COLUMN_WORDS: Final = 10

_ROW_BYTES: Final = layout.ROW_BYTES
_LONG_BYTES: Final = layout.LONG_TIME_BYTES
_EXTRA_LENGTH: Final = layout.EXTRA_LENGTH_BYTES


@kernel
def _bound(offsets: int, width: int, index: int) -> Any:
    if width == 4:
        return np.int64(load_i32(offsets + 4 * index))
    return load_i64(offsets + 8 * index)


@kernel
def body_of(columns: Any, i: int) -> Any:
    """Return (address, bytes) of body `i`."""
    begin = _bound(columns[C_OFFSETS], columns[C_OFFSET_BYTES], i)
    end = _bound(columns[C_OFFSETS], columns[C_OFFSET_BYTES], i + 1)
    return columns[C_BODIES] + begin, end - begin


@kernel
def extra_of(columns: Any, i: int) -> Any:
    """Return (address, bytes) of extra `i`; no bytes where a message has none."""
    if columns[C_EXTRA_OFFSETS] == 0:
        return np.int64(0), np.int64(0)
    begin = load_i64(columns[C_EXTRA_OFFSETS] + 8 * i)
    return columns[C_EXTRAS] + begin, load_i64(columns[C_EXTRA_OFFSETS] + 8 * i + 8) - begin


@kernel
def measure_rows(columns: Any, count: int, most_body: int, most_extra: int) -> Any:
    """Return (bytes of all rows at most, bytes of the largest at most, first row too large or -1)."""
    total, largest = np.int64(0), np.int64(0)
    for i in range(count):
        body, extra = body_of(columns, i)[1], extra_of(columns, i)[1]
        if body > most_body or extra > most_extra:
            return total, largest, np.int64(i)
        length = (_ROW_BYTES + _LONG_BYTES + _EXTRA_LENGTH + body + extra + 3) & ~np.int64(3)
        total += length
        largest = max(largest, length)
    return total, largest, np.int64(-1)
