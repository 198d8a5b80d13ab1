"""The newest match of many keys in a chained file, written as columns at once.

What a batch of lookups asks for nearly always: one entry a key, of any time, in the fields of the
message schema. Chains are walked side by side as in chain_lookup, and a match goes from its row, which
is in the cache then, to the caller's columns. Depends on chain_lookup, intrinsics.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.kernels.chain_lookup import (
    BAD_CHAIN,
    TOO_MUCH,
    V_CHECKSUMS,
    V_ITEM_BYTES,
    V_ROW_LIMIT,
    V_ROWS,
    V_SLOT_COUNT,
    V_SLOTS,
    bad_block,
)
from tierdex.indexfile.kernels.compile import kernel
from tierdex.indexfile.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)

# Words of a call (i8 each): what is asked, and where the columns lie.
C_HASHES = 0  # u8
C_COUNT = 1
C_WANTED = 2  # i8 lookups to ask for; 0: all
C_TAG = 3
C_PUBLISHED = 4
C_PLACE = 5  # number of this file, for the column of places
C_FOUND = 6  # u1
C_PLACES = 7  # i4
C_TIMES = 8  # i8
C_OFFSETS = 9  # i8
C_SIZES = 10  # u4
C_QUEUES = 11  # i4
C_OFFSET_POSITION = 12  # bytes inside an item
C_SIZE_POSITION = 13
C_QUEUE_POSITION = 14
C_MOST_ITEMS = 15  # that may be walked; above it TOO_MUCH
COLUMN_WORDS = 16

_GROUP = 64
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION


@kernel
def _lookup_of(words: Any, i: int) -> Any:
    if words[C_WANTED] == 0:
        return np.int64(i)
    return load_i64(words[C_WANTED] + 8 * i)


@kernel
def _ask_slots(view: Any, words: Any, start: int, size: int) -> None:
    slots, slot_count = view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])
    for j in range(start, start + size):
        value = load_u64(words[C_HASHES] + 8 * _lookup_of(words, j))
        prefetch(slots + 4 * np.int64(mul_high(value, slot_count)))


@kernel
def _take_item(words: Any, place: int, lookup: int) -> None:
    """Copy the fields of the item at `place` to the columns of a lookup."""
    store_u8(words[C_FOUND] + lookup, np.uint8(1))
    store_u32(words[C_PLACES] + 4 * lookup, np.uint32(words[C_PLACE]))
    store_i64(words[C_TIMES] + 8 * lookup, load_i64(place + _TIME))
    store_u64(words[C_OFFSETS] + 8 * lookup, load_u64(place + words[C_OFFSET_POSITION]))
    store_u32(words[C_SIZES] + 4 * lookup, load_u32(place + words[C_SIZE_POSITION]))
    store_u32(words[C_QUEUES] + 4 * lookup, load_u32(place + words[C_QUEUE_POSITION]))


@kernel
def take_newest(view: Any, words: Any) -> Any:
    """Write the newest match of each wanted lookup to the columns (see C_*).

    Returns (lookups found or an error, items walked).
    """
    slots, slot_count = view[V_SLOTS], np.uint64(view[V_SLOT_COUNT])
    item_bytes, base, row_limit = view[V_ITEM_BYTES], view[V_ROWS], view[V_ROW_LIMIT]
    count, published, tag = words[C_COUNT], words[C_PUBLISHED], np.uint32(words[C_TAG])
    verify = view[V_CHECKSUMS] != 0
    lookups = np.empty(_GROUP, np.int64)
    hashes = np.empty(_GROUP, np.uint64)
    rows = np.empty(_GROUP, np.int64)
    found, walked = 0, 0
    _ask_slots(view, words, 0, min(_GROUP, count))
    for start in range(0, count, _GROUP):
        size = min(_GROUP, count - start)
        running = 0
        for j in range(size):
            lookup = _lookup_of(words, start + j)
            value = load_u64(words[C_HASHES] + 8 * lookup)
            slot = slots + 4 * np.int64(mul_high(value, slot_count))
            if verify:
                error = bad_block(view, slot, 4)
                if error:
                    return error, walked
            row = np.int64(load_u32(slot))
            if row > row_limit:
                return BAD_CHAIN, walked
            place = base + (row - 1) * item_bytes
            prefetch(place)
            prefetch(place + item_bytes - 1)
            lookups[running], hashes[running], rows[running] = lookup, value, row
            running += row != 0
        _ask_slots(view, words, start + size, min(_GROUP, count - start - size))
        while running:
            if walked > words[C_MOST_ITEMS]:
                return TOO_MUCH, walked
            still = 0
            for a in range(running):
                row = rows[a]
                place = base + (row - 1) * item_bytes
                if verify:
                    error = bad_block(view, place, item_bytes)
                    if error:
                        return error, walked
                walked += 1
                following = np.int64(load_u32(place + _LINK))
                if following >= row or following > row_limit:
                    return BAD_CHAIN, walked
                if (
                    row <= published
                    and load_u64(place) == hashes[a]
                    and load_u32(place + _TAG) == tag
                ):
                    _take_item(words, place, lookups[a])
                    found += 1
                elif following:
                    place = base + (following - 1) * item_bytes
                    prefetch(place)
                    prefetch(place + item_bytes - 1)
                    lookups[still], hashes[still], rows[still] = lookups[a], hashes[a], following
                    still += 1
            running = still
    return found, walked
