"""Keys and message IDs by column -> the extras of messages, as `extras.encode_extra` lays them out.

    measure_names  where each message's extra ends
    encode_names   the extras

Offsets are i8 and were checked; texts have at most 65,535 bytes. Depends on intrinsics, layout and the
kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import copy_bytes, load_i64, store_i64, store_u32
from tierdex.logfile import layout

# Places in the array of addresses that Python fills: 0 where there is no such column.
N_KEYS_OF_ROW, N_KEY_OFFSETS, N_KEYS, N_ID_OFFSETS, N_IDS = range(5)
NAME_WORDS: Final = 5

_ITEM: Final = layout.EXTRA_ITEM_BYTES
_EXTRA = layout.places(layout.EXTRA)
_VALUE_SHIFT: Final = 8 * _EXTRA["value_bytes"]
_ID, _KEY = int(layout.ExtraTag.MESSAGE_ID), int(layout.ExtraTag.KEY)
assert (_EXTRA["tag"], _EXTRA["name_bytes"], _ITEM) == (0, 1, 4)


@kernel
def _bounds(offsets: int, i: int) -> Any:
    return load_i64(offsets + 8 * i), load_i64(offsets + 8 * (i + 1))


@kernel
def measure_names(columns: Any, count: int, out_offsets: int) -> None:
    """Write where the extras of `count` messages end, count + 1 offsets (i8)."""
    end = np.int64(0)
    store_i64(out_offsets, end)
    for i in range(count):
        if columns[N_ID_OFFSETS] != 0:
            first, last = _bounds(columns[N_ID_OFFSETS], i)
            end += _ITEM + last - first
        if columns[N_KEY_OFFSETS] != 0:
            begin, stop = _bounds(columns[N_KEYS_OF_ROW], i)
            first = load_i64(columns[N_KEY_OFFSETS] + 8 * begin)
            end += _ITEM * (stop - begin) + load_i64(columns[N_KEY_OFFSETS] + 8 * stop) - first
        store_i64(out_offsets + 8 * (i + 1), end)


@kernel
def _put_item(out: int, tag: int, texts: int, first: int, last: int) -> Any:
    """Write one item; return the place behind it."""
    store_u32(out, np.uint32(tag | ((last - first) << _VALUE_SHIFT)))
    copy_bytes(out + _ITEM, texts + first, last - first)
    return out + _ITEM + last - first


@kernel
def encode_names(columns: Any, count: int, out: int) -> None:
    """Write the extras of `count` messages one after the other."""
    for i in range(count):
        if columns[N_ID_OFFSETS] != 0:
            first, last = _bounds(columns[N_ID_OFFSETS], i)
            out = _put_item(out, _ID, columns[N_IDS], first, last)
        if columns[N_KEY_OFFSETS] != 0:
            begin, stop = _bounds(columns[N_KEYS_OF_ROW], i)
            for key in range(begin, stop):
                first, last = _bounds(columns[N_KEY_OFFSETS], key)
                out = _put_item(out, _KEY, columns[N_KEYS], first, last)
