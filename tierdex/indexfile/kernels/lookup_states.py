"""What lookups in several local files have so far, and how a row is taken for one of them.

What each lookup has, and where it goes on, lasts from call to call of a search (column_search), whose
*arguments* are an i8 array: its places are named L_* and C_* here.

Depends on intrinsics, compile, layout, lookup and schema.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.lookup import DONE, START, TIME_MAX
from tierdex.indexfile.schema import (
    MESSAGE_OFFSET_POSITION,
    MESSAGE_QUEUE_POSITION,
    MESSAGE_SIZE_POSITION,
)

# Places of the arguments (i8 each): addresses of columns of one value a lookup, unless said.
L_COUNT = 0  # lookups
L_HASHES = 1  # u8
L_CODES = 2  # i4: which of a file's tags; 0: the first, for all
L_BEGINS = 3  # i8; 0: any time
L_ENDS = 4
L_LIMITS = 5  # i8: rows wanted; 0: one each, of messages: it is written to L_COLUMNS at once
L_ORDER = 6  # i8: the lookups by hash; 0: as they come
L_MOST_ITEMS = 7  # that a lookup looks at in one file before it is cut (a number)
L_DROPS = 8  # 1: rows of messages that repeat one of the same lookup are passed over
L_STATES = 9  # STATES numbers (i8) of each lookup, see _FILE ...; where one row is wanted, see OPEN ... (u1)
L_IS_BEGUN = 10  # 0: the first call, which sets the states
L_FILE = 11  # the file where the call goes on (a number)
L_FILE_COUNT = 12
L_FILES = 13  # of each file C_LENGTH numbers (i8), newest first
L_SCRATCH = 14  # SCRATCH columns (i8), and one number more; 0: no compacted file
L_ITEM_BYTES = 15
L_ROOM = 16  # rows
L_FOUND = 17  # rows so far (a number)
L_ROWS = 18  # of L_ITEM_BYTES each, and of each row what follows (i8):
L_NUMBERS = 19  # its lookup
L_SOURCES = 20  # its file
L_PLACES = 21  # its place there
L_BEFORE = 22  # the lookup's row before it, by number, -1: none
L_ITEMS = 23  # looked at so far (a number)
L_CUTS = 24  # lookups that were cut (a number)
L_COLUMNS = 25  # see `message_columns`: of each lookup, which is not written
L_LENGTH: Final = 26

C_VIEW = 0  # chained: address of its view; else 0
C_NUMBERS = 1  # compacted: address of what kernels know of it
C_PUBLISHED = 2  # chained: rows above it are passed over
C_LEAST_TIME = 3
C_GREATEST_TIME = 4
C_TAGS = 5  # u4: the tag of each code, layout.TAG_NONE: nothing of it is shown
C_HIDDEN = 6  # u1: 1 for topics that are not shown to message IDs of any topic; 0: all are
C_TOPICS = 7  # u4: what each topic is called in all files; 0: of no account
C_MOST_PAGES = 8  # compacted: instead of L_MOST_ITEMS
C_LENGTH: Final = 9

# States of a lookup, side by side. The file where it goes on, at a place, START in a later one; with CUT it
# was cut there. A lookup that has enough is where the row after its last one lies.
_FILE, _PLACE, _TAKEN, _LAST, _LEAST = range(5)
STATES: Final = 5
CUT: Final = 1 << 32
OPEN, HAS_IT, _IS_CUT = 0, 1, 2

_MOST_COMPARED = 512  # rows of a lookup that a new one is compared with: then the lookup is cut
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION
_TAG_NONE = np.uint32(layout.TAG_NONE)
_TOPIC_MASK = np.uint32(layout.TOPIC_MASK)
_NEW, _REPEAT, TOO_MANY = 0, 1, 2


@kernel
def argument(arguments: int, place: int) -> Any:
    return load_i64(arguments + 8 * place)


@kernel
def state(arguments: int, column: int, lookup: Any) -> Any:
    """Return the address of a lookup's state."""
    return load_i64(arguments + 8 * L_STATES) + 8 * (STATES * lookup + column)


