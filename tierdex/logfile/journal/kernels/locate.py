"""Where the rows of one queue lie: by the chunks of an unsealed journal.

    messages_below how many messages a queue has below a position
    locate        slots of consecutive messages of a queue
    row_addresses slots -> addresses in the mapping, the closed stage or the open one
    plan_read, plan_staged, copy_staged   a whole read, in one call each

`row_addresses` and what copies from there must be one step for every Python thread as soon as a row lies
in a stage: Python closes and reuses stages. Depends on state, rows, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, short_kernel
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i64,
    load_u32,
    load_u64,
    prefetch,
    store_i64,
)
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.state import (
    CHUNK_HEAD,
    S_FIRST,
    S_TAIL,
    STATE_BYTES,
    V_ADDRESS,
    V_BEGIN,
    V_CLOSED_ADDRESS,
    V_CLOSED_BEGIN,
    V_MAP,
    V_PUBLISHED,
    W_BASE_TIME,
    W_SEGMENTS,
    W_STATES,
    arena_u4,
    find_queue,
    slot_place,
)
from tierdex.logfile.kernels.rows import copy_rows, measure_rows

# What a read wants: name and id of the queue, offset, limits, the file's bytes that it may see, and room
# for so many addresses.
(
    Q_NAME, Q_NAME_BYTES, Q_QUEUE_ID, Q_OFFSET, Q_MOST_COUNT, Q_MOST_BYTES, Q_LIMIT, Q_PLACES, Q_ROOM,
) = range(9)  # fmt: skip
_UNIT: Final = layout.POSITION_UNIT
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@kernel
def _tail(words: Any, number: int) -> Any:
    """Return (end of the newest chunk, 0 for none; slots that are filled in it)."""
    word = load_u64(words[W_STATES] + STATE_BYTES * number + S_TAIL)
    tail, end = np.int64(word & _LOW), np.int64(word >> _HALF)
    if end == 0:
        return end, np.int64(0)
    return end, tail - arena_u4(words[W_SEGMENTS], end) - CHUNK_HEAD


@kernel
def first_offset(words: Any, number: int) -> Any:
    """Return the offset of a queue's first message here."""
    return load_i64(words[W_STATES] + STATE_BYTES * number + S_FIRST)


@kernel
def messages_below(words: Any, number: int, limit: int) -> Any:
    """Return how many messages of a queue lie below byte `limit` of the file."""
    segments = words[W_SEGMENTS]
    end, filled = _tail(words, number)
    while end != 0:
        start = arena_u4(segments, end)
        first = start + CHUNK_HEAD
        if filled > 0 and arena_u4(segments, first) * _UNIT < limit:
            low, high = np.int64(0), np.int64(filled)
            if arena_u4(segments, first + filled - 1) * _UNIT < limit:
                low = high - 1  # all of them, as a rule
            while high - low > 1:  # the slots of a queue rise
                middle = (low + high) >> 1
                if arena_u4(segments, first + middle) * _UNIT < limit:
                    low = middle
                else:
                    high = middle
            return arena_u4(segments, start + 1) + low + 1
        before = arena_u4(segments, start)
        if before != 0:
            filled = before - arena_u4(segments, before) - CHUNK_HEAD
        end = before
    return np.int64(0)


@kernel
def ask_slot(words: Any, number: int, ordinal: int) -> None:
    """Ask the cache for the slot of a queue's message, if the newest chunk has it."""
    end, _ = _tail(words, number)
    if end != 0:
        start = arena_u4(words[W_SEGMENTS], end)
        before = arena_u4(words[W_SEGMENTS], start + 1)
        if ordinal >= before:
            prefetch(slot_place(words[W_SEGMENTS], start + CHUNK_HEAD + ordinal - before))


@kernel
def locate(words: Any, number: int, ordinal: int, count: int, out: int) -> Any:
    """Write the position (i8) of up to `count` messages from `ordinal` on; return how many there are."""
    segments = words[W_SEGMENTS]
    end, filled = _tail(words, number)
    if end == 0:
        return np.int64(0)
    total = arena_u4(segments, arena_u4(segments, end) + 1) + filled
    last = min(total, ordinal + count)
    while end != 0 and last > ordinal:
        start = arena_u4(segments, end)
        before = arena_u4(segments, start + 1)
        for i in range(max(ordinal, before), min(last, before + filled)):
            slot = arena_u4(segments, start + CHUNK_HEAD + i - before)
            store_i64(out + 8 * (i - ordinal), slot * _UNIT)
        if before <= ordinal:
            break
        end = arena_u4(segments, start)
        filled = end - arena_u4(segments, end) - CHUNK_HEAD
    return np.int64(max(0, last - ordinal))


