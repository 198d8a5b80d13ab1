"""The node's queues, and which offset each gives next: rows of an append -> queues -> offsets.

    number_topics    names of an append -> topics of the node
    take_rows        rows -> offsets, one after the other in each queue, and the journal's numbers; up to
                     the first row of a queue that the journal does not know
    list_unplaced    rows from there on -> the queues that it does not know
    place_queues     what the journal calls the queues that were listed
    forget_places    ... it took none of them
    give_back        the last rows were not taken after all

A queue's state lies in the tables of `logfile.journal` with words of another meaning:

    S_FIRST   the offset that the queue gives next
    S_TAIL    its number in a journal, and in the upper half the *turn* of that journal: journals of this
              process count 1, 2, ...; 0: none knows it
    S_COUNT   the low half of the offset at which that journal begins
    S_HINT    1 when that is noted

Depends on logfile, intrinsics and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel, primitive
from tierdex.fileparts.kernels.intrinsics import (
    load_i32,
    load_i64,
    load_u32,
    load_u64,
    store_i64,
    store_u32,
    store_u64,
)
from tierdex.logfile.journal.kernels.define import add_queue, add_topic
from tierdex.logfile.journal.kernels.state import (
    CACHED_QUEUES,
    S_COUNT,
    S_FIRST,
    S_HINT,
    S_TAIL,
    STATE_BYTES,
    W_QUEUE_COUNT,
    W_QUEUE_LIMIT,
    W_STATES,
    ask_queue_slot,
    ask_queue_state,
    find_queue_slot,
    find_topic_slot,
)

N_NEXT: Final = S_FIRST
N_PLACE: Final = S_TAIL
N_BEGIN: Final = S_COUNT
N_HAS_BEGIN: Final = S_HINT
_TURN = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_HALF: Final = 1 << 31
_NO_ROW: Final = -1
# The rows of an append, as kernels take them: where topics (u4, of the node) lie, and each row's index
# among them (u4) and queue id (i4), with the bytes from one row to the next.
R_TOPICS, R_TOPIC_INDEX, R_TOPIC_STRIDE, R_QUEUE_IDS, R_QUEUE_STRIDE = range(5)
ROW_WORDS: Final = 5
_SLOT_AHEAD: Final = 32  # rows before its own that a queue's place in the hash table is asked for
_QUEUE_AHEAD: Final = 16  # and its state


@kernel
def number_topics(words: Any, names: int, name_ends: int, count: int, out: int) -> None:
    """Write the node's number (u4) of each topic to `out`; new ones are added. There is room."""
    begin = np.int64(0)
    for i in range(count):
        end = load_i64(name_ends + 8 * i)
        place = find_topic_slot(words, names + begin, end - begin)
        topic = np.int64(load_u32(place)) - 1
        if topic < 0:
            topic = add_topic(words, place, names + begin, end - begin)
        store_u32(out + 4 * i, np.uint32(topic))
        begin = end


@primitive
def _queue_of_row(words: Any, rows: Any, i: int) -> Any:
    """Return (the node's number of the topic, queue id) of row `i`."""
    index = np.int64(load_u32(rows[R_TOPIC_INDEX] + rows[R_TOPIC_STRIDE] * i))
    topic = np.int64(load_u32(rows[R_TOPICS] + 4 * index))
    return topic, np.int64(load_i32(rows[R_QUEUE_IDS] + rows[R_QUEUE_STRIDE] * i))


@kernel
def take_rows(
    words: Any, rows: Any, first: int, count: int, turn: int, queues: int, offsets: int, numbers: int
) -> Any:  # fmt: skip
    """Give each row from `first` on its offset (i8), and its queue's number in the journal (u4).

    `queues` (u4) gets the node's number of each row's queue. Stops at the first row whose queue the
    journal of this turn does not know; returns that row, or `count`. Hash slot and state of a queue are
    asked for ahead, unless the tables are small enough to be in the cache.
    """
    last_topic, last_id, number = np.int64(_NO_ROW), np.int64(_NO_ROW), np.int64(0)
    is_large = words[W_QUEUE_COUNT] > CACHED_QUEUES
    states = words[W_STATES]
    topics, topic_index, topic_stride = rows[R_TOPICS], rows[R_TOPIC_INDEX], rows[R_TOPIC_STRIDE]
    queue_ids, queue_stride = rows[R_QUEUE_IDS], rows[R_QUEUE_STRIDE]
    if is_large:
        for i in range(first, min(count, first + _SLOT_AHEAD)):
            topic, queue_id = _queue_of_row(words, rows, i)
            ask_queue_slot(words, topic, queue_id)
    for i in range(first, count):
        if is_large:
            if i + _SLOT_AHEAD < count:
                topic, queue_id = _queue_of_row(words, rows, i + _SLOT_AHEAD)
                ask_queue_slot(words, topic, queue_id)
            if i + _QUEUE_AHEAD < count:
                topic, queue_id = _queue_of_row(words, rows, i + _QUEUE_AHEAD)
                ask_queue_state(words, topic, queue_id)
        index = np.int64(load_u32(topic_index + topic_stride * i))
        topic = np.int64(load_u32(topics + 4 * index))
        queue_id = np.int64(load_i32(queue_ids + queue_stride * i))
        if topic != last_topic or queue_id != last_id:
            number = np.int64(load_u32(find_queue_slot(words, topic, queue_id))) - 1
            if number < 0:
                return np.int64(i)
            last_topic, last_id = topic, queue_id
        state = states + STATE_BYTES * number
        place = load_u64(state + N_PLACE)
        if (place >> _TURN) != np.uint64(turn):
            return np.int64(i)
        offset = load_i64(state + N_NEXT)
        store_i64(state + N_NEXT, offset + 1)
        store_i64(offsets + 8 * i, offset)
        store_u32(queues + 4 * i, np.uint32(number))
        store_u32(numbers + 4 * i, np.uint32(place & _LOW))
    return np.int64(count)


