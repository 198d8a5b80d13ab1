"""The running statistics of a file's batches, and the kernels that advance them.

Writer, recovery and readers share one array of statistics, i8, whose places are named B_* below: where
slots and rows lie, and everything that is derived from batches alone (next row, batch number, running
CRC, counts, times, greatest end offset of each (topic, queue)). Kernels advance it, Python reads it.

The end offsets lie in an open table; it has room for one more block of items unless `is_crowded`.
Depends on intrinsics, compile, end_offset and layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    join_u32,
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    store_i64,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.kernels.end_offset import end_of

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
B_HAS_SOURCE = 25  # 1: the dictionary bytes of the last scanned batch begin with a source position
B_END_STEP = 26  # from an item's offset to its end; 0: its size
STATISTICS_LENGTH = 27

ENDS_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
ENDS_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_TOPIC_MASK = np.uint32(layout.TOPIC_MASK)


class Ends(NamedTuple):
    """The table of end offsets, for registers: addresses of keys, values and B_ENDS_USED; capacity (u8);
    B_END_STEP.

    Loops take this instead of the statistics: numba counts the references to an array that is handed
    on, twice an item, which would take longer than all else that is done with it.
    """

    keys: Any
    values: Any
    used: Any
    capacity: Any
    step: Any


@kernel
def is_crowded(statistics: Any) -> bool:
    """Return whether one more block might fill the table of end offsets beyond 3/4."""
    return bool(
        statistics[B_ENDS_KEYS] != 0
        and 4 * (statistics[B_ENDS_USED] + BLOCK_ITEMS) > 3 * (statistics[B_ENDS_MASK] + 1)
    )


@primitive
def ends_of(statistics: Any) -> Any:
    """Return the table of end offsets. It stays where it is until Python makes it larger."""
    capacity = np.uint64(statistics[B_ENDS_MASK] + 1)
    used = statistics.ctypes.data + 8 * B_ENDS_USED
    return Ends(
        statistics[B_ENDS_KEYS], statistics[B_ENDS_VALUES], used, capacity, statistics[B_END_STEP]
    )


@primitive
def note_end(ends: Any, queue: Any, offset: int, size: int) -> None:
    """Take the end offset of one item of `queue` (u8, topic << 32 | queue_id) into the table."""
    end: Any = end_of(offset, size, ends.step)
    # Where a queue's end offset lies when nothing was in its way; else it is searched for.
    place = np.int64(mul_high(queue * ENDS_FACTOR, ends.capacity))
    if load_u64(ends.keys + 8 * place) != queue:
        place = _find_end(ends, queue)
    if end > load_i64(ends.values + 8 * place):
        store_i64(ends.values + 8 * place, end)


@kernel
def _find_end(ends: Any, queue: Any) -> Any:
    """Return the place of `queue` in the table, taken when the queue is new. The table has room."""
    place = np.int64(mul_high(queue * ENDS_FACTOR, ends.capacity))
    while True:
        found = load_u64(ends.keys + 8 * place)
        if found == queue:
            return place
        if found == ENDS_EMPTY:
            store_u64(ends.keys + 8 * place, queue)
            store_i64(ends.used, load_i64(ends.used) + 1)
            return place
        place = (place + 1) & np.int64(ends.capacity - np.uint64(1))


@kernel
def put_ends(statistics: Any, keys: int, values: int, count: int) -> None:
    """Put `count` pairs (u8 key, i8 end offset) into the table, which has room for them."""
    ends = ends_of(statistics)
    for i in range(count):
        place = _find_end(ends, load_u64(keys + 8 * i))
        store_i64(ends.values + 8 * place, load_i64(values + 8 * i))


@primitive
def note_items(statistics: Any, count: int, low: int, high: int, topic: int) -> None:
    """Count `count` items with times from `low` to `high` and topics up to `topic`."""
    statistics[B_MIN_TIME] = min(statistics[B_MIN_TIME], low)
    statistics[B_MAX_TIME] = max(statistics[B_MAX_TIME], high)
    statistics[B_MAX_TOPIC] = max(statistics[B_MAX_TOPIC], topic)
    statistics[B_ITEMS] += count


@kernel
def observe_block(statistics: Any, first_row: int, count: int) -> None:
    """Take times, topics and end offsets of `count` rows into the statistics."""
    item_bytes = statistics[B_ITEM_BYTES]
    place = statistics[B_ROWS] + (first_row - 1) * item_bytes
    low, high, topic = statistics[B_MIN_TIME], statistics[B_MAX_TIME], statistics[B_MAX_TOPIC]
    ends = ends_of(statistics)
    at_offset, at_size = statistics[B_OFFSET_POSITION], statistics[B_SIZE_POSITION]
    at_queue = statistics[B_QUEUE_POSITION]
    for _ in range(count):
        time = load_i64(place + _TIME)
        low, high = min(low, time), max(high, time)
        item_topic = load_u32(place + _TAG) & _TOPIC_MASK
        topic = max(topic, np.int64(item_topic))
        if ends.keys != 0:
            queue = join_u32(load_u32(place + at_queue), item_topic)
            size = np.int64(load_u32(place + at_size))
            note_end(ends, queue, load_i64(place + at_offset), size)
        place += item_bytes
    note_items(statistics, count, low, high, topic)
