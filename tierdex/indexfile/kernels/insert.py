"""Head insertion: items into rows, rows into chains, and what is derived from items on the way.

Writer, recovery and readers share one *tally*, an i8 array whose places are named T_* below: where
slots and rows lie, and everything that is derived from batches alone (next row, batch number, running
CRC, counts, times, greatest end offset a (topic, queue)). Python reads and grows it, kernels advance it.

Work goes in blocks of 128 items, so that each step after the first finds its rows in the L1 cache,
and the slots of a block are hashed and prefetched while the block before it is linked.

    write_items    columns -> rows, chains, CRC, tally     (append)
    link_rows      rows that are already there -> chains, CRC, tally  (append of gathered rows)
    scan_batches   batches that verify -> tally, and chains or a proof  (recovery, readers, walk)

Depends on intrinsics, checksum, hashing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.kernels.checksum import _TABLE, crc32c, crc_step
from tierdex.indexfile.kernels.compile import kernel, short_kernel
from tierdex.indexfile.kernels.hashing import string_hash
from tierdex.indexfile.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
    store_slot,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)

BLOCK_ITEMS = 128

# Places of the tally (i8 each).
T_SLOTS = 0  # address of slot 0
T_SLOT_COUNT = 1
T_ROWS = 2  # address of row 1
T_ITEM_BYTES = 3
T_UUID = 4  # address of 16 bytes
T_NEXT_ROW = 5  # first row after the last batch
T_BATCHES = 6  # batches so far = number of the next one
T_CRC = 7  # CRC of the last batch, or the seed
T_ITEMS = 8
T_MIN_TIME = 9
T_MAX_TIME = 10
T_MAX_TOPIC = 11  # greatest topic index seen, -1 for none
T_ENDS_KEYS = 12  # addresses of the table (topic, queue) -> greatest end offset, 0: not kept
T_ENDS_VALUES = 13
T_ENDS_MASK = 14
T_ENDS_USED = 15
T_OFFSET_POSITION = 16  # bytes inside an item
T_SIZE_POSITION = 17
T_QUEUE_POSITION = 18
T_PENDING = 19  # items of a verified batch that scan_batches has not inserted yet
T_DICTIONARY_ROW = 20  # where the new dictionary entries of the last scanned batch begin
T_DICTIONARY_BYTES = 21
T_SCRATCH = 22  # address of 2 * BLOCK_ITEMS u8
T_FINGERPRINT = 23
TALLY_LENGTH = 24

# Places of a source of items: one ItemColumns part, as addresses (0: absent).
S_OFFSETS = 0
S_OFFSET_BYTES = 1
S_DATA = 2
S_INDICES = 3
S_HASHES = 4  # precomputed u8 hashes; 0: hash the strings
S_PICK = 5  # i8 rows to take; 0: all
S_TOPIC_INDEX = 6
S_SEEDS = 7
S_TAGS = 8  # u4 tag of each topic, kind bit included
SOURCE_LENGTH = 9

# What scan_batches does with items besides the tally. On top of it: nothing is written to rows.
FOR_TALLY = 0
FOR_CHAINS = 1  # move the slots to them, and compare their links

# Answers of scan_batches.
SCAN_END = 0  # the next bytes are no batch that verifies
SCAN_DICTIONARY = 1  # load the dictionary entries of the batch just inserted, then go on
SCAN_GROW = 2  # the table of end offsets is crowded: grow it, then go on
SCAN_BAD_LINK = 3  # a verified item does not link to the head of its chain

ENDS_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
ENDS_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_INT64_MAX = np.int64(0x7FFFFFFFFFFFFFFF)
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_TOPIC_MASK = np.int64(layout.TOPIC_MASK)
_RECORD_BYTES = layout.BATCH_RECORD_BYTES
_MAGIC = np.uint32(layout.BATCH_MAGIC)


@kernel
def _hash_block(tally: Any, source: Any, begin: int, count: int, out: int) -> None:
    """Write the hashes of `count` items to the u8 array at `out`; ask for their slots."""
    slots, slot_count = tally[T_SLOTS], np.uint64(tally[T_SLOT_COUNT])
    for i in range(count):
        value = _hash_of(source, begin + i)
        prefetch(slots + 4 * np.int64(mul_high(value, slot_count)))
        store_u64(out + 8 * i, value)


@kernel
def _hash_of(source: Any, row: int) -> Any:
    """Return the hash of item `row` of a source."""
    pick, hashes = source[S_PICK], source[S_HASHES]
    if pick != 0:
        row = load_i64(pick + 8 * row)
    if hashes != 0:
        return load_u64(hashes + 8 * row)
    return string_hash(
        source[S_OFFSETS],
        source[S_OFFSET_BYTES],
        source[S_DATA],
        source[S_INDICES],
        source[S_TOPIC_INDEX],
        source[S_SEEDS],
        row,
    )


@kernel
def _settle_block(
    tally: Any,
    first_row: int,
    count: int,
    hashes: int,
    source: Any,
    begin: int,
    ahead: int,
    out: int,
) -> None:
    """Finish `count` rows whose columns and tags are written: hash, link, slot, CRC.

    Meanwhile hashes the `ahead` items from `begin` on, to `out`, and asks for their slots: the CRC is
    one long dependent chain, which costs nothing beside the hashes' own waits.
    """
    slots, slot_count = tally[T_SLOTS], np.uint64(tally[T_SLOT_COUNT])
    item_bytes = tally[T_ITEM_BYTES]
    place = tally[T_ROWS] + (first_row - 1) * item_bytes
    crc = np.uint64(np.uint32(tally[T_CRC]) ^ np.uint32(0xFFFFFFFF))
    for i in range(count):
        value = load_u64(hashes + 8 * i)
        slot = slots + 4 * np.int64(mul_high(value, slot_count))
        linked = np.uint64(load_u32(slot)) | (np.uint64(load_u32(place + _TAG)) << np.uint64(32))
        store_u64(place, value)
        store_u64(place + _LINK, linked)
        store_slot(slot, np.uint32(first_row + i))
        crc = crc_step(crc_step(crc, value), linked)
        for position in range(_TIME, item_bytes, 8):
            crc = crc_step(crc, load_u64(place + position))
        place += item_bytes
        if i < ahead:
            value = _hash_of(source, begin + i)
            prefetch(slots + 4 * np.int64(mul_high(value, slot_count)))
            store_u64(out + 8 * i, value)
    tally[T_CRC] = np.int64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))


@kernel
def _tag_block(source: Any, begin: int, count: int, target: int, item_bytes: int) -> None:
    """Write the tags of `count` items; `target` is the tag of the first."""
    pick, topic_index, tags = source[S_PICK], source[S_TOPIC_INDEX], source[S_TAGS]
    tag = load_u32(tags)
    for i in range(count):
        if topic_index != 0:
            row = begin + i
            if pick != 0:
                row = load_i64(pick + 8 * row)
            tag = load_u32(tags + 4 * np.int64(load_i32(topic_index + 4 * row)))
        store_u32(target + i * item_bytes, tag)


@kernel
def _column_block(
    column: Any, pick: int, begin: int, count: int, target: int, item_bytes: int
) -> None:
    """Copy `count` values of a column, (address, stride, width, position), into rows at `target`."""
    address, stride, width = column[0], column[1], column[2]
    target += column[3]
    for i in range(count):
        row = begin + i
        if pick != 0:
            row = load_i64(pick + 8 * row)
        value = address + row * stride
        if width == 8:
            store_u64(target, load_u64(value))
        elif width == 4:
            store_u32(target, load_u32(value))
        elif width == 2:
            store_u16(target, load_u16(value))
        else:
            store_u8(target, load_u8(value))
        target += item_bytes


@kernel
def is_crowded(tally: Any) -> bool:
    """Say whether one more block might fill the table of end offsets beyond 3/4."""
    return bool(
        tally[T_ENDS_KEYS] != 0
        and 4 * (tally[T_ENDS_USED] + BLOCK_ITEMS) > 3 * (tally[T_ENDS_MASK] + 1)
    )


@kernel
def _observe_block(tally: Any, first_row: int, count: int) -> None:
    """Take times, topics and end offsets of `count` rows into the tally."""
    item_bytes = tally[T_ITEM_BYTES]
    place = tally[T_ROWS] + (first_row - 1) * item_bytes
    low, high, topic = tally[T_MIN_TIME], tally[T_MAX_TIME], tally[T_MAX_TOPIC]
    keys, last_key, last_place = tally[T_ENDS_KEYS], ENDS_EMPTY, np.int64(0)
    for _ in range(count):
        time = load_i64(place + _TIME)
        low, high = min(low, time), max(high, time)
        item_topic = np.int64(load_u32(place + _TAG)) & _TOPIC_MASK
        topic = max(topic, item_topic)
        if keys != 0:
            queue = np.uint64(load_u32(place + tally[T_QUEUE_POSITION]))
            key = (np.uint64(item_topic) << np.uint64(32)) | queue
            if key != last_key:
                last_key, last_place = key, ends_place(tally, key)
            offset = load_i64(place + tally[T_OFFSET_POSITION])
            size = np.int64(load_u32(place + tally[T_SIZE_POSITION]))
            end = offset + size if offset <= _INT64_MAX - size else _INT64_MAX
            if end > load_i64(last_place):
                store_i64(last_place, end)
        place += item_bytes
    tally[T_MIN_TIME], tally[T_MAX_TIME], tally[T_MAX_TOPIC] = low, high, topic
    tally[T_ITEMS] += count


@kernel
def ends_place(tally: Any, key: Any) -> Any:
    """Return the address of the end offset of `key`, made when it is new. The table has room."""
    mask = np.uint64(tally[T_ENDS_MASK])
    place = np.int64(mul_high(key * ENDS_FACTOR, mask + np.uint64(1)))
    while True:
        found = load_u64(tally[T_ENDS_KEYS] + 8 * place)
        if found == key:
            break
        if found == ENDS_EMPTY:
            store_u64(tally[T_ENDS_KEYS] + 8 * place, key)
            tally[T_ENDS_USED] += 1
            break
        place = (place + 1) & np.int64(mask)
    return tally[T_ENDS_VALUES] + 8 * place


@kernel
def put_ends(tally: Any, keys: int, values: int, count: int) -> None:
    """Put `count` pairs (u8 key, i8 end offset) into the table, which has room for them."""
    for i in range(count):
        place = ends_place(tally, load_u64(keys + 8 * i))
        store_i64(place, load_i64(values + 8 * i))


@kernel
def write_items(
    tally: Any, source: Any, columns: Any, first_row: int, begin: int, count: int
) -> int:
    """Write items `begin .. count` of a source to rows from `first_row` + `begin` on.

    `columns` is i8[k, 4]. Returns the items done so far: less than `count` when the table of end
    offsets is crowded, and the caller grows it and calls again with `begin` = what was returned.
    """
    item_bytes, pick = tally[T_ITEM_BYTES], source[S_PICK]
    ready, half = tally[T_SCRATCH], 8 * BLOCK_ITEMS
    side = 0
    _hash_block(tally, source, begin, min(BLOCK_ITEMS, count - begin), ready)
    while begin < count and not is_crowded(tally):
        size = min(BLOCK_ITEMS, count - begin)
        following = begin + size
        row = first_row + begin
        target = tally[T_ROWS] + (row - 1) * item_bytes
        _tag_block(source, begin, size, target + _TAG, item_bytes)
        for k in range(columns.shape[0]):
            _column_block(columns[k], pick, begin, size, target, item_bytes)
        ahead = min(BLOCK_ITEMS, count - following)
        _settle_block(
            tally, row, size, ready + half * side,
            source, following, ahead, ready + half * (1 - side),
        )  # fmt: skip
        _observe_block(tally, row, size)
        begin = following
        side = 1 - side
    return begin


@kernel
def link_rows(tally: Any, first_row: int, begin: int, count: int) -> int:
    """Insert rows that hold everything but their links; continue as `write_items` does."""
    slots, slot_count = tally[T_SLOTS], np.uint64(tally[T_SLOT_COUNT])
    item_bytes = tally[T_ITEM_BYTES]
    while begin < count and not is_crowded(tally):
        size = min(BLOCK_ITEMS, count - begin)
        target = tally[T_ROWS] + (first_row + begin - 1) * item_bytes
        _ask_block(tally, first_row + begin, size)
        for i in range(size):
            place = target + i * item_bytes
            slot = slots + 4 * np.int64(mul_high(load_u64(place), slot_count))
            store_u32(place + _LINK, load_u32(slot))
            store_slot(slot, np.uint32(first_row + begin + i))
        tally[T_CRC] = np.int64(crc32c(target, size * item_bytes, np.uint32(tally[T_CRC])))
        _observe_block(tally, first_row + begin, size)
        begin += size
    return begin


@short_kernel
def append_row(tally: Any, item: int) -> Any:
    """Write a batch of one item, whose row without its link is at `item`; return its row number.

    The caller made sure of room and blocks for this batch and the record after it. Returns 0, with
    nothing done, when the table of end offsets is crowded. The CRC comes last, as in every append.
    """
    if is_crowded(tally):
        return 0
    item_bytes, uuid = tally[T_ITEM_BYTES], tally[T_UUID]
    record_rows = (_RECORD_BYTES + item_bytes - 1) // item_bytes
    row = tally[T_NEXT_ROW] + record_rows
    record = tally[T_ROWS] + (tally[T_NEXT_ROW] - 1) * item_bytes
    target = record + record_rows * item_bytes
    for position in range(0, _RECORD_BYTES, 8):
        store_u64(target + item_bytes + position, np.uint64(0))
    for position in range(0, record_rows * item_bytes, 8):
        store_u64(record + position, np.uint64(0))
    store_u32(record, _MAGIC)
    store_u32(record + 8, np.uint32(tally[T_BATCHES]))
    store_u32(record + 12, np.uint32(1))
    store_u64(record + 24, load_u64(uuid))
    store_u64(record + 32, load_u64(uuid + 8))
    for position in range(0, item_bytes, 8):
        store_u64(target + position, load_u64(item + position))
    tally[T_CRC] = np.int64(crc32c(record, record_rows * item_bytes, np.uint32(tally[T_CRC])))
    link_rows(tally, row, 0, 1)
    store_slot(record + 4, np.uint32(tally[T_CRC]))
    tally[T_BATCHES] += 1
    tally[T_NEXT_ROW] = row + 1
    return np.int64(row)


@kernel
def undo_links(tally: Any, first_row: int, count: int) -> None:
    """Take rows out of their chains again, newest first; rows that are no slot's head are left."""
    slots, slot_count = tally[T_SLOTS], np.uint64(tally[T_SLOT_COUNT])
    item_bytes = tally[T_ITEM_BYTES]
    for row in range(first_row + count - 1, first_row - 1, -1):
        place = tally[T_ROWS] + (row - 1) * item_bytes
        slot = slots + 4 * np.int64(mul_high(load_u64(place), slot_count))
        if load_u32(slot) == np.uint32(row):
            store_slot(slot, load_u32(place + _LINK))


