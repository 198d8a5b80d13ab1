"""The running statistics of a file's batches, and the kernels that advance them.

Writer, recovery and readers share one array of statistics, i8, whose places are named B_* below: where
slots and rows lie, and everything that is derived from batches alone (next row, batch number, running
CRC, counts, times, greatest end offset of each (topic, queue)). Kernels advance it, Python reads it.

The end offsets lie in an open table; it has room for one more block of items unless `is_crowded`.
Depends on intrinsics and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
    store_u64,
)
from tierdex.indexfile import layout

BLOCK_ITEMS = 128

# Places of the statistics (i8 each).
B_SLOTS = 0  # address of slot 0
B_SLOT_COUNT = 1
B_ROWS = 2  # address of row 1
B_ITEM_BYTES = 3
B_UUID = 4  # address of 16 bytes
B_NEXT_ROW = 5  # first row after the last batch
B_BATCHES = 6  # batches so far = number of the next one
B_CRC = 7  # CRC of the last batch, or the seed
B_ITEMS = 8
B_MIN_TIME = 9
B_MAX_TIME = 10
B_MAX_TOPIC = 11  # greatest topic index seen, -1 for none
B_ENDS_KEYS = 12  # addresses of the table (topic, queue) -> greatest end offset, 0: not kept
B_ENDS_VALUES = 13
B_ENDS_MASK = 14
B_ENDS_USED = 15
B_OFFSET_POSITION = 16  # bytes inside an item
B_SIZE_POSITION = 17
B_QUEUE_POSITION = 18
B_PENDING = 19  # items of a verified batch that scan_batches has not inserted yet
B_DICTIONARY_ROW = 20  # where the new dictionary entries of the last scanned batch begin
B_DICTIONARY_BYTES = 21
B_SCRATCH = 22  # address of 2 * BLOCK_ITEMS u8
B_FINGERPRINT = 23
B_PUBLISHED = 24  # address of what readers may see: rows, items, least and greatest time (i8 each)
STATISTICS_LENGTH = 25

ENDS_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
ENDS_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INT64_MAX = np.int64(0x7FFFFFFFFFFFFFFF)
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_TOPIC_MASK = np.int64(layout.TOPIC_MASK)


@kernel
def is_crowded(statistics: Any) -> bool:
    """Say whether one more block might fill the table of end offsets beyond 3/4."""
    return bool(
        statistics[B_ENDS_KEYS] != 0
        and 4 * (statistics[B_ENDS_USED] + BLOCK_ITEMS) > 3 * (statistics[B_ENDS_MASK] + 1)
    )


@kernel
def observe_block(statistics: Any, first_row: int, count: int) -> None:
    """Take times, topics and end offsets of `count` rows into the statistics."""
    item_bytes = statistics[B_ITEM_BYTES]
    place = statistics[B_ROWS] + (first_row - 1) * item_bytes
    low, high, topic = statistics[B_MIN_TIME], statistics[B_MAX_TIME], statistics[B_MAX_TOPIC]
    keys, values = statistics[B_ENDS_KEYS], statistics[B_ENDS_VALUES]
    capacity = np.uint64(statistics[B_ENDS_MASK] + 1)
    at_offset, at_size = statistics[B_OFFSET_POSITION], statistics[B_SIZE_POSITION]
    at_queue = statistics[B_QUEUE_POSITION]
    for _ in range(count):
        time = load_i64(place + _TIME)
        low, high = min(low, time), max(high, time)
        item_topic = np.int64(load_u32(place + _TAG)) & _TOPIC_MASK
        topic = max(topic, item_topic)
        if keys != 0:
            queue = np.uint64(load_u32(place + at_queue))
            size = np.int64(load_u32(place + at_size))
            end = min(load_i64(place + at_offset), _INT64_MAX - size) + size
            key = (np.uint64(item_topic) << np.uint64(32)) | queue
            # What `note_end` does, spelled out: as a call it would cost a third of the whole loop.
            found = np.int64(mul_high(key * ENDS_FACTOR, capacity))
            if load_u64(keys + 8 * found) != key:
                found = (ends_place(statistics, key) - values) // 8
            if end > load_i64(values + 8 * found):
                store_i64(values + 8 * found, end)
        place += item_bytes
    statistics[B_MIN_TIME], statistics[B_MAX_TIME], statistics[B_MAX_TOPIC] = low, high, topic
    statistics[B_ITEMS] += count


@kernel
def note_end(statistics: Any, keys: int, values: int, capacity: Any, key: Any, end: int) -> None:
    """Take the end offset of one item of the (topic, queue) `key` into the table.

    `keys`, `values` and `capacity` (u8) are the table's, which a loop keeps in registers.
    """
    # Where a pair's end offset lies when nothing was in its way; else it is searched for.
    found = np.int64(mul_high(key * ENDS_FACTOR, capacity))
    if load_u64(keys + 8 * found) != key:
        found = (ends_place(statistics, key) - values) // 8
    if end > load_i64(values + 8 * found):
        store_i64(values + 8 * found, end)


@kernel
def ends_place(statistics: Any, key: Any) -> Any:
    """Return the address of the end offset of `key`, made when it is new. The table has room."""
    mask = np.uint64(statistics[B_ENDS_MASK])
    place = np.int64(mul_high(key * ENDS_FACTOR, mask + np.uint64(1)))
    while True:
        found = load_u64(statistics[B_ENDS_KEYS] + 8 * place)
        if found == key:
            break
        if found == ENDS_EMPTY:
            store_u64(statistics[B_ENDS_KEYS] + 8 * place, key)
            statistics[B_ENDS_USED] += 1
            break
        place = (place + 1) & np.int64(mask)
    return statistics[B_ENDS_VALUES] + 8 * place


@kernel
def put_ends(statistics: Any, keys: int, values: int, count: int) -> None:
    """Put `count` pairs (u8 key, i8 end offset) into the table, which has room for them."""
    for i in range(count):
        place = ends_place(statistics, load_u64(keys + 8 * i))
        store_i64(place, load_i64(values + 8 * i))


@kernel
def ask_block(statistics: Any, first_row: int, count: int) -> None:
    """Ask for the slots of `count` rows that are there."""
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    item_bytes = statistics[B_ITEM_BYTES]
    place = statistics[B_ROWS] + (first_row - 1) * item_bytes
    for _ in range(count):
        prefetch(slots + 4 * np.int64(mul_high(load_u64(place), slot_count)))
        place += item_bytes
