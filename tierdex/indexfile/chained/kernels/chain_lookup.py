"""Lookups in chains: one key quickly, thousands of keys with 64 chains walked side by side.

A *view* is an i8 array whose places are named V_* below: where slots and rows lie and, for a sealed
file, how its 4 KiB blocks are verified: a block is verified at its first use, before a byte of it
is believed, and a mismatch ends the lookup with an error, never with "not found".

Errors are negative answers: BAD_CHAIN, or BAD_BLOCK - number of the block.
A dependent cache miss costs hundreds of nanoseconds, an overlapped one ten to twenty: hence groups.
Depends on intrinsics, checksum, head_insertion, fileparts, layout and lookup.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import verify_block
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    prefetch,
    store_i64,
    store_u64,
)
from tierdex.fileparts.layout import BLOCK_BYTES
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.head_insertion import Slots, slot_of
from tierdex.indexfile.lookup import DONE, START

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
TOO_MUCH = -(1 << 62)  # more items would have to be walked than the caller allows

# Places of a search (i8 each): columns of n lookups by address, see `lookup.Search` and `Found`.
S_HASHES = 0  # u8
S_TAGS = 1  # u4
S_BEGINS = 2  # i8, as all that follow
S_ENDS = 3
S_LIMITS = 4
S_PLACES = 5  # where each lookup begins; 0: all at their slots
S_FOLLOWING = 6  # written: where each lookup goes on, or DONE
S_PUBLISHED = 7  # rows above it are passed over
S_COUNT = 8
S_MOST_ITEMS = 9  # that each lookup walks before it is cut
SEARCH_LENGTH = 10

_GROUP = 64
_KEPT = 8  # matches that are found side by side; a lookup with more goes on alone
_AHEAD = 16
_BLOCK_BYTES = BLOCK_BYTES
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_HASH = layout.ITEM_HASH_POSITION
_HEAD_BYTES = layout.ITEM_FIELDS_POSITION  # what `matches` looks at
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
def matches(place: int, key_hash: Any, tag: Any, begin: int, end: int) -> bool:
    """Return whether the item at `place` has this hash and tag, and a time within [begin, end]."""
    if load_u64(place + _HASH) != key_hash:
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
    what an earlier call returned. Returns (count or error, next cursor or 0, items walked). The list of
    arguments is flat: Python calls this once for a single query, and would take longer to make tuples.
    """
    wanted, wanted_tag = np.uint64(key_hash), np.uint32(tag)
    item_bytes, rows = view[V_ITEM_BYTES], view[V_ROWS]
    row, walked, count = np.int64(cursor), 0, 0
    if cursor == START:
        slot = slot_of(Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])), wanted)
        error = bad_block(view, slot, layout.SLOT_BYTES)
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
        if row <= published and matches(place, wanted, wanted_tag, begin, end):
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
def _enter(view: Any, search: Any, first: int, count: int, rows: Any) -> Any:
    """Fill `rows` with where the chains of up to 64 lookups begin and ask for those items."""
    slots = Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT]))
    hashes, places = search[S_HASHES] + 8 * first, search[S_PLACES]
    for j in range(count):
        prefetch(slot_of(slots, load_u64(hashes + 8 * j)))
    for j in range(count):
        row = np.int64(START)
        if places != 0:
            row = load_i64(places + 8 * (first + j))
        if row == START:
            slot = slot_of(slots, load_u64(hashes + 8 * j))
            error = bad_block(view, slot, layout.SLOT_BYTES)
            if error:
                return error
            row = np.int64(load_u32(slot))
            if row > view[V_ROW_LIMIT]:
                return BAD_CHAIN
        elif row < 1 or row > search[S_PUBLISHED]:
            row = np.int64(0)  # a place that this file cannot have
        rows[j] = row
        place = view[V_ROWS] + (row - 1) * view[V_ITEM_BYTES]
        prefetch(place)
        prefetch(place + _HEAD_BYTES - 1)
    return 0


