"""Many lookups in local files of one schema, newest file first, in one call: columns in, rows out.

::

    lookups that want rows of a file     by its times, their topics, and what they have so far
    chained     hash ahead -> prefetch its slot             (_AHEAD lookups before it is needed)
                slot -> prefetch the first row              (a free lane of _LANES)
                row -> prefetch the next one, or, when it matches, all of it: taken one round later
    compacted   filter, directory, pages                    (page_batch, groups of lookups)
    row         copied; a row of messages that the lookup has already is passed over

A lane whose chain has ended takes the next lookup at once, so that as many loads are in flight as the memory
takes; groups that wait for their longest chain cost a sixth more. Only the first 16 bytes of a row are
prefetched, which say whether it matches: most rows lie on two cache lines.

A call ends early when the rows need more room, and the next one goes on. The arguments are those of
lookup_states.

Depends on lookup_states, chain_lookup, head_insertion, page_batch, intrinsics, compile, layout and
lookup.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import carray, kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    numbers_at,
    prefetch,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.chain_lookup import (
    BAD_CHAIN,
    V_CHECKSUMS,
    V_ROW_LIMIT,
    V_ROWS,
    V_SLOT_COUNT,
    V_SLOTS,
    VIEW_LENGTH,
    bad_block,
)
from tierdex.indexfile.chained.kernels.head_insertion import Slots, slot_of
from tierdex.indexfile.compacted.kernels import page_batch
from tierdex.indexfile.kernels import lookup_states as s
from tierdex.indexfile.lookup import DONE, START, TIME_MAX, TIME_MIN

# Columns of the scratch: the lookups that a compacted file is asked, and what page_batch takes of them.
_WANTED, _HASHES, _BEGINS, _ENDS, _LIMITS, _STARTS, _FOLLOWING, _TAGS, _OFFSETS = range(9)
SCRATCH: Final = 9

FINISHED, MORE_ROOM = 0, 1

_LANES = 32
_AHEAD = 32
_HEAD_BYTES = layout.ITEM_TIME_POSITION  # of an item: hash, link and tag
_HASH = layout.ITEM_HASH_POSITION
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_TAG_NONE = np.uint32(layout.TAG_NONE)
_ANY_MESSAGE_ID = np.uint32(layout.TAG_ANY_MESSAGE_ID)
_KIND_BIT = np.uint32(layout.KIND_BIT)


# -- chained files ------------------------------------------------------------------------------------


@kernel
def _matches(arguments: int, file: int, row: int, lookup: Any, key_hash: Any, tag: Any) -> Any:
    if load_u64(row + _HASH) != key_hash:
        return False
    found = load_u32(row + _TAG)
    if found != tag and not (
        tag == _ANY_MESSAGE_ID and (found & _KIND_BIT) != 0 and not s.is_hidden(file, row)
    ):
        return False
    begins = s.argument(arguments, s.L_BEGINS)
    if begins == 0:
        return True
    time = load_i64(row + _TIME)
    return load_i64(begins + 8 * lookup) <= time and time <= load_i64(
        s.argument(arguments, s.L_ENDS) + 8 * lookup
    )


@kernel
def _walk_chains(arguments: int, number: int) -> Any:
    """Take the rows of a chained file; return FINISHED, MORE_ROOM, or an error."""
    file = s.argument(arguments, s.L_FILES) + 8 * s.C_LENGTH * number
    view = carray(numbers_at(load_i64(file + 8 * s.C_VIEW)), (VIEW_LENGTH,))
    slots = Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT]))
    item_bytes, base, row_limit = (
        s.argument(arguments, s.L_ITEM_BYTES),
        view[V_ROWS],
        view[V_ROW_LIMIT],
    )
    published, verify = load_i64(file + 8 * s.C_PUBLISHED), view[V_CHECKSUMS] != 0
    newest = base + (published - 1) * item_bytes
    count, room = s.argument(arguments, s.L_COUNT), s.argument(arguments, s.L_ROOM)
    has_limits, columns = s.argument(arguments, s.L_LIMITS) != 0, s.argument(arguments, s.L_COLUMNS)
    # Nearly always one row is wanted of each key of one topic, of any time.
    states, first_tag = s.argument(arguments, s.L_STATES), load_u32(load_i64(file + 8 * s.C_TAGS))
    is_plain = not has_limits and s.argument(arguments, s.L_CODES) == 0 and first_tag != _TAG_NONE
    is_plain = is_plain and s.argument(arguments, s.L_BEGINS) == 0
    most_items, hash_column = (
        s.argument(arguments, s.L_MOST_ITEMS),
        s.argument(arguments, s.L_HASHES),
    )
    lookups, hashes = np.empty(2 * _LANES, np.int64), np.empty(2 * _LANES, np.uint64)
    places, tags = np.empty(2 * _LANES, np.int64), np.empty(2 * _LANES, np.uint32)
    steps, found = np.empty(2 * _LANES, np.int64), np.empty(_LANES, np.int64)
    hits, running, hit, walked = np.empty(_LANES, np.int64), 0, 0, 0
    hit_tags, hit_steps = np.empty(_LANES, np.uint32), np.empty(_LANES, np.int64)
    ahead, admitted, status = 0, 0, np.int64(FINISHED)
    while True:
        while admitted < count and running < _LANES:
            # The slot of the key `_AHEAD` keys on is asked for; at the start, those of all before.
            while ahead < min(count, admitted + _AHEAD):
                prefetch(slot_of(slots, load_u64(hash_column + 8 * ahead)))
                ahead += 1
            lookup, tag, row = np.int64(admitted), first_tag, np.int64(START)
            admitted += 1
            if is_plain:
                if load_u8(states + lookup) != s.OPEN:
                    continue
            else:
                if not s.wants(arguments, file, number, lookup):
                    continue
                tag, row = (
                    s.tag_of(arguments, file, lookup),
                    s.place_in(arguments, number, lookup),
                )
            value = load_u64(hash_column + 8 * lookup)
            if row == START:
                slot = slot_of(slots, value)
                if verify:
                    error = bad_block(view, slot, layout.SLOT_BYTES)
                    if error:
                        return np.int64(error)
                row = np.int64(load_u32(slot))
                if row > row_limit:
                    return np.int64(BAD_CHAIN)
            elif row < 1 or row > published:
                row = np.int64(0)  # a place that this file cannot have
            if row == 0:
                s.leave(arguments, lookup, number, np.int64(DONE))
                continue
            place = base + (row - 1) * item_bytes
            prefetch(place)
            prefetch(place + _HEAD_BYTES - 1)
            lookups[running], hashes[running], places[running] = lookup, value, place
            tags[running], steps[running] = tag, most_items
            running += 1
        if s.argument(arguments, s.L_FOUND) + hit > room and has_limits:
            status = np.int64(MORE_ROOM)
            break
        for a in range(hit):
            lookup, place = hits[a], found[a]
            if is_plain:
                store_u8(states + lookup, np.uint8(s.HAS_IT))
                s.store_columns(columns, count, lookup, np.int64(-1), place, number)
                continue
            row = (place - base) // item_bytes + 1
            following = np.int64(load_u32(place + _LINK))
            taken = s.take(arguments, lookup, number, place, row)
            if taken == s.TOO_MANY:
                s.cut(arguments, lookup, number, row)
            elif following == 0:
                s.leave(arguments, lookup, number, np.int64(DONE))
            elif s.is_done(arguments, lookup):
                s.leave(arguments, lookup, number, following)
            elif hit_steps[a] == 0:
                s.cut(arguments, lookup, number, following)
            else:
                next_place = base + (following - 1) * item_bytes
                prefetch(next_place)
                prefetch(next_place + _HEAD_BYTES - 1)
                lookups[running], hashes[running] = lookup, load_u64(hash_column + 8 * lookup)
                places[running], tags[running] = next_place, hit_tags[a]
                steps[running] = hit_steps[a]
                running += 1
        if is_plain:
            store_i64(arguments + 8 * s.L_FOUND, s.argument(arguments, s.L_FOUND) + hit)
        hit = 0
        if running == 0 and admitted == count:
            break
        still = 0
        for a in range(min(running, _LANES)):
            place, lookup = places[a], lookups[a]
            if verify:
                error = bad_block(view, place, item_bytes)
                if error:
                    return np.int64(error)
            walked += 1
            left = steps[a] - 1
            link = np.int64(load_u32(place + _LINK))
            following = base + (link - 1) * item_bytes
            if following >= place:
                return np.int64(BAD_CHAIN)
            if place <= newest and _matches(arguments, file, place, lookup, hashes[a], tags[a]):
                prefetch(place + item_bytes - 1)
                hits[hit], found[hit], hit_tags[hit], hit_steps[hit] = lookup, place, tags[a], left
                hit += 1
            elif link == 0:
                s.leave(arguments, lookup, number, np.int64(DONE))
            elif left == 0:
                s.cut(arguments, lookup, number, link)
            else:
                prefetch(following)
                prefetch(following + _HEAD_BYTES - 1)
                lookups[still], hashes[still], places[still] = lookup, hashes[a], following
                tags[still], steps[still] = tags[a], left
                still += 1
        for a in range(min(running, _LANES), running):
            lookups[still], hashes[still], places[still] = lookups[a], hashes[a], places[a]
            tags[still], steps[still] = tags[a], steps[a]
            still += 1
        running = still
    for a in range(hit):  # what waits for room
        s.leave(arguments, hits[a], number, (found[a] - base) // item_bytes + 1)
    for a in range(running):
        s.leave(arguments, lookups[a], number, (places[a] - base) // item_bytes + 1)
    store_i64(arguments + 8 * s.L_ITEMS, s.argument(arguments, s.L_ITEMS) + walked)
    return status


# -- compacted files ----------------------------------------------------------------------------------


@kernel
def _gather_wanted(arguments: int, number: int) -> Any:
    """Write the lookups that a compacted file is asked for to the scratch; return how many they are."""
    file = s.argument(arguments, s.L_FILES) + 8 * s.C_LENGTH * number
    count, scratch = s.argument(arguments, s.L_COUNT), s.argument(arguments, s.L_SCRATCH)
    order, wanted = s.argument(arguments, s.L_ORDER), np.int64(0)
    for i in range(count):
        lookup = np.int64(i)
        if order != 0:
            lookup = load_i64(order + 8 * i)
        if not s.wants(arguments, file, number, lookup):
            continue
        begin, end = np.int64(TIME_MIN), np.int64(TIME_MAX)
        if s.argument(arguments, s.L_BEGINS) != 0:
            begin = load_i64(s.argument(arguments, s.L_BEGINS) + 8 * lookup)
            end = load_i64(s.argument(arguments, s.L_ENDS) + 8 * lookup)
        limit = s.rows_wanted(arguments, lookup)
        at = scratch + 8 * wanted
        store_i64(at + 8 * count * _WANTED, lookup)
        store_u64(
            at + 8 * count * _HASHES, load_u64(s.argument(arguments, s.L_HASHES) + 8 * lookup)
        )
        store_i64(at + 8 * count * _BEGINS, begin)
        store_i64(at + 8 * count * _ENDS, end)
        store_i64(at + 8 * count * _LIMITS, limit)
        store_i64(at + 8 * count * _STARTS, s.place_in(arguments, number, lookup))
        store_u32(scratch + 8 * count * _TAGS + 4 * wanted, s.tag_of(arguments, file, lookup))
        wanted += 1
    return wanted


@kernel
def _take_run(arguments: int, number: int, j: int, first: Any) -> Any:
    """Take the rows of the lookup that was asked for as number `j`, which lie from row `first` on.

    Rows are moved to where the last one ends. Returns where the next lookup's rows lie.
    """
    count, scratch = s.argument(arguments, s.L_COUNT), s.argument(arguments, s.L_SCRATCH)
    file = s.argument(arguments, s.L_FILES) + 8 * s.C_LENGTH * number
    rows, step = s.argument(arguments, s.L_ROWS), s.argument(arguments, s.L_ITEM_BYTES)
    own, all_places = scratch + 8 * j, s.argument(arguments, s.L_PLACES)
    lookup, limit = (
        load_i64(own + 8 * count * _WANTED),
        load_i64(own + 8 * count * _LIMITS),
    )
    following, offsets = (
        load_i64(own + 8 * count * _FOLLOWING),
        scratch + 8 * count * _OFFSETS,
    )
    size = load_i64(offsets + 8 * (j + 1)) - load_i64(offsets + 8 * j)
    tag = load_u32(scratch + 8 * count * _TAGS + 4 * j)
    for i in range(first, first + size):
        row, place = rows + step * i, load_i64(all_places + 8 * i)
        if tag == _ANY_MESSAGE_ID and s.is_hidden(file, row):
            continue
        if s.take(arguments, lookup, number, row, place) == s.TOO_MANY:
            s.cut(arguments, lookup, number, place)
            return first + size
    if size < limit and following != DONE and not s.is_done(arguments, lookup):
        s.cut(arguments, lookup, number, following)
    else:  # or the file is asked again, for those that were repeats
        s.leave(arguments, lookup, number, following)
    return first + size


@kernel
def _read_runs(arguments: int, number: int) -> Any:
    """Take the rows of a compacted file; return (FINISHED, MORE_ROOM or what is damaged, its number)."""
    file = s.argument(arguments, s.L_FILES) + 8 * s.C_LENGTH * number
    count, scratch = s.argument(arguments, s.L_COUNT), s.argument(arguments, s.L_SCRATCH)
    search = np.zeros(page_batch.SEARCH_LENGTH, np.int64)
    search[page_batch.HASHES] = scratch + 8 * count * _HASHES
    search[page_batch.TAGS] = scratch + 8 * count * _TAGS
    search[page_batch.BEGINS] = scratch + 8 * count * _BEGINS
    search[page_batch.ENDS] = scratch + 8 * count * _ENDS
    search[page_batch.LIMITS] = scratch + 8 * count * _LIMITS
    search[page_batch.PLACES] = scratch + 8 * count * _STARTS
    search[page_batch.FOLLOWING] = scratch + 8 * count * _FOLLOWING
    search[page_batch.MOST_PAGES] = load_i64(file + 8 * s.C_MOST_PAGES)
    offsets = scratch + 8 * count * _OFFSETS
    while True:
        wanted = _gather_wanted(arguments, number)
        if wanted == 0:
            return np.int64(FINISHED), np.int64(0)
        search[page_batch.COUNT] = wanted
        store_i64(offsets, np.int64(0))
        found = s.argument(arguments, s.L_FOUND)
        if s.argument(arguments, s.L_LIMITS) == 0:
            found = np.int64(0)  # rows go to the columns
        done, damage, what, walked = page_batch.search_pages(
            load_i64(file + 8 * s.C_NUMBERS),
            search.ctypes.data,
            0,
            offsets,
            s.argument(arguments, s.L_ROWS) + s.argument(arguments, s.L_ITEM_BYTES) * found,
            s.argument(arguments, s.L_PLACES) + 8 * found,
            s.argument(arguments, s.L_ROOM) - found,
        )
        if damage != 0:
            return damage, what
        store_i64(arguments + 8 * s.L_ITEMS, s.argument(arguments, s.L_ITEMS) + walked)
        for j in range(done):
            found = _take_run(arguments, number, j, found)
        if done < wanted:
            return np.int64(MORE_ROOM), np.int64(0)
        if s.argument(arguments, s.L_LIMITS) == 0:
            return np.int64(FINISHED), np.int64(0)


# -- all of them -----------------------------------------------------------------------------------------


@kernel
def search_files(arguments: int) -> Any:
    """Take the rows of all lookups (see L_*, at address `arguments`), newest file first.

    Returns (FINISHED, MORE_ROOM: call again with more of it, or an error; the number of what is damaged; the
    file).
    """
    if s.argument(arguments, s.L_IS_BEGUN) == 0:
        s.begin(arguments)
    for number in range(s.argument(arguments, s.L_FILE), s.argument(arguments, s.L_FILE_COUNT)):
        file = s.argument(arguments, s.L_FILES) + 8 * s.C_LENGTH * number
        if load_i64(file + 8 * s.C_VIEW) != 0:
            status, what = _walk_chains(arguments, number), np.int64(0)
        else:
            status, what = _read_runs(arguments, number)
        store_i64(arguments + 8 * s.L_FILE, np.int64(number))
        if status != FINISHED:
            return status, what, np.int64(number)
        if not s.any_wants(arguments):
            break
    return np.int64(FINISHED), np.int64(0), np.int64(0)
