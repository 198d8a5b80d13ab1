"""One key in local files of messages, from Python's text to Python's entries, in one call.

::

    text -> hash -> files, newest first -> rows in the scratch -> entries, at the end of a list
                    chained: its chain     newest first, none twice
                    compacted: filter, directory, pages

It takes what a caller of `query` gave, as it is. Whatever is out of the ordinary (no text, damage, a file
that is closed) is OTHERWISE, and the caller takes the general path, which finds out. It keeps the GIL, and no
finalizer runs in it: no file can be closed meanwhile, and one scratch serves all threads.

The *arguments* are an i8 array whose places are named M_* and F_* below, prepared once for some files and a
topic. They hold addresses of what the files change: their views, and what they have published.

Depends on arguments, made_objects, hashing, intrinsics, compile, fuse_filter, chained.kernels,
compacted.kernels, layout, lookup and schema.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.arguments import INTEGER, TEXT, number, text_address, text_bytes
from tierdex.fileparts.kernels.compile import carray, direct_call, short_kernel
from tierdex.fileparts.kernels.fuse_filter import NO, contains_each
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    numbers_at,
    prefetch,
    store_i64,
)
from tierdex.fileparts.kernels.made_objects import (
    LIST,
    append_bytes,
    append_row,
    collector_off,
    collector_on,
    is_same_text,
    item_of,
    list_address,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.chain_lookup import (
    V_ROW_LIMIT,
    V_ROWS,
    V_SLOT_COUNT,
    V_SLOTS,
    VIEW_LENGTH,
    bad_block,
    matches,
)
from tierdex.indexfile.chained.kernels.head_insertion import Slots, slot_of
from tierdex.indexfile.compacted.kernels.page_lookup import Output, Wanted, find_from
from tierdex.indexfile.lookup import DONE, START, TIME_MAX
from tierdex.indexfile.schema import (
    MESSAGE_BYTES,
    MESSAGE_OFFSET_POSITION,
    MESSAGE_QUEUE_POSITION,
    MESSAGE_SIZE_POSITION,
)

# Places of the arguments (i8 each).
M_COUNT = 0  # files
M_SEED = 1  # of the topic's hashes, its bits
M_MOST_BYTES = 2  # of a text
M_TOPIC = 3  # the topic (str); 0: message IDs of any topic
M_KIND = 4  # the type of an entry, a subclass of tuple
M_SCRATCH = 5  # SCRATCH_BYTES
M_FILTERS = 6  # address of the addresses of the compacted files' filters
M_FILTER_COUNT = 7
M_FILES = 8  # of each file, newest first, what follows

F_VIEW = 0  # chained: address of the address of its view, that is 0 while it cannot be read; else 0
F_NUMBERS = 1  # compacted: address of what kernels know of it
F_SEEN = 2  # address of rows that may be seen, items, least time, greatest time (i8 each)
F_TAG = 3
F_FILTER = 4  # compacted: its number among the filters
F_TAIL = 5  # what is at the end of an entry (tuple)
F_NAMES = 6  # its topics (list of str)
FILE_LENGTH = 7

SEEN_ROWS, _SEEN_ITEMS, SEEN_LEAST, SEEN_GREATEST = range(4)

OTHERWISE: Final = -1
# What is told of a file besides the items that were looked at.
NOT_ASKED, NOT_IN_TIME, NOT_IN_FILTER = -1, -2, -3

MOST_FILES: Final = 64
MOST_ROWS: Final = 1026  # of a page, one entry more, and the cursor's own
_MOST_WALKED = 2048  # items; all Python threads wait for the walk
# The scratch: what is told besides the entries, then columns of i8, then rows that are in no mapping.
_LATEST = 0  # greatest time
_PAIRS = 8  # (file, place) of each entry
_PAIR_BYTES, _PLACE_IN_PAIR = 16, 8
_ITEMS = _PAIRS + _PAIR_BYTES * MOST_ROWS  # of each file
_ADDRESSES = _ITEMS + 8 * MOST_FILES
_TOPICS = _ADDRESSES + 8 * MOST_ROWS
_PLACES = _TOPICS + 8 * MOST_ROWS
_MAYBE = _PLACES + 8 * MOST_ROWS  # a byte a filter
_ROWS = _MAYBE + MOST_FILES
SCRATCH_BYTES: Final = _ROWS + MESSAGE_BYTES * MOST_ROWS

_ZERO = np.int64(0)
_LINK, _TAG, _TIME = (
    layout.ITEM_LINK_POSITION,
    layout.ITEM_TAG_POSITION,
    layout.ITEM_TIME_POSITION,
)
_ANY_MESSAGE_ID = np.uint32(layout.TAG_ANY_MESSAGE_ID)
_TOPIC_MASK = np.uint32(layout.TOPIC_MASK)


@short_kernel
def _is_repeat(scratch: int, taken: int, row: int, topic: int) -> bool:
    """Say whether one of the rows taken is the same message at the same time."""
    offset, time = load_i64(row + MESSAGE_OFFSET_POSITION), load_i64(row + _TIME)
    for j in range(taken):
        other = load_i64(scratch + _ADDRESSES + 8 * j)
        if (
            load_i64(other + MESSAGE_OFFSET_POSITION) == offset
            and load_i64(other + _TIME) == time
            and load_i32(other + MESSAGE_QUEUE_POSITION) == load_i32(row + MESSAGE_QUEUE_POSITION)
            and load_u32(other + MESSAGE_SIZE_POSITION) == load_u32(row + MESSAGE_SIZE_POSITION)
        ):
            known = load_i64(scratch + _TOPICS + 8 * j)
            if known == topic or is_same_text(known, topic):
                return True
    return False


@short_kernel
def _take_row(arguments: int, number: int, taken: int, row: int, place: int, least: int) -> Any:
    """Take a row, unless it is a repeat; return (rows taken or OTHERWISE, least offset of them)."""
    scratch, topic = load_i64(arguments + 8 * M_SCRATCH), load_i64(arguments + 8 * M_TOPIC)
    offset = load_i64(row + MESSAGE_OFFSET_POSITION)
    if topic == 0:
        names = load_i64(arguments + 8 * (M_FILES + FILE_LENGTH * number + F_NAMES))
        topic = item_of(names, np.int64(load_u32(row + _TAG) & _TOPIC_MASK))
        if topic == 0:
            return np.int64(OTHERWISE), least
    # Nearly always a key's rows run from greater offsets to lesser ones.
    if offset >= least and _is_repeat(scratch, taken, row, topic):
        return np.int64(taken), least
    store_i64(scratch + _ADDRESSES + 8 * taken, row)
    store_i64(scratch + _TOPICS + 8 * taken, topic)
    store_i64(scratch + _PAIRS + _PAIR_BYTES * taken, number)
    store_i64(scratch + _PAIRS + _PAIR_BYTES * taken + _PLACE_IN_PAIR, place)
    return np.int64(taken) + 1, min(least, offset)


@short_kernel
def _walk_chain(
    arguments: int,
    number: int,
    asked: Any,
    place: Any,
    taken: Any,
    most: Any,
    least: Any,
    left: Any,
) -> Any:
    """Take the rows of a chain; return (rows taken or OTHERWISE, row that follows or DONE, least, left)."""
    file = arguments + 8 * (M_FILES + FILE_LENGTH * number)
    address, seen = load_i64(load_i64(file + 8 * F_VIEW)), load_i64(file + 8 * F_SEEN)
    refused = np.int64(OTHERWISE), _ZERO, np.int64(least), np.int64(left)
    if address == 0:
        return refused
    view, taken, row = carray(numbers_at(address), (VIEW_LENGTH,)), np.int64(taken), np.int64(place)
    least, left = np.int64(least), np.int64(left)
    if row == START:
        slot = slot_of(Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])), asked.key_hash)
        if bad_block(view, slot, layout.SLOT_BYTES):
            return refused
        row = np.int64(load_u32(slot))
    published = load_i64(seen + 8 * SEEN_ROWS)
    while row != 0:
        if left == 0 or taken == most:
            return taken, row, least, left
        left -= 1
        at = view[V_ROWS] + (row - 1) * MESSAGE_BYTES
        if row < 0 or row > view[V_ROW_LIMIT] or bad_block(view, at, MESSAGE_BYTES):
            return refused
        following = np.int64(load_u32(at + _LINK))
        if following >= row:
            return refused
        prefetch(view[V_ROWS] + (following - 1) * MESSAGE_BYTES)
        if row <= published and matches(at, asked.key_hash, asked.tag, asked.begin, asked.end):
            taken, least = _take_row(arguments, number, taken, at, row, least)
            if taken < 0:
                return refused
        row = following
    return taken, np.int64(DONE), least, left


@short_kernel
def _read_run(
    arguments: int,
    number: int,
    asked: Any,
    place: Any,
    taken: Any,
    most: Any,
    least: Any,
    left: Any,
) -> Any:
    """Take the rows of a compacted file's run, likewise; a place is a page and a row."""
    file = load_i64(arguments + 8 * (M_FILES + FILE_LENGTH * number + F_NUMBERS))
    scratch = load_i64(arguments + 8 * M_SCRATCH)
    taken, following = np.int64(taken), np.int64(place)
    least, left = np.int64(least), np.int64(left)
    while True:
        rows, places = scratch + _ROWS + MESSAGE_BYTES * taken, scratch + _PLACES
        found, following, walked = find_from(
            file, asked, following, Output(rows, places, np.int64(most) - taken)
        )
        if found < 0:
            return np.int64(OTHERWISE), _ZERO, least, left
        for j in range(found):
            row = scratch + _ROWS + MESSAGE_BYTES * taken
            for position in range(0, MESSAGE_BYTES, 8):
                store_i64(row + position, load_i64(rows + MESSAGE_BYTES * j + position))
            taken, least = _take_row(arguments, number, taken, row, load_i64(places + 8 * j), least)
            if taken < 0:
                return np.int64(OTHERWISE), _ZERO, least, left
        left = max(left - max(walked, np.int64(1)), _ZERO)
        if following == DONE or taken == most or left == 0:
            return taken, following, least, left


