"""Passes over rows before they are packed: bounds of every column, runs and repeated entries.

`measure_rows` sees rows in any order; `mark_runs` sees them sorted by hash, newest first, and whole
runs at a time. All take the address of the rows.

Depends on the kernel decorator, intrinsics, end_offset and layout only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    store_u64,
)
from tierdex.indexfile import layout
from tierdex.indexfile.kernels.end_offset import end_of

QUEUE_FREE = np.uint64(0xFFFFFFFFFFFFFFFF)  # topic 2**32 - 1 is never given out
ORDER_BROKEN = -1


class QueueTable(NamedTuple):
    """An open hash table of queues, half full at most: `keys` u8 (topic << 32 | queue), QUEUE_FREE elsewhere.

    `least` offset and greatest `end` offset are i8, one a key; the capacity is a power of two.
    `positions` i8[3] has the bytes of offset, size and queue_id in a row, -1 when rows have none; `step`
    leads from an offset to its end, 0: the size. `used` i8[1] counts the keys.
    """

    positions: Any
    step: Any
    keys: Any
    least: Any
    end: Any
    used: Any


class MeasureArrays(NamedTuple):
    """What `measure_rows` widens.

    `columns` i8[c, 3] has byte, size and signedness of each column, `bounds` u8[c, 2] its least and
    greatest value in unsigned order; `tags` i8[3] least topic, greatest topic, kinds (1 keys, 2 message
    IDs).
    """

    columns: Any
    bounds: Any
    tags: Any
    queues: QueueTable


_SIGN = np.uint64(0x8000000000000000)
_SHIFT_32 = np.uint64(32)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_TOPIC_MASK = np.uint32(layout.TOPIC_MASK)
_TAG_POSITION = layout.ITEM_TAG_POSITION
_TILE = 1024  # rows that stay in the L1 and L2 cache
_SMALL_RUN = 16  # runs up to here are compared pair by pair


@kernel
def gather_field(
    field: int, item_bytes: int, count: int, size: int, signed: bool, values: Any
) -> None:
    """Load one field of `count` rows into `values` (u8), sign-extended when `signed`."""
    if size == 8:
        for i in range(count):
            values[i] = load_u64(field + i * item_bytes)
    elif size == 4:
        if signed:
            for i in range(count):
                values[i] = np.uint64(np.int64(load_i32(field + i * item_bytes)))
        else:
            for i in range(count):
                values[i] = np.uint64(load_u32(field + i * item_bytes))
    elif size == 2:
        for i in range(count):
            value = np.int64(load_u16(field + i * item_bytes))
            values[i] = np.uint64(value - 65536 if signed and value > 32767 else value)
    else:
        for i in range(count):
            value = np.int64(load_u8(field + i * item_bytes))
            values[i] = np.uint64(value - 256 if signed and value > 127 else value)


@kernel
def _queue_place(keys: Any, key: Any) -> Any:
    """Return where `key` stands, or the free place where it belongs; `keys` is a power of two long."""
    mask = np.uint64(keys.shape[0] - 1)
    place = ((key * _SPREAD) >> _SHIFT_32) & mask
    while keys[place] != key and keys[place] != QUEUE_FREE:
        place = (place + np.uint64(1)) & mask
    return np.int64(place)


@kernel
def measure_rows(rows: int, item_bytes: int, count: int, measure: Any) -> Any:
    """Widen the bounds of a MeasureArrays by `count` rows; return how many rows were measured.

    Less than `count` when the table of queues is half full: the caller makes it larger and goes on.
    A row may be measured twice.
    """
    done = count
    if measure.queues.positions[0] >= 0:
        done = _measure_queues(rows, item_bytes, count, measure.queues)
    _measure_tags(rows, item_bytes, done, measure.tags)
    _measure_columns(rows, item_bytes, done, measure.columns, measure.bounds)
    return done


@kernel
def _measure_columns(rows: int, item_bytes: int, count: int, columns: Any, bounds: Any) -> None:
    """Widen the bounds of every column, tile after tile: the rows are in the cache for each column."""
    values = np.empty(min(_TILE, count), np.uint64)
    for first in range(0, count, _TILE):
        tile = rows + first * item_bytes
        length = min(_TILE, count - first)
        for c in range(columns.shape[0]):
            low, high = bounds[c, 0], bounds[c, 1]
            signed = columns[c, 2] != 0
            gather_field(tile + columns[c, 0], item_bytes, length, columns[c, 1], signed, values)
            flip = _SIGN if signed else np.uint64(0)
            for i in range(length):
                ordered = values[i] ^ flip
                low = min(low, ordered)
                high = max(high, ordered)
            bounds[c, 0], bounds[c, 1] = low, high


@kernel
def _measure_tags(rows: int, item_bytes: int, count: int, tags: Any) -> None:
    """Widen least and greatest topic, and the kinds."""
    low, high, kinds = tags[0], tags[1], tags[2]
    for i in range(count):
        tag = np.int64(load_u32(rows + i * item_bytes + _TAG_POSITION))
        low = min(low, tag & layout.TOPIC_MASK)
        high = max(high, tag & layout.TOPIC_MASK)
        kinds |= 1 + (tag >> 31)
    tags[0], tags[1], tags[2] = low, high, kinds


@kernel
def _measure_queues(rows: int, item_bytes: int, count: int, queues: Any) -> Any:
    """Widen a QueueTable by `count` rows; return the rows done, fewer when it is half full."""
    positions, step, keys, least, end, used = queues
    offset_at, size_at, queue_at = positions[0], positions[1], positions[2]
    mask = np.uint64(keys.shape[0] - 1)
    for i in range(count):
        row = rows + i * item_bytes
        topic = np.uint64(load_u32(row + _TAG_POSITION) & _TOPIC_MASK)
        key = (topic << _SHIFT_32) | np.uint64(load_u32(row + queue_at))
        offset = load_i64(row + offset_at)
        place = np.int64(((key * _SPREAD) >> _SHIFT_32) & mask)
        if keys[place] != key:  # it is new, or another queue has its place
            place = _queue_place(keys, key)
            if keys[place] == QUEUE_FREE:
                if 2 * used[0] >= keys.shape[0]:
                    return i
                keys[place] = key
                least[place] = offset
                end[place] = offset
                used[0] += 1
        least[place] = min(least[place], offset)
        size = np.int64(load_u32(row + size_at))
        end[place] = max(end[place], end_of(offset, size, step))
    return count


@kernel
def put_queues(queues: Any, keys: Any, least: Any, end: Any) -> None:
    """Put distinct keys with their least and end offsets into a QueueTable that has room for them."""
    for i in range(keys.shape[0]):
        place = _queue_place(queues.keys, keys[i])
        queues.keys[place] = keys[i]
        queues.least[place] = least[i]
        queues.end[place] = end[i]
    queues.used[0] += keys.shape[0]


@kernel
def _same_entry(a: int, b: int, masks: Any) -> Any:
    """Return whether two rows have the same tag, time and location; `masks` (u8) leaves padding out."""
    if load_u32(a + _TAG_POSITION) != load_u32(b + _TAG_POSITION):
        return False
    for word in range(masks.shape[0]):
        at = layout.ITEM_TIME_POSITION + 8 * word
        if (load_u64(a + at) ^ load_u64(b + at)) & masks[word] != np.uint64(0):
            return False
    return True


@kernel
def _mark_run(rows: int, item_bytes: int, first: int, last: int, masks: Any, keep: Any) -> Any:
    """Mark the rows [first, last) of one run which no newer row repeats; return how many."""
    kept = 0
    if last - first <= _SMALL_RUN:
        for i in range(first, last):
            fresh = True
            for j in range(first, i):
                if keep[j] and _same_entry(rows + i * item_bytes, rows + j * item_bytes, masks):
                    fresh = False
                    break
            keep[i] = fresh
            kept += fresh
        return kept
    size = 64
    while size < 2 * (last - first):
        size *= 2
    table = np.full(size, -1, np.int64)
    for i in range(first, last):
        row = rows + i * item_bytes
        mixed = np.uint64(load_u32(row + _TAG_POSITION))
        for word in range(masks.shape[0]):
            value = load_u64(row + layout.ITEM_TIME_POSITION + 8 * word) & masks[word]
            mixed = (mixed ^ value) * _SPREAD
            mixed ^= mixed >> _SHIFT_32
        place = np.int64(mixed & np.uint64(size - 1))
        while table[place] >= 0 and not _same_entry(row, rows + table[place] * item_bytes, masks):
            place = (place + 1) & (size - 1)
        fresh = table[place] < 0
        if fresh:
            table[place] = i
        keep[i] = fresh
        kept += fresh
    return kept


@kernel
def _are_distinct(rows: int, item_bytes: int, count: int, previous: Any, hashes: Any) -> Any:
    """Write the hashes of `count` rows to `hashes` (u8); say whether each is above the one before."""
    for i in range(count):
        hashes[i] = load_u64(rows + i * item_bytes)
    repeats = np.int64(hashes[0] <= previous)
    for i in range(1, count):  # without a branch: in vectors
        repeats += hashes[i] <= hashes[i - 1]
    return repeats == 0


@kernel
def mark_runs(
    rows: int, item_bytes: int, count: int, masks: Any, keep: Any, distinct: Any, counters: Any
) -> Any:
    """Mark what stays in `keep` (b1[count]) and write each new hash to `distinct` (u8[count]).

    The rows are whole runs, sorted by hash, newest first. `counters` i8[3] goes from call to call:
    hash of the last run (bit pattern), its kept items (0: no run yet), longest run so far. Returns
    the number of new hashes, or ORDER_BROKEN.
    """
    found = 0
    previous = np.uint64(counters[0])
    run, longest = counters[1], counters[2]
    if run > 0 and count > 0 and _are_distinct(rows, item_bytes, count, previous, distinct):
        keep[:count] = True  # the rule: a fifth of the time that runs take
        counters[0] = np.int64(distinct[count - 1])
        counters[1], counters[2] = 1, max(longest, 1)
        return count
    i = 0
    while i < count:
        key_hash = load_u64(rows + i * item_bytes)
        j = i + 1
        while j < count and load_u64(rows + j * item_bytes) == key_hash:
            j += 1
        if run > 0 and key_hash <= previous:
            if key_hash < previous:
                return ORDER_BROKEN
        else:
            distinct[found] = key_hash
            found += 1
            run = 0
        if j - i == 1:
            keep[i] = True
            run += 1
        else:
            run += _mark_run(rows, item_bytes, i, j, masks, keep)
        longest = max(longest, run)
        previous = key_hash
        i = j
    counters[0] = np.int64(previous)
    counters[1], counters[2] = run, longest
    return found


@kernel
def last_run(rows: int, item_bytes: int, begin: int, end: int) -> Any:
    """Return where the last run of the rows [begin, end) begins; `end` is above `begin`."""
    key_hash = load_u64(rows + (end - 1) * item_bytes)
    first = end - 1
    while first > begin and load_u64(rows + (first - 1) * item_bytes) == key_hash:
        first -= 1
    return first


@kernel
def keep_rows(rows: int, item_bytes: int, count: int, keep: Any) -> Any:
    """Move the rows marked in `keep` (b1[count]) together, in order; return how many they are."""
    kept = 0
    for i in range(count):
        if keep[i]:
            source, target = rows + i * item_bytes, rows + kept * item_bytes
            for position in range(0, item_bytes, 8):
                store_u64(target + position, load_u64(source + position))
            kept += 1
    return kept


@kernel
def count_topics(rows: int, item_bytes: int, count: int, topics: Any) -> Any:
    """Add rows to `topics` i8[t, 3] (items, least and greatest time); False: a topic is unknown."""
    topic, items, low, high = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for i in range(count):
        row = rows + i * item_bytes
        this = np.int64(load_u32(row + _TAG_POSITION) & _TOPIC_MASK)
        time = load_i64(row + layout.ITEM_TIME_POSITION)
        if this != topic or items == 0:  # what is counted stays in registers while topics repeat
            if this >= topics.shape[0]:
                return False
            if items > 0:
                topics[topic, 0], topics[topic, 1], topics[topic, 2] = items, low, high
            topic, items = this, topics[this, 0]
            low, high = (topics[this, 1], topics[this, 2]) if items > 0 else (time, time)
        items += 1
        low = min(low, time)
        high = max(high, time)
    if items > 0:
        topics[topic, 0], topics[topic, 1], topics[topic, 2] = items, low, high
    return True
