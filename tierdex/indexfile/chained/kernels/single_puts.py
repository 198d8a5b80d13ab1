"""One message at a time, from Python's values to a row: gathered, or straight into the open file.

    gather    checks, hash -> rows behind those that wait in memory     (level `received`)
    append    checks, hash -> a batch of one in the file, visible       (level `os`)

Both take what a caller of `put` gave, as it is, and do all or nothing: they return 0 when anything
is out of the ordinary (a value, no room, the way shut), and the caller takes the general path, which finds
out. They keep the GIL, so that a call is one step for every Python thread: nothing is locked.

They share *words*, an i8 array whose places are named W_* below. Python shuts a way by setting its
word to 0: whoever comes after that is refused, and nobody is half way through.

Depends on arguments, hashing, batch_statistics, intrinsics, checksum, message_rows and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from tierdex.fileparts.kernels.arguments import (
    INTEGER,
    ONE_TEXT,
    TEXT,
    is_number,
    number,
    text_address,
    text_bytes,
)
from tierdex.fileparts.kernels.checksum import crc_step
from tierdex.fileparts.kernels.compile import direct_call, short_kernel
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    store_i64,
    store_slot,
    store_u64,
    words_at,
)
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_BATCHES,
    B_CRC,
    B_ENDS_KEYS,
    B_ENDS_MASK,
    B_ENDS_VALUES,
    B_ITEMS,
    B_MAX_TIME,
    B_MAX_TOPIC,
    B_MIN_TIME,
    B_NEXT_ROW,
    B_PUBLISHED,
    B_ROWS,
    B_SLOT_COUNT,
    B_SLOTS,
    B_UUID,
    STATISTICS_LENGTH,
    is_crowded,
    note_end,
)
from tierdex.indexfile.chained.kernels.message_rows import MESSAGE_BYTES
from tierdex.indexfile.layout import BATCH_MAGIC, BATCH_RECORD_BYTES, KIND_BIT

# Places of the words (i8 each).
W_WAITS = 0  # 1 while rows are gathered
W_COUNT = 1  # rows that are gathered
W_ROOM = 2  # below so many more are taken; 0: shut
W_ROWS = 3  # address of the gathered rows
W_MOST_BYTES = 4  # of a key or message ID
W_ID_SEED = 5  # seed of the hash of a message ID
W_FIRST_TOPIC = 6  # topics with a smaller number are forgotten
W_STATISTICS = 7  # address of the statistics of the file that messages are appended to; 0: shut
W_MOST_ITEMS = 8  # while it holds no more than so many items then,
W_LAST_ROW = 9  # and a batch and the record after it end at this row
W_TAGS = 10  # address: u4 a topic from the first on, 1 + its index in that file, 0 for none yet
WORDS_LENGTH = 11

_INT64_MAX = np.int64(0x7FFFFFFFFFFFFFFF)
_QUEUE_MAX, _SIZE_MAX = 2**31 - 1, 2**32 - 1
_HALF = np.uint64(32)
_MAGIC = np.uint64(BATCH_MAGIC)
_KIND_BIT = np.uint64(KIND_BIT)
assert BATCH_RECORD_BYTES == MESSAGE_BYTES, "a record is one row"


@short_kernel
def _is_good(
    words: int, key: Any, message_id: Any, topic: int,
    timestamp: Any, offset: Any, size: Any, queue_id: Any,
) -> bool:  # fmt: skip
    """Say whether these are one message with a key, a message ID, or both, and its topic is known."""
    most = load_i64(words + 8 * W_MOST_BYTES)
    key_bytes, id_bytes = text_bytes(key), text_bytes(message_id)
    return bool(
        0 <= key_bytes <= most
        and 0 <= id_bytes <= most
        and key_bytes + id_bytes > 0
        and topic >= load_i64(words + 8 * W_FIRST_TOPIC)
        and is_number(timestamp)
        and is_number(offset)
        and is_number(size)
        and is_number(queue_id)
        and number(offset) >= 0
        and 0 <= number(size) <= _SIZE_MAX
        and 0 <= number(queue_id) <= _QUEUE_MAX
    )


@short_kernel
def _hash(text: Any, seed: int) -> Any:
    return xxh64(text_address(text), text_bytes(text), np.uint64(seed))


@short_kernel
def _store_row(place: int, value: Any, link_and_tag: Any, message: Any) -> None:
    timestamp, offset, size_and_queue = message
    store_u64(place, value)
    store_u64(place + 8, link_and_tag)
    store_i64(place + 16, timestamp)
    store_i64(place + 24, offset)
    store_u64(place + 32, size_and_queue)


@short_kernel
def _gather(
    words: int, key: Any, message_id: Any, seed: int, topic: int,
    timestamp: Any, offset: Any, size: Any, queue_id: Any,
) -> Any:  # fmt: skip
    """Put a message's rows behind those that wait; return 1, or 0 with nothing done.

    A tag's topic is the topic's number less the first one; links are nothing yet.
    """
    count = load_i64(words + 8 * W_COUNT)
    both = text_bytes(key) > 0 and text_bytes(message_id) > 0
    if count + both >= load_i64(words + 8 * W_ROOM):
        return np.int64(0)
    if not _is_good(words, key, message_id, topic, timestamp, offset, size, queue_id):
        return np.int64(0)
    tag = np.uint64(topic - load_i64(words + 8 * W_FIRST_TOPIC))
    message = (
        number(timestamp),
        number(offset),
        np.uint64(number(size)) | (np.uint64(number(queue_id)) << _HALF),
    )
    place = load_i64(words + 8 * W_ROWS) + count * MESSAGE_BYTES
    if text_bytes(key) > 0:
        _store_row(place, _hash(key, seed), tag << _HALF, message)
        place += MESSAGE_BYTES
        count += 1
    if text_bytes(message_id) > 0:
        value = _hash(message_id, load_i64(words + 8 * W_ID_SEED))
        _store_row(place, value, (tag | _KIND_BIT) << _HALF, message)
        count += 1
    store_i64(words + 8 * W_COUNT, count)
    store_i64(words + 8 * W_WAITS, np.int64(1))
    return np.int64(1)


@short_kernel
def _append(
    words: int, key: Any, message_id: Any, seed: int, topic: int,
    timestamp: Any, offset: Any, size: Any, queue_id: Any,
) -> Any:  # fmt: skip
    """Write a batch of one message, and make it visible; return 1, or 0 with nothing done.

    Python made sure of room and blocks, up to the limits in the words. The batch's CRC comes last, as
    in every append, then what readers may see.
    """
    address = load_i64(words + 8 * W_STATISTICS)
    if address == 0 or load_i64(words + 8 * W_COUNT) != 0:  # what waits comes first
        return np.int64(0)
    if not _is_good(words, key, message_id, topic, timestamp, offset, size, queue_id):
        return np.int64(0)
    statistics = carray(words_at(address), (STATISTICS_LENGTH,))
    known = topic - load_i64(words + 8 * W_FIRST_TOPIC)
    index = np.int64(load_u32(load_i64(words + 8 * W_TAGS) + 4 * known)) - 1
    count = np.int64(text_bytes(key) > 0) + np.int64(text_bytes(message_id) > 0)
    if (
        index < 0
        or statistics[B_ITEMS] + count > load_i64(words + 8 * W_MOST_ITEMS)
        or statistics[B_NEXT_ROW] + count + 1 > load_i64(words + 8 * W_LAST_ROW)
        or is_crowded(statistics)
    ):
        return np.int64(0)
    message = (
        number(timestamp),
        number(offset),
        np.uint64(number(size)) | (np.uint64(number(queue_id)) << _HALF),
    )
    row, crc = statistics[B_NEXT_ROW] + 1, _begin_batch(statistics, count)
    if text_bytes(key) > 0:
        crc = _add_row(statistics, row, crc, _hash(key, seed), np.uint64(index), message)
        row += 1
    if text_bytes(message_id) > 0:
        value = _hash(message_id, load_i64(words + 8 * W_ID_SEED))
        crc = _add_row(statistics, row, crc, value, np.uint64(index) | _KIND_BIT, message)
    _observe(
        statistics, count, index, number(timestamp), number(offset), number(size), number(queue_id)
    )
    _end_batch(statistics, count, crc)
    return np.int64(1)


@short_kernel
def _begin_batch(statistics: Any, count: int) -> Any:
    """Write the record of a batch of `count` items without its CRC; return the CRC's state so far."""
    record = statistics[B_ROWS] + (statistics[B_NEXT_ROW] - 1) * MESSAGE_BYTES
    after = record + (1 + count) * MESSAGE_BYTES
    for position in range(0, MESSAGE_BYTES, 8):
        store_u64(after + position, np.uint64(0))  # no old batch may seem to follow this one
    second = np.uint64(statistics[B_BATCHES]) | (np.uint64(count) << _HALF)
    uuid_1, uuid_2 = load_u64(statistics[B_UUID]), load_u64(statistics[B_UUID] + 8)
    store_u64(record, _MAGIC)
    store_u64(record + 8, second)
    store_u64(record + 16, np.uint64(0))
    store_u64(record + 24, uuid_1)
    store_u64(record + 32, uuid_2)
    crc = np.uint64(np.uint32(statistics[B_CRC]) ^ np.uint32(0xFFFFFFFF))
    crc = crc_step(crc_step(crc_step(crc, _MAGIC), second), np.uint64(0))
    return crc_step(crc_step(crc, uuid_1), uuid_2)


