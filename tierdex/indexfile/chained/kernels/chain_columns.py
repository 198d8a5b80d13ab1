"""The newest match of many keys in a chained file, written as columns at once.

Nearly every batch of lookups wants one entry of each key, at any time, in the fields of the message
schema. Keys that have no hash yet are hashed while the loop waits for memory.

::

    key ahead -> hash -> prefetch its slot      (_AHEAD keys before it is needed)
    slot -> prefetch the first row              (a free lane of _LANES)
    row -> prefetch the next one, or, when it matches, its second half, copied one round later

A lane whose chain has ended takes the next key at once, so that as many loads are in flight as the
memory takes; groups that wait for their longest chain cost a sixth more. Only the first 16 bytes of a
row are prefetched, which say whether it matches: most rows lie on two cache lines.

Depends on chain_lookup, head_insertion, key_bounds, intrinsics, hashing, compile, layout
and schema.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    prefetch,
    store_i64,
    store_u8,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.chain_lookup import (
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
from tierdex.indexfile.chained.kernels.head_insertion import Slots, slot_of
from tierdex.indexfile.kernels.key_bounds import bytes_are_plain, key_bound
from tierdex.indexfile.schema import (
    MESSAGE_OFFSET_POSITION,
    MESSAGE_QUEUE_POSITION,
    MESSAGE_SIZE_POSITION,
)

# Arguments of a call (i8 each): what is asked, and where the columns lie.
C_HASHES = 0  # u8
C_COUNT = 1
C_WANTED = 2  # i8 lookups to ask for; 0: all
C_TAG = 3
C_PUBLISHED = 4
C_PLACE = 5  # number of this file, for the column of places
C_FOUND = 6  # u1: 1 for a match
C_PLACES = 7  # i4
C_TIMES = 8  # i8
C_OFFSETS = 9  # i8
C_SIZES = 10  # u4
C_QUEUES = 11  # i4
C_MOST_ITEMS = 12  # that may be walked; above it TOO_MUCH
C_KEY_OFFSETS = 13  # the keys as in PlainKeys, whose hashes are to be written; 0: they were
C_KEY_WIDTH = 14
C_KEY_DATA = 15
C_KEY_DATA_BYTES = 16
C_KEY_MOST_BYTES = 17
C_KEY_SEED = 18
C_KEY_IS_TEXT = 19
COLUMN_ARGUMENTS = 20

NOT_PLAIN = -(1 << 61)
"""What `take_newest` answers when some key is not plain."""

_LANES = 32
_AHEAD = 32
_HEAD_BYTES = layout.ITEM_TIME_POSITION  # of an item: hash, link and tag
_HASH = layout.ITEM_HASH_POSITION
_LINK = layout.ITEM_LINK_POSITION
_TAG = layout.ITEM_TAG_POSITION
_TIME = layout.ITEM_TIME_POSITION


@kernel
def argument(arguments: int, place: int) -> Any:
    return load_i64(arguments + 8 * place)


@kernel
def _lookup_of(wanted: int, i: int) -> Any:
    if wanted == 0:
        return np.int64(i)
    return load_i64(wanted + 8 * i)


@kernel
def _first_key(arguments: int) -> Any:
    """Return where the first key begins, NOT_PLAIN when the keys' bytes are not plain."""
    offsets, width = argument(arguments, C_KEY_OFFSETS), argument(arguments, C_KEY_WIDTH)
    if offsets == 0:
        return np.int64(0)
    data, data_bytes = argument(arguments, C_KEY_DATA), argument(arguments, C_KEY_DATA_BYTES)
    is_text = argument(arguments, C_KEY_IS_TEXT) != 0
    if not bytes_are_plain(offsets, width, data, data_bytes, argument(arguments, C_COUNT), is_text):
        return np.int64(NOT_PLAIN)
    return key_bound(offsets, width, 0)


@kernel
def _take_item(arguments: int, place: int, lookup: int) -> None:
    """Copy the fields of the item at `place` to the columns of a lookup."""
    store_u8(argument(arguments, C_FOUND) + lookup, np.uint8(1))
    store_u32(argument(arguments, C_PLACES) + 4 * lookup, np.uint32(argument(arguments, C_PLACE)))
    store_i64(argument(arguments, C_TIMES) + 8 * lookup, load_i64(place + _TIME))
    store_u64(
        argument(arguments, C_OFFSETS) + 8 * lookup,
        load_u64(place + MESSAGE_OFFSET_POSITION),
    )
    store_u32(
        argument(arguments, C_SIZES) + 4 * lookup,
        load_u32(place + MESSAGE_SIZE_POSITION),
    )
    store_u32(
        argument(arguments, C_QUEUES) + 4 * lookup,
        load_u32(place + MESSAGE_QUEUE_POSITION),
    )


