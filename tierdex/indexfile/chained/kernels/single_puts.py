"""One message at a time, from Python's values to a row: gathered, or straight into the open file.

    gather    checks, hash -> rows behind those that wait in memory     (level `received`)
    append    checks, hash -> a batch of one in the file, visible       (level `os`)

Both take what a caller of `put` gave, as it is, and do all or nothing: they return 0 when anything
is out of the ordinary (a value, no room, shut), and the caller takes the general path, which finds out.
They keep the GIL, so that a call is one step for every Python thread: nothing is locked (decision
0013). Rows, chains and records are written by what batches are written by.

Python and the kernels share *arguments*, an i8 array whose places are named A_* below. Python shuts a
kernel by setting its argument to 0: later calls are refused, and none is half way through.

Depends on arguments, hashing, batch_record, batch_statistics, head_insertion, intrinsics, checksum,
message_rows, compile, layout, schema and value_rules.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.arguments import (
    INTEGER,
    TEXT,
    TEXTS,
    is_number,
    number,
    text_address,
    text_at,
    text_bytes,
    text_count,
)
from tierdex.fileparts.kernels.checksum import crc_of
from tierdex.fileparts.kernels.compile import carray, direct_call, primitive, short_kernel, types
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    join_u32,
    load_i64,
    load_u32,
    numbers_at,
    store_i64,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_record import end_batch, write_record
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_CRC,
    B_ITEMS,
    B_MAX_TIME,
    B_MIN_TIME,
    B_NEXT_ROW,
    B_PUBLISHED,
    B_ROWS,
    STATISTICS_LENGTH,
    ends_of,
    is_crowded,
    note_end,
    note_items,
)
from tierdex.indexfile.chained.kernels.head_insertion import slots_of
from tierdex.indexfile.chained.kernels.message_rows import Message, insert_message, store_message
from tierdex.indexfile.schema import MESSAGE_BYTES, MESSAGE_RANGES
from tierdex.value_rules import SECONDS_BEGIN, SECONDS_END

# Places of the arguments (i8 each).
A_WAITS = 0  # 1 while rows are gathered
A_COUNT = 1  # rows that are gathered
A_ROOM = 2  # below so many more are taken; 0: shut
A_ROWS = 3  # address of the gathered rows
A_MOST_BYTES = 4  # of a key or message ID
A_ID_SEED = 5  # seed of the hash of a message ID
A_FIRST_TOPIC = 6  # topics with a smaller number are forgotten
A_STATISTICS = 7  # address of the statistics of the file that messages are appended to; 0: shut
A_MOST_ITEMS = 8  # while it holds no more than so many items then,
A_LAST_ROW = 9  # and a batch and the record after it end at this row
A_TAGS = 10  # address: u4 a topic from the first on, 1 + its index in that file, 0 for none yet
A_IS_CHECKED = 11  # 1: of a time like seconds it is known that it means milliseconds
ARGUMENTS_LENGTH = 12

_OFFSET_MIN, _OFFSET_MAX = MESSAGE_RANGES["offset"]
_SIZE_MIN, _SIZE_MAX = MESSAGE_RANGES["size"]
_QUEUE_MIN, _QUEUE_MAX = MESSAGE_RANGES["queue_id"]
_KIND_BIT = np.uint32(layout.KIND_BIT)
_HASH = layout.ITEM_HASH_POSITION
_LINK = layout.ITEM_LINK_POSITION
_NO_LINK = np.uint32(0)
# What readers may see, as `ChainedReader` keeps it: rows, items, least and greatest time (i8 each).
_SEEN_ROWS, _SEEN_ITEMS, _SEEN_MIN_TIME, _SEEN_MAX_TIME = range(4)
assert layout.BATCH_RECORD_BYTES == MESSAGE_BYTES, "a record is one row"


class Put(NamedTuple):
    """What a caller gave: `seed` and `topic` (its number) are ours, the others are not checked yet."""

    keys: Any
    message_id: Any
    seed: Any
    topic: Any
    timestamp: Any
    offset: Any
    size: Any
    queue_id: Any


@primitive
def _argument(arguments: int, place: int) -> Any:
    return load_i64(arguments + 8 * place)


@primitive
def _is_good(arguments: int, put: Any) -> bool:
    """Return whether this is one message with keys, a message ID, or both, and its topic is known.

    Each key is looked at by `_is_key`. The ranges are those of `requests.entry`, which says what is wrong: a
    test compares both.
    """
    return bool(
        0 <= text_bytes(put.message_id) <= _argument(arguments, A_MOST_BYTES)
        and text_count(put.keys) >= 0
        and _name_count(put) > 0
        and put.topic >= _argument(arguments, A_FIRST_TOPIC)
        and is_number(put.timestamp)
        and (
            not SECONDS_BEGIN <= number(put.timestamp) < SECONDS_END
            or _argument(arguments, A_IS_CHECKED) != 0
        )
        and is_number(put.offset)
        and is_number(put.size)
        and is_number(put.queue_id)
        and _OFFSET_MIN <= number(put.offset) <= _OFFSET_MAX
        and _SIZE_MIN <= number(put.size) <= _SIZE_MAX
        and _QUEUE_MIN <= number(put.queue_id) <= _QUEUE_MAX
    )


@primitive
def _is_key(arguments: int, key: Any) -> bool:
    return bool(0 < text_bytes(key) <= _argument(arguments, A_MOST_BYTES))


@primitive
def _name_count(put: Any) -> Any:
    return text_count(put.keys) + np.int64(text_bytes(put.message_id) > 0)


@short_kernel
def _hash(text: Any, seed: int) -> Any:
    return xxh64(text_address(text), text_bytes(text), np.uint64(seed))


@primitive
def _message_of(put: Any) -> Any:
    size_and_queue = join_u32(np.uint32(number(put.size)), np.uint32(number(put.queue_id)))
    return Message(number(put.timestamp), number(put.offset), size_and_queue)


# -- gathered ------------------------------------------------------------------------------------------


@primitive
def _gather_row(place: int, key_hash: Any, tag: Any, message: Any) -> None:
    store_message(place, message)
    store_u64(place + _HASH, key_hash)
    store_u64(place + _LINK, join_u32(_NO_LINK, tag))


@short_kernel
def _gather(
    arguments: int, keys: Any, message_id: Any, seed: int, topic: int,
    timestamp: Any, offset: Any, size: Any, queue_id: Any,
) -> Any:  # fmt: skip
    """Put a message's rows behind those that wait; return 1, or 0 with nothing done.

    A tag's topic is the topic's number less the first one; links are nothing yet. The list of arguments
    is flat, since each is taken from Python by its own type: a tuple of them would be made and undone.
    """
    put = Put(keys, message_id, seed, topic, timestamp, offset, size, queue_id)
    count = _argument(arguments, A_COUNT)
    room = _argument(arguments, A_ROOM)
    if count >= room or count + _name_count(put) > room or not _is_good(arguments, put):
        return np.int64(0)
    tag = np.uint32(topic - _argument(arguments, A_FIRST_TOPIC))
    message = _message_of(put)
    place = _argument(arguments, A_ROWS) + count * MESSAGE_BYTES
    for i in range(text_count(keys)):
        key = text_at(keys, i)
        if not _is_key(arguments, key):
            return np.int64(0)  # what was written is no row: the count does not reach it
        _gather_row(place, _hash(key, seed), tag, message)
        place += MESSAGE_BYTES
        count += 1
    if text_bytes(message_id) > 0:
        value = _hash(message_id, _argument(arguments, A_ID_SEED))
        _gather_row(place, value, tag | _KIND_BIT, message)
        count += 1
    store_i64(arguments + 8 * A_COUNT, count)
    store_i64(arguments + 8 * A_WAITS, np.int64(1))
    return np.int64(1)


# -- into the open file ----------------------------------------------------------------------------------


@short_kernel
def _append(
    arguments: int, keys: Any, message_id: Any, seed: int, topic: int,
    timestamp: Any, offset: Any, size: Any, queue_id: Any,
) -> Any:  # fmt: skip
    """Write a batch of one message, and make it visible; return 1, or 0 with nothing done.

    Python made sure of room and blocks, up to the limits in the arguments. The order is that of every
    append: record, rows and slots; the batch's checksum, which makes it real; what readers may see.
    """
    put = Put(keys, message_id, seed, topic, timestamp, offset, size, queue_id)
    address = _argument(arguments, A_STATISTICS)
    if address == 0 or _argument(arguments, A_COUNT) != 0:  # what waits comes first
        return np.int64(0)
    if not _is_good(arguments, put):
        return np.int64(0)
    for i in range(text_count(keys)):
        if not _is_key(arguments, text_at(keys, i)):
            return np.int64(0)
    statistics = carray(numbers_at(address), (STATISTICS_LENGTH,))
    known = topic - _argument(arguments, A_FIRST_TOPIC)
    index = np.int64(load_u32(_argument(arguments, A_TAGS) + 4 * known)) - 1
    count = _name_count(put)
    last_row = _argument(arguments, A_LAST_ROW)
    if (
        index < 0
        or statistics[B_ITEMS] + count > _argument(arguments, A_MOST_ITEMS)
        or statistics[B_NEXT_ROW] + count + 1 > last_row
        or is_crowded(statistics)
    ):
        return np.int64(0)
    slots, message, tag = slots_of(statistics), _message_of(put), np.uint32(index)
    row = statistics[B_NEXT_ROW]
    place = statistics[B_ROWS] + (row - 1) * MESSAGE_BYTES
    state = write_record(statistics, place, count, 0, np.uint32(0))
    for i in range(text_count(keys)):
        row, place = row + 1, place + MESSAGE_BYTES
        value = _hash(text_at(keys, i), seed)
        state = insert_message(slots, row, place, value, tag, message, state)
    if text_bytes(message_id) > 0:
        row, place = row + 1, place + MESSAGE_BYTES
        value = _hash(message_id, _argument(arguments, A_ID_SEED))
        state = insert_message(slots, row, place, value, tag | _KIND_BIT, message, state)
    queue = join_u32(np.uint32(number(queue_id)), tag)
    note_end(ends_of(statistics), queue, number(offset), number(size))
    note_items(statistics, count, number(timestamp), number(timestamp), index)
    statistics[B_CRC] = np.int64(crc_of(state))
    end_batch(statistics, 1 + count, last_row)
    _publish(statistics)
    return np.int64(1)


@primitive
def _publish(statistics: Any) -> None:
    """Make everything in the statistics visible, as `ChainedReader` does after any other append."""
    seen = statistics[B_PUBLISHED]
    store_i64(seen + 8 * _SEEN_ROWS, statistics[B_NEXT_ROW] - 1)
    store_i64(seen + 8 * _SEEN_ITEMS, statistics[B_ITEMS])
    store_i64(seen + 8 * _SEEN_MIN_TIME, statistics[B_MIN_TIME])
    store_i64(seen + 8 * _SEEN_MAX_TIME, statistics[B_MAX_TIME])


_ARGUMENTS: Final = (
    types.int64, TEXTS, TEXT, types.int64, types.int64, INTEGER, INTEGER, INTEGER, INTEGER,
)  # fmt: skip


def load() -> tuple[Any, Any]:
    """Return `gather` and `append`: what calls them, from numba's cache, or compiled in seconds."""
    return direct_call(_gather, *_ARGUMENTS), direct_call(_append, *_ARGUMENTS)
