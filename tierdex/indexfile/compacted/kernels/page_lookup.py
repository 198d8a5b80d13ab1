"""Finding hashes in a compacted file: directory search, search inside a page, the rows.

`file` is the address of the i8 array that `compacted.CompactedFile` prepares (FILE_LENGTH numbers).
Directory blocks and mapped pages are verified when first used since opening; whether they were is
kept in byte maps, which several threads may set at once.

Depends on compile, intrinsics, checksum, page_codec, page_fields, fuse_filter, layout and
lookup.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.checksum import crc32c, numbered_seed
from tierdex.fileparts.kernels.compile import direct_call, kernel, types
from tierdex.fileparts.kernels.fuse_filter import DAMAGED, NO, contains, partition_of
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u32,
    mul_high,
    store_i64,
    store_u8,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.kernels.page_codec import (
    ITEM_BYTES,
    decode_item,
    decode_page,
    hash_at,
    hash_column,
    page_item_count,
    plan_number,
)
from tierdex.indexfile.compacted.kernels.page_fields import (
    entry_of,
    first_hash,
    hash_base,
    hash_slope,
    hash_width,
    item_count,
    max_time,
    min_time,
    page_position,
)
from tierdex.indexfile.lookup import DONE, START

# Places of an open compacted file (i8 each).
PLAN, PAGES, DIRECTORY, PAGE_COUNT, CHECKSUMS, DIRECTORY_VERIFIED = range(6)
DIRECTORY_SEED, FILTER, PAGES_VERIFIED, PAGES_END, FIRST_PAGE, END_PAGE = range(6, 12)
# The directory entries that are searched: all, or those of one hash group.
LOW_PAGE, HIGH_PAGE = 12, 13
FILE_LENGTH = 16
# What is damaged, as negative results; the number of the block, partition or page comes beside it.
DAMAGED_DIRECTORY, DAMAGED_FILTER, DAMAGED_PAGE = -2, -3, -4

# A place: the page, then the row in it; row 0 stands for the first row of the hash in that page.
PLACE_BITS = 16

_ENTRY = layout.DIRECTORY_ENTRY_BYTES
_ENTRIES_PER_BLOCK = layout.DIRECTORY_BLOCK_BYTES // layout.DIRECTORY_ENTRY_BYTES
_FEW_PAGES = 2  # behind the first, that a lookup in one step looks at
_TAG_ANY_MESSAGE_ID = np.uint32(layout.TAG_ANY_MESSAGE_ID)
_KIND_BIT = np.uint32(layout.KIND_BIT)
_U0 = np.uint64(0)
_NONE = np.int64(0)
_DONE = np.int64(DONE)


class Wanted(NamedTuple):
    """What a row must have: the hash (u8), the tag (u4), a time from `begin` to `end` (i8)."""

    key_hash: Any
    tag: Any
    begin: Any
    end: Any


class Output(NamedTuple):
    """Where matching rows go: up to `room` to address `rows`, their numbers to `places` (i8; 0: nowhere)."""

    rows: Any
    places: Any
    room: Any


@kernel
def file_number(file: int, place: int) -> Any:
    return load_i64(file + 8 * place)


@kernel
def entry_at(file: int, page: Any) -> Any:
    """Return the address of a page's entry in the directory."""
    return entry_of(file_number(file, DIRECTORY), page)


@kernel
def entry_is_sound(file: int, entry: int) -> Any:
    """Verify the block of directory entry `entry` when it is first used."""
    block = entry // _ENTRIES_PER_BLOCK
    verified = file_number(file, DIRECTORY_VERIFIED) + block
    if load_u8(verified) != 0:
        return True
    first = block * _ENTRIES_PER_BLOCK
    count = min(_ENTRIES_PER_BLOCK, file_number(file, PAGE_COUNT) + 1 - first)
    seed = numbered_seed(np.uint32(file_number(file, DIRECTORY_SEED)), np.uint64(block))
    crc = crc32c(entry_at(file, first), _ENTRY * count, seed)
    if crc != load_u32(file_number(file, CHECKSUMS) + 4 * block):
        return False
    store_u8(verified, np.uint8(1))
    return True


@kernel
def pages_below(file: int, key_hash: Any) -> Any:
    """Return how many pages begin with a hash below `key_hash`, or DAMAGED_DIRECTORY.

    Hashes are close to evenly spread: the search starts where even spread puts the hash and widens.
    """
    begin, end = file_number(file, LOW_PAGE), file_number(file, HIGH_PAGE)
    guess = np.int64(mul_high(key_hash, np.uint64(file_number(file, PAGE_COUNT))))
    guess = min(max(guess, begin), max(begin, end - 1))
    low, high = begin, end  # entries below `low` are below the hash, from `high` on not
    step = np.int64(2)
    at = guess
    while low < high:
        if not entry_is_sound(file, at):
            return DAMAGED_DIRECTORY
        if first_hash(entry_at(file, at)) < key_hash:
            low = at + 1
        else:
            high = at
        if low > guess and high == end and step > 0:  # all probes so far were below
            at = min(guess + step, high - 1)
            step *= 2
        elif high <= guess and low == begin and step > 0:  # all probes so far were not below
            at = max(guess - step, begin)
            step *= 2
        else:
            step = np.int64(0)
            at = (low + high) >> 1
    return low