@short_kernel
def _ask_ahead(arguments: int, wanted: Any) -> None:
    """Ask for the slots of all chained files, and all filters: a miss each would add up."""
    for i in range(load_i64(arguments + 8 * M_COUNT)):
        place = load_i64(arguments + 8 * (M_FILES + FILE_LENGTH * i + F_VIEW))
        view = np.int64(0) if place == 0 else load_i64(place)
        if view != 0:
            count = np.uint64(load_i64(view + 8 * V_SLOT_COUNT))
            prefetch(slot_of(Slots(load_i64(view + 8 * V_SLOTS), count), wanted))
    filters = load_i64(arguments + 8 * M_FILTER_COUNT)
    if filters:
        maybe = load_i64(arguments + 8 * M_SCRATCH) + _MAYBE
        contains_each(load_i64(arguments + 8 * M_FILTERS), filters, np.int64(wanted), maybe)


@short_kernel
def _collect(
    arguments: int, wanted: Any, begin: int, end: int, first: int, place: int, most: int
) -> Any:
    """Take at most `most` rows; return (rows or OTHERWISE, file and place where the search goes on)."""
    count, scratch = load_i64(arguments + 8 * M_COUNT), load_i64(arguments + 8 * M_SCRATCH)
    taken, following, least, left = (
        _ZERO,
        np.int64(place),
        np.int64(TIME_MAX),
        np.int64(_MOST_WALKED),
    )
    for i in range(count):
        store_i64(scratch + _ITEMS + 8 * i, NOT_ASKED)
    if count > 1 or load_i64(arguments + 8 * M_FILTER_COUNT):
        _ask_ahead(arguments, wanted)
    for i in range(first, count):
        if taken == most or left == 0:
            return taken, np.int64(i), np.int64(START)
        file = arguments + 8 * (M_FILES + FILE_LENGTH * i)
        seen, before = load_i64(file + 8 * F_SEEN), left
        asked = Wanted(
            np.uint64(wanted), np.uint32(load_i64(file + 8 * F_TAG)), np.int64(begin), np.int64(end)
        )
        if load_i64(seen + 8 * SEEN_LEAST) > end or load_i64(seen + 8 * SEEN_GREATEST) < begin:
            store_i64(scratch + _ITEMS + 8 * i, NOT_IN_TIME)
            following = np.int64(DONE)
        elif load_i64(file + 8 * F_VIEW) != 0:
            taken, following, least, left = _walk_chain(
                arguments, i, asked, following, taken, most, least, left
            )
            store_i64(scratch + _ITEMS + 8 * i, before - left)
        elif following == START and load_u8(scratch + _MAYBE + load_i64(file + 8 * F_FILTER)) == NO:
            store_i64(scratch + _ITEMS + 8 * i, NOT_IN_FILTER)
            following = np.int64(DONE)
        else:
            taken, following, least, left = _read_run(
                arguments, i, asked, following, taken, most, least, left
            )
            store_i64(scratch + _ITEMS + 8 * i, before - left)
        if taken < 0:
            return taken, _ZERO, _ZERO
        if following != DONE:
            return taken, np.int64(i), following
        following = np.int64(START)
    return taken, count, np.int64(START)


