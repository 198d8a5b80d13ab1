"""Chains to sorted rows: all slots in order, 64 chains at a time, each short chain sorted by hash.

Slot = upper half of hash * slot count, so slot order is hash order: after sorting each chain by hash
(newest first among equals, which is how a chain runs) the rows come out sorted. A *fingerprint* that
does not depend on order, over every word of every row, proves against a pass over the batches that
each item came out exactly once.

Depends on intrinsics, chain_lookup (the view).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.kernels.chain_lookup import (
    BAD_CHAIN,
    V_ITEM_BYTES,
    V_ROW_LIMIT,
    V_ROWS,
    V_SLOT_COUNT,
    V_SLOTS,
)
from tierdex.indexfile.kernels.checksum import row_fingerprint, rows_fingerprint
from tierdex.indexfile.kernels.compile import kernel
from tierdex.indexfile.kernels.intrinsics import (
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_u32,
    store_u64,
)

__all__ = ["add_fingerprint", "collect_chain", "rows_fingerprint", "walk_slots"]

GROUP_SLOTS = 64
CHAIN_ITEMS = 64  # longer chains are collected one by one
GROUP_ITEMS = GROUP_SLOTS * CHAIN_ITEMS  # least room that walk_slots needs

# Places of a walk (i8 each).
W_SLOT = 0  # next slot
W_FINGERPRINT = 1
W_PUBLISHED = 2  # rows above it are passed over
W_LONG = 3  # 1: slot W_SLOT has a long chain, which the caller walks
WALK_LENGTH = 4

_LINK = layout.ITEM_LINK_POSITION


@kernel
def _collect_group(
    view: Any, published: int, first: int, count: int, numbers: Any, lengths: Any, rows: Any
) -> Any:
    """Walk the chains of `count` slots side by side; row numbers go to numbers[slot, 0..length].

    Returns the longest length, CHAIN_ITEMS + 1 when a chain is longer than it may be, or an error.
    """
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    active = np.empty(GROUP_SLOTS, np.int64)
    running, longest = 0, 0
    for j in range(count):
        lengths[j] = 0
        row = np.int64(load_u32(view[V_SLOTS] + 4 * (first + j)))
        rows[j] = row
        if row > view[V_ROW_LIMIT]:
            return BAD_CHAIN
        if row != 0:
            prefetch(base + (row - 1) * item_bytes)
            prefetch(base + row * item_bytes - 1)
            active[running] = j
            running += 1
    while running:
        still = 0
        for a in range(running):
            j = active[a]
            row = rows[j]
            following = np.int64(load_u32(base + (row - 1) * item_bytes + _LINK))
            if following >= row:
                return BAD_CHAIN
            if row <= published:
                if lengths[j] == CHAIN_ITEMS:
                    lengths[j] += 1
                    longest = CHAIN_ITEMS + 1
                    continue
                numbers[j, lengths[j]] = row
                lengths[j] += 1
                longest = max(longest, lengths[j])
            if following:
                rows[j] = following
                prefetch(base + (following - 1) * item_bytes)
                prefetch(base + following * item_bytes - 1)
                active[still] = j
                still += 1
        running = still
    return longest


@kernel
def _sort_chain(base: int, item_bytes: int, numbers: Any, length: int, hashes: Any) -> None:
    """Sort a chain's row numbers by their items' hashes, keeping the order among equals."""
    for i in range(length):
        number = numbers[i]
        value = load_u64(base + (number - 1) * item_bytes)
        place = i
        while place > 0 and hashes[place - 1] > value:
            hashes[place] = hashes[place - 1]
            numbers[place] = numbers[place - 1]
            place -= 1
        hashes[place] = value
        numbers[place] = number


@kernel
def walk_slots(view: Any, walk: Any, out: int, room: int) -> Any:
    """Write sorted rows from slot W_SLOT on to `out`, which has room for `room` of them.

    `room` is at least GROUP_ITEMS. Returns the rows written, or an error. At the end W_SLOT is the
    slot count; W_LONG says that the chain of slot W_SLOT is left to the caller.
    """
    numbers = np.empty((GROUP_SLOTS, CHAIN_ITEMS), np.int64)
    lengths = np.empty(GROUP_SLOTS, np.int64)
    rows = np.empty(GROUP_SLOTS, np.int64)
    hashes = np.empty(CHAIN_ITEMS, np.uint64)
    item_bytes, base, slot_count = view[V_ITEM_BYTES], view[V_ROWS], view[V_SLOT_COUNT]
    written = 0
    total = np.uint64(walk[W_FINGERPRINT])
    walk[W_LONG] = 0
    while walk[W_SLOT] < slot_count and walk[W_LONG] == 0 and written + GROUP_ITEMS <= room:
        first = walk[W_SLOT]
        count = min(GROUP_SLOTS, slot_count - first)
        longest = _collect_group(view, walk[W_PUBLISHED], first, count, numbers, lengths, rows)
        if longest < 0:
            return longest
        for j in range(count):
            if lengths[j] > CHAIN_ITEMS:
                walk[W_LONG] = 1
                break
            _sort_chain(base, item_bytes, numbers[j], lengths[j], hashes)
            for i in range(lengths[j]):
                place = base + (numbers[j, i] - 1) * item_bytes
                slot = np.int64(mul_high(load_u64(place), np.uint64(slot_count)))
                if slot != first + j:
                    return BAD_CHAIN
                target = out + written * item_bytes
                for position in range(0, item_bytes, 8):
                    store_u64(target + position, load_u64(place + position))
                total += row_fingerprint(target, item_bytes)
                written += 1
            walk[W_SLOT] += 1
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
