"""One key in files of messages, from Python's text to the messages' places, in one call.

::

    find_message   most keys have one message, in a short chain: its fields, in registers
    find_rows      the others, a page of a hot key, times: columns of i8 in a buffer of the caller

Both take what a caller of `query` gave, as it is, hash it once, and walk the chains of one to n files to
their ends, newest file first. Whatever is out of the ordinary (no text, damage, a file that is closed) is
OTHERWISE, and the caller takes the general path, which finds out. They keep the GIL: no file can be closed
meanwhile.

The *arguments* are an i8 array whose places are named M_* below, prepared once for some files and a topic.
They hold addresses of what the files change: their views, and what they have published.

Depends on arguments, hashing, chain_lookup, head_insertion, intrinsics, compile, layout, lookup and schema.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from tierdex.fileparts.kernels.arguments import TEXT, text_address, text_bytes
from tierdex.fileparts.kernels.compile import direct_call, short_kernel
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u32,
    load_u64,
    numbers_at,
    prefetch,
    store_i64,
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
from tierdex.indexfile.lookup import START, TIME_MAX
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
M_FILES = 3  # of each file, newest first, what follows

F_VIEW = 0  # address of the address of the file's view; that is 0 while it cannot be read
F_PUBLISHED = 1  # address of how many rows may be seen
F_TAG = 2
FILE_LENGTH = 3

# The columns that `find_rows` writes, each as long as the limit.
C_QUEUE, C_OFFSET, C_SIZE, C_TIME, C_FILE, C_TAG, C_ROW = range(7)

OTHERWISE: Final = -1
_NONE = np.int64(0)
_SHORT_CHAIN = 64  # items; all Python threads wait for the walk
_MOST_WALKED = 2048  # items of a page, for the same reason
_HASH, _LINK, _TAG, _TIME = (
    layout.ITEM_HASH_POSITION,
    layout.ITEM_LINK_POSITION,
    layout.ITEM_TAG_POSITION,
    layout.ITEM_TIME_POSITION,
)
_KIND_BIT = np.uint32(layout.KIND_BIT)
_ANY_MESSAGE_ID = np.uint32(layout.TAG_ANY_MESSAGE_ID)


@short_kernel
def _only_match(view: Any, wanted: Any, tag: Any, published: int) -> Any:
    """Return the address of the one row that matches, 0 when there is none, OTHERWISE."""
    slot = slot_of(Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])), wanted)
    if bad_block(view, slot, layout.SLOT_BYTES):
        return np.int64(OTHERWISE)
    row, found, walked = np.int64(load_u32(slot)), _NONE, 0
    while row != 0:
        place = view[V_ROWS] + (row - 1) * MESSAGE_BYTES
        if (
            row > view[V_ROW_LIMIT]
            or walked == _SHORT_CHAIN
            or bad_block(view, place, MESSAGE_BYTES)
        ):
            return np.int64(OTHERWISE)
        walked += 1
        following = np.int64(load_u32(place + _LINK))
        if following >= row:
            return np.int64(OTHERWISE)
        if load_u64(place + _HASH) == wanted and row <= published:
            other = load_u32(place + _TAG)
            if other == tag or (tag == _ANY_MESSAGE_ID and (other & _KIND_BIT) != 0):
                if found:
                    return np.int64(OTHERWISE)
                found = place
                prefetch(place + MESSAGE_BYTES - 1)  # most rows lie on two cache lines
        row = following
    return found


@short_kernel
def _hash_of(arguments: int, text: Any) -> Any:
    return xxh64(text_address(text), text_bytes(text), np.uint64(load_i64(arguments + 8 * M_SEED)))


@short_kernel
def _prefetch_slots(arguments: int, wanted: Any) -> None:
    """Ask for the slots of all files: a miss each would add up."""
    for i in range(load_i64(arguments + 8 * M_COUNT)):
        view = load_i64(load_i64(arguments + 8 * (M_FILES + FILE_LENGTH * i + F_VIEW)))
        if view != 0:
            count = np.uint64(load_i64(view + 8 * V_SLOT_COUNT))
            prefetch(slot_of(Slots(load_i64(view + 8 * V_SLOTS), count), wanted))


@short_kernel
def _find_message(arguments: int, text: Any) -> Any:
    """Return (1 + tag, queue, offset, size, timestamp, row number, file) of the one message of this name.

    The first number is 0 when there is none, OTHERWISE when this is not the way to find out.
    """
    size, count, found = text_bytes(text), load_i64(arguments + 8 * M_COUNT), _NONE
    at, rows = 0, _NONE
    if not 1 <= size <= load_i64(arguments + 8 * M_MOST_BYTES):
        return np.int64(OTHERWISE), _NONE, _NONE, _NONE, _NONE, _NONE, _NONE
    wanted = _hash_of(arguments, text)
    if count > 1:
        _prefetch_slots(arguments, wanted)
    for i in range(count):
        file = arguments + 8 * (M_FILES + FILE_LENGTH * i)
        view, place = load_i64(load_i64(file + 8 * F_VIEW)), np.int64(OTHERWISE)
        if view != 0:
            place = _only_match(
                carray(numbers_at(view), (VIEW_LENGTH,)),
                wanted,
                np.uint32(load_i64(file + 8 * F_TAG)),
                load_i64(load_i64(file + 8 * F_PUBLISHED)),
            )
        if place < 0 or (place > 0 and found > 0):
            return np.int64(OTHERWISE), _NONE, _NONE, _NONE, _NONE, _NONE, _NONE
        if place > 0:
            found, at, rows = place, i, load_i64(view + 8 * V_ROWS)
    if found == 0:
        return _NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE
    return (
        np.int64(load_u32(found + _TAG)) + 1,
        np.int64(load_i32(found + MESSAGE_QUEUE_POSITION)),
        load_i64(found + MESSAGE_OFFSET_POSITION),
        np.int64(load_u32(found + MESSAGE_SIZE_POSITION)),
        load_i64(found + _TIME),
        (found - rows) // MESSAGE_BYTES + 1,
        np.int64(at),
    )


@short_kernel
def _is_repeat(out: int, limit: int, taken: int, place: int) -> bool:
    """Return whether one of the rows taken is the same message at the same time."""
    offset, time = load_i64(place + MESSAGE_OFFSET_POSITION), load_i64(place + _TIME)
    for j in range(taken):
        row = out + 8 * j
        if (
            load_i64(row + 8 * C_OFFSET * limit) == offset
            and load_i64(row + 8 * C_TIME * limit) == time
            and load_i64(row + 8 * C_QUEUE * limit) == load_i32(place + MESSAGE_QUEUE_POSITION)
            and load_i64(row + 8 * C_SIZE * limit) == load_u32(place + MESSAGE_SIZE_POSITION)
        ):
            return True
    return False


@short_kernel
def _take_row(out: int, limit: int, file: int, place: int, row: int) -> None:
    store_i64(out + 8 * C_FILE * limit, file)
    store_i64(out + 8 * C_TAG * limit, np.int64(load_u32(place + _TAG)))
    store_i64(out + 8 * C_QUEUE * limit, np.int64(load_i32(place + MESSAGE_QUEUE_POSITION)))
    store_i64(out + 8 * C_OFFSET * limit, load_i64(place + MESSAGE_OFFSET_POSITION))
    store_i64(out + 8 * C_SIZE * limit, np.int64(load_u32(place + MESSAGE_SIZE_POSITION)))
    store_i64(out + 8 * C_TIME * limit, load_i64(place + _TIME))
    store_i64(out + 8 * C_ROW * limit, row)


@short_kernel
def _find_rows(
    arguments: int, text: Any, begin: int, end: int, first: int, place: int, limit: int, out: int
) -> Any:
    """Write columns of at most `limit` messages of this name to `out`, newest first, none twice.

    The search begins in file `first`, at row `place` or START. Returns (messages or OTHERWISE, file and
    row where it goes on, bits of the hash); the file is M_COUNT when nothing is left. A topic's messages
    are compared with each other; those that are found under any topic are not.
    """
    size = text_bytes(text)
    if not 1 <= size <= load_i64(arguments + 8 * M_MOST_BYTES):
        return np.int64(OTHERWISE), _NONE, _NONE, _NONE
    wanted = _hash_of(arguments, text)
    _prefetch_slots(arguments, wanted)
    count, taken, left, least = load_i64(arguments + 8 * M_COUNT), 0, _MOST_WALKED, TIME_MAX
    row = np.int64(place)
    for i in range(first, count):
        file = arguments + 8 * (M_FILES + FILE_LENGTH * i)
        address = load_i64(load_i64(file + 8 * F_VIEW))
        if address == 0:
            return np.int64(OTHERWISE), _NONE, _NONE, _NONE
        view = carray(numbers_at(address), (VIEW_LENGTH,))
        tag = np.uint32(load_i64(file + 8 * F_TAG))
        published = load_i64(load_i64(file + 8 * F_PUBLISHED))
        if row == START:
            slot = slot_of(Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])), wanted)
            if bad_block(view, slot, layout.SLOT_BYTES):
                return np.int64(OTHERWISE), _NONE, _NONE, _NONE
            row = np.int64(load_u32(slot))
        while row != 0:
            if left == 0 or taken == limit:
                return np.int64(taken), np.int64(i), row, np.int64(wanted)
            left -= 1
            at = view[V_ROWS] + (row - 1) * MESSAGE_BYTES
            if row < 0 or row > view[V_ROW_LIMIT] or bad_block(view, at, MESSAGE_BYTES):
                return np.int64(OTHERWISE), _NONE, _NONE, _NONE
            following = np.int64(load_u32(at + _LINK))
            if following >= row:
                return np.int64(OTHERWISE), _NONE, _NONE, _NONE
            prefetch(view[V_ROWS] + (following - 1) * MESSAGE_BYTES)
            if row <= published and matches(at, wanted, tag, begin, end):
                offset = load_i64(at + MESSAGE_OFFSET_POSITION)
                # Nearly always a chain runs from greater offsets to lesser ones.
                is_new = offset < least or tag == _ANY_MESSAGE_ID
                if is_new or not _is_repeat(out, limit, taken, at):
                    least = min(least, offset)
                    _take_row(out + 8 * taken, limit, i, at, row)
                    taken += 1
            row = following
        row = np.int64(START)
    return np.int64(taken), np.int64(count), row, np.int64(wanted)


@cache
def load() -> Any:
    """Return `find_message`: what calls it, from numba's cache, or compiled in seconds."""
    return direct_call(_find_message, types.int64, TEXT)


@cache
def load_rows() -> Any:
    """Return `find_rows`, as `load` does."""
    return direct_call(_find_rows, types.int64, TEXT, *(types.int64,) * 6)