@kernel
def page_range(file: int, key_hash: Any) -> Any:
    """Return the first and the last page that may hold `key_hash`; (0, -1) for none.

    (DAMAGED_DIRECTORY, entry) when a block of the directory is damaged.
    """
    below = pages_below(file, key_hash)
    if below < 0:
        return below, np.int64(mul_high(key_hash, np.uint64(file_number(file, PAGE_COUNT))))
    last, end = below, file_number(file, HIGH_PAGE)
    while last < end:
        if not entry_is_sound(file, last):
            return DAMAGED_DIRECTORY, last
        if first_hash(entry_at(file, last)) != key_hash:
            break
        last += 1
    return max(below - 1, file_number(file, LOW_PAGE)), last - 1


@kernel
def page_place(file: int, page: int) -> Any:
    """Return (position, length) of a page, length 0 when the directory is damaged there."""
    if not entry_is_sound(file, page) or not entry_is_sound(file, page + 1):
        return np.int64(0), np.int64(0)
    begin, end = page_position(entry_at(file, page)), page_position(entry_at(file, page + 1))
    if begin < layout.HEADER_BYTES or end <= begin or end > file_number(file, PAGES_END):
        return np.int64(0), np.int64(0)
    return begin, end - begin


@kernel
def hashes_rise(page: int) -> Any:
    """Return whether no row's hash is below the one before: else a search inside the page would miss rows.

    A page of a sound checksum has them in order, unless both are forged.
    """
    width, column = hash_width(page), hash_column(page)
    before = hash_at(page, column, 0, width)
    for row in range(1, item_count(page)):
        key_hash = hash_at(page, column, row, width)
        if key_hash < before:
            return False
        before = key_hash
    return True


@kernel
def mapped_page(file: int, page: int) -> Any:
    """Return the address of a page in memory, verified when first used; 0 when it is damaged.

    In memory are the pages from FIRST_PAGE up to END_PAGE: all of a mapped file, or those of a fetched span.
    """
    if page < file_number(file, FIRST_PAGE) or page >= file_number(file, END_PAGE):
        return 0
    position, length = page_place(file, page)
    if length == 0:
        return 0
    address = file_number(file, PAGES) + position
    verified = file_number(file, PAGES_VERIFIED) + page
    if load_u8(verified) == 0:
        if page_item_count(address, length, file_number(file, PLAN), page) < 0:
            return 0
        if not hashes_rise(address):
            return 0
        store_u8(verified, np.uint8(1))
    return address


