"""Chains to sorted rows: all slots in order, 32 chains side by side, each short chain sorted by hash.

    slots --find--> heads --follow--> items seen --sort--> row numbers --copy--> rows


Slot = upper half of hash * slot count, so slot order is hash order: after sorting each chain by hash
(newest first among equals, which is how a chain runs) the rows come out sorted. A *fingerprint* that
does not depend on order, over every word of every row, proves against a pass over the batches that
each item came out exactly once.

Depends on intrinsics, checksum, compile, chain_lookup, layout and schema.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.fileparts.kernels.checksum import (
    five_word_fingerprint,
    load_five_words,
    row_fingerprint,
    rows_fingerprint,
    store_five_words,
)
from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_u32,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.chain_lookup import (
    BAD_CHAIN,
    V_ITEM_BYTES,
    V_ROW_LIMIT,
    V_ROWS,
    V_SLOT_COUNT,
    V_SLOTS,
)
from tierdex.indexfile.schema import MESSAGE_BYTES

__all__ = ["add_fingerprint", "collect_chain", "rows_fingerprint", "walk_slots"]

GROUP_SLOTS = 256
CHAIN_ITEMS = 64  # longer chains are collected one by one
GROUP_ITEMS = GROUP_SLOTS * CHAIN_ITEMS  # least room that walk_slots needs
_LANES = 32  # chains that are followed side by side: more ask for more than the memory takes
_SEEN = (
    GROUP_SLOTS * (CHAIN_ITEMS + 1) + 1
)  # items of a group at most, and one that is written over

# Places of a walk (i8 each).
W_SLOT = 0  # next slot
W_FINGERPRINT = 1
W_PUBLISHED = 2  # rows above it are passed over
W_LONG = 3  # 1: slot W_SLOT has a long chain, which the caller walks
WALK_LENGTH = 4

_LINK = layout.ITEM_LINK_POSITION


@kernel
def _find_heads(view: Any, first: int, heads: Any) -> Any:
    """Write row and slot of every chain of the group from slot `first` on to `heads` (two i8 columns).

    A row of 0 ends them. Asks for the first ones; rows may be past the end. Returns (chains, greatest row).
    """
    rows, slots = heads
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    found, greatest = 0, np.int64(0)
    for slot in range(first, min(first + GROUP_SLOTS, view[V_SLOT_COUNT])):
        row = np.int64(load_u32(view[V_SLOTS] + 4 * slot))
        greatest = max(greatest, row)
        rows[found], slots[found] = row, slot
        found += row != 0
    rows[found] = 0
    for i in range(min(found, _LANES)):
        place = base + (rows[i] - 1) * item_bytes
        prefetch(place)
        prefetch(place + item_bytes - 1)
    return found, greatest


@kernel
def _follow(
    view: Any, published: int, first: int, heads: Any, found: int, lengths: Any, seen: Any
) -> Any:
    """Follow `found` chains; rows, slots and hashes of their items go to the columns of `seen`.

    A lane whose chain has ended goes on with the next one: memory is asked without a pause. Items of a
    slot lie there in the order of its chain, `lengths` i8[GROUP_SLOTS] counts them. Returns (slots
    walked, items): fewer than there are when the next one's chain is too long; or (BAD_CHAIN, 0).
    """
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    slot_count = np.uint64(view[V_SLOT_COUNT])
    head_rows, head_slots = heads
    rows, slots, hashes = seen
    running = min(found, _LANES)
    lane_rows, lane_slots = head_rows[:running].copy(), head_slots[:running].copy()
    coming, items, walked = running, 0, np.int64(GROUP_SLOTS)
    while running:
        still = 0
        for a in range(running):
            row, slot = lane_rows[a], lane_slots[a]
            place = base + (row - 1) * item_bytes
            following, value = np.int64(load_u32(place + _LINK)), load_u64(place)
            if following >= row or np.int64(mul_high(value, slot_count)) != slot:
                return np.int64(BAD_CHAIN), 0
            rows[items], slots[items], hashes[items] = row, slot - first, value
            is_visible = np.int64(row <= published)
            items += int(is_visible)
            lengths[slot - first] += is_visible
            if lengths[slot - first] > CHAIN_ITEMS:
                walked = min(walked, slot - first)
                following = np.int64(0)
            ends = following == 0  # no branch: half of the items end their chain
            row = head_rows[coming] if ends else following
            lane_rows[still], lane_slots[still] = row, head_slots[coming] if ends else slot
            coming += ends & (coming < found)
            place = base + (row - 1) * item_bytes
            prefetch(place)
            prefetch(place + item_bytes - 1)
            still += row != 0
        running = still
    return walked, items


@kernel
def _sort(count: int, seen: Any, items: int, lengths: Any, scratch: Any, numbers: Any) -> Any:
    """Write the row numbers of the first `count` slots, sorted by hash, newest first among equals.

    Slot order is hash order, so items only change places within their chain: each is compared with as
    many after it as the longest chain has, in vectors, and moves by as many as it beats. `scratch` has
    columns like those of `seen`. Returns how many numbers there are.
    """
    seen_rows, seen_slots, seen_hashes = seen
    rows, ranks, hashes = scratch
    total, longest = 0, 0
    for j in range(count):
        longest = max(longest, lengths[j])
        total += lengths[j]
        lengths[j] = total - lengths[j]  # from here on: where the slot's next item belongs
    for i in range(items):
        slot = seen_slots[i]
        if slot < count:
            place = lengths[slot]
            rows[place], hashes[place] = seen_rows[i], seen_hashes[i]
            lengths[slot] = place + 1
    for i in range(total):
        ranks[i] = i
    for distance in range(1, longest):
        for i in range(total - distance):
            ranks[i] += hashes[i + distance] < hashes[i]
        for i in range(total - distance):
            ranks[i + distance] -= hashes[i + distance] < hashes[i]
    for i in range(total):
        numbers[ranks[i]] = rows[i]
    return total


@kernel
def _copy_messages(base: int, numbers: int, count: int, target: int) -> Any:
    """Copy `count` rows of the message schema; return the sum of their fingerprints.

    What the general path does, with a row's five words in registers: half of the time.
    """
    total = np.uint64(0)
    for i in range(count):
        row = load_five_words(base + (load_i64(numbers + 8 * i) - 1) * MESSAGE_BYTES)
        store_five_words(target, row)
        total += five_word_fingerprint(row)
        target += MESSAGE_BYTES
    return total


@kernel
def walk_slots(view: Any, walk: Any, out: int, room: int) -> Any:
    """Write sorted rows from slot W_SLOT on to `out`, which has room for `room` of them.

    `room` is at least GROUP_ITEMS. Returns the rows written, or an error. At the end W_SLOT is the
    slot count; W_LONG says that the chain of slot W_SLOT is left to the caller.
    """
    heads = (np.empty(GROUP_SLOTS + 1, np.int64), np.empty(GROUP_SLOTS + 1, np.int64))
    lengths = np.empty(GROUP_SLOTS, np.int64)
    seen = (np.empty(_SEEN, np.int64), np.empty(_SEEN, np.int64), np.empty(_SEEN, np.uint64))
    scratch = (np.empty(_SEEN, np.int64), np.empty(_SEEN, np.int64), np.empty(_SEEN, np.uint64))
    sorted_rows = np.empty(_SEEN, np.int64)
    numbers = sorted_rows.ctypes.data
    item_bytes, base, slot_count = view[V_ITEM_BYTES], view[V_ROWS], view[V_SLOT_COUNT]
    written = 0
    total = np.uint64(walk[W_FINGERPRINT])
    walk[W_LONG] = 0
    found, greatest = _find_heads(view, walk[W_SLOT], heads)
    while walk[W_SLOT] < slot_count and walk[W_LONG] == 0 and written + GROUP_ITEMS <= room:
        if greatest > view[V_ROW_LIMIT]:
            return BAD_CHAIN
        first = walk[W_SLOT]
        count = min(GROUP_SLOTS, slot_count - first)
        lengths[:] = 0
        walked, seen_items = _follow(view, walk[W_PUBLISHED], first, heads, found, lengths, seen)
        if walked < 0:
            return walked
        walked = min(walked, count)
        # The heads of the next chains come in while this group is sorted and copied.
        following = first + walked
        found, greatest = _find_heads(view, following, heads)
        items = _sort(walked, seen, seen_items, lengths, scratch, sorted_rows)
        target = out + written * item_bytes
        if item_bytes == MESSAGE_BYTES:
            total += _copy_messages(base, numbers, items, target)
        else:
            for i in range(items):
                place = base + (load_i64(numbers + 8 * i) - 1) * item_bytes
                for position in range(0, item_bytes, 8):
                    store_u64(target + position, load_u64(place + position))
                total += row_fingerprint(target, item_bytes)
                target += item_bytes
        written += items
        walk[W_LONG] = walked < count
        walk[W_SLOT] = following
    walk[W_FINGERPRINT] = np.int64(total)
    return written


@kernel
def collect_chain(view: Any, row: Any, published: int, numbers: int, hashes: int, room: int) -> Any:
    """Write row numbers (u4) and hashes (u8) of a chain from `row` on, newest first.

    Returns (items written or BAD_CHAIN, row to go on with or 0).
    """
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    count = 0
    while row != 0 and count < room:
        if row > view[V_ROW_LIMIT]:
            return BAD_CHAIN, np.int64(0)
        place = base + (row - 1) * item_bytes
        following = np.int64(load_u32(place + _LINK))
        if following >= row:
            return BAD_CHAIN, np.int64(0)
        if row <= published:
            store_u32(numbers + 4 * count, np.uint32(row))
            store_u64(hashes + 8 * count, load_u64(place))
            count += 1
        row = following
    return count, row


@kernel
def add_fingerprint(walk: Any, value: int) -> None:
    """Add to the walk's fingerprint, wrapping."""
    walk[W_FINGERPRINT] += value