@short_kernel
def _make_entries(arguments: int, listed: int, count: int, skipped: int) -> Any:
    """Append the entries of the first `count` rows; note the greatest time behind `skipped` ones.

    Returns 1, or 0.
    """
    scratch, kind = load_i64(arguments + 8 * M_SCRATCH), load_i64(arguments + 8 * M_KIND)
    latest, made = np.int64(-TIME_MAX), np.int64(1)
    for i in range(count):
        row = load_i64(scratch + _ADDRESSES + 8 * i)
        number = load_i64(scratch + _PAIRS + _PAIR_BYTES * i)
        time = load_i64(row + _TIME)
        if i >= skipped:
            latest = max(latest, time)
        made &= append_row(
            listed,
            kind,
            load_i64(scratch + _TOPICS + 8 * i),
            np.int64(load_i32(row + MESSAGE_QUEUE_POSITION)),
            load_i64(row + MESSAGE_OFFSET_POSITION),
            np.int64(load_u32(row + MESSAGE_SIZE_POSITION)),
            time,
            load_i64(arguments + 8 * (M_FILES + FILE_LENGTH * number + F_TAIL)),
        )
    store_i64(scratch + _LATEST, latest)
    return made


@short_kernel
def _find_entries(
    place_of_arguments: Any, text: Any, entries: Any, begin_ms: Any, end_ms: Any, most_entries: Any,
    first_file: Any, first_place: Any, tells: Any,
) -> Any:  # fmt: skip
    """Append at most `most_entries` of this name to the list `entries`, newest first, none twice.

    The search begins in file `first_file`, at START or at `first_place`: there lies the entry of a cursor,
    which comes first, and counts for nothing. Returns (entries found, one more than asked for if there are
    more, or OTHERWISE; file and place where the search goes on; file and place of the last entry). The file
    is M_COUNT when nothing is left.

    With `tells`, or where the search did not end, or behind a cursor, bytes come last (i8): the greatest
    time, (file, place) of each entry, and of each file the items that were looked at, or NOT_...
    """
    # INTEGER is quicker to take than an i8 is: half of what this call costs is its arguments.
    arguments, first, place = number(place_of_arguments), number(first_file), number(first_place)
    begin, end, most, is_told = (
        number(begin_ms),
        number(end_ms),
        number(most_entries),
        number(tells),
    )
    size, listed = text_bytes(text), list_address(entries)
    refused = np.int64(OTHERWISE), _ZERO, _ZERO, _ZERO, _ZERO
    if not 1 <= size <= load_i64(arguments + 8 * M_MOST_BYTES) or listed == 0:
        return refused
    wanted = xxh64(text_address(text), size, np.uint64(load_i64(arguments + 8 * M_SEED)))
    scratch, skipped = load_i64(arguments + 8 * M_SCRATCH), np.int64(place != START)
    room = min(np.int64(most) + 1 + skipped, np.int64(MOST_ROWS))
    taken, following, at = _collect(arguments, wanted, begin, end, first, place, room)
    if taken < 0 or (
        skipped
        and (
            taken == 0
            or load_i64(scratch + _PAIRS) != first
            or load_i64(scratch + _PAIRS + _PLACE_IN_PAIR) != place
        )
    ):
        return refused
    shown = min(taken, np.int64(most) + skipped)
    count = load_i64(arguments + 8 * M_COUNT)
    is_asked = is_told != 0 or skipped != 0 or (taken == shown and following < count)
    if shown == 0 and not is_asked:
        return taken, following, at, _ZERO, _ZERO
    was_on = collector_off()
    made = _make_entries(arguments, listed, shown, skipped)
    if is_asked:
        # The items lie behind the pairs; they are brought next to them.
        told = scratch + _PAIRS + _PAIR_BYTES * shown
        if shown < MOST_ROWS:
            for i in range(count):
                store_i64(told + 8 * i, load_i64(scratch + _ITEMS + 8 * i))
        made &= append_bytes(listed, scratch, _PAIRS + _PAIR_BYTES * shown + 8 * count)
    if was_on:
        collector_on()
    if not made:
        return refused
    if shown == 0:
        return taken, following, at, _ZERO, _ZERO
    last = scratch + _PAIRS + _PAIR_BYTES * (shown - 1)
    return taken - skipped, following, at, load_i64(last), load_i64(last + _PLACE_IN_PAIR)


@cache
def load() -> Any:
    """Return `find_entries`: what calls it, from numba's cache, or compiled in seconds."""
    return direct_call(_find_entries, INTEGER, TEXT, LIST, *(INTEGER,) * 6)
