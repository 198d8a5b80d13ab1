"""The node's queues, and which offset each gives next: rows of an append -> queues -> offsets.

    number_topics    names of an append -> topics of the node
    number_rows      rows -> queues of the node; those that the journal does not know yet are listed
    place_queues     what the journal calls the queues that were listed
    forget_places    ... it took none of them
    take_offsets     rows -> offsets, one after the other in each queue, and the journal's numbers
    give_back        the last rows were not taken after all

A queue's state lies in the tables of `logfile.journal` with two words of another meaning:

    S_FIRST   the offset that the queue gives next
    S_TAIL    its number in a journal, and in the upper half the *turn* of that journal: journals of this
              process count 1, 2, ...; 0: none knows it

Depends on logfile, intrinsics and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
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
    S_FIRST,
    S_TAIL,
    STATE_BYTES,
    W_QUEUE_COUNT,
    W_QUEUE_LIMIT,
    W_STATES,
    find_queue_slot,
    find_topic_slot,
)

N_NEXT: Final = S_FIRST
N_PLACE: Final = S_TAIL
_TURN = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_NO_ROW: Final = -1


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


@kernel
def number_rows(
    words: Any, topics: int, topic_index: int, queue_ids: int, strides: Any, first: int, count: int,
    turn: int, out: int, listed: int, listed_count: int,
) -> Any:  # fmt: skip
    """Write the node's number (u4) of each row's queue to `out`, from row `first` on.

    `topics` (u4) are the node's numbers of the append's topics; `strides` are the bytes from one row's
    topic index (u4), and queue id (i4), to the next. Queues that are not in the journal of this turn are
    listed (u4) once each. Returns (the row that found no room for its queue, or `count`; queues listed).
    """
    last_topic, last_id, number = np.int64(_NO_ROW), np.int64(_NO_ROW), np.int64(0)
    for i in range(first, count):
        topic = np.int64(load_u32(topics + 4 * np.int64(load_u32(topic_index + strides[0] * i))))
        queue_id = np.int64(load_i32(queue_ids + strides[1] * i))
        if topic != last_topic or queue_id != last_id:
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
            last_topic, last_id = topic, queue_id
        store_u32(out + 4 * i, np.uint32(number))
    return np.int64(count), np.int64(listed_count)


@kernel
def place_queues(words: Any, queues: int, numbers: int, count: int, turn: int) -> None:
    """Note the numbers (u4) that the journal of this turn gave to queues (u4)."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_u64(
            state + N_PLACE, (np.uint64(turn) << _TURN) | np.uint64(load_u32(numbers + 4 * i))
        )


@kernel
def forget_places(words: Any, queues: int, count: int) -> None:
    """Let no journal know these queues (u4)."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_u64(state + N_PLACE, np.uint64(0))


@kernel
def take_offsets(words: Any, queues: int, count: int, offsets: int, numbers: int) -> None:
    """Give each row, of queue u4, its offset (i8) and its queue's number in the journal (u4)."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        offset = load_i64(state + N_NEXT)
        store_i64(offsets + 8 * i, offset)
        store_i64(state + N_NEXT, offset + 1)
        store_u32(numbers + 4 * i, np.uint32(load_u64(state + N_PLACE) & _LOW))


@kernel
def give_back(words: Any, queues: int, first: int, count: int) -> None:
    """Take the offsets of the rows from `first` on, of queues u4, back: nobody has seen them."""
    for i in range(first, count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_i64(state + N_NEXT, load_i64(state + N_NEXT) - 1)


@kernel
def set_next(words: Any, queues: int, offsets: int, count: int) -> None:
    """Let each queue (u4) give the offset (i8) next."""
    for i in range(count):
        state = words[W_STATES] + STATE_BYTES * np.int64(load_u32(queues + 4 * i))
        store_i64(state + N_NEXT, load_i64(offsets + 8 * i))


@kernel
def next_offset(words: Any, queue: int) -> Any:
    """Return the offset that a queue gives next."""
    return load_i64(words[W_STATES] + STATE_BYTES * queue + N_NEXT)