@short_kernel
def _add_row(statistics: Any, row: int, crc: Any, value: Any, tag: Any, message: Any) -> Any:
    """Write a row and make it the head of its chain; return the CRC's state."""
    slot = statistics[B_SLOTS] + 4 * np.int64(mul_high(value, np.uint64(statistics[B_SLOT_COUNT])))
    linked = np.uint64(load_u32(slot)) | (tag << _HALF)
    _store_row(statistics[B_ROWS] + (row - 1) * MESSAGE_BYTES, value, linked, message)
    store_slot(slot, np.uint32(row))
    timestamp, offset, size_and_queue = message
    crc = crc_step(crc_step(crc, value), linked)
    crc = crc_step(crc_step(crc, np.uint64(timestamp)), np.uint64(offset))
    return crc_step(crc, size_and_queue)


@short_kernel
def _observe(
    statistics: Any, count: int, index: int, timestamp: int, offset: int, size: int, queue_id: int
) -> None:
    """Take a message's time, topic and end offset, and its `count` items, into the statistics."""
    end: Any = min(offset, _INT64_MAX - size)
    end += size
    capacity = np.uint64(statistics[B_ENDS_MASK] + 1)
    queue = (np.uint64(index) << _HALF) | np.uint64(queue_id)
    note_end(statistics, statistics[B_ENDS_KEYS], statistics[B_ENDS_VALUES], capacity, queue, end)
    statistics[B_MIN_TIME] = min(statistics[B_MIN_TIME], timestamp)
    statistics[B_MAX_TIME] = max(statistics[B_MAX_TIME], timestamp)
    statistics[B_MAX_TOPIC] = max(statistics[B_MAX_TOPIC], index)
    statistics[B_ITEMS] += count


