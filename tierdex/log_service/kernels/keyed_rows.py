"""The rows of a journal, in order of arrival -> one item of the index for each key and message ID.

    items_of_rows    batches from a place on -> items, until the room is full or the batches end
    items_of_listed  rows by address, each with its topic, queue and offset -> items (a grouped file's)

Reads a journal's bytes in place: batches that this process wrote, or that were verified before. A row's
offset is the first one of its queue in the file and how many rows of that queue came before it, which is
counted here. Depends on logfile, hashing, intrinsics and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.scan import row_length
from tierdex.logfile.journal.kernels.state import S_FIRST, S_ID, S_TOPIC, STATE_BYTES
from tierdex.logfile.kernels.rows import open_row

# Words of a walk (i8 each).
(
    K_POSITION, K_NUMBER, K_CRC,  # the batch that comes next: place, number, crc of the one before
    K_ROW,  # place of the next row of the batch at K_POSITION; 0: none of it was taken yet
    K_EMIT_FROM,  # the first batch whose items are wanted: rows before it are only counted
    K_BASE_TIME, K_ID_SEED, K_QUEUE_COUNT,
    K_BASE, K_STATES, K_SEEN, K_SEEDS,  # addresses: byte 0, queues' states, rows seen of each (u4), seeds
    K_BROKEN,  # 1: a row breaks a rule
    K_IDS,  # items of message IDs among those of the last call
    K_HASHES, K_TIMES, K_OFFSETS, K_SIZES, K_IDS_OF_QUEUES, K_TOPICS, K_KINDS,  # addresses: columns of items
) = range(21)  # fmt: skip
WALK_WORDS: Final = 21

_RECORD = layout.places(layout.RECORD)
_R_CRC, _R_ENTRIES, _R_ROWS = _RECORD["crc"], _RECORD["entry_bytes"], _RECORD["row_bytes"]
_RECORD_BYTES: Final = layout.RECORD_BYTES
_BATCH_UNIT: Final = layout.BATCH_UNIT
_ROW = layout.places(layout.ROW)
_SIZE, _QUEUE = _ROW["size"], _ROW["queue"]
_UNIT: Final = layout.POSITION_UNIT
_HAS_EXTRA: Final = layout.ROW_HAS_EXTRA
_UNKEYED: Final = layout.ROW_FORGOTTEN | layout.ROW_HELD  # gone, or indexed when it is delivered
_EXTRA = layout.places(layout.EXTRA)
_E_TAG, _E_NAME, _E_VALUE = _EXTRA["tag"], _EXTRA["name_bytes"], _EXTRA["value_bytes"]
_EXTRA_ITEM: Final = layout.EXTRA_ITEM_BYTES
_IS_ID, _IS_KEY = int(layout.ExtraTag.MESSAGE_ID), int(layout.ExtraTag.KEY)
_U2: Final = 0xFFFF


@kernel
def _item_length(place: int, most: int) -> Any:
    """Return (bytes, where the value begins) of the item of an extra at `place`; 0 when it is cut."""
    if most < _EXTRA_ITEM:
        return np.int64(0), np.int64(0)
    begin = _EXTRA_ITEM + np.int64(load_u8(place + _E_NAME))
    length = begin + (np.int64(load_u32(place) >> np.uint32(8 * _E_VALUE)) & _U2)
    return (length if length <= most else np.int64(0)), begin


@kernel
def _keys_of(extra: int, extra_bytes: int) -> Any:
    """Return how many keys and message IDs an extra has."""
    count, at = np.int64(0), np.int64(0)
    while at < extra_bytes:
        length, _ = _item_length(extra + at, extra_bytes - at)
        tag = load_u8(extra + at)
        if length == 0 or tag > _IS_KEY:  # items stand in order of tags
            return count
        count += 1
        at += length
    return count


@kernel
def _write_items(
    walk: Any, opened: Any, topic: Any, queue_id: Any, offset: int, taken: int, count: int
) -> None:
    """Write the items of a row, whose extra has `count` keys and message IDs, behind `taken` others."""
    time, _, _, body_bytes, extra, extra_bytes = opened
    seed = np.uint64(load_i64(walk[K_SEEDS] + 8 * np.int64(topic)))
    at = np.int64(0)
    for i in range(taken, taken + count):
        length, begin = _item_length(extra + at, extra_bytes - at)
        value, value_bytes = extra + at + begin, length - begin
        is_id = load_u8(extra + at) == _IS_ID
        if is_id:
            walk[K_IDS] += 1
            name = xxh64(value, value_bytes, np.uint64(walk[K_ID_SEED]))
        else:
            name = xxh64(value, value_bytes, seed)
        store_u64(walk[K_HASHES] + 8 * i, name)
        store_i64(walk[K_TIMES] + 8 * i, time)
        store_i64(walk[K_OFFSETS] + 8 * i, offset)
        store_u32(walk[K_SIZES] + 4 * i, np.uint32(body_bytes))
        store_u32(walk[K_IDS_OF_QUEUES] + 4 * i, queue_id)
        store_u32(walk[K_TOPICS] + 4 * i, topic)
        store_u8(walk[K_KINDS] + i, np.uint8(is_id))
        at += length


@kernel
def _take_rows(walk: Any, rows_end: int, taken: int, room: int) -> Any:
    """Take the rows from K_ROW to `rows_end`, while there is room; return how many items there are."""
    base, place = walk[K_BASE], walk[K_ROW]
    emits = walk[K_NUMBER] >= walk[K_EMIT_FROM]
    while place < rows_end:
        address = base + place
        length = row_length(address, rows_end - place)
        queue = np.int64(load_u32(address + _QUEUE)) if length > 0 else np.int64(0)
        if length == 0 or queue >= walk[K_QUEUE_COUNT]:
            walk[K_BROKEN] = 1
            break
        seen = walk[K_SEEN] + 4 * queue
        before = np.int64(load_u32(seen))
        size = np.int64(load_u32(address + _SIZE))
        if emits and size & _HAS_EXTRA and not size & _UNKEYED:
            opened = open_row(address, walk[K_BASE_TIME])
            count = _keys_of(opened[4], opened[5])
            if taken + count > room:
                break
            state = walk[K_STATES] + STATE_BYTES * queue
            offset = load_i64(state + S_FIRST) + before
            topic, queue_id = load_u32(state + S_TOPIC), load_u32(state + S_ID)
            _write_items(walk, opened, topic, queue_id, offset, taken, count)
            taken += count
        store_u32(seen, np.uint32(before + 1))
        place += (length + (_UNIT - 1)) & ~np.int64(_UNIT - 1)
    walk[K_ROW] = place
    return taken


@kernel
def items_of_rows(walk: Any, end: int, room: int) -> Any:
    """Write the items of rows from where the walk is to byte `end`, at most `room`; return how many.

    Ends behind a batch where it can. A row's items are never parted: `room` is for those of any one.
    """
    taken = walk[K_IDS] = np.int64(0)
    while walk[K_POSITION] < end:
        if walk[K_ROW] == 0:
            if 4 * taken > 3 * room:
                return taken
            walk[K_ROW] = walk[K_POSITION] + _RECORD_BYTES
        record = walk[K_BASE] + walk[K_POSITION]
        rows, entries = load_i64(record + _R_ROWS), np.int64(load_u32(record + _R_ENTRIES))
        rows_end = walk[K_POSITION] + _RECORD_BYTES + rows
        taken = _take_rows(walk, rows_end, taken, room)
        if walk[K_ROW] < rows_end:
            return taken
        length = (_RECORD_BYTES + rows + entries + _BATCH_UNIT - 1) & ~np.int64(_BATCH_UNIT - 1)
        walk[K_ROW] = 0
        walk[K_POSITION] += length
        walk[K_NUMBER] += 1
        walk[K_CRC] = np.int64(load_u32(record + _R_CRC))
    return taken


@kernel
def items_of_listed(walk: Any, rows: Any, count: int, room: int) -> Any:
    """Write the items of `count` rows, at most `room`; return (rows taken, items).

    `rows` are four addresses: those of the rows, topics (u4), queue ids (u4), offsets (i8).
    """
    taken = walk[K_IDS] = np.int64(0)
    for i in range(count):
        opened = open_row(load_i64(rows[0] + 8 * i), 0)
        keys = _keys_of(opened[4], opened[5]) if opened[1] == 0 else np.int64(0)
        if taken + keys > room:
            return np.int64(i), taken
        if keys > 0:
            topic, queue_id = load_u32(rows[1] + 4 * i), load_u32(rows[2] + 4 * i)
            offset = load_i64(rows[3] + 8 * i)
            _write_items(walk, opened, topic, queue_id, offset, taken, keys)
            taken += keys
    return np.int64(count), taken