@kernel
def tag_of(arguments: int, file: int, lookup: Any) -> Any:
    """Return the tag that a lookup's rows have in a file."""
    codes = load_i64(arguments + 8 * L_CODES)
    code = np.int64(0)
    if codes != 0:
        code = np.int64(load_i32(codes + 4 * lookup))
    return load_u32(load_i64(file + 8 * C_TAGS) + 4 * code)


@kernel
def leave(arguments: int, lookup: Any, number: int, place: Any) -> None:
    """Note where a lookup goes on: in file `number` at a place, or (DONE) behind it."""
    if load_i64(arguments + 8 * L_LIMITS) == 0:
        return
    if place == DONE:
        store_i64(state(arguments, _FILE, lookup), np.int64(number + 1))
        store_i64(state(arguments, _PLACE, lookup), np.int64(START))
    else:
        store_i64(state(arguments, _FILE, lookup), np.int64(number))
        store_i64(state(arguments, _PLACE, lookup), place)


@kernel
def cut(arguments: int, lookup: Any, number: int, place: Any) -> None:
    """Note that a lookup is cut before a place."""
    if load_i64(arguments + 8 * L_LIMITS) == 0:
        store_u8(load_i64(arguments + 8 * L_STATES) + lookup, np.uint8(_IS_CUT))
    else:
        store_i64(state(arguments, _FILE, lookup), np.int64(number) + CUT)
        store_i64(state(arguments, _PLACE, lookup), place)
    store_i64(arguments + 8 * L_CUTS, load_i64(arguments + 8 * L_CUTS) + 1)


@kernel
def _topic_in_all(arguments: int, number: Any, tag: Any) -> Any:
    """Return what a row's topic is called in all files; 0 where it is of no account."""
    topics = load_i64(load_i64(arguments + 8 * L_FILES) + 8 * (C_LENGTH * number + C_TOPICS))
    if topics == 0:
        return np.uint32(0)
    return load_u32(topics + 4 * np.int64(tag & _TOPIC_MASK))


@kernel
def _is_repeat(arguments: int, lookup: Any, number: int, row: int) -> Any:
    """Compare a row with those that its lookup has: _NEW, _REPEAT, or TOO_MANY of them."""
    offset, time = load_i64(row + MESSAGE_OFFSET_POSITION), load_i64(row + _TIME)
    size, queue = (
        load_u32(row + MESSAGE_SIZE_POSITION),
        load_u32(row + MESSAGE_QUEUE_POSITION),
    )
    topic = _topic_in_all(arguments, number, load_u32(row + _TAG))
    known, left = load_i64(state(arguments, _LAST, lookup)), _MOST_COMPARED
    rows, step = argument(arguments, L_ROWS), argument(arguments, L_ITEM_BYTES)
    while known >= 0:
        if left == 0:
            return TOO_MANY
        left -= 1
        other = rows + step * known
        if (
            load_i64(other + MESSAGE_OFFSET_POSITION) == offset
            and load_i64(other + _TIME) == time
            and load_u32(other + MESSAGE_SIZE_POSITION) == size
            and load_u32(other + MESSAGE_QUEUE_POSITION) == queue
        ):
            source = load_i64(argument(arguments, L_SOURCES) + 8 * known)
            if _topic_in_all(arguments, source, load_u32(other + _TAG)) == topic:
                return _REPEAT
        known = load_i64(argument(arguments, L_BEFORE) + 8 * known)
    return _NEW


@kernel
def is_hidden(file: int, row: int) -> Any:
    """Say whether a message ID's row is of a topic that the file does not show."""
    hidden = load_i64(file + 8 * C_HIDDEN)
    return hidden != 0 and load_u8(hidden + np.int64(load_u32(row + _TAG) & _TOPIC_MASK)) != 0


