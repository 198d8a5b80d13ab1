"""Head insertion of messages whose hashes are known: one pass, every field of an item in a register.

What `insert.write_items` does for any schema, column by column, is done here item by item for the
message schema, one topic and plain columns: nearly every batch, at half of the time. The positions
below are those of the message schema; `batch_append` asks for them before it comes here.

Depends on batch_statistics, intrinsics, checksum and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import crc_step
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
    store_slot,
    store_u64,
)
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_CRC,
    B_ENDS_KEYS,
    B_ENDS_MASK,
    B_ENDS_VALUES,
    B_ITEMS,
    B_MAX_TIME,
    B_MAX_TOPIC,
    B_MIN_TIME,
    B_ROWS,
    B_SLOT_COUNT,
    B_SLOTS,
    BLOCK_ITEMS,
    ENDS_FACTOR,
    ends_place,
    is_crowded,
)
from tierdex.indexfile.layout import TOPIC_MASK

# Places of the columns (i8 each): addresses of contiguous values, in the schema's dtypes.
M_HASHES = 0
M_TIMES = 1
M_OFFSETS = 2
M_SIZES = 3
M_QUEUES = 4
M_TAG = 5  # the one tag of all items
MESSAGE_WORDS = 6

MESSAGE_BYTES = 40
OFFSET_POSITION, SIZE_POSITION, QUEUE_POSITION = 24, 32, 36

_AHEAD = 32  # keys whose slots are on their way
_INT64_MAX = np.int64(0x7FFFFFFFFFFFFFFF)
_HALF = np.uint64(32)


@kernel
def write_messages(statistics: Any, columns: Any, first_row: int, begin: int, count: int) -> int:
    """Write items `begin .. count` to rows from `first_row` + `begin` on; `columns` is i8[MESSAGE_WORDS].

    Returns the items done so far: less than `count` when the table of end offsets is crowded, and the
    caller grows it and calls again with `begin` = what was returned.
    """
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    for i in range(begin, min(begin + _AHEAD, count)):
        value = load_u64(columns[M_HASHES] + 8 * i)
        prefetch(slots + 4 * np.int64(mul_high(value, slot_count)))
    while begin < count and not is_crowded(statistics):
        size = min(BLOCK_ITEMS, count - begin)
        _write_block(statistics, columns, first_row + begin, begin, size, count - 1)
        begin += size
    topic = columns[M_TAG] & np.int64(TOPIC_MASK)
    statistics[B_MAX_TOPIC] = max(statistics[B_MAX_TOPIC], topic)
    return begin


@kernel
def _write_block(statistics: Any, columns: Any, row: int, begin: int, size: int, last: int) -> None:
    """Write `size` items from `begin` on; `last` is the number of the batch's last item."""
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    keys, values = statistics[B_ENDS_KEYS], statistics[B_ENDS_VALUES]
    capacity = np.uint64(statistics[B_ENDS_MASK] + 1)
    hashes, times = columns[M_HASHES], columns[M_TIMES]
    offsets, sizes, queues = columns[M_OFFSETS], columns[M_SIZES], columns[M_QUEUES]
    tag = np.uint64(columns[M_TAG]) << _HALF
    topic = np.uint64(columns[M_TAG] & np.int64(TOPIC_MASK)) << _HALF
    low, high = statistics[B_MIN_TIME], statistics[B_MAX_TIME]
    crc = np.uint64(np.uint32(statistics[B_CRC]) ^ np.uint32(0xFFFFFFFF))
    place = statistics[B_ROWS] + (row - 1) * MESSAGE_BYTES
    for i in range(begin, begin + size):
        following = load_u64(hashes + 8 * min(i + _AHEAD, last))
        prefetch(slots + 4 * np.int64(mul_high(following, slot_count)))
        value = load_u64(hashes + 8 * i)
        slot = slots + 4 * np.int64(mul_high(value, slot_count))
        time, offset = load_i64(times + 8 * i), load_i64(offsets + 8 * i)
        item_size, queue = load_u32(sizes + 4 * i), np.uint64(load_u32(queues + 4 * i))
        linked = np.uint64(load_u32(slot)) | tag
        size_and_queue = np.uint64(item_size) | (queue << _HALF)
        store_u64(place, value)
        store_u64(place + 8, linked)
        store_i64(place + 16, time)
        store_i64(place + 24, offset)
        store_u64(place + 32, size_and_queue)
        store_slot(slot, np.uint32(row + i - begin))
        crc = crc_step(crc_step(crc, value), linked)
        crc = crc_step(crc_step(crc, np.uint64(time)), np.uint64(offset))
        crc = crc_step(crc, size_and_queue)
        low, high = min(low, time), max(high, time)
        end = min(offset, _INT64_MAX - np.int64(item_size)) + np.int64(item_size)
        # What `note_end` does, spelled out: as a call it would cost a third of the whole loop.
        key = topic | queue
        found = np.int64(mul_high(key * ENDS_FACTOR, capacity))
        if load_u64(keys + 8 * found) != key:
            found = (ends_place(statistics, key) - values) // 8
        if end > load_i64(values + 8 * found):
            store_i64(values + 8 * found, end)
        place += MESSAGE_BYTES
    statistics[B_CRC] = np.int64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    statistics[B_MIN_TIME], statistics[B_MAX_TIME] = low, high
    statistics[B_ITEMS] += size
