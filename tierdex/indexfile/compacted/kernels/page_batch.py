"""Many lookups in the pages of a compacted file that are in memory, misses overlapped.

Each stage (filter, directory, page, row) asks the cache for what the next one will need, for a whole
group, so that a group waits once a stage instead of once a hash. The pages are those of a mapped file, or
of a span that was fetched (FIRST_PAGE, END_PAGE): a lookup stops where they end. `plan_pages` says which
ones a lookup needs. `search` is the address of SEARCH_LENGTH numbers: where the columns of the lookups lie.

Depends on the kernel decorator, intrinsics, page_codec, page_fields, page_lookup, fuse_filter and lookup.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels import fuse_filter as fuse
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
)
from tierdex.indexfile.compacted.kernels.page_codec import (
    COLUMN_COUNT,
    FRAME,
    ITEM_BYTES,
    PAGE_COLUMN_BYTES,
    PAGE_FRAME,
    PAGE_HEADER_BYTES,
    WIDTH,
    column_number,
    hash_column,
    plan_number,
)
from tierdex.indexfile.compacted.kernels.page_fields import (
    first_hash,
    frame_width,
    hash_width,
    item_count,
    page_position,
)
from tierdex.indexfile.compacted.kernels.page_lookup import (
    DAMAGED_DIRECTORY,
    DAMAGED_FILTER,
    DAMAGED_PAGE,
    END_PAGE,
    FILTER,
    FIRST_PAGE,
    PAGE_COUNT,
    PAGES,
    PLACE_BITS,
    PLAN,
    Output,
    Run,
    Wanted,
    collect_run,
    entry_at,
    file_number,
    first_row,
    mapped_page,
    next_pages,
    page_in_span,
    page_place,
    page_range,
)
from tierdex.indexfile.lookup import DONE, START

# Places of a search (i8 each): columns of n lookups by address, see `lookup.Search` and `Found`.
HASHES, TAGS, BEGINS, ENDS, LIMITS, PLACES, FOLLOWING, COUNT, MOST_PAGES = range(9)
SEARCH_LENGTH = 9

_GROUP = 32
_LINE = 64
_DONE = np.int64(DONE)
# Columns of the group's scratch: fingerprint addresses or pages, and the first row.
_VALUE, _FIRST, _LAST, _ADDRESS, _ROW = range(5)
_SCRATCH = 5


@kernel
def _ask_filter(file: int, hashes: int, count: int, scratch: Any, wanted: Any) -> Any:
    """Set `wanted` of each hash that the filter does not exclude; return (0 or damage, partition)."""
    filter_words = file_number(file, FILTER)
    bits = load_i64(filter_words + 8 * fuse.BITS)
    if bits == 0:
        for i in range(count):
            wanted[i] = True
        return np.int64(0), np.int64(0)
    for i in range(count):
        key_hash = load_u64(hashes + 8 * i)
        partition = fuse.partition_of(filter_words, key_hash)
        if not fuse.partition_is_sound(filter_words, partition):
            return np.int64(DAMAGED_FILTER), partition
        wanted[i] = fuse.has_keys(filter_words, partition)
        value, a0, a1, a2, a3 = fuse.filter_positions(filter_words, partition, key_hash)
        scratch[i, 0] = np.int64(value)
        scratch[i, 1] = a0
        scratch[i, 2] = a1
        scratch[i, 3] = a2
        scratch[i, 4] = a3
        prefetch(a0)
        prefetch(a1)
        prefetch(a2)
        prefetch(a3)
    for i in range(count):
        if wanted[i]:
            value = np.uint64(scratch[i, 0])
            wanted[i] = fuse.fingerprints_match(
                value, scratch[i, 1], scratch[i, 2], scratch[i, 3], scratch[i, 4], bits
            )
    return np.int64(0), np.int64(0)


@kernel
def _find_pages(file: int, hashes: int, places: int, count: int, scratch: Any, wanted: Any) -> Any:
    """Fill in first and last page, and row, of each wanted hash; return (0 or damage, entry)."""
    pages = np.uint64(file_number(file, PAGE_COUNT))
    for i in range(count):
        if wanted[i]:
            prefetch(entry_at(file, np.int64(mul_high(load_u64(hashes + 8 * i), pages))))
    for i in range(count):
        if wanted[i]:
            first, last = page_range(file, load_u64(hashes + 8 * i))
            if first < 0:
                return np.int64(DAMAGED_DIRECTORY), last
            place = np.int64(START)
            if places != 0:
                place = load_i64(places + 8 * i)
            scratch[i, _ROW] = 0
            if place != START:
                page = place >> PLACE_BITS
                if page < first or page > last:
                    first, last = np.int64(0), np.int64(-1)  # a place that this run cannot have
                else:
                    first = page
                    scratch[i, _ROW] = place & ((1 << PLACE_BITS) - 1)
            scratch[i, _FIRST] = first
            scratch[i, _LAST] = last
            wanted[i] = first <= last
            if first <= last:
                address = file_number(file, PAGES) + page_position(entry_at(file, first))
                prefetch(address)
                prefetch(address + _LINE)
    return np.int64(0), np.int64(0)


@kernel
def _ask_for_hashes(file: int, key_hash: Any, page: int) -> None:
    """Ask the cache for the part of a page's hash column where `key_hash` should stand.

    The page may not be verified yet, so what its header says is used only to name cache lines.
    """
    if page < file_number(file, FIRST_PAGE) or page >= file_number(file, END_PAGE):
        return
    position, _ = page_place(file, page)
    address = file_number(file, PAGES) + position
    low = first_hash(entry_at(file, page))
    span = (first_hash(entry_at(file, page + 1)) - low) >> np.uint64(16)
    if span == np.uint64(0):
        return
    share = np.int64(((key_hash - low) >> np.uint64(8)) // span)  # of 256
    column_bits = item_count(address) * hash_width(address)
    line = hash_column(address) + ((column_bits * share) >> 11)
    for step in range(-2, 3):
        prefetch(line + _LINE * step)


@kernel
def _ask_for_columns(plan: int, page: int, row: int) -> None:
    """Ask the cache for every column's line of one row of a verified page."""
    count = item_count(page)
    header = page + PAGE_HEADER_BYTES
    at = hash_column(page) + ((count * hash_width(page) + 7) >> 3)
    for c in range(plan_number(plan, COLUMN_COUNT)):
        if column_number(plan, c, FRAME) == PAGE_FRAME:
            width = frame_width(header)
            header += PAGE_COLUMN_BYTES
        else:
            width = column_number(plan, c, WIDTH)
        prefetch(at + ((row * width) >> 3))
        at += (count * width + 7) >> 3


