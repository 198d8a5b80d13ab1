"""The queues and the page directory of a grouped file, where they lie: packed columns, binary searches.

`words` (F_*) name the three parts, which are one checked range; every byte is verified before it is looked
at. Answers are pairs: the value, and SOUND or the damaged block. Depends on bits, blocks, intrinsics and
layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.bits import packed_value
from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import load_i32, load_i64, load_u8, load_u32, store_i64
from tierdex.logfile import layout
from tierdex.logfile.kernels.blocks import R_ADDRESS, R_SELF, SOUND, touch

# Words of an open file: places of the parts inside the checked range.
F_GROUPS, F_QUEUES, F_QUEUES_END, F_DIRECTORY, F_QUEUE_COUNT, F_PAGE_COUNT = range(6)
FILE_WORDS: Final = 6

ID, FIRST_OFFSET, COUNT = 0, 1, 2  # columns of a group

_GROUP = layout.places(layout.QUEUE_GROUP_ROW)
_G_POSITION, _G_OFFSET, _G_ID = _GROUP["position"], _GROUP["offset_base"], _GROUP["id_base"]
_G_COUNT, _G_WIDTH = _GROUP["count_base"], _GROUP["id_width"]
_GROUP_BYTES: Final = layout.QUEUE_GROUP_ROW.itemsize
_GROUP_QUEUES: Final = layout.QUEUE_GROUP
_ENTRY = layout.places(layout.DIRECTORY_ENTRY)
_E_POSITION, _E_QUEUE, _E_ORDINAL, _E_MAX_TIME = (
    _ENTRY["position"], _ENTRY["first_queue"], _ENTRY["first_ordinal"], _ENTRY["max_time"],
)  # fmt: skip
_ENTRY_BYTES: Final = layout.DIRECTORY_ENTRY.itemsize


@kernel
def _bytes_of(count: int, width: int) -> Any:
    return (count * width + 7) >> 3


@kernel
def queue_value(words: Any, blocks: Any, queue: int, column: int) -> Any:
    """Return (value of one column of a queue, SOUND or the damaged block)."""
    return _queue_value(words, blocks, queue, column)


@primitive
def _queue_value(words: Any, blocks: Any, queue: int, column: int) -> Any:
    group = queue // _GROUP_QUEUES
    begin = words[F_GROUPS] + _GROUP_BYTES * group
    damaged = touch(blocks[R_SELF], begin, begin + _GROUP_BYTES)
    if damaged != SOUND:
        return np.int64(0), damaged
    row = blocks[R_ADDRESS] + begin
    size = min(_GROUP_QUEUES, words[F_QUEUE_COUNT] - group * _GROUP_QUEUES)
    place = words[F_QUEUES] + load_i64(row + _G_POSITION)
    for before in range(column):
        place += _bytes_of(size, np.int64(load_u8(row + _G_WIDTH + before)))
    width = np.int64(load_u8(row + _G_WIDTH + column))
    index = queue - group * _GROUP_QUEUES
    begin = place + ((index * width) >> 3)
    if width > 64 or begin < words[F_QUEUES] or begin + 8 > words[F_QUEUES_END]:
        return np.int64(0), np.int64(max(0, begin) // 4096)  # a broken rule: an error all the same
    damaged = touch(blocks[R_SELF], begin, begin + 8)
    if damaged != SOUND:
        return np.int64(0), damaged
    packed = packed_value(blocks[R_ADDRESS] + place, index, width)
    if column == ID:
        return np.int64(load_i32(row + _G_ID)) + np.int64(packed), np.int64(SOUND)
    if column == FIRST_OFFSET:
        return np.int64(np.uint64(load_i64(row + _G_OFFSET)) + packed), np.int64(SOUND)
    return np.int64(load_u32(row + _G_COUNT)) + np.int64(packed), np.int64(SOUND)


@kernel
def find_queue(words: Any, blocks: Any, first: int, count: int, queue_id: int) -> Any:
    """Return (place of a queue among the file's or -1, SOUND or the damaged block).

    `first` and `count` are its topic's queues. As in a journal the second look finds one in a row
    without gaps.
    """
    low, high = np.int64(first), np.int64(first + count)
    middle, is_first = low, True
    while low < high:
        found, damaged = _queue_value(words, blocks, middle, ID)
        if damaged != SOUND:
            return np.int64(-1), damaged
        if found == queue_id:
            return middle, np.int64(SOUND)
        if found < queue_id:
            high = min(high, middle + queue_id - found + 1)
            low = middle + 1
        else:
            low = max(low, middle - (found - queue_id))
            high = middle
        middle, is_first = high - 1 if is_first else (low + high) >> 1, False
    return np.int64(-1), np.int64(SOUND)


@kernel
def list_queues(words: Any, blocks: Any, column: int, first: int, count: int, out: int) -> Any:
    """Write a column (i8) of `count` queues; return SOUND or the damaged block."""
    for i in range(count):
        value, damaged = _queue_value(words, blocks, first + i, column)
        if damaged != SOUND:
            return damaged
        store_i64(out + 8 * i, value)
    return np.int64(SOUND)


@kernel
def page_entry(words: Any, blocks: Any, page: int) -> Any:
    """Return (position, first queue, its ordinal, SOUND or the damaged block) of a page."""
    return entry_of(words, blocks, page)


@kernel
def page_places(words: Any, blocks: Any, numbers: Any, places: Any) -> None:
    """Write where each page begins and ends (i8); (0, 0) for one of which that is damaged."""
    for i in range(numbers.shape[0]):
        begin, _, _, damaged = entry_of(words, blocks, numbers[i])
        end, _, _, also = entry_of(words, blocks, numbers[i] + 1)
        is_sound = damaged == SOUND and also == SOUND
        places[i, 0], places[i, 1] = (begin, end) if is_sound else (np.int64(0), np.int64(0))


@primitive
def entry_of(words: Any, blocks: Any, page: int) -> Any:
    """Return what `page_entry` does."""
    begin = words[F_DIRECTORY] + _ENTRY_BYTES * page
    damaged = touch(blocks[R_SELF], begin, begin + _ENTRY_BYTES)
    if damaged != SOUND:
        return np.int64(0), np.int64(0), np.int64(0), damaged
    place = blocks[R_ADDRESS] + begin
    queue, ordinal = load_u32(place + _E_QUEUE), load_u32(place + _E_ORDINAL)
    return load_i64(place + _E_POSITION), np.int64(queue), np.int64(ordinal), np.int64(SOUND)


@kernel
def find_page(words: Any, blocks: Any, queue: int, ordinal: int) -> Any:
    """Return (the page that a queue's message lies in, SOUND or the damaged block)."""
    low, high = np.int64(0), words[F_PAGE_COUNT]
    while high - low > 1:
        middle = (low + high) >> 1
        _, first_queue, first_ordinal, damaged = entry_of(words, blocks, middle)
        if damaged != SOUND:
            return np.int64(0), damaged
        if first_queue < queue or (first_queue == queue and first_ordinal <= ordinal):
            low = middle
        else:
            high = middle
    return low, np.int64(SOUND)


@kernel
def find_late_page(words: Any, blocks: Any, first: int, end: int, timestamp: int) -> Any:
    """Return (first of the pages [first, end) with a time >= `timestamp` or `end`; SOUND or the damage)."""
    for page in range(first, end):
        begin = words[F_DIRECTORY] + _ENTRY_BYTES * page
        damaged = touch(blocks[R_SELF], begin, begin + _ENTRY_BYTES)
        if damaged != SOUND:
            return np.int64(0), damaged
        if load_i64(blocks[R_ADDRESS] + begin + _E_MAX_TIME) >= timestamp:
            return np.int64(page), np.int64(SOUND)
    return np.int64(end), np.int64(SOUND)
