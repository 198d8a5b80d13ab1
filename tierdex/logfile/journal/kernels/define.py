"""New queues of a journal: into its tables, and as entries of the batch that brings their first row.

    define_queue  one queue -> its number, and an entry when it is new
    add_queues    a caller's queues -> numbers, entries behind those that wait in the stage
    take_entries  the entries of a batch that verified -> the tables (recovery)

All find room in the tables: Python saw to it. Depends on state, totals, intrinsics and layout.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i32,
    load_i64,
    load_u16,
    load_u32,
    store_i64,
    store_slot,
    store_u16,
    store_u32,
    store_u64,
)
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.state import (
    S_COUNT,
    S_FIRST,
    S_HINT,
    S_ID,
    S_TAIL,
    S_TOPIC,
    STATE_BYTES,
    V_ENTRIES,
    V_ENTRY_USED,
    W_NAME_ENDS,
    W_NAMES,
    W_QUEUE_COUNT,
    W_STATES,
    W_TOPIC_COUNT,
    W_TOTALS,
    find_queue_slot,
    find_topic_slot,
    name_bounds,
)
from tierdex.logfile.kernels.totals import TOTALS_BYTES, clear_totals

_ENTRY = layout.places(layout.ENTRY)
_QUEUE, _TOPIC, _ID = _ENTRY["queue"], _ENTRY["topic"], _ENTRY["queue_id"]
_NAME_BYTES, _RESERVED, _FIRST = _ENTRY["name_bytes"], _ENTRY["reserved"], _ENTRY["first_offset"]
_BYTES: Final = layout.ENTRY_BYTES
_NAME_MAX: Final = layout.TOPIC_BYTES_MAX


@kernel
def add_topic(words: Any, place: int, name: int, length: int) -> Any:
    """Take a name into the tables; `place` is its empty place in the hash table."""
    topic = words[W_TOPIC_COUNT]
    ends = words[W_NAME_ENDS]
    begin = load_i64(ends + 8 * (topic - 1)) if topic > 0 else np.int64(0)
    copy_bytes(words[W_NAMES] + begin, name, length)
    store_i64(ends + 8 * topic, begin + length)
    clear_totals(words[W_TOTALS] + TOTALS_BYTES * topic)
    words[W_TOPIC_COUNT] = topic + 1
    store_slot(place, np.uint32(topic + 1))  # last: a reader that finds it finds the name
    return np.int64(topic)


@kernel
def add_queue(words: Any, place: int, topic: int, queue_id: int, first: int, hint: int) -> Any:
    """Take a queue into the tables; `place` is its empty place in the hash table."""
    number = words[W_QUEUE_COUNT]
    state = words[W_STATES] + STATE_BYTES * number
    store_i64(state + S_FIRST, first)
    store_u64(state + S_TAIL, np.uint64(0))
    store_u32(state + S_COUNT, np.uint32(0))
    store_u32(state + S_TOPIC, np.uint32(topic))
    store_u32(state + S_ID, np.uint32(queue_id))
    store_u32(state + S_HINT, np.uint32(hint))
    words[W_QUEUE_COUNT] = number + 1
    store_slot(place, np.uint32(number + 1))
    return np.int64(number)


@kernel
def define_queue(
    words: Any, stage: Any, name: int, length: int, queue_id: int, first: int, hint: int
) -> Any:
    """Return the number in the file of a queue, which gets an entry if it is new."""
    place = find_topic_slot(words, name, length)
    topic, new_bytes = np.int64(load_u32(place)) - 1, np.int64(0)
    if topic < 0:
        topic, new_bytes = add_topic(words, place, name, length), np.int64(length)
    place = find_queue_slot(words, topic, queue_id)
    number = np.int64(load_u32(place)) - 1
    if number < 0:
        number = add_queue(words, place, topic, queue_id, first, hint)
        entry = stage[V_ENTRIES] + stage[V_ENTRY_USED]
        store_u32(entry + _QUEUE, np.uint32(number))
        store_u32(entry + _TOPIC, np.uint32(topic))
        store_u32(entry + _ID, np.uint32(queue_id))
        store_u16(entry + _NAME_BYTES, np.uint16(new_bytes))
        store_u16(entry + _RESERVED, np.uint16(0))
        store_i64(entry + _FIRST, first)
        copy_bytes(entry + _BYTES, name, new_bytes)
        stage[V_ENTRY_USED] += _BYTES + new_bytes
    return np.int64(number)


@kernel
def add_queues(
    words: Any, stage: Any, names: int, name_ends: int, topics: int, queue_ids: int,
    first_offsets: int, hints: int, count: int, out: int,
) -> None:  # fmt: skip
    """Give each of `count` queues its number in the file (u4 at `out`); new ones get an entry.

    `topics` (u4) says which of the names at `names`, which end at `name_ends` (i8), a queue's topic is;
    `first_offsets` i8; `hints` u4, messages to expect, or 0 for none.
    """
    for i in range(count):
        begin, end = name_bounds(name_ends, np.int64(load_u32(topics + 4 * i)))
        queue_id = np.int64(load_i32(queue_ids + 4 * i))
        first = load_i64(first_offsets + 8 * i)
        hint = np.int64(load_u32(hints + 4 * i)) if hints != 0 else np.int64(0)
        number = define_queue(words, stage, names + begin, end - begin, queue_id, first, hint)
        store_u32(out + 4 * i, np.uint32(number))


@kernel
def take_entries(words: Any, address: Any, end: int) -> bool:
    """Take the entries in [address, end) into the tables; False when one breaks a rule."""
    while address + _BYTES <= end:
        topic, known = np.int64(load_u32(address + _TOPIC)), words[W_TOPIC_COUNT]
        name_bytes = np.int64(load_u16(address + _NAME_BYTES))
        queue_id, first = np.int64(load_i32(address + _ID)), load_i64(address + _FIRST)
        name = address + _BYTES
        sound = (
            load_u32(address + _QUEUE) == words[W_QUEUE_COUNT]
            and topic <= known
            and (topic == known) == (name_bytes > 0)
            and name_bytes <= _NAME_MAX
            and name + name_bytes <= end
            and load_u16(address + _RESERVED) == 0
            and queue_id >= 0
            and first >= 0
        )
        if not sound:
            return False
        if name_bytes > 0:
            place = find_topic_slot(words, name, name_bytes)
            if load_u32(place) != 0:
                return False
            add_topic(words, place, name, name_bytes)
        place = find_queue_slot(words, topic, queue_id)
        if load_u32(place) != 0:
            return False
        add_queue(words, place, topic, queue_id, first, 0)
        address = name + name_bytes
    return bool(address == end)