@kernel
def _find_first_rows(
    file: int, hashes: int, begins: int, ends: int, count: int, scratch: Any, wanted: Any
) -> Any:
    """Fill in where each run begins in its first page, -1: not there; return (0 or damage, page)."""
    for i in range(count):
        if wanted[i]:
            _ask_for_hashes(file, load_u64(hashes + 8 * i), scratch[i, _FIRST])
    for i in range(count):
        if not wanted[i]:
            continue
        page = scratch[i, _FIRST]
        if not page_in_span(file, page, load_i64(begins + 8 * i), load_i64(ends + 8 * i)):
            wanted[i] = page < scratch[i, _LAST]
            scratch[i, _ROW] = -1
            continue
        address = mapped_page(file, page)
        if address == 0:
            return np.int64(DAMAGED_PAGE), page
        scratch[i, _ADDRESS] = address
        if scratch[i, _ROW] == 0:
            scratch[i, _ROW] = first_row(address, load_u64(hashes + 8 * i))
        _ask_for_columns(file_number(file, PLAN), address, scratch[i, _ROW])
    return np.int64(0), np.int64(0)


@kernel
def search_pages(
    file: int, search: int, start: int, offsets: int, rows: int, places: int, room: int
) -> Any:
    """Answer the lookups from `start` on into `rows`, `places` (i8) and `offsets` (i8[n + 1]).

    offsets[i + 1] is where the rows of lookup i end; offsets[start] is given. Returns (next lookup,
    0, 0, rows looked at); it is below the number of lookups when the rows did not fit in `room`: give
    more and call again with it as `start`. Or (lookup, DAMAGED_..., its number, 0).
    """
    most_pages = load_i64(search + 8 * MOST_PAGES)
    count = load_i64(search + 8 * COUNT)
    step = plan_number(file_number(file, PLAN), ITEM_BYTES)
    scratch = np.zeros((_GROUP, _SCRATCH), np.int64)
    wanted = np.zeros(_GROUP, np.bool_)
    total = np.int64(0)
    for first in range(start, count, _GROUP):
        group = min(_GROUP, count - first)
        hashes = load_i64(search + 8 * HASHES) + 8 * first
        tags = load_i64(search + 8 * TAGS) + 4 * first
        begins = load_i64(search + 8 * BEGINS) + 8 * first
        ends = load_i64(search + 8 * ENDS) + 8 * first
        limits = load_i64(search + 8 * LIMITS) + 8 * first
        begun = load_i64(search + 8 * PLACES)
        if begun != 0:
            begun += 8 * first
        following = load_i64(search + 8 * FOLLOWING) + 8 * first
        damage, number = _ask_filter(file, hashes, group, scratch, wanted)
        if damage == 0:
            damage, number = _find_pages(file, hashes, begun, group, scratch, wanted)
        if damage == 0:
            damage, number = _find_first_rows(file, hashes, begins, ends, group, scratch, wanted)
        if damage != 0:
            return np.int64(first), damage, number, np.int64(0)
        for i in range(group):
            done = load_i64(offsets + 8 * (first + i))
            found, goes_on = np.int64(0), _DONE
            if wanted[i]:
                limit = load_i64(limits + 8 * i)
                fits = min(room - done, limit)
                lookup = Wanted(
                    load_u64(hashes + 8 * i),
                    load_u32(tags + 4 * i),
                    load_i64(begins + 8 * i),
                    load_i64(ends + 8 * i),
                )
                run = Run(
                    scratch[i, _FIRST], scratch[i, _LAST], scratch[i, _ADDRESS], scratch[i, _ROW]
                )
                output = Output(rows + done * step, places + 8 * done, fits)
                found, goes_on, walked = collect_run(file, lookup, run, output, most_pages)
                if found < 0:
                    return np.int64(first + i), found, goes_on, np.int64(0)
                if goes_on != _DONE and found == fits and fits < limit:
                    return np.int64(first + i), np.int64(0), np.int64(0), total
                total += walked
            store_i64(following + 8 * i, goes_on)
            store_i64(offsets + 8 * (first + i + 1), done + found)
    return np.int64(count), np.int64(0), np.int64(0), total


@kernel
def plan_pages(file: int, search: int, most_bytes: int, ranges: int) -> Any:
    """Write the first and last page (i8[n, 2]) that each lookup must read next; (0, -1) for none.

    See `next_pages`. Returns 0, or DAMAGED_DIRECTORY.
    """
    for i in range(load_i64(search + 8 * COUNT)):
        from_page = np.int64(-1)
        if load_i64(search + 8 * PLACES) != 0:
            place = load_i64(load_i64(search + 8 * PLACES) + 8 * i)
            if place != START:
                from_page = max(np.int64(0), place) >> PLACE_BITS
        first, last, _, _ = next_pages(
            file,
            load_i64(load_i64(search + 8 * HASHES) + 8 * i),
            from_page,
            load_i64(load_i64(search + 8 * BEGINS) + 8 * i),
            load_i64(load_i64(search + 8 * ENDS) + 8 * i),
            most_bytes,
        )
        if first < 0:
            return np.int64(DAMAGED_DIRECTORY)
        store_i64(ranges + 8 * (2 * i), first)
        store_i64(ranges + 8 * (2 * i + 1), last)
    return np.int64(0)