@kernel
def batch_crc(address: int, length: int, crc: Any) -> Any:
    """Return the CRC of a whole batch at `address`, its crc field taken as zero."""
    state = crc32c(address, 4, np.uint32(crc)) ^ np.uint32(0xFFFFFFFF)
    for _ in range(4):
        state = (state >> np.uint32(8)) ^ _TABLE[0, state & np.uint32(0xFF)]
    return crc32c(address + 8, length - 8, np.uint32(state) ^ np.uint32(0xFFFFFFFF))


@kernel
def batch_length(tally: Any, address: int, rows_left: int) -> Any:
    """Return the rows of the batch whose record is at `address`; 0 when it is no next batch here.

    `rows_left` rows may be read from `address` on; a longer batch counts as none.
    """
    item_bytes = tally[T_ITEM_BYTES]
    record_rows = (_RECORD_BYTES + item_bytes - 1) // item_bytes
    if rows_left < record_rows:
        return 0
    uuid = tally[T_UUID]
    items = np.int64(load_u32(address + 12))
    dictionary_rows = (np.int64(load_u32(address + 16)) + item_bytes - 1) // item_bytes
    if (
        load_u32(address) != _MAGIC
        or np.int64(load_u32(address + 8)) != tally[T_BATCHES]
        or items == 0
        or load_u32(address + 20) != 0
        or load_u64(address + 24) != load_u64(uuid)
        or load_u64(address + 32) != load_u64(uuid + 8)
        or record_rows + dictionary_rows + items > rows_left
    ):
        return 0
    return np.int64(record_rows + dictionary_rows + items)