@kernel
def list_unplaced(
    words: Any, rows: Any, first: int, count: int, turn: int, listed: int, listed_count: int
) -> Any:
    """List (u4) the queues of the rows from `first` on that are not in the journal of this turn.

    Each once: a queue that is listed counts as known from then on. Queues that are new to the node are
    added. Returns (the row that found no room for its queue, or `count`; queues listed).
    """
    last_topic, last_id = np.int64(_NO_ROW), np.int64(_NO_ROW)
    for i in range(first, count):
        topic, queue_id = _queue_of_row(words, rows, i)
        if topic == last_topic and queue_id == last_id:
            continue
        last_topic, last_id = topic, queue_id
        place = find_queue_slot(words, topic, queue_id)
        number = np.int64(load_u32(place)) - 1
        if number < 0:
            if words[W_QUEUE_COUNT] >= words[W_QUEUE_LIMIT]:
                return np.int64(i), np.int64(listed_count)
            number = add_queue(words, place, topic, queue_id, 0, 0)
        state = words[W_STATES] + STATE_BYTES * number
        if (load_u64(state + N_PLACE) >> _TURN) != np.uint64(turn):
            store_u64(state + N_PLACE, np.uint64(turn) << _TURN)
            store_u32(listed + 4 * listed_count, np.uint32(number))
            listed_count += 1
    return np.int64(count), np.int64(listed_count)


@kernel
def number_queues(words: Any, rows: Any, count: int, out: int) -> None:
    """Write the node's number (u4) of each row's queue, all of which the node knows."""
    for i in range(count):
        topic, queue_id = _queue_of_row(words, rows, i)
        store_u32(out + 4 * i, load_u32(find_queue_slot(words, topic, queue_id)) - np.uint32(1))


@primitive
def place_queue(state: int, number: int, turn: int) -> None:
    """Note the number that the journal of this turn gave to a queue, which has no row there."""
    store_u32(state + N_BEGIN, np.uint32(load_i64(state + N_NEXT) & np.int64(_LOW)))
    store_u32(state + N_HAS_BEGIN, np.uint32(1))
    store_u64(state + N_PLACE, (np.uint64(turn) << _TURN) | np.uint64(number))


@primitive
def hint_of(state: int) -> Any:
    """Return how many messages the journal before got of a queue, 0 where that is not known."""
    if load_u32(state + N_HAS_BEGIN) == 0:
        return np.int64(0)
    held = (load_i64(state + N_NEXT) - np.int64(load_u32(state + N_BEGIN))) & np.int64(_LOW)
    return held if held < _HALF else np.int64(0)  # the low halves are known


@primitive
def number_queue(words: Any, name: int, length: int, queue_id: int) -> Any:
    """Return the node's number of a queue, which is added if it is new. There is room."""
    place = find_topic_slot(words, name, length)
    topic = np.int64(load_u32(place)) - 1
    if topic < 0:
        topic = add_topic(words, place, name, length)
    place = find_queue_slot(words, topic, queue_id)
    number = np.int64(load_u32(place)) - 1
    return number if number >= 0 else add_queue(words, place, topic, queue_id, 0, 0)


@kernel
def place_queues(words: Any, queues: int, numbers: int, count: int, turn: int) -> None:
    """Note the numbers (u4) that the journal of this turn gave to queues (u4), which have no row there."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        place_queue(state, np.int64(load_u32(numbers + 4 * i)), turn)


@kernel
def forget_places(words: Any, queues: int, count: int) -> None:
    """Forget the journal of these queues (u4)."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_u64(state + N_PLACE, np.uint64(0))


@kernel
def give_back(words: Any, queues: int, first: int, count: int) -> None:
    """Take the offsets of the rows from `first` on, of queues u4, back: no reader has seen them."""
    for i in range(first, count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_i64(state + N_NEXT, load_i64(state + N_NEXT) - 1)


@kernel
def set_next(words: Any, queues: int, offsets: int, count: int) -> None:
    """Set the next offset (i8) of each queue (u4)."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_i64(state + N_NEXT, load_i64(offsets + 8 * i))


@kernel
def next_offset(words: Any, queue: int) -> Any:
    """Return the offset that a queue gives next."""
    return load_i64(words[W_STATES] + STATE_BYTES * queue + N_NEXT)
