"""What kernels know of a journal being written: three arrays of i8, and what their addresses lead to.

`words` (W_*)    the queues and topics of the file, the chunks of their slots, totals. Replaced as a whole
                 when a table grows: who took the older one reads a state that was true then.
`stage` (V_*)    where rows lie that are not in the file yet, and how far the file is published. One array
                 for the journal's life.
queue's state    32 bytes a queue: first offset i8, tail u8, count u4, topic u4, queue_id i4, hint u4
topic's totals   32 bytes a topic: messages, body bytes, least time, greatest time

The slots of a queue lie in *chunks* of a u4 arena in segments, so that nothing is ever moved::

    | end of the chunk before, or 0 | messages before it | slot | slot | ... | own start |

A queue's tail is one word: the next free slot's index, and in the upper half the index of `own start`.
It is stored last, in one step: a reader finds all that it leads to complete.

Depends on intrinsics, hashing, totals and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import carray, kernel, primitive
from tierdex.fileparts.kernels.hashing import xxh64
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    numbers_at,
    prefetch,
    publish_u64,
    store_u32,
)
from tierdex.logfile.kernels.totals import TOTALS_BYTES, count_messages

# Words of the tables.
(
    W_NAMES, W_NAME_ENDS, W_TOPIC_SLOTS, W_TOPIC_MASK, W_TOPIC_COUNT, W_TOTALS,
    W_QUEUE_SLOTS, W_QUEUE_MASK, W_QUEUE_COUNT, W_STATES,
    W_SEGMENTS, W_NEXT_SLOT, W_SLOT_LIMIT,
    W_MESSAGES, W_BODY_BYTES, W_MIN_TIME, W_MAX_TIME, W_BASE_TIME, W_HAS_BASE,
    W_QUEUE_LIMIT, W_TOPIC_LIMIT, W_NAMES_LIMIT,
    W_SELF,  # their own address: in loops kernels hand on places, an array costs 10 ns a call
) = range(23)  # fmt: skip
WORD_COUNT: Final = 24

# Words of the stage.
(
    V_MAP,  # address of the file's mapping
    V_PUBLISHED,  # bytes of the file that may be read there
    V_ADDRESS, V_BEGIN, V_USED, V_LIMIT,  # the open stage: its memory, its place in the file, its bytes
    V_COUNT,  # rows in it
    V_ENTRIES, V_ENTRY_USED, V_ENTRY_LIMIT,  # entries of queues that are new in it
    V_CLOSED_ADDRESS, V_CLOSED_BEGIN,  # the closed stage, until it is published; 0: none
) = range(12)  # fmt: skip
STAGE_WORD_COUNT: Final = 16

STATE_BYTES: Final = 32
S_FIRST, S_TAIL, S_COUNT, S_TOPIC, S_ID, S_HINT = 0, 8, 16, 20, 24, 28
SEGMENT_BITS: Final = 18
SEGMENT_SLOTS: Final = 1 << SEGMENT_BITS
SEGMENT_COUNT_MAX: Final = 1 << (32 - SEGMENT_BITS)
CHUNK_FIRST: Final = 2
CHUNK_DOUBLES_TO: Final = 1024
CHUNK_MAX: Final = 1 << 16
CHUNK_HEAD: Final = 2  # before the slots
STATE_AHEAD: Final = 32  # rows before its own that a queue's state is asked for
TAIL_AHEAD: Final = 16  # and the place of its slot
CACHED_QUEUES: Final = 1 << 14  # whose states and places lie in the processor's cache, unasked
ROOM_OF_ONE: Final = 2 * (
    CHUNK_MAX + 8
)  # slots that one more row may take, with what a segment wastes
assert ROOM_OF_ONE < SEGMENT_SLOTS

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@primitive
def slot_place(segments: int, index: int) -> Any:
    """Return the address of element `index` of the arena."""
    return load_i64(segments + 8 * (index >> SEGMENT_BITS)) + 4 * (index & (SEGMENT_SLOTS - 1))


@primitive
def arena_u4(segments: int, index: int) -> Any:
    return np.int64(load_u32(slot_place(segments, index)))


@kernel
def _new_chunk(tables: int, state: int, end: int) -> Any:
    """Make a queue's chunk behind the one that ends at `end` (0: the first).

    Returns (its first slot, 0 where the arena is short of room; its end).
    """
    words = carray(numbers_at(tables), (WORD_COUNT,))
    if words[W_NEXT_SLOT] + ROOM_OF_ONE > words[W_SLOT_LIMIT]:
        return np.int64(0), np.int64(0)
    segments = words[W_SEGMENTS]
    count: Any = np.int64(load_u32(state + S_COUNT))
    hint: Any = np.int64(load_u32(state + S_HINT))
    if end == 0:
        size = min(max(hint, CHUNK_FIRST), CHUNK_DOUBLES_TO)
    else:
        size = 2 * (end - arena_u4(segments, end) - CHUNK_HEAD)
        size = min(size, max(CHUNK_DOUBLES_TO, min(count >> 3, CHUNK_MAX)))
    start, length = words[W_NEXT_SLOT], size + CHUNK_HEAD + 1
    if (start & (SEGMENT_SLOTS - 1)) + length > SEGMENT_SLOTS:
        start = ((start >> SEGMENT_BITS) + 1) << SEGMENT_BITS
    words[W_NEXT_SLOT] = start + length
    store_u32(slot_place(segments, start), np.uint32(end))
    store_u32(slot_place(segments, start + 1), np.uint32(count))
    store_u32(slot_place(segments, start + CHUNK_HEAD + size), np.uint32(start))
    return np.int64(start + CHUNK_HEAD), np.int64(start + CHUNK_HEAD + size)


@primitive
def ask_state(words: Any, number: int) -> None:
    """Ask the cache for a queue's state, whose row comes soon."""
    prefetch(words[W_STATES] + STATE_BYTES * number)


