"""Binary search in the topics of an immutable file, which stand in order of their names' bytes.

Depends on intrinsics, layout and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i64, load_u8
from tierdex.logfile import layout

_NAME_END: Final = layout.places(layout.TOPIC)["name_end"]
_ROW: Final = layout.TOPIC_ROW_BYTES


@kernel
def _compare(a: int, a_bytes: int, b: int, b_bytes: int) -> Any:
    """Return a number below, at or above 0, as a stands before, is, or stands behind b."""
    for i in range(min(a_bytes, b_bytes)):
        difference = np.int64(load_u8(a + i)) - np.int64(load_u8(b + i))
        if difference != 0:
            return difference
    return a_bytes - b_bytes


@kernel
def find_topic(topics: int, count: int, names: int, name: int, length: int) -> Any:
    """Return the index of a topic, or -1."""
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) >> 1
        row = topics + _ROW * middle
        begin = load_i64(row - _ROW + _NAME_END) if middle > 0 else np.int64(0)
        order = _compare(names + begin, load_i64(row + _NAME_END) - begin, name, length)
        if order == 0:
            return np.int64(middle)
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return np.int64(-1)