@kernel
def _walk_group(
    view: Any, search: Any, start: int, size: int, rows: Any, numbers: Any, taken: Any
) -> Any:
    """Walk up to 64 chains side by side from `rows` on.

    Returns (items walked or an error, items that a lookup may still walk).

    Lookup j has its first taken[j] matches in numbers[j]. rows[j] is 0 when there can be no more, else
    where the walk goes on: it has enough, numbers[j] is full, or S_MOST_ITEMS were walked.
    """
    item_bytes, base, row_limit = view[V_ITEM_BYTES], view[V_ROWS], view[V_ROW_LIMIT]
    hashes, tags = search[S_HASHES] + 8 * start, search[S_TAGS] + 4 * start
    begins, ends = search[S_BEGINS] + 8 * start, search[S_ENDS] + 8 * start
    limits, published = search[S_LIMITS] + 8 * start, search[S_PUBLISHED]
    active = np.empty(_GROUP, np.int64)
    running, walked, steps_left = 0, 0, search[S_MOST_ITEMS]
    for j in range(size):
        taken[j] = 0
        active[running] = j
        running += rows[j] != 0
    while running and steps_left:
        steps_left -= 1
        still = 0
        for a in range(running):
            j = active[a]
            row = rows[j]
            place = base + (row - 1) * item_bytes
            error = bad_block(view, place, item_bytes)
            if error:
                return error, steps_left
            walked += 1
            following = np.int64(load_u32(place + _LINK))
            if following >= row or following > row_limit:
                return BAD_CHAIN, steps_left
            goes_on = following != 0
            if row <= published and matches(
                place,
                load_u64(hashes + 8 * j),
                load_u32(tags + 4 * j),
                load_i64(begins + 8 * j),
                load_i64(ends + 8 * j),
            ):
                prefetch(place + item_bytes - 1)  # the whole row is read next
                numbers[j, taken[j]] = row
                taken[j] += 1
                goes_on &= taken[j] < min(_KEPT, load_i64(limits + 8 * j))
            rows[j] = following
            if goes_on:
                place = base + (following - 1) * item_bytes
                prefetch(place)
                prefetch(place + _HEAD_BYTES - 1)
                active[still] = j
                still += 1
        running = still
    return walked, steps_left


@kernel
def find_matches(view: Any, search: Any, start: int, offsets: int, numbers: int, room: int) -> Any:
    """Write the matching row numbers, newest first, of the lookups from `start` on to `numbers` (i8).

    `search` is i8[SEARCH_LENGTH]. offsets[i + 1] (i8) is where the numbers of lookup i end;
    offsets[start] is given. Returns (next lookup or an error, items walked). The next lookup is below
    the number of lookups when `room` numbers did not suffice: call again with more, and with it.
    """
    rows = np.empty(_GROUP, np.int64)
    taken = np.empty(_GROUP, np.int64)
    kept = np.empty((_GROUP, _KEPT), np.int64)
    count, total = search[S_COUNT], 0
    for first in range(start, count, _GROUP):
        size = min(_GROUP, count - first)
        error = _enter(view, search, first, size, rows)
        if error:
            return error, total
        walked, steps_left = _walk_group(view, search, first, size, rows, kept, taken)
        if walked < 0:
            return walked, total
        total += walked
        for j in range(size):
            i = first + j
            done = load_i64(offsets + 8 * i)
            if done + taken[j] > room:
                return i, total
            for m in range(taken[j]):
                store_i64(numbers + 8 * (done + m), kept[j, m])
            done += taken[j]
            row, left = rows[j], load_i64(search[S_LIMITS] + 8 * i) - taken[j]
            if row != 0 and left and steps_left:  # one with many matches goes on alone
                if done == room:
                    return i, total
                found, row, walked = walk_chain(
                    view,
                    np.int64(load_u64(search[S_HASHES] + 8 * i)),
                    np.int64(load_u32(search[S_TAGS] + 4 * i)),
                    load_i64(search[S_BEGINS] + 8 * i),
                    load_i64(search[S_ENDS] + 8 * i),
                    search[S_PUBLISHED],
                    row,
                    min(left, room - done),
                    steps_left,
                    numbers + 8 * done,
                    0,
                )
                total += walked
                if found < 0:
                    return found, total
                done += found
                if row != 0 and done == room and found < left:
                    return i, total
            store_i64(offsets + 8 * (i + 1), done)
            store_i64(search[S_FOLLOWING] + 8 * i, row if row != 0 else np.int64(DONE))
    return count, total


@kernel
def gather_rows(view: Any, numbers: int, count: int, out: int) -> None:
    """Copy the rows with these numbers (i8), which a lookup gave, to `out`."""
    base, item_bytes = view[V_ROWS], view[V_ITEM_BYTES]
    for i in range(count):
        if i + _AHEAD < count:
            place = base + (load_i64(numbers + 8 * (i + _AHEAD)) - 1) * item_bytes
            prefetch(place)
            prefetch(place + item_bytes - 1)
        place = base + (load_i64(numbers + 8 * i) - 1) * item_bytes
        for position in range(0, item_bytes, 8):
            store_u64(out + position, load_u64(place + position))
        out += item_bytes