@primitive
def ask_tail(words: Any, number: int) -> None:
    """Ask the cache for the slot that a queue's next row takes; its state was asked for before."""
    word = load_u64(words[W_STATES] + STATE_BYTES * number + S_TAIL)
    if word != np.uint64(0):
        prefetch(slot_place(words[W_SEGMENTS], np.int64(word & _LOW)))


@primitive
def note_row(words: Any, state: int, slot: Any) -> bool:
    """Add the slot (u4) of one more row to a queue; False, and nothing done: the arena is short of room."""
    word = load_u64(state + S_TAIL)
    tail, end = np.int64(word & _LOW), np.int64(word >> _HALF)
    if tail == end:
        tail, end = _new_chunk(words[W_SELF], state, end)
        if end == 0:
            return False
    store_u32(slot_place(words[W_SEGMENTS], tail), slot)
    store_u32(state + S_COUNT, load_u32(state + S_COUNT) + np.uint32(1))
    publish_u64(state + S_TAIL, np.uint64(tail + 1) | (np.uint64(end) << _HALF))
    return True


@kernel
def add_totals(
    words: Any, topic: int, messages: int, body_bytes: int, least: int, greatest: int
) -> None:
    """Count messages of a topic, whose times lie in [least, greatest], for it and for the file."""
    if messages == 0:
        return
    totals = words[W_TOTALS] + TOTALS_BYTES * topic
    count_messages(totals, messages, body_bytes, least, greatest)
    words[W_MIN_TIME] = min(words[W_MIN_TIME], least)
    words[W_MAX_TIME] = max(words[W_MAX_TIME], greatest)
    words[W_MESSAGES] += messages
    words[W_BODY_BYTES] += body_bytes


@kernel
def name_bounds(name_ends: int, topic: int) -> Any:
    """Return (begin, end) of a name among names that end at `name_ends` (i8)."""
    begin = load_i64(name_ends + 8 * (topic - 1)) if topic > 0 else np.int64(0)
    return begin, load_i64(name_ends + 8 * topic)


