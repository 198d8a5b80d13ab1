"""One key in a file of messages, from Python's text to the message's place, in one call.

Most keys have one message, in a short chain. The kernel takes what a caller of `query` gave, as it is,
hashes it and walks the chain to its end, since all messages of a key are wanted. Whatever is out of the
ordinary (no text, more messages, a long chain, damage, a file that is closed) is OTHERWISE, and the
caller takes the general path, which finds out. It keeps the GIL: the file cannot be closed meanwhile.

The *arguments* are an i8 array whose places are named M_* below, prepared once for each file and topic.
They hold addresses of what the file changes: its view, and what it has published.

Depends on arguments, hashing, chain_lookup, head_insertion, intrinsics, compile, layout and schema.
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
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.chain_lookup import (
    V_ROW_LIMIT,
    V_ROWS,
    V_SLOT_COUNT,
    V_SLOTS,
    VIEW_LENGTH,
    bad_block,
)
from tierdex.indexfile.chained.kernels.head_insertion import Slots, slot_of
from tierdex.indexfile.schema import (
    MESSAGE_BYTES,
    MESSAGE_OFFSET_POSITION,
    MESSAGE_QUEUE_POSITION,
    MESSAGE_SIZE_POSITION,
)

# Places of the arguments (i8 each).
M_VIEW = 0  # address of the address of the file's view; that is 0 while it cannot be read
M_PUBLISHED = 1  # address of how many rows may be seen
M_TAG = 2
M_SEED = 3  # of the topic's hashes, its bits
M_MOST_BYTES = 4  # of a text

OTHERWISE: Final = -1
_NONE = np.int64(0)
_SHORT_CHAIN = 64  # items; all Python threads wait for the walk
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
def _find_message(arguments: int, text: Any) -> Any:
    """Return (1 + tag, queue, offset, size, timestamp, row number) of the one message that has this name.

    The first number is 0 when there is none, OTHERWISE when this is not the way to find out.
    """
    view, size = load_i64(load_i64(arguments + 8 * M_VIEW)), text_bytes(text)
    place = np.int64(OTHERWISE)
    if view != 0 and 1 <= size <= load_i64(arguments + 8 * M_MOST_BYTES):
        place = _only_match(
            carray(numbers_at(view), (VIEW_LENGTH,)),
            xxh64(text_address(text), size, np.uint64(load_i64(arguments + 8 * M_SEED))),
            np.uint32(load_i64(arguments + 8 * M_TAG)),
            load_i64(load_i64(arguments + 8 * M_PUBLISHED)),
        )
    if place <= 0:
        return place, _NONE, _NONE, _NONE, _NONE, _NONE
    return (
        np.int64(load_u32(place + _TAG)) + 1,
        np.int64(load_i32(place + MESSAGE_QUEUE_POSITION)),
        load_i64(place + MESSAGE_OFFSET_POSITION),
        np.int64(load_u32(place + MESSAGE_SIZE_POSITION)),
        load_i64(place + _TIME),
        (place - load_i64(view + 8 * V_ROWS)) // MESSAGE_BYTES + 1,
    )


@cache
def load() -> Any:
    """Return `find_message`: what calls it, from numba's cache, or compiled in seconds."""
    return direct_call(_find_message, types.int64, TEXT)
