"""Head insertion: a row becomes the newest of its slot's chain. The one place where a slot changes.

::

    slot (u4) ---> newest row ---> the next older ---> ... ---> 0

    insert_head    a row that has all but its hash and link  -> both stored, then the slot
    replay_head    a row of a verified batch                 -> the slot, if the row links to its head
    remove_head    the newest row of a slot                  -> the slot goes back to the next older row

Order: a row is complete before its slot names it (`store_slot` is a release store), so a reader that
walks the chain beside an append finds whole rows only, and leaves out those that are not published.
A crash between the two stores leaves a row that no chain holds, or a slot that names a row of no batch:
recovery trusts neither and builds the slots anew from the batches that verify.

All but `prefetch_slots` are compiled into the kernel that calls them. Depends on batch_statistics,
intrinsics, compile and layout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    join_u32,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_slot,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_statistics import (
    B_ITEM_BYTES,
    B_ROWS,
    B_SLOT_COUNT,
    B_SLOTS,
)

_HASH = layout.ITEM_HASH_POSITION
_LINK = layout.ITEM_LINK_POSITION
_SLOT_BYTES = layout.SLOT_BYTES
assert layout.ITEM_TAG_POSITION == _LINK + 4, "link and tag are one word of 8 bytes"


class Slots(NamedTuple):
    """The slots of a file: the address of slot 0 and their number (u8). A loop keeps both in registers."""

    address: Any
    count: Any


@primitive
def slots_of(statistics: Any) -> Any:
    return Slots(statistics[B_SLOTS], np.uint64(statistics[B_SLOT_COUNT]))


@primitive
def slot_of(slots: Any, key_hash: Any) -> Any:
    """Return the address of the slot of a hash: the upper half of hash x slot count.

    Not the remainder: slots in order are then hashes in order, so that compaction sorts no file.
    """
    return slots.address + _SLOT_BYTES * np.int64(mul_high(key_hash, slots.count))


@primitive
def insert_head(slots: Any, place: int, key_hash: Any, tag: Any, row: int) -> Any:
    """Make `row`, whose other columns lie at `place` already, the head of its chain.

    Returns the word of link and tag (u8), which the batch's checksum covers behind the hash.
    """
    slot = slot_of(slots, key_hash)
    linked = join_u32(load_u32(slot), np.uint32(tag))
    store_u64(place + _HASH, key_hash)
    store_u64(place + _LINK, linked)
    store_slot(slot, np.uint32(row))  # the row is complete before this
    return linked


@primitive
def replay_head(slots: Any, place: int, row: int) -> bool:
    """Store `row` in the slot without writing to it; return whether it links to the head before it."""
    slot = slot_of(slots, load_u64(place + _HASH))
    is_linked = load_u32(place + _LINK) == load_u32(slot)
    store_slot(slot, np.uint32(row))
    return bool(is_linked)


@primitive
def remove_head(slots: Any, place: int, row: int) -> None:
    """Take `row` out of its chain, if it is the head; the row stays as it is: a reader may be on it."""
    slot = slot_of(slots, load_u64(place + _HASH))
    if load_u32(slot) == np.uint32(row):
        store_slot(slot, load_u32(place + _LINK))


@kernel
def prefetch_slots(statistics: Any, first_row: int, count: int) -> None:
    """Ask the cache for the slots of `count` rows whose hashes are stored."""
    slots, item_bytes = slots_of(statistics), statistics[B_ITEM_BYTES]
    place = statistics[B_ROWS] + (first_row - 1) * item_bytes
    for _ in range(count):
        prefetch(slot_of(slots, load_u64(place + _HASH)))
        place += item_bytes