@short_kernel
def _end_batch(statistics: Any, count: int, crc: Any) -> None:
    """Make a batch real, then visible, as `ChainedReader` does after any other."""
    found = np.uint32(crc) ^ np.uint32(0xFFFFFFFF)
    store_slot(statistics[B_ROWS] + (statistics[B_NEXT_ROW] - 1) * MESSAGE_BYTES + 4, found)  # real
    statistics[B_CRC] = np.int64(found)
    statistics[B_BATCHES] += 1
    statistics[B_NEXT_ROW] += 1 + count
    place = statistics[B_PUBLISHED]
    store_i64(place, statistics[B_NEXT_ROW] - 1)
    store_i64(place + 8, statistics[B_ITEMS])
    store_i64(place + 16, statistics[B_MIN_TIME])
    store_i64(place + 24, statistics[B_MAX_TIME])


_ARGUMENTS: Final = (
    types.int64, ONE_TEXT, TEXT, types.int64, types.int64, INTEGER, INTEGER, INTEGER, INTEGER,
)  # fmt: skip


def load() -> tuple[Any, Any]:
    """Return `gather` and `append`: what calls them, from numba's cache, or compiled in seconds."""
    return direct_call(_gather, *_ARGUMENTS), direct_call(_append, *_ARGUMENTS)