@kernel
def locate_all(words: Any, numbers: int, queue_count: int, out: int) -> Any:
    """Write the slots (u4) of all messages of each queue, queue by queue; return how many there are.

    `numbers` (u4) says in which order.
    """
    segments, done = words[W_SEGMENTS], np.int64(0)
    for i in range(queue_count):
        end, filled = _tail(words, np.int64(load_u32(numbers + 4 * i)))
        if end == 0:
            continue
        total = arena_u4(segments, arena_u4(segments, end) + 1) + filled
        while end != 0:
            start = arena_u4(segments, end)
            target = out + 4 * (done + arena_u4(segments, start + 1))
            _copy_slots(segments, start + CHUNK_HEAD, filled, target)
            end = arena_u4(segments, start)
            if end != 0:
                filled = end - arena_u4(segments, end) - CHUNK_HEAD
        done += total
    return done


@kernel
def _copy_slots(segments: int, first: int, count: int, target: int) -> None:
    """Copy a chunk's slots, which lie in one segment."""
    copy_bytes(target, slot_place(segments, first), 4 * count)


@kernel
def row_addresses(stage: Any, places: int, count: int) -> None:
    """Turn positions (i8) in the file into addresses, in place."""
    for i in range(count):
        position = load_i64(places + 8 * i)
        if position < stage[V_PUBLISHED]:
            address = stage[V_MAP] + position
        elif stage[V_CLOSED_ADDRESS] != 0 and position < stage[V_BEGIN]:
            address = stage[V_CLOSED_ADDRESS] + position - stage[V_CLOSED_BEGIN]
        else:
            address = stage[V_ADDRESS] + position - stage[V_BEGIN]
        store_i64(places + 8 * i, address)


@kernel
def gather_rows(words: Any, stage: Any, number: int, ordinal: int, count: int, places: int) -> Any:
    """Write the addresses (i8) of up to `count` rows of a queue from `ordinal` on; return how many."""
    found = locate(words, number, ordinal, count, places)
    row_addresses(stage, places, found)
    return found


@kernel
def _plan(words: Any, stage: Any, wanted: Any) -> Any:
    """Find what is wanted of a queue; the addresses of its rows go to Q_PLACES.

    Returns (messages, bytes of bodies, bytes of extras, whether Q_ROOM was too small for all).
    """
    none = np.int64(0), np.int64(0), np.int64(0), False
    number = find_queue(words, wanted[Q_NAME], wanted[Q_NAME_BYTES], wanted[Q_QUEUE_ID])
    if number < 0:
        return none
    ordinal, room = wanted[Q_OFFSET] - first_offset(words, number), wanted[Q_ROOM]
    if ordinal < 0:
        return none
    below = messages_below(words, number, wanted[Q_LIMIT])
    count = min(wanted[Q_MOST_COUNT], below - ordinal)
    if count <= 0:
        return none
    found = gather_rows(words, stage, number, ordinal, min(count, room), wanted[Q_PLACES])
    taken, bodies, extras = measure_rows(wanted[Q_PLACES], found, wanted[Q_MOST_BYTES])
    return taken, bodies, extras, taken == room and count > room


@kernel
def plan_read(words: Any, stage: Any, wanted: Any) -> Any:
    """Plan a read of what is published: its rows lie in the mapping, and stay there."""
    return _plan(words, stage, wanted)


@short_kernel
def plan_staged(words: Any, stage: Any, wanted: Any) -> Any:
    """Plan a read that may see staged rows: addresses hold until Python closes a stage."""
    return _plan(words, stage, wanted)


@short_kernel
def copy_staged(words: Any, stage: Any, wanted: Any, count: int, columns: Any) -> None:
    """Copy `count` messages that were planned: located again, since stages may have changed since."""
    number = find_queue(words, wanted[Q_NAME], wanted[Q_NAME_BYTES], wanted[Q_QUEUE_ID])
    ordinal = wanted[Q_OFFSET] - first_offset(words, number)
    gather_rows(words, stage, number, ordinal, count, wanted[Q_PLACES])
    copy_rows(wanted[Q_PLACES], count, words[W_BASE_TIME], columns)
