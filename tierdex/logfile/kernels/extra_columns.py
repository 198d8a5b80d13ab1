"""Extras of many messages -> columns of their message IDs, keys, headers and times of delivery.

    measure_extras  how many there are of each, and their bytes
    split_extras    the columns

Depends on compile, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import copy_bytes, load_i64, load_u8, load_u16
from tierdex.logfile import layout
from tierdex.logfile.layout import ExtraTag

# What `measure_extras` counts, and where `split_extras` stands.
X_KEYS, X_HEADERS, X_ID_BYTES, X_KEY_BYTES, X_NAME_BYTES, X_VALUE_BYTES, X_BROKEN = range(7)
EXTRA_TOTALS: Final = 7

_ITEM = layout.places(layout.EXTRA)
_TAG, _NAME, _VALUE = _ITEM["tag"], _ITEM["name_bytes"], _ITEM["value_bytes"]
_ITEM_BYTES: Final = layout.EXTRA_ITEM_BYTES
_ID, _KEY, _HEADER = int(ExtraTag.MESSAGE_ID), int(ExtraTag.KEY), int(ExtraTag.HEADER)
_DELIVER_AT, _TARGET = int(ExtraTag.DELIVER_AT), int(ExtraTag.TARGET)
_TIME_BYTES: Final = 8


@kernel
def measure_extras(extras: int, ends: Any, totals: Any) -> None:
    """Count the items of all extras into `totals` (X_*); X_BROKEN is the first message with a broken one.

    It is -1 when all are sound. Extra i lies from `ends[i]` to `ends[i + 1]` behind `extras`. After it, no
    read of `split_extras` leaves them.
    """
    totals[X_BROKEN] = -1
    for i in range(len(ends) - 1):
        place, end = extras + ends[i], extras + ends[i + 1]
        last = np.int64(0)
        while place < end:
            sound = place + _ITEM_BYTES <= end
            if sound:
                tag = np.int64(load_u8(place + _TAG))
                name, value = np.int64(load_u8(place + _NAME)), np.int64(load_u16(place + _VALUE))
                place += _ITEM_BYTES + name + value
                once = tag not in (_KEY, _HEADER)
                sound = place <= end and last <= tag <= _TARGET and not (once and tag == last)
                sound = sound and tag >= _ID and (name == 0 or tag == _HEADER)
                sound = sound and (tag != _DELIVER_AT or value == _TIME_BYTES)
            if not sound:
                totals[X_BROKEN] = i
                return
            last = tag
            if tag == _ID:
                totals[X_ID_BYTES] += value
            elif tag == _KEY:
                totals[X_KEYS] += 1
                totals[X_KEY_BYTES] += value
            elif tag == _HEADER:
                totals[X_HEADERS] += 1
                totals[X_NAME_BYTES] += name
                totals[X_VALUE_BYTES] += value


@kernel
def split_extras(
    extras: int, ends: Any, has_id: Any, due: Any, lists: Any, texts: Any, places: Any
) -> None:
    """Write the columns of extras that were measured.

    `has_id` (b1) and `due` (i8, the least int64 where there is none) a message; `lists` the ends (i4) of its
    keys and its headers; `texts` the ends (i4) of message IDs, keys, names and values, `places` the addresses
    of their bytes. Ends have one element more, of 0, in front.
    """
    key_lists, header_lists = lists
    id_ends, key_ends, name_ends, value_ends = texts
    id_place, key_place, name_place, value_place = places
    keys, headers = np.int64(0), np.int64(0)
    id_end, key_end = np.int64(0), np.int64(0)
    name_end, value_end = np.int64(0), np.int64(0)
    for i in range(len(ends) - 1):
        place, end = extras + ends[i], extras + ends[i + 1]
        has_id[i], due[i] = False, np.int64(-(1 << 63))
        while place < end:
            tag = np.int64(load_u8(place + _TAG))
            name, value = np.int64(load_u8(place + _NAME)), np.int64(load_u16(place + _VALUE))
            place += _ITEM_BYTES
            if tag == _ID:
                has_id[i] = True
                copy_bytes(id_place + id_end, place, value)
                id_end += value
            elif tag == _KEY:
                copy_bytes(key_place + key_end, place, value)
                key_end += value
                keys += 1
                key_ends[keys] = key_end
            elif tag == _HEADER:
                copy_bytes(name_place + name_end, place, name)
                copy_bytes(value_place + value_end, place + name, value)
                name_end += name
                value_end += value
                headers += 1
                name_ends[headers], value_ends[headers] = name_end, value_end
            elif tag == _DELIVER_AT:
                due[i] = load_i64(place)
            place += name + value
        id_ends[i + 1], key_lists[i + 1], header_lists[i + 1] = id_end, keys, headers
