"""Head insertion: items into rows, and rows into chains.

Work goes in blocks of 128 items, so that each step after the first finds its rows in the L1 cache,
and the slots of a block are hashed and prefetched while the block before it is linked.

    write_items    columns -> rows, chains, CRC, statistics     (append)
    link_rows      rows that are already there -> chains, CRC, statistics  (append of gathered rows)

Depends on batch_statistics, intrinsics, checksum, hashing and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, crc_step
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.hashing import string_hash
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_slot,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_CRC,
    B_ITEM_BYTES,
    B_ROWS,
    B_SCRATCH,
    B_SLOT_COUNT,
    B_SLOTS,
    BLOCK_ITEMS,
    ask_block,
    is_crowded,
    observe_block,
)

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

_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION


@kernel
def _hash_block(statistics: Any, source: Any, begin: int, count: int, out: int) -> None:
    """Write the hashes of `count` items to the u8 array at `out`; ask for their slots."""
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
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
    statistics: Any,
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
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    item_bytes = statistics[B_ITEM_BYTES]
    place = statistics[B_ROWS] + (first_row - 1) * item_bytes
    crc = np.uint64(np.uint32(statistics[B_CRC]) ^ np.uint32(0xFFFFFFFF))
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
    statistics[B_CRC] = np.int64(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))


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
def write_items(
    statistics: Any, source: Any, columns: Any, first_row: int, begin: int, count: int
) -> int:
    """Write items `begin .. count` of a source to rows from `first_row` + `begin` on.

    `columns` is i8[k, 4]. Returns the items done so far: less than `count` when the table of end
    offsets is crowded, and the caller grows it and calls again with `begin` = what was returned.
    """
    item_bytes, pick = statistics[B_ITEM_BYTES], source[S_PICK]
    ready, half = statistics[B_SCRATCH], 8 * BLOCK_ITEMS
    side = 0
    _hash_block(statistics, source, begin, min(BLOCK_ITEMS, count - begin), ready)
    while begin < count and not is_crowded(statistics):
        size = min(BLOCK_ITEMS, count - begin)
        following = begin + size
        row = first_row + begin
        target = statistics[B_ROWS] + (row - 1) * item_bytes
        _tag_block(source, begin, size, target + _TAG, item_bytes)
        for k in range(columns.shape[0]):
            _column_block(columns[k], pick, begin, size, target, item_bytes)
        ahead = min(BLOCK_ITEMS, count - following)
        _settle_block(
            statistics, row, size, ready + half * side,
            source, following, ahead, ready + half * (1 - side),
        )  # fmt: skip
        observe_block(statistics, row, size)
        begin = following
        side = 1 - side
    return begin


@kernel
def link_rows(statistics: Any, first_row: int, begin: int, count: int) -> int:
    """Insert rows that hold everything but their links; continue as `write_items` does."""
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    item_bytes = statistics[B_ITEM_BYTES]
    while begin < count and not is_crowded(statistics):
        size = min(BLOCK_ITEMS, count - begin)
        target = statistics[B_ROWS] + (first_row + begin - 1) * item_bytes
        ask_block(statistics, first_row + begin, size)
        for i in range(size):
            place = target + i * item_bytes
            slot = slots + 4 * np.int64(mul_high(load_u64(place), slot_count))
            store_u32(place + _LINK, load_u32(slot))
            store_slot(slot, np.uint32(first_row + begin + i))
        statistics[B_CRC] = np.int64(
            crc32c(target, size * item_bytes, np.uint32(statistics[B_CRC]))
        )
        observe_block(statistics, first_row + begin, size)
        begin += size
    return begin


@kernel
def undo_links(statistics: Any, first_row: int, count: int) -> None:
    """Take rows out of their chains again, newest first; rows that are no slot's head are left."""
    slots, slot_count = statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT])
    item_bytes = statistics[B_ITEM_BYTES]
    for row in range(first_row + count - 1, first_row - 1, -1):
        place = statistics[B_ROWS] + (row - 1) * item_bytes
        slot = slots + 4 * np.int64(mul_high(load_u64(place), slot_count))
        if load_u32(slot) == np.uint32(row):
            store_slot(slot, load_u32(place + _LINK))