@kernel
def _narrow(page: int, key_hash: Any, width: int) -> Any:
    """Return (low, high): the first row of at least `key_hash` is in [low, high] by the line alone."""
    count = item_count(page)
    slope = hash_slope(page)
    if slope == _U0 or width >= 56:
        return np.int64(0), count
    distance = key_hash - hash_base(page)
    reach = np.uint64(1) << np.uint64(width)
    low = _U0
    if distance >= reach:
        low = min((distance - reach) // slope + np.uint64(1), np.uint64(count))
    high = min(distance // slope + np.uint64(1), np.uint64(count))
    return np.int64(low), np.int64(high)


@kernel
def first_row(page: int, key_hash: Any) -> Any:
    """Return the first row of a verified page whose hash is not below `key_hash`.

    `key_hash` is not below the page's first hash: the directory led here.
    """
    width = hash_width(page)
    column = hash_column(page)
    low, high = _narrow(page, key_hash, width)
    while low < high:
        middle = (low + high) >> 1
        if hash_at(page, column, middle, width) < key_hash:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def tag_matches(tag: Any, wanted: Any) -> Any:
    """Return whether an item's tag is the wanted one; TAG_ANY_MESSAGE_ID fits every message ID."""
    if wanted == _TAG_ANY_MESSAGE_ID:
        return (tag & _KIND_BIT) != 0
    return tag == wanted


@kernel
def collect_rows(page: int, plan: int, row: int, wanted: Any, output: Any) -> Any:
    """Write the rows of a verified page that are `wanted`, from row `row` on, to `output`.

    Returns (rows written, row to go on with: the page's item count once the page is done, -1 when a
    greater hash was met, so that the run ends here).
    """
    count, width, column = item_count(page), hash_width(page), hash_column(page)
    item_bytes = plan_number(plan, ITEM_BYTES)
    written = 0
    while row < count:
        if hash_at(page, column, row, width) != wanted.key_hash:
            return written, np.int64(-1)
        if written == output.room:
            return written, row
        target = output.rows + written * item_bytes
        for position in range(0, item_bytes, 8):
            store_u64(target + position, np.uint64(0))
        decode_item(page, plan, row, target)
        time = load_i64(target + layout.ITEM_TIME_POSITION)
        tag = load_u32(target + layout.ITEM_TAG_POSITION)
        if wanted.begin <= time <= wanted.end and tag_matches(tag, wanted.tag):
            if output.places != 0:
                store_i64(output.places + 8 * written, np.int64(row))
            written += 1
        row += 1
    return written, row


@kernel
def page_in_span(file: int, page: int, begin: int, end: int) -> Any:
    """Return whether some time in the page may be in [begin, end]; the entry was verified before."""
    entry = entry_at(file, page)
    return min_time(entry) <= end and max_time(entry) >= begin


class Run(NamedTuple):
    """Where the rows of a hash lie: first and last page, and in the first one its address and row."""

    page: Any
    last: Any
    address: Any
    row: Any


@kernel
def collect_run(file: int, wanted: Any, run: Any, output: Any, most_pages: int) -> Any:
    """Write one lookup's rows and their places.

    Returns (rows, where the run goes on or DONE, rows looked at), or (DAMAGED_PAGE, page, 0).
    """
    plan, end_page = file_number(file, PLAN), file_number(file, END_PAGE)
    step = plan_number(plan, ITEM_BYTES)
    page, last, address, row = run
    written, walked, first = np.int64(0), np.int64(0), page
    if row < 0:  # the first page is out of the time span
        page += 1
        row = np.int64(0)
        address = np.int64(0)
    while page <= last:
        if page_in_span(file, page, wanted.begin, wanted.end):
            if written == output.room or page - first > most_pages or page >= end_page:
                return written, page << PLACE_BITS, walked
            if address == 0:
                address = mapped_page(file, page)
                if address == 0:
                    return np.int64(DAMAGED_PAGE), page, np.int64(0)
            places = output.places + 8 * written
            rest = Output(output.rows + written * step, places, output.room - written)
            begun = row
            found, row = collect_rows(address, plan, row, wanted, rest)
            for i in range(found):
                store_i64(places + 8 * i, (page << PLACE_BITS) + load_i64(places + 8 * i))
            written += found
            if row < 0:
                return written, _DONE, walked + found
            walked += row - begun
            if row < item_count(address):
                return written, (page << PLACE_BITS) + row, walked
        page += 1
        row = np.int64(0)
        address = np.int64(0)
    return written, _DONE, walked


@kernel
def decode_pages(file: int, first: int, count: int, address: int, rows: int) -> Any:
    """Verify and unpack `count` pages that lie from `address` on; return (rows, bad page or -1).

    `rows` has room for all rows of full pages.
    """
    plan = file_number(file, PLAN)
    item_bytes = plan_number(plan, ITEM_BYTES)
    start = page_place(file, first)[0]
    done = 0
    for number in range(first, first + count):
        position, length = page_place(file, number)
        page = address + position - start
        items = page_item_count(page, length, plan, number) if length else np.int64(-1)
        if items < 0:
            return done, number
        target = rows + done * item_bytes
        for place in range(target, target + items * item_bytes, 8):
            store_u64(place, np.uint64(0))
        done += decode_page(page, plan, target)
    return done, np.int64(-1)


@kernel
def next_pages(
    file: int, hash_bits: int, from_page: int, begin: int, end: int, most_bytes: int
) -> Any:
    """Return (first page, last page, position, bytes) that the search of a hash must read next.

    (0, -1, 0, 0) for none.
    From page `from_page` on (-1: from the first that may hold it). The range begins and ends with pages
    whose times overlap [begin, end], and has `most_bytes` or one page. Asks no filter.
    (DAMAGED_DIRECTORY, entry, 0, 0) when a block of the directory is damaged.
    """
    first, last = page_range(file, np.uint64(hash_bits))
    if first < 0:
        return np.int64(DAMAGED_DIRECTORY), np.int64(last), _NONE, _NONE
    if from_page >= 0:
        if from_page < first or from_page > last:
            return _NONE, np.int64(-1), _NONE, _NONE  # a page that this run cannot have
        first = np.int64(from_page)
    found, reach, position, size = _NONE, np.int64(-1), _NONE, _NONE
    for page in range(first, last + 1):
        if page_in_span(file, page, begin, end):
            at, length = page_place(file, page)
            if length == 0:
                return np.int64(DAMAGED_DIRECTORY), np.int64(page), _NONE, _NONE
            if reach < 0:
                found, position = np.int64(page), at
            elif at + length - position > most_bytes:
                break
            reach, size = np.int64(page), at + length - position
    return found, reach, position, size


@kernel
def pages_of_key(file: int, hash_bits: int, begin: int, end: int, most_bytes: int) -> Any:
    """Return what `next_pages` does from the first page on, and no page when the filter excludes the hash.

    (DAMAGED_FILTER, partition, 0, 0) when a partition of the filter is damaged.
    """
    key_hash = np.uint64(hash_bits)
    answer = contains(file_number(file, FILTER), key_hash)
    if answer == DAMAGED:
        partition = partition_of(file_number(file, FILTER), key_hash)
        return np.int64(DAMAGED_FILTER), np.int64(partition), _NONE, _NONE
    if answer == NO:
        return _NONE, np.int64(-1), _NONE, _NONE
    return next_pages(file, hash_bits, -1, begin, end, most_bytes)


@kernel
def take_span(
    file: int, target: int, pages: np.ndarray, position: int, first_page: int, page_count: int
) -> None:
    """Write to `target` what kernels know of the file with a span's pages in memory, none verified.

    The span's bytes are `pages` (u1), which begin at `position` in the file. An array, since its address
    costs Python more than the rest of this call. `target` has room for FILE_LENGTH numbers and a byte a
    page.
    """
    for place in range(FILE_LENGTH):
        store_i64(target + 8 * place, file_number(file, place))
    verified = target + 8 * FILE_LENGTH
    for page in range(page_count):
        store_u8(verified + page, np.uint8(0))
    store_i64(target + 8 * PAGES, pages.ctypes.data - position)
    store_i64(target + 8 * PAGES_VERIFIED, verified - first_page)
    store_i64(target + 8 * FIRST_PAGE, first_page)
    store_i64(target + 8 * END_PAGE, first_page + page_count)


@kernel
def find_from(file: int, wanted: Any, place: int, output: Any) -> Any:
    """Write matching rows of the pages in memory, newest first, from START or a place on, of a few pages.

    Returns (rows written, where the run goes on or DONE, rows looked at), or (DAMAGED_..., its number, 0).
    """
    key_hash = wanted.key_hash
    if place == START:
        answer = contains(file_number(file, FILTER), key_hash)
        if answer == DAMAGED:
            partition = partition_of(file_number(file, FILTER), key_hash)
            return np.int64(DAMAGED_FILTER), np.int64(partition), _NONE
        if answer == NO:
            return _NONE, _DONE, _NONE
    page, last = page_range(file, key_hash)
    if page < 0:
        return np.int64(DAMAGED_DIRECTORY), np.int64(last // _ENTRIES_PER_BLOCK), _NONE
    page, row = np.int64(page), _NONE
    if place != START:
        asked = np.int64(place) >> PLACE_BITS
        if asked < page or asked > last:
            return _NONE, _DONE, _NONE  # a place that this run cannot have
        page, row = asked, np.int64(place) & ((1 << PLACE_BITS) - 1)
    while page <= last and not page_in_span(file, page, wanted.begin, wanted.end):
        page, row = page + 1, _NONE
    if page > last:
        return _NONE, _DONE, _NONE
    address = _NONE
    if page < file_number(file, END_PAGE):
        address = np.int64(mapped_page(file, page))
        if address == 0:
            return np.int64(DAMAGED_PAGE), page, _NONE
        if row == 0:
            row = np.int64(first_row(address, key_hash))
    return collect_run(file, wanted, Run(page, last, address, row), output, _FEW_PAGES)


@kernel
def find_few_rows(
    file: int, hash_bits: int, tag_bits: int, begin: int, end: int, rows: int, room: int
) -> Any:
    """Write the matching rows of the pages in memory, newest first: up to `room`, of a few pages.

    To `rows`, and behind the room for them their places (i8). `hash_bits` is the hash as i8: Python hands
    over plain integers several times faster than u8. Returns (rows written, where the run goes on or
    DONE), or (DAMAGED_..., its number).
    """
    wanted = Wanted(np.uint64(hash_bits), np.uint32(tag_bits), np.int64(begin), np.int64(end))
    item_bytes = plan_number(file_number(file, PLAN), ITEM_BYTES)
    output = Output(np.int64(rows), rows + room * item_bytes, np.int64(room))
    found, following, _ = find_from(file, wanted, START, output)
    return found, following


@cache
def load_few() -> tuple[Any, Any]:
    """Return `pages_of_key` and `find_few_rows`: what calls them without a look at the arguments first."""
    return (
        direct_call(pages_of_key, *(types.int64,) * 5),
        direct_call(find_few_rows, *(types.int64,) * 7),
    )
