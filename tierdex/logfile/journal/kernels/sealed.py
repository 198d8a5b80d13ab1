"""The dense index of a sealed journal: a queue's row, its messages' slots, their rows, all verified.

Byte p of the file lies at `base` + p; the checked range begins with the first batch. What is read is
verified first, and compared with its neighbours: a row says whose it is. Depends on blocks, scan,
intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u32,
    prefetch,
    store_i64,
)
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.scan import row_length
from tierdex.logfile.kernels.blocks import R_SELF, SOUND, touch

# Words of an open sealed journal.
D_BASE, D_SLOTS, D_SLOT_COUNT, D_QUEUES, D_QUEUE_COUNT, D_END = range(6)
DENSE_WORDS: Final = 6

BROKEN: Final = -2  # a verified byte breaks a rule

_QUEUE = layout.places(layout.JOURNAL_QUEUE)
_ID, _FIRST, _SLOT, _COUNT = (
    _QUEUE["queue_id"], _QUEUE["first_offset"], _QUEUE["first_slot"], _QUEUE["count"],
)  # fmt: skip
_NUMBER: Final = _QUEUE["number"]
_QUEUE_BYTES: Final = layout.JOURNAL_QUEUE.itemsize
_SLOT_BYTES: Final = layout.SLOT_BYTES
_UNIT: Final = layout.POSITION_UNIT
_ROW_QUEUE: Final = layout.places(layout.ROW)["queue"]
_ROW_BYTES: Final = layout.ROW_BYTES
_AHEAD: Final = 16  # rows that are asked for while one is looked at
_ROW_HEAD_MAX: Final = _ROW_BYTES + layout.LONG_TIME_BYTES + layout.EXTRA_LENGTH_BYTES


@primitive
def _touch(checked: int, begin: int, end: int) -> Any:
    return touch(checked, begin - HEADER_BYTES, end - HEADER_BYTES)


@kernel
def find_queue_row(words: Any, blocks: Any, first: int, count: int, queue_id: int) -> Any:
    """Return (place of the queue among the file's, or -1; SOUND or a damaged block).

    `first` and `count` are its topic's queues. IDs rise, so none is further away than their difference:
    the second look finds one in a row without gaps.
    """
    checked = blocks[R_SELF]
    low, high = np.int64(first), np.int64(first + count)
    middle, is_first = low, True
    while low < high:
        position = words[D_QUEUES] + _QUEUE_BYTES * middle
        damaged = _touch(checked, position, position + _QUEUE_BYTES)
        if damaged != SOUND:
            return np.int64(-1), damaged
        found = np.int64(load_i32(words[D_BASE] + position + _ID))
        if found == queue_id:
            return np.int64(middle), np.int64(SOUND)
        if found < queue_id:
            high = min(high, middle + queue_id - found + 1)
            low = middle + 1
        else:
            low = max(low, middle - (found - queue_id))
            high = middle
        middle, is_first = high - 1 if is_first else (low + high) >> 1, False
    return np.int64(-1), np.int64(SOUND)


@kernel
def queue_bounds(words: Any, queue: int) -> Any:
    """Return (first offset, count) of the queue at a place that `find_queue_row` verified."""
    place = words[D_BASE] + words[D_QUEUES] + _QUEUE_BYTES * queue
    return load_i64(place + _FIRST), np.int64(load_u32(place + _COUNT))


@primitive
def locate_dense(words: Any, blocks: Any, queue: int, ordinal: int, count: int, out: int) -> Any:
    """Write the address (i8) of `count` rows of a queue from `ordinal` on; return SOUND, or what is not.

    The slots are verified, the rows are not: `verify_dense` is next.
    """
    checked = blocks[R_SELF]
    base = words[D_BASE]
    place = base + words[D_QUEUES] + _QUEUE_BYTES * queue
    first = load_i64(place + _SLOT) + ordinal
    if first < 0 or first + count > words[D_SLOT_COUNT]:
        return np.int64(BROKEN)
    slots = words[D_SLOTS] + _SLOT_BYTES * first
    damaged = _touch(checked, slots, slots + _SLOT_BYTES * count)
    if damaged != SOUND:
        return damaged
    for i in range(count):
        store_i64(out + 8 * i, base + np.int64(load_u32(base + slots + _SLOT_BYTES * i)) * _UNIT)
    return np.int64(SOUND)


@primitive
def verify_dense(words: Any, blocks: Any, queue: int, count: int, out: int, behind: int) -> Any:
    """Verify `count` rows of a queue by their addresses at `out`; return SOUND, or what is not.

    Each is verified whole, and held to be of that queue. Up to `behind` more addresses follow: the cache
    is asked for these rows.
    """
    checked = blocks[R_SELF]
    base = words[D_BASE]
    number = load_u32(base + words[D_QUEUES] + _QUEUE_BYTES * queue + _NUMBER)
    for i in range(count):
        if i + _AHEAD < count + behind:
            prefetch(load_i64(out + 8 * (i + _AHEAD)))
        row = load_i64(out + 8 * i)
        position = row - base
        left = words[D_END] - position
        if position < HEADER_BYTES or left < _ROW_BYTES:
            return np.int64(BROKEN)
        damaged = _touch(checked, position, position + min(left, _ROW_HEAD_MAX))
        if damaged != SOUND:
            return damaged
        length = row_length(row, left)
        if length == 0 or load_u32(row + _ROW_QUEUE) != number:
            return np.int64(BROKEN)
        damaged = _touch(checked, position, position + length)
        if damaged != SOUND:
            return damaged
    return np.int64(SOUND)


@kernel
def dense_below(words: Any, blocks: Any, queue: int, position: int) -> Any:
    """Return (how many of a queue's messages lie below byte `position`, SOUND or what is not)."""
    checked = blocks[R_SELF]
    place = words[D_BASE] + words[D_QUEUES] + _QUEUE_BYTES * queue
    first, count = load_i64(place + _SLOT), np.int64(load_u32(place + _COUNT))
    if first < 0 or first + count > words[D_SLOT_COUNT]:
        return np.int64(0), np.int64(BROKEN)
    low, high = np.int64(0), count
    while low < high:  # the slots of a queue rise
        middle = (low + high) >> 1
        slot = words[D_SLOTS] + _SLOT_BYTES * (first + middle)
        damaged = _touch(checked, slot, slot + _SLOT_BYTES)
        if damaged != SOUND:
            return np.int64(0), damaged
        if np.int64(load_u32(words[D_BASE] + slot)) * _UNIT < position:
            low = middle + 1
        else:
            high = middle
    return low, np.int64(SOUND)


@kernel
def dense_rows(words: Any, blocks: Any, queue: Any, ordinal: Any, count: int, out: int) -> Any:
    """Write the addresses (i8) of `count` rows from a queue's `ordinal` on, over queues in their order.

    Returns SOUND, or what is not, as `locate_dense` does.
    """
    done = np.int64(0)
    while done < count:
        if queue >= words[D_QUEUE_COUNT]:
            return np.int64(BROKEN)
        held = queue_bounds(words, queue)[1]
        size = min(held - ordinal, count - done)
        if size > 0:
            damaged = locate_dense(words, blocks, queue, ordinal, size, out + 8 * done)
            if damaged == SOUND:
                damaged = verify_dense(words, blocks, queue, size, out + 8 * done, 0)
            if damaged != SOUND:
                return damaged
            done += size
        queue, ordinal = queue + 1, np.int64(0)
    return np.int64(SOUND)