@kernel
def store_columns(out: int, count: Any, at: Any, lookup: Any, row: int, number: Any) -> None:
    """Write a row of messages to columns of `count` rows, as row `at`; see `message_columns`."""
    store_i64(out + 8 * at, load_i64(row + _TIME))
    store_i64(out + 8 * (count + at), load_i64(row + MESSAGE_OFFSET_POSITION))
    if lookup >= 0:
        store_i64(out + 8 * (2 * count + at), lookup)
    small = out + 8 * (3 * count) + 4 * at
    store_u32(small, load_u32(row + MESSAGE_SIZE_POSITION))
    store_u32(small + 4 * count, load_u32(row + MESSAGE_QUEUE_POSITION))
    store_u32(small + 8 * count, np.uint32(number))


@kernel
def is_done(arguments: int, lookup: Any) -> Any:
    """Say whether a lookup has enough."""
    limits = load_i64(arguments + 8 * L_LIMITS)
    if limits == 0:
        return load_u8(load_i64(arguments + 8 * L_STATES) + lookup) != OPEN
    return load_i64(state(arguments, _TAKEN, lookup)) >= load_i64(limits + 8 * lookup)


@kernel
def rows_wanted(arguments: int, lookup: Any) -> Any:
    """Return how many rows a lookup still wants."""
    limits = load_i64(arguments + 8 * L_LIMITS)
    if limits == 0:
        return np.int64(1)
    return load_i64(limits + 8 * lookup) - load_i64(state(arguments, _TAKEN, lookup))


@kernel
def place_in(arguments: int, number: Any, lookup: Any) -> Any:
    """Return where a lookup goes on in file `number`: at a place, or at START."""
    if load_i64(arguments + 8 * L_LIMITS) == 0 or (
        load_i64(state(arguments, _FILE, lookup)) != number
    ):
        return np.int64(START)
    return load_i64(state(arguments, _PLACE, lookup))


@kernel
def take(arguments: int, lookup: Any, number: int, row: int, place: Any) -> Any:
    """Take a row for a lookup, unless it is a repeat; there is room for it.

    Returns _NEW, _REPEAT or TOO_MANY.
    """
    found = load_i64(arguments + 8 * L_FOUND)
    store_i64(arguments + 8 * L_FOUND, found + 1)
    if load_i64(arguments + 8 * L_LIMITS) == 0:
        store_u8(load_i64(arguments + 8 * L_STATES) + lookup, np.uint8(HAS_IT))
        count, out = load_i64(arguments + 8 * L_COUNT), load_i64(arguments + 8 * L_COLUMNS)
        store_columns(out, count, lookup, np.int64(-1), row, number)
        return _NEW
    last, least = state(arguments, _LAST, lookup), state(arguments, _LEAST, lookup)
    if load_i64(arguments + 8 * L_DROPS) != 0:
        # Nearly always a key's rows run from greater offsets to lesser ones.
        offset = load_i64(row + MESSAGE_OFFSET_POSITION)
        if load_i64(last) >= 0 and offset >= load_i64(least):
            seen = _is_repeat(arguments, lookup, number, row)
            if seen != _NEW:
                store_i64(arguments + 8 * L_FOUND, found)
                return seen
        store_i64(least, min(load_i64(least), offset))
    store_i64(load_i64(arguments + 8 * L_BEFORE) + 8 * found, load_i64(last))
    store_i64(last, found)
    step = load_i64(arguments + 8 * L_ITEM_BYTES)
    target = load_i64(arguments + 8 * L_ROWS) + step * found
    if target != row:
        for position in range(0, step, 8):
            store_u64(target + position, load_u64(row + position))
    store_i64(load_i64(arguments + 8 * L_NUMBERS) + 8 * found, lookup)
    store_i64(load_i64(arguments + 8 * L_SOURCES) + 8 * found, np.int64(number))
    store_i64(load_i64(arguments + 8 * L_PLACES) + 8 * found, place)
    taken = state(arguments, _TAKEN, lookup)
    store_i64(taken, load_i64(taken) + 1)
    return _NEW


