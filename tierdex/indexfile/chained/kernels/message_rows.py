"""Head insertion of messages whose hashes are known: one pass, every field of an item in a register.

`write_messages` does what `item_rows.write_items` does for any schema, column by column: item by item,
for the message schema, one topic and plain columns. Nearly every batch is of this kind, and it takes half
of the time. `insert_message` writes one message, for batches and for single puts.

Depends on batch_statistics, head_insertion, intrinsics, checksum, compile, layout and schema.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.checksum import crc_of, crc_state, crc_step
from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    join_u32,
    load_i64,
    load_u32,
    load_u64,
    prefetch,
    store_i64,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_CRC,
    B_MAX_TIME,
    B_MIN_TIME,
    B_ROWS,
    BLOCK_ITEMS,
    ends_of,
    is_crowded,
    note_end,
    note_items,
)
from tierdex.indexfile.chained.kernels.head_insertion import insert_head, slot_of, slots_of
from tierdex.indexfile.schema import (
    MESSAGE_BYTES,
    MESSAGE_OFFSET_POSITION,
    MESSAGE_QUEUE_POSITION,
    MESSAGE_SIZE_POSITION,
)

# Places of the columns (i8 each): addresses of contiguous values, in the schema's dtypes.
M_HASHES = 0
M_TIMES = 1
M_OFFSETS = 2
M_SIZES = 3
M_QUEUES = 4
M_TAG = 5  # the one tag of all items
MESSAGE_COLUMNS = 6

_TIME = layout.ITEM_TIME_POSITION
_OFFSET = MESSAGE_OFFSET_POSITION
_SIZE = MESSAGE_SIZE_POSITION
_TOPIC_MASK = np.int64(layout.TOPIC_MASK)
_AHEAD = 32  # keys whose slots are on their way
assert (_TIME, _OFFSET, _SIZE, MESSAGE_QUEUE_POSITION, MESSAGE_BYTES) == (16, 24, 32, 36, 40), (
    "the checksum steps over hash, link and tag, time, offset, size and queue: five words"
)


class Message(NamedTuple):
    """The words of a message's row behind hash, link and tag: i8, i8, u8."""

    timestamp: Any
    offset: Any
    size_and_queue: Any


@primitive
def store_message(place: int, message: Any) -> None:
    """Store a message in the row at `place`, all but its hash, link and tag."""
    store_i64(place + _TIME, message.timestamp)
    store_i64(place + _OFFSET, message.offset)
    store_u64(place + _SIZE, message.size_and_queue)


@primitive
def insert_message(
    slots: Any, row: int, place: int, key_hash: Any, tag: Any, message: Any, state: Any
) -> Any:
    """Write `row` at `place` and make it the head of its chain; return the checksum's state behind it."""
    store_message(place, message)
    linked = insert_head(slots, place, key_hash, tag, row)
    state = crc_step(crc_step(state, key_hash), linked)
    state = crc_step(crc_step(state, np.uint64(message.timestamp)), np.uint64(message.offset))
    return crc_step(state, message.size_and_queue)


@kernel
def write_messages(statistics: Any, columns: Any, first_row: int, begin: int, count: int) -> int:
    """Write items `begin .. count` to rows from `first_row` + `begin` on; `columns` is i8[MESSAGE_COLUMNS].

    Returns the items done so far: less than `count` when the table of end offsets is crowded, and the
    caller grows it and calls again with `begin` = what was returned.
    """
    slots = slots_of(statistics)
    for i in range(begin, min(begin + _AHEAD, count)):
        prefetch(slot_of(slots, load_u64(columns[M_HASHES] + 8 * i)))
    while begin < count and not is_crowded(statistics):
        size = min(BLOCK_ITEMS, count - begin)
        _write_block(statistics, columns, first_row + begin, begin, size, count - 1)
        begin += size
    return begin


@kernel
def _write_block(statistics: Any, columns: Any, row: int, begin: int, size: int, last: int) -> None:
    """Write `size` items from `begin` on; `last` is the number of the batch's last item."""
    slots, ends = slots_of(statistics), ends_of(statistics)
    hashes, times = columns[M_HASHES], columns[M_TIMES]
    offsets, sizes, queues = columns[M_OFFSETS], columns[M_SIZES], columns[M_QUEUES]
    tag, topic = columns[M_TAG], columns[M_TAG] & _TOPIC_MASK
    low, high = statistics[B_MIN_TIME], statistics[B_MAX_TIME]
    state = crc_state(statistics[B_CRC])
    place = statistics[B_ROWS] + (row - 1) * MESSAGE_BYTES
    for i in range(begin, begin + size):
        prefetch(slot_of(slots, load_u64(hashes + 8 * min(i + _AHEAD, last))))
        time, offset = load_i64(times + 8 * i), load_i64(offsets + 8 * i)
        item_size, queue = load_u32(sizes + 4 * i), load_u32(queues + 4 * i)
        message = Message(time, offset, join_u32(item_size, queue))
        key_hash = load_u64(hashes + 8 * i)
        state = insert_message(slots, row + i - begin, place, key_hash, tag, message, state)
        low, high = min(low, time), max(high, time)
        note_end(ends, join_u32(queue, topic), offset, np.int64(item_size))
        place += MESSAGE_BYTES
    statistics[B_CRC] = np.int64(crc_of(state))
    note_items(statistics, size, low, high, topic)
