"""Lookups in chains: one key quickly, thousands of keys with 64 chains walked side by side.

A *view* is an i8 array whose places are named V_* below: where slots and rows lie and, for a sealed
file, how its 4 KiB blocks are verified: a block that nobody used yet is verified before a byte of it
is believed, and a mismatch ends the lookup with an error, never with "not found".

Errors are negative answers: BAD_CHAIN, or BAD_BLOCK - number of the block.
A dependent cache miss costs hundreds of nanoseconds, an overlapped one ten to twenty: hence groups.
Depends on intrinsics, checksum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.kernels.checksum import verify_block
from tierdex.indexfile.kernels.compile import kernel
from tierdex.indexfile.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
    store_u64,
)

# Places of a view (i8 each).
V_SLOTS = 0  # address of slot 0
V_SLOT_COUNT = 1
V_ROWS = 2  # address of row 1
V_ITEM_BYTES = 3
V_ROW_LIMIT = 4  # greatest row number that is mapped
V_BASE = 5  # address of block 0
V_CHECKSUMS = 6  # address of the blocks' u4 checksums; 0: nothing is to be verified
V_VERIFIED = 7  # address of the byte map of blocks that were verified
V_SEED = 8
VIEW_LENGTH = 9

BAD_CHAIN = -1
BAD_BLOCK = -2  # and below: BAD_BLOCK - block
START = -1  # a cursor that begins at the slot

_GROUP = 64
_BLOCK_BYTES = layout.BLOCK_BYTES
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_KIND_BIT = np.uint32(layout.KIND_BIT)
_ANY_MESSAGE_ID = np.uint32(layout.TAG_ANY_MESSAGE_ID)


@kernel
def bad_block(view: Any, address: int, length: int) -> Any:
    """Verify the blocks that hold [address, address + length); return 0 or BAD_BLOCK - block."""
    if view[V_CHECKSUMS] == 0:
        return 0
    first = (address - view[V_BASE]) // _BLOCK_BYTES
    last = (address + length - 1 - view[V_BASE]) // _BLOCK_BYTES
    for block in range(first, last + 1):
        if load_u8(view[V_VERIFIED] + block) == 0:
            sound = verify_block(
                view[V_BASE],
                _BLOCK_BYTES,
                block,
                np.uint32(view[V_SEED]),
                view[V_CHECKSUMS],
                view[V_VERIFIED],
            )
            if not sound:
                return BAD_BLOCK - block
    return 0


@kernel
def _matches(place: int, key_hash: Any, tag: Any, begin: int, end: int) -> bool:
    if load_u64(place) != key_hash:
        return False
    found = load_u32(place + _TAG)
    if found != tag and not (tag == _ANY_MESSAGE_ID and (found & _KIND_BIT) != 0):
        return False
    time = load_i64(place + _TIME)
    return bool(begin <= time and time <= end)


@kernel
def walk_chain(
    view: Any,
    key_hash: int,
    tag: int,
    begin: int,
    end: int,
    published: int,
    cursor: int,
    limit: int,
    step_limit: int,
    numbers: int,
    rows_out: int,
) -> Any:
    """Write up to `limit` row numbers of matching items to the i8 array at `numbers`, newest first.

    Their rows are copied to `rows_out`, unless it is 0.

    `key_hash` is the hash's bits as i8; rows above `published` are passed over; `cursor` is START or
    what an earlier call returned. Returns (count or error, next cursor or 0, items walked).
    """
    wanted, wanted_tag = np.uint64(key_hash), np.uint32(tag)
    item_bytes, rows = view[V_ITEM_BYTES], view[V_ROWS]
    row, walked, count = np.int64(cursor), 0, 0
    if cursor == START:
        slot = view[V_SLOTS] + 4 * np.int64(mul_high(wanted, np.uint64(view[V_SLOT_COUNT])))
        error = bad_block(view, slot, 4)
        if error:
            return error, 0, 0
        row = np.int64(load_u32(slot))
    while row != 0 and walked < step_limit:
        if row > view[V_ROW_LIMIT]:
            return BAD_CHAIN, 0, walked
        place = rows + (row - 1) * item_bytes
        error = bad_block(view, place, item_bytes)
        if error:
            return error, 0, walked
        walked += 1
        following = np.int64(load_u32(place + _LINK))
        if following >= row:
            return BAD_CHAIN, 0, walked
        if row <= published and _matches(place, wanted, wanted_tag, begin, end):
            store_i64(numbers + 8 * count, row)
            if rows_out != 0:
                target = rows_out + count * item_bytes
                for position in range(0, item_bytes, 8):
                    store_u64(target + position, load_u64(place + position))
            count += 1
            if count == limit:
                return count, following, walked
        row = following
    return count, row, walked


@kernel
def _enter(view: Any, hashes: int, cursors: int, count: int, rows: Any) -> Any:
    """Fill `rows` with where each of up to 64 lookups begins and ask for those items."""
    slots, slot_count = view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])
    for j in range(count):
        if load_i64(cursors + 8 * j) == START:
            prefetch(slots + 4 * np.int64(mul_high(load_u64(hashes + 8 * j), slot_count)))
    for j in range(count):
        row = load_i64(cursors + 8 * j)
        if row == START:
            slot = slots + 4 * np.int64(mul_high(load_u64(hashes + 8 * j), slot_count))
            error = bad_block(view, slot, 4)
            if error:
                return error
            row = np.int64(load_u32(slot))
        rows[j] = row
        if row > view[V_ROW_LIMIT]:
            return BAD_CHAIN
        place = view[V_ROWS] + (row - 1) * view[V_ITEM_BYTES]
        prefetch(place)
        prefetch(place + _TIME + 7)
    return 0


@kernel
def next_matches(
    view: Any,
    hashes: int,
    tags: int,
    begins: int,
    begin_stride: int,
    ends: int,
    end_stride: int,
    published: int,
    cursors: int,
    found: int,
    count: int,
) -> Any:
    """For each of `count` lookups write its next matching row number (0: none) to `found` (i8).

    `hashes` u8, `tags` u4, `begins` and `ends` i8 with the given strides (0: one for all). `cursors`
    (i8) hold START or where to go on, and are moved on. Returns the items walked, or an error.
    """
    rows = np.empty(_GROUP, np.int64)
    active = np.empty(_GROUP, np.int64)
    item_bytes, base, limit = view[V_ITEM_BYTES], view[V_ROWS], view[V_ROW_LIMIT]
    walked = 0
    for start in range(0, count, _GROUP):
        size = min(_GROUP, count - start)
        error = _enter(view, hashes + 8 * start, cursors + 8 * start, size, rows)
        if error:
            return error
        running = 0
        for j in range(size):
            store_i64(found + 8 * (start + j), 0)
            store_i64(cursors + 8 * (start + j), 0)
            active[running] = j
            running += rows[j] != 0
        while running:
            still = 0
            for a in range(running):
                j = active[a]
                i = start + j
                row = rows[j]
                place = base + (row - 1) * item_bytes
                error = bad_block(view, place, item_bytes)
                if error:
                    return error
                walked += 1
                following = np.int64(load_u32(place + _LINK))
                if following >= row or following > limit:
                    return BAD_CHAIN
                if row <= published and _matches(
                    place,
                    load_u64(hashes + 8 * i),
                    load_u32(tags + 4 * i),
                    load_i64(begins + begin_stride * i),
                    load_i64(ends + end_stride * i),
                ):
                    store_i64(found + 8 * i, row)
                    store_i64(cursors + 8 * i, following)
                elif following:
                    rows[j] = following
                    place = base + (following - 1) * item_bytes
                    prefetch(place)
                    prefetch(place + _TIME + 7)
                    active[still] = j
                    still += 1
            running = still
    return walked
