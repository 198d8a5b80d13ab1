"""Totals of a topic in memory: messages, bytes of bodies, least and greatest time (i8 each).

Depends on intrinsics and the kernel decorator.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i64, store_i64

TOTALS_BYTES: Final = 32
_COUNT, _BYTES, _LEAST, _GREATEST = 0, 8, 16, 24
TIME_MIN, TIME_MAX = np.int64(-0x8000000000000000), np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def clear_totals(totals: int) -> None:
    """Begin with no message."""
    store_i64(totals + _COUNT, 0)
    store_i64(totals + _BYTES, 0)
    store_i64(totals + _LEAST, TIME_MAX)
    store_i64(totals + _GREATEST, TIME_MIN)


@kernel
def count_messages(totals: int, messages: int, body_bytes: int, least: int, greatest: int) -> None:
    """Count messages whose times lie in [least, greatest]."""
    store_i64(totals + _COUNT, load_i64(totals + _COUNT) + messages)
    store_i64(totals + _BYTES, load_i64(totals + _BYTES) + body_bytes)
    store_i64(totals + _LEAST, min(load_i64(totals + _LEAST), least))
    store_i64(totals + _GREATEST, max(load_i64(totals + _GREATEST), greatest))