@kernel
def wants(arguments: int, file: int, number: int, lookup: Any) -> Any:
    """Say whether a file is to be asked for a lookup."""
    if is_done(arguments, lookup):
        return False
    if load_i64(arguments + 8 * L_LIMITS) != 0 and (
        load_i64(state(arguments, _FILE, lookup)) > number  # done with it, or cut
    ):
        return False
    begins = argument(arguments, L_BEGINS)
    if begins != 0 and (
        load_i64(begins + 8 * lookup) > load_i64(file + 8 * C_GREATEST_TIME)
        or load_i64(argument(arguments, L_ENDS) + 8 * lookup) < load_i64(file + 8 * C_LEAST_TIME)
    ):
        return False
    return tag_of(arguments, file, lookup) != _TAG_NONE


@kernel
def begin(arguments: int) -> None:
    """Set the states of all lookups: nothing is taken, from the first file on."""
    count, states = argument(arguments, L_COUNT), argument(arguments, L_STATES)
    store_i64(arguments + 8 * L_IS_BEGUN, np.int64(1))
    if argument(arguments, L_LIMITS) == 0:
        for i in range(count):
            store_u8(states + i, np.uint8(OPEN))
        return
    for i in range(count):
        store_i64(state(arguments, _FILE, i), np.int64(0))
        store_i64(state(arguments, _PLACE, i), np.int64(START))
        store_i64(state(arguments, _TAKEN, i), np.int64(0))
        store_i64(state(arguments, _LAST, i), np.int64(-1))
        store_i64(state(arguments, _LEAST, i), np.int64(TIME_MAX))


@kernel
def any_wants(arguments: int) -> bool:
    for i in range(argument(arguments, L_COUNT)):
        if not is_done(arguments, i) and (
            argument(arguments, L_LIMITS) == 0 or load_i64(state(arguments, _FILE, i)) < CUT
        ):
            return True
    return False


# -- what was found, lookup by lookup -------------------------------------------------------------------


@kernel
def _ends(arguments: int) -> Any:
    """Return where the rows of each lookup begin, once they are brought together."""
    count = argument(arguments, L_COUNT)
    places, place = np.empty(count, np.int64), np.int64(0)
    for i in range(count):
        places[i] = place
        place += load_i64(state(arguments, _TAKEN, i))
    return places


@kernel
def order_rows(arguments: int, order: int) -> None:
    """Write the numbers of all rows (i8) to `order`, by lookup, as they were found within one."""
    places, numbers = _ends(arguments), argument(arguments, L_NUMBERS)
    for i in range(argument(arguments, L_FOUND)):
        lookup = load_i64(numbers + 8 * i)
        store_i64(order + 8 * places[lookup], np.int64(i))
        places[lookup] += 1


@kernel
def message_columns(arguments: int, out: int) -> None:
    """Write all rows of messages as columns to `out`, in the order of `order_rows`.

    times i8 | offsets i8 | lookups i8 | sizes u4 | queues i4 | files i4
    """
    found = argument(arguments, L_FOUND)
    if argument(arguments, L_LIMITS) == 0:
        _close_up(arguments, out)
        return
    rows, step = argument(arguments, L_ROWS), argument(arguments, L_ITEM_BYTES)
    numbers, sources = argument(arguments, L_NUMBERS), argument(arguments, L_SOURCES)
    places = _ends(arguments)
    for i in range(found):
        lookup = load_i64(numbers + 8 * i)
        number = load_i64(sources + 8 * i)
        store_columns(out, found, places[lookup], lookup, rows + step * i, number)
        places[lookup] += 1


@kernel
def _close_up(arguments: int, out: int) -> None:
    """Copy L_COLUMNS without what was not found."""
    count, columns = argument(arguments, L_COUNT), argument(arguments, L_COLUMNS)
    states, found, at = argument(arguments, L_STATES), argument(arguments, L_FOUND), 0
    for i in range(count):
        if load_u8(states + i) != HAS_IT:
            continue
        store_i64(out + 8 * (2 * found + at), np.int64(i))
        for column in range(3):
            if column < 2:
                value = load_i64(columns + 8 * (column * count + i))
                store_i64(out + 8 * (column * found + at), value)
            small = load_u32(columns + 8 * (3 * count) + 4 * (column * count + i))
            store_u32(out + 8 * (3 * found) + 4 * (column * found + at), small)
        at += 1
