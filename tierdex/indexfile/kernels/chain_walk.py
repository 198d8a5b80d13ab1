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
from tierdex.indexfile.kernels.checksum import (
    five_word_fingerprint,
    row_fingerprint,
    rows_fingerprint,
)
from tierdex.indexfile.kernels.compile import kernel
from tierdex.indexfile.kernels.intrinsics import (
    load_i64,
    load_u32,
    load_u64,
    mul_high,
    prefetch,
    store_i64,
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

_MESSAGE_BYTES = 40  # items of the message schema
_SHORT = 4  # items of a chain that are copied without asking how long it is
_LINK = layout.ITEM_LINK_POSITION


@kernel
def _ask_group(view: Any, first: int, count: int) -> None:
    """Ask for the heads of `count` chains from slot `first` on; the rows may be past the end."""
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    for slot in range(first, first + count):
        place = base + (np.int64(load_u32(view[V_SLOTS] + 4 * slot)) - 1) * item_bytes
        prefetch(place)
        prefetch(place + item_bytes - 1)


@kernel
def _collect_group(
    view: Any, published: int, first: int, count: int, chains: int, lengths: int, scratch: int
) -> Any:
    """Walk the chains of `count` slots side by side; row numbers (u4) go to chains[slot, 0..length].

    `lengths` and `scratch` are i8[GROUP_SLOTS] and twice that. Returns how many slots were walked:
    fewer than `count` when the next one's chain is longer than it may be; or BAD_CHAIN.
    """
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    slot_count = np.uint64(view[V_SLOT_COUNT])
    rows, active = scratch, scratch + 8 * GROUP_SLOTS
    running, greatest = 0, np.int64(0)
    for j in range(count):
        row = np.int64(load_u32(view[V_SLOTS] + 4 * (first + j)))
        greatest = max(greatest, row)
        store_i64(rows + 8 * j, row)
        store_i64(lengths + 8 * j, 0)
        store_i64(active + 8 * running, j)
        running += row != 0
    if greatest > view[V_ROW_LIMIT]:
        return BAD_CHAIN
    walked = count
    while running:
        still = 0
        for a in range(running):
            j = load_i64(active + 8 * a)
            row = load_i64(rows + 8 * j)
            place = base + (row - 1) * item_bytes
            following = np.int64(load_u32(place + _LINK))
            slot = np.int64(mul_high(load_u64(place), slot_count))
            if following >= row or slot != first + j:
                return BAD_CHAIN
            length = load_i64(lengths + 8 * j)
            if length == CHAIN_ITEMS:
                if row <= published:
                    walked = min(walked, j)
                    continue
                length -= 1
            store_u32(chains + 4 * (j * CHAIN_ITEMS + length), np.uint32(row))
            store_i64(lengths + 8 * j, length + (row <= published))
            store_i64(rows + 8 * j, following)
            place = base + (following - 1) * item_bytes
            prefetch(place)
            prefetch(place + item_bytes - 1)
            store_i64(active + 8 * still, j)
            still += following != 0
        running = still
    return walked


@kernel
def _sort_group(view: Any, count: int, chains: int, lengths: int, numbers: int, hashes: int) -> Any:
    """Write the row numbers (i8) of `count` chains, sorted by hash, newest first among equals.

    Slot order is hash order, so nothing moves beyond its chain. Returns how many there are.
    """
    item_bytes, base = view[V_ITEM_BYTES], view[V_ROWS]
    total = 0
    for j in range(count):
        chain = chains + 4 * j * CHAIN_ITEMS
        length = load_i64(lengths + 8 * j)
        for i in range(_SHORT):  # most are shorter: what is too much is written over
            store_i64(numbers + 8 * (total + i), np.int64(load_u32(chain + 4 * i)))
        for i in range(_SHORT, length):
            store_i64(numbers + 8 * (total + i), np.int64(load_u32(chain + 4 * i)))
        total += length
    greatest = np.uint64(0)
    for i in range(total):
        number = load_i64(numbers + 8 * i)
        value = load_u64(base + (number - 1) * item_bytes)
        place = i
        if value < greatest:
            while place > 0 and load_u64(hashes + 8 * (place - 1)) > value:
                store_u64(hashes + 8 * place, load_u64(hashes + 8 * (place - 1)))
                store_i64(numbers + 8 * place, load_i64(numbers + 8 * (place - 1)))
                place -= 1
            store_i64(numbers + 8 * place, number)
        greatest = max(greatest, value)
        store_u64(hashes + 8 * place, value)
    return total


@kernel
def _copy_messages(base: int, numbers: int, count: int, target: int) -> Any:
    """Copy `count` rows of the message schema; return the sum of their fingerprints.

    What the general way does, with a row's five words in registers: half of the time.
    """
    total = np.uint64(0)
    for i in range(count):
        place = base + (load_i64(numbers + 8 * i) - 1) * _MESSAGE_BYTES
        a, b, c = load_u64(place), load_u64(place + 8), load_u64(place + 16)
        d, e = load_u64(place + 24), load_u64(place + 32)
        store_u64(target, a)
        store_u64(target + 8, b)
        store_u64(target + 16, c)
        store_u64(target + 24, d)
        store_u64(target + 32, e)
        total += five_word_fingerprint(a, b, c, d, e)
        target += _MESSAGE_BYTES
    return total


@kernel
def walk_slots(view: Any, walk: Any, out: int, room: int) -> Any:
    """Write sorted rows from slot W_SLOT on to `out`, which has room for `room` of them.

    `room` is at least GROUP_ITEMS. Returns the rows written, or an error. At the end W_SLOT is the
    slot count; W_LONG says that the chain of slot W_SLOT is left to the caller.
    """
    memory = np.empty(3 * GROUP_SLOTS + 2 * (GROUP_ITEMS + _SHORT) + GROUP_ITEMS // 2, np.int64)
    lengths = memory.ctypes.data
    scratch = lengths + 8 * GROUP_SLOTS
    numbers = scratch + 16 * GROUP_SLOTS
    hashes = numbers + 8 * (GROUP_ITEMS + _SHORT)
    chains = hashes + 8 * (GROUP_ITEMS + _SHORT)
    item_bytes, base, slot_count = view[V_ITEM_BYTES], view[V_ROWS], view[V_SLOT_COUNT]
    written = 0
    total = np.uint64(walk[W_FINGERPRINT])
    walk[W_LONG] = 0
    _ask_group(view, walk[W_SLOT], min(GROUP_SLOTS, slot_count - walk[W_SLOT]))
    while walk[W_SLOT] < slot_count and walk[W_LONG] == 0 and written + GROUP_ITEMS <= room:
        first = walk[W_SLOT]
        count = min(GROUP_SLOTS, slot_count - first)
        walked = _collect_group(view, walk[W_PUBLISHED], first, count, chains, lengths, scratch)
        if walked < 0:
            return walked
        # The heads of the next chains come in while this group is sorted and copied.
        following = first + walked
        _ask_group(view, following, min(GROUP_SLOTS, slot_count - following))
        items = _sort_group(view, walked, chains, lengths, numbers, hashes)
        target = out + written * item_bytes
        if item_bytes == _MESSAGE_BYTES:
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