@kernel
def take_newest(view: Any, arguments: int) -> Any:
    """Write the newest match of each wanted lookup to the columns (see C_*, at address `arguments`).

    Returns (lookups found, or an error; items walked).
    """
    slots = Slots(view[V_SLOTS], np.uint64(view[V_SLOT_COUNT]))
    item_bytes, base, row_limit = view[V_ITEM_BYTES], view[V_ROWS], view[V_ROW_LIMIT]
    count, tag = argument(arguments, C_COUNT), np.uint32(argument(arguments, C_TAG))
    newest = base + (argument(arguments, C_PUBLISHED) - 1) * item_bytes
    verify = view[V_CHECKSUMS] != 0
    lookups, hashes = np.empty(_LANES, np.int64), np.empty(_LANES, np.uint64)
    places = np.empty(_LANES, np.int64)
    hits, hit_places = np.empty(_LANES, np.int64), np.empty(_LANES, np.int64)
    found, walked, running, hit = 0, 0, 0, 0
    hash_column, wanted = argument(arguments, C_HASHES), argument(arguments, C_WANTED)
    offsets, width, data = (
        argument(arguments, C_KEY_OFFSETS),
        argument(arguments, C_KEY_WIDTH),
        argument(arguments, C_KEY_DATA),
    )
    data_bytes, most_bytes = (
        argument(arguments, C_KEY_DATA_BYTES),
        argument(arguments, C_KEY_MOST_BYTES),
    )
    seed = np.uint64(argument(arguments, C_KEY_SEED))
    begin = _first_key(arguments)
    if begin < 0:
        return np.int64(NOT_PLAIN), walked
    ahead, taken = 0, 0
    while True:
        while taken < count and running < _LANES:
            # The slot of the key `_AHEAD` keys on is asked for; at the start, those of all before.
            while ahead < min(count, taken + _AHEAD):
                if offsets == 0:
                    value = load_u64(hash_column + 8 * _lookup_of(wanted, ahead))
                else:
                    end = key_bound(offsets, width, ahead + 1)
                    length = end - begin
                    if length < 1 or length > most_bytes or end > data_bytes:
                        return np.int64(NOT_PLAIN), walked
                    value = xxh64(data + begin, length, seed)
                    store_u64(hash_column + 8 * ahead, value)
                    begin = end
                prefetch(slot_of(slots, value))
                ahead += 1
            lookup = _lookup_of(wanted, taken)
            value = load_u64(hash_column + 8 * lookup)
            slot = slot_of(slots, value)
            if verify:
                error = bad_block(view, slot, layout.SLOT_BYTES)
                if error:
                    return error, walked
            row = np.int64(load_u32(slot))
            if row > row_limit:
                return BAD_CHAIN, walked
            place = base + (row - 1) * item_bytes
            prefetch(place)
            prefetch(place + _HEAD_BYTES - 1)
            lookups[running], hashes[running], places[running] = lookup, value, place
            running += row != 0
            taken += 1
        for a in range(hit):
            _take_item(arguments, hit_places[a], hits[a])
        found += hit
        hit = 0
        if running == 0:
            return found, walked
        if walked > argument(arguments, C_MOST_ITEMS):
            return TOO_MUCH, walked
        still = 0
        for a in range(running):
            place = places[a]
            if verify:
                error = bad_block(view, place, item_bytes)
                if error:
                    return error, walked
            walked += 1
            following = base + (np.int64(load_u32(place + _LINK)) - 1) * item_bytes
            if following >= place:
                return BAD_CHAIN, walked
            goes_on = following >= base
            if (
                load_u64(place + _HASH) == hashes[a]
                and load_u32(place + _TAG) == tag
                and place <= newest
            ):
                prefetch(place + item_bytes - 1)
                hits[hit], hit_places[hit] = lookups[a], place
                hit += 1
                goes_on = False
            if goes_on:
                prefetch(following)
                prefetch(following + _HEAD_BYTES - 1)
                lookups[still], hashes[still], places[still] = lookups[a], hashes[a], following
                still += 1
        running = still
