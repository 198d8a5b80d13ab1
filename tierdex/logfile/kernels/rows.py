"""Rows of a journal, wherever they lie -> columns in memory.

    measure_rows  how many rows fit a budget, and the bytes of their bodies and extras
    copy_rows     times, flags, bodies and extras, one after the other, into a batch's memory;
                  copy_rows_behind: of a batch whose first rows are there

Rows come by address (i8 each), and were held to their rules before. Depends on intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i32,
    load_i64,
    load_u32,
    prefetch,
    store_i64,
    store_u8,
)
from tierdex.logfile import layout

_ROW = layout.places(layout.ROW)
_SIZE, _TIME = _ROW["size"], _ROW["time"]
_ROW_BYTES: Final = layout.ROW_BYTES
_BODY_MASK: Final = layout.BODY_BYTES_MAX
_HAS_EXTRA, _LONG = layout.ROW_HAS_EXTRA, layout.ROW_LONG_TIME
_KEPT_FLAGS: Final = layout.ROW_FORGOTTEN | layout.ROW_HELD
_FLAGS_SHIFT: Final = layout.MESSAGE_FLAGS_SHIFT
_LONG_BYTES: Final = layout.LONG_TIME_BYTES
_EXTRA_LENGTH: Final = layout.EXTRA_LENGTH_BYTES
_AHEAD: Final = 16


@kernel
def open_row(address: int, base: int) -> Any:
    """Return (time, flags, body's address, body's bytes, extra's address, extra's bytes) of a row."""
    size = np.int64(load_u32(address + _SIZE))
    place = address + _ROW_BYTES
    if size & _LONG:
        time = load_i64(place)
        place += _LONG_BYTES
    else:
        time = base + np.int64(load_i32(address + _TIME))
    extra_bytes = np.int64(0)
    if size & _HAS_EXTRA:
        extra_bytes = np.int64(load_u32(place))
        place += _EXTRA_LENGTH
    flags = (size & _KEPT_FLAGS) >> _FLAGS_SHIFT
    return time, flags, place + extra_bytes, size & _BODY_MASK, place, extra_bytes


@kernel
def measure_rows(addresses: int, count: int, most_bytes: int) -> Any:
    """Return (rows, bytes of bodies, bytes of extras) of the first rows that fit `most_bytes`.

    The first one always does.
    """
    bodies, extras = np.int64(0), np.int64(0)
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(load_i64(addresses + 8 * (i + _AHEAD)))
        _, _, _, body, _, extra = open_row(load_i64(addresses + 8 * i), 0)
        if i > 0 and bodies + extras + body + extra > most_bytes:
            return np.int64(i), bodies, extras
        bodies += body
        extras += extra
    return np.int64(count), bodies, extras


@kernel
def column_places(memory: int, count: int, body_bytes: int) -> Any:
    """Return where times, body offsets, extra offsets, flags, bodies, extras of a batch begin in memory.

    That is the layout of `messages.MessageBatch`.
    """
    body_offsets = memory + 8 * count
    extra_offsets = body_offsets + 8 * (count + 1)
    flags = extra_offsets + 8 * (count + 1)
    bodies = flags + count
    return memory, body_offsets, extra_offsets, flags, bodies, bodies + body_bytes


@kernel
def batch_bytes(count: int, body_bytes: int, extra_bytes: int) -> Any:
    """Return the bytes of such a batch."""
    return column_places(np.int64(0), count, body_bytes)[5] + extra_bytes


@kernel
def copy_rows(addresses: int, count: int, base: int, columns: Any) -> None:
    """Write the columns (addresses: `column_places`) of `count` rows; offsets are i8, count + 1 of them."""
    copy_rows_behind(addresses, count, base, columns, np.int64(0), np.int64(0), np.int64(0))


@kernel
def copy_rows_behind(
    addresses: int, count: int, base: int, columns: Any, held: int, body_end: int, extra_end: int
) -> None:
    """Do as `copy_rows` behind `held` rows, which have so many bytes of bodies and extras."""
    times, body_offsets, extra_offsets, flags, bodies, extras = columns
    times, flags = times + 8 * held, flags + held
    body_offsets, extra_offsets = body_offsets + 8 * held, extra_offsets + 8 * held
    store_i64(body_offsets, body_end)
    store_i64(extra_offsets, extra_end)
    for i in range(count):
        if i + _AHEAD < count:
            prefetch(load_i64(addresses + 8 * (i + _AHEAD)))
        opened = open_row(load_i64(addresses + 8 * i), base)
        time, flag, body, body_bytes, extra, extra_bytes = opened
        store_i64(times + 8 * i, time)
        store_u8(flags + i, np.uint8(flag))
        copy_bytes(bodies + body_end, body, body_bytes)
        copy_bytes(extras + extra_end, extra, extra_bytes)
        body_end += body_bytes
        extra_end += extra_bytes
        store_i64(body_offsets + 8 * (i + 1), body_end)
        store_i64(extra_offsets + 8 * (i + 1), extra_end)