@kernel
def scan_batches(tally: Any, row_limit: int, purpose: int) -> int:
    """Take batch after batch into the tally; `purpose` is one of FOR_*.

    Rows up to `row_limit` may be read. Stops as a SCAN_* answer says, at SCAN_END with T_NEXT_ROW at
    the first row that belongs to no batch that verifies.
    """
    while True:
        if tally[T_PENDING] == 0 and not _enter_batch(tally, row_limit):
            return SCAN_END
        while tally[T_PENDING] > 0:
            if is_crowded(tally):
                return SCAN_GROW
            size = min(BLOCK_ITEMS, tally[T_PENDING])
            first = tally[T_NEXT_ROW] - tally[T_PENDING]
            if purpose == FOR_CHAINS:
                _ask_block(tally, first + size, min(BLOCK_ITEMS, tally[T_PENDING] - size))
            if purpose == FOR_CHAINS and not _relink_block(tally, first, size):
                return SCAN_BAD_LINK
            _observe_block(tally, first, size)
            tally[T_PENDING] -= size
        if tally[T_DICTIONARY_BYTES] > 0:
            return SCAN_DICTIONARY


@kernel
def _enter_batch(tally: Any, row_limit: int) -> bool:
    """Verify the batch at T_NEXT_ROW and step over it; its items are pending. False: it is none."""
    item_bytes, row = tally[T_ITEM_BYTES], tally[T_NEXT_ROW]
    address = tally[T_ROWS] + (row - 1) * item_bytes
    length = batch_length(tally, address, row_limit - row + 1)
    if length == 0:
        return False
    crc = batch_crc(address, length * item_bytes, np.uint32(tally[T_CRC]))
    if crc != load_u32(address + 4):
        return False
    tally[T_CRC] = np.int64(crc)
    tally[T_BATCHES] += 1
    tally[T_NEXT_ROW] += length
    tally[T_PENDING] = np.int64(load_u32(address + 12))
    tally[T_DICTIONARY_ROW] = row + (_RECORD_BYTES + item_bytes - 1) // item_bytes
    tally[T_DICTIONARY_BYTES] = np.int64(load_u32(address + 16))
    return True


@kernel
def _ask_block(tally: Any, first_row: int, count: int) -> None:
    """Ask for the slots of `count` rows that are there."""
    slots, slot_count = tally[T_SLOTS], np.uint64(tally[T_SLOT_COUNT])
    item_bytes = tally[T_ITEM_BYTES]
    place = tally[T_ROWS] + (first_row - 1) * item_bytes
    for _ in range(count):
        prefetch(slots + 4 * np.int64(mul_high(load_u64(place), slot_count)))
        place += item_bytes


@kernel
def _relink_block(tally: Any, first_row: int, count: int) -> bool:
    """Move the slots to `count` rows whose links are known; say whether the links were right."""
    slots, slot_count = tally[T_SLOTS], np.uint64(tally[T_SLOT_COUNT])
    item_bytes = tally[T_ITEM_BYTES]
    target = tally[T_ROWS] + (first_row - 1) * item_bytes
    sound = True
    for i in range(count):
        place = target + i * item_bytes
        slot = slots + 4 * np.int64(mul_high(load_u64(place), slot_count))
        sound &= load_u32(place + _LINK) == load_u32(slot)
        store_slot(slot, np.uint32(first_row + i))
    return bool(sound)
