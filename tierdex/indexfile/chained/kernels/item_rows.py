"""Items of any schema on their way into a file: from columns to rows, and from rows into chains.

Work goes in blocks of 128 items, so that each step after the first finds its rows in the L1 cache,
and the slots of a block are hashed and prefetched while the block before it is linked.

    write_items    columns -> rows, chains, checksum, statistics           (append)
    link_rows      gathered rows -> rows, chains, checksum, statistics     (append of gathered rows)
    undo_links     rows of an append that failed -> out of their chains again

Depends on batch_statistics, batch_record, head_insertion, intrinsics, checksum, hashing, compile, memory
and layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, crc_of, crc_state, crc_step
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.hashing import string_hash
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    prefetch,
    store_u8,
    store_u16,
    store_u32,
    store_u64,
)
from tierdex.fileparts.memory import StringAddresses
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_record import place_of_row
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_CRC,
    B_ITEM_BYTES,
    B_SCRATCH,
    BLOCK_ITEMS,
    is_crowded,
    observe_block,
)
from tierdex.indexfile.chained.kernels.head_insertion import (
    insert_head,
    prefetch_slots,
    remove_head,
    slot_of,
    slots_of,
)

# Places of a source of items: one ItemColumns, as addresses (0: absent).
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

_HASH = layout.ITEM_HASH_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION


@kernel
def _hash_block(statistics: Any, source: Any, begin: int, count: int, out: int) -> None:
    """Write the hashes of `count` items to the u8 array at `out`; prefetch their slots."""
    slots = slots_of(statistics)
    for i in range(count):
        value = _hash_of(source, begin + i)
        prefetch(slot_of(slots, value))
        store_u64(out + 8 * i, value)


@kernel
def _hash_of(source: Any, row: int) -> Any:
    """Return the hash of item `row` of a source."""
    pick, hashes = source[S_PICK], source[S_HASHES]
    if pick != 0:
        row = load_i64(pick + 8 * row)
    if hashes != 0:
        return load_u64(hashes + 8 * row)
    strings = StringAddresses(
        source[S_OFFSETS], source[S_OFFSET_BYTES], source[S_DATA], source[S_INDICES]
    )
    return string_hash(strings, source[S_TOPIC_INDEX], source[S_SEEDS], row)


@kernel
def _settle_block(
    statistics: Any, source: Any, first_row: int, begin: int, end: int, last: int, side: int
) -> None:
    """Finish the rows of items `begin .. end`, whose columns and tags are written: hash, link, slot, CRC.

    Their hashes lie in half `side` of the scratch. Meanwhile hashes the items of the next block, up to
    `last`, to the other half, and prefetches their slots: the CRC is one long dependent chain, which
    costs nothing beside the hashes' own waits.
    """
    slots, item_bytes = slots_of(statistics), statistics[B_ITEM_BYTES]
    half = 8 * BLOCK_ITEMS
    hashes = statistics[B_SCRATCH] + half * side
    out = statistics[B_SCRATCH] + half * (1 - side)
    place = place_of_row(statistics, first_row + begin)
    state = crc_state(statistics[B_CRC])
    for i in range(end - begin):
        value = load_u64(hashes + 8 * i)
        linked = insert_head(slots, place, value, load_u32(place + _TAG), first_row + begin + i)
        state = crc_step(crc_step(state, value), linked)
        for position in range(_TIME, item_bytes, 8):
            state = crc_step(state, load_u64(place + position))
        place += item_bytes
        if end + i < last:
            value = _hash_of(source, end + i)
            prefetch(slot_of(slots, value))
            store_u64(out + 8 * i, value)
    statistics[B_CRC] = np.int64(crc_of(state))


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
    side = 0
    _hash_block(statistics, source, begin, min(BLOCK_ITEMS, count - begin), statistics[B_SCRATCH])
    while begin < count and not is_crowded(statistics):
        size = min(BLOCK_ITEMS, count - begin)
        target = place_of_row(statistics, first_row + begin)
        _tag_block(source, begin, size, target + _TAG, item_bytes)
        for k in range(columns.shape[0]):
            _column_block(columns[k], pick, begin, size, target, item_bytes)
        last = min(begin + size + BLOCK_ITEMS, count)
        _settle_block(statistics, source, first_row, begin, begin + size, last, side)
        observe_block(statistics, first_row + begin, size)
        begin += size
        side = 1 - side
    return begin


@kernel
def link_rows(statistics: Any, rows: int, first_row: int, begin: int, count: int) -> int:
    """Insert the gathered rows at `rows`, which hold all but their links; go on as `write_items` does."""
    slots, item_bytes = slots_of(statistics), statistics[B_ITEM_BYTES]
    while begin < count and not is_crowded(statistics):
        size = min(BLOCK_ITEMS, count - begin)
        target = place_of_row(statistics, first_row + begin)
        source = rows + begin * item_bytes
        for position in range(0, size * item_bytes, 8):
            store_u64(target + position, load_u64(source + position))
        prefetch_slots(statistics, first_row + begin, size)
        for i in range(size):
            place = target + i * item_bytes
            tag = load_u32(place + _TAG)
            insert_head(slots, place, load_u64(place + _HASH), tag, first_row + begin + i)
        statistics[B_CRC] = np.int64(
            crc32c(target, size * item_bytes, np.uint32(statistics[B_CRC]))
        )
        observe_block(statistics, first_row + begin, size)
        begin += size
    return begin


@kernel
def undo_links(statistics: Any, first_row: int, count: int) -> None:
    """Take rows out of their chains again, newest first; rows that are no slot's head are left."""
    slots = slots_of(statistics)
    for row in range(first_row + count - 1, first_row - 1, -1):
        remove_head(slots, place_of_row(statistics, row), row)