@primitive
def _is_name(words: Any, topic: int, name: int, length: int) -> bool:
    begin, end = name_bounds(words[W_NAME_ENDS], topic)
    if end - begin != length:
        return False
    place = words[W_NAMES] + begin
    for i in range(length):  # noqa: SIM110 (numba compiles the loop, not the generator)
        if load_u8(place + i) != load_u8(name + i):
            return False
    return True


@kernel
def find_topic_slot(words: Any, name: int, length: int) -> Any:
    """Return the address of the topic's place in the hash table, empty (0) or its number + 1."""
    mask = words[W_TOPIC_MASK]
    index = np.int64(xxh64(name, length, np.uint64(0)) & np.uint64(mask))
    while True:
        place = words[W_TOPIC_SLOTS] + 4 * index
        found = np.int64(load_u32(place))
        if found == 0 or _is_name(words, found - 1, name, length):
            return np.int64(place)
        index = (index + 1) & mask


@primitive
def _home_of_queue(words: Any, topic: int, queue_id: int) -> Any:
    """Return the index in the hash table at which the search for a queue begins."""
    mixed = ((np.uint64(topic) << _HALF) | np.uint64(queue_id)) * _GOLDEN
    return np.int64((mixed >> _HALF) & np.uint64(words[W_QUEUE_MASK]))


@primitive
def ask_queue_slot(words: Any, topic: int, queue_id: int) -> None:
    """Ask the cache for a queue's place in the hash table, which is looked up soon."""
    prefetch(words[W_QUEUE_SLOTS] + 4 * _home_of_queue(words, topic, queue_id))


@primitive
def ask_queue_state(words: Any, topic: int, queue_id: int) -> None:
    """Ask the cache for a queue's state; its place in the hash table was asked for before."""
    home = _home_of_queue(words, topic, queue_id)
    found = np.int64(load_u32(words[W_QUEUE_SLOTS] + 4 * home))
    if found != 0:
        ask_state(words, found - 1)


@primitive
def find_queue_slot(words: Any, topic: int, queue_id: int) -> Any:
    """Return the address of the queue's place in the hash table, empty (0) or its number + 1."""
    mask, index = words[W_QUEUE_MASK], _home_of_queue(words, topic, queue_id)
    while True:
        place = words[W_QUEUE_SLOTS] + 4 * index
        found = np.int64(load_u32(place))
        if found == 0:
            return np.int64(place)
        state = words[W_STATES] + STATE_BYTES * (found - 1)
        if load_u32(state + S_TOPIC) == topic and load_i32(state + S_ID) == queue_id:
            return np.int64(place)
        index = (index + 1) & mask


@kernel
def find_topic(words: Any, name: int, length: int) -> Any:
    """Return the number of the topic whose name lies at `name`, or -1."""
    return np.int64(load_u32(find_topic_slot(words, name, length))) - 1


@kernel
def find_queue(words: Any, name: int, length: int, queue_id: int) -> Any:
    """Return the number of a queue of the topic whose name lies at `name`, or -1."""
    topic = np.int64(load_u32(find_topic_slot(words, name, length))) - 1
    if topic < 0:
        return np.int64(-1)
    return np.int64(load_u32(find_queue_slot(words, topic, queue_id))) - 1


@kernel
def rehash_topics(words: Any) -> None:
    """Fill the empty table of topics anew."""
    ends, begin = words[W_NAME_ENDS], np.int64(0)
    for topic in range(words[W_TOPIC_COUNT]):
        end = load_i64(ends + 8 * topic)
        place = find_topic_slot(words, words[W_NAMES] + begin, end - begin)
        store_u32(place, np.uint32(topic + 1))
        begin = end


@kernel
def rehash_queues(words: Any) -> None:
    """Fill the empty table of queues anew."""
    for number in range(words[W_QUEUE_COUNT]):
        state = words[W_STATES] + STATE_BYTES * number
        topic, queue_id = np.int64(load_u32(state + S_TOPIC)), np.int64(load_i32(state + S_ID))
        store_u32(find_queue_slot(words, topic, queue_id), np.uint32(number + 1))
