"""One message, from Python's values to a row in the open stage: checks, offset, row, slot.

It takes what a caller of `append` gave, as it is, defines the queue when it is new, and does all or nothing:
it returns -1 for a wrong value and where room is short, and the caller finds out which (`single_appends`).
It keeps the GIL; what kernels without it touch as well is guarded by `append_lock`.

Python and the kernel share *arguments*, an i8 array whose places are named A_* below. Depends on arguments,
intrinsics, compile, define, layout, offsets, stage_rows, state and value_rules.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.arguments import (
    BYTES,
    INTEGER,
    NOT_PLAIN,
    PAIRS,
    TEXT,
    TEXTS,
    is_number,
    name_at,
    number,
    text_address,
    text_at,
    text_bytes,
    text_count,
    value_at,
)
from tierdex.fileparts.kernels.compile import carray, direct_call, primitive, short_kernel, types
from tierdex.fileparts.kernels.intrinsics import (
    copy_bytes,
    load_i64,
    load_u8,
    load_u32,
    load_u64,
    numbers_at,
    store_i64,
    store_u8,
    store_u16,
)
from tierdex.log_service.kernels.offsets import N_NEXT, N_PLACE, hint_of, number_queue, place_queue
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.define import define_queue
from tierdex.logfile.journal.kernels.stage_rows import is_far, row_bytes, write_head
from tierdex.logfile.journal.kernels.state import (
    ROOM_OF_ONE,
    S_TOPIC,
    STAGE_WORD_COUNT,
    STATE_BYTES,
    V_ADDRESS,
    V_BEGIN,
    V_COUNT,
    V_ENTRY_USED,
    V_LIMIT,
    V_USED,
    W_BASE_TIME,
    W_HAS_BASE,
    W_NAME_ENDS,
    W_NAMES_LIMIT,
    W_NEXT_SLOT,
    W_QUEUE_COUNT,
    W_QUEUE_LIMIT,
    W_SLOT_LIMIT,
    W_STATES,
    W_TOPIC_COUNT,
    W_TOPIC_LIMIT,
    WORD_COUNT,
    add_totals,
    find_queue,
    note_row,
)
from tierdex.logfile.layout import ExtraTag
from tierdex.value_rules import MAX_TOPIC_BYTES

# Places of the arguments (i8 each).
(
    A_QUEUES, A_TABLES, A_STAGE,  # addresses: the node's tables, the journal's, its stage
    A_TURN,  # of the journal: who is not in it is refused
    A_MOST_BODY, A_MOST_KEY, A_MOST_EXTRA,
) = range(7)  # fmt: skip
ARGUMENTS_LENGTH: Final = 7

REFUSED: Final = -1
NO_EXPECTATION: Final = -1  # of the offset that is next

_EXTRA = layout.places(layout.EXTRA)
_TAG, _NAME_BYTES, _VALUE_BYTES = _EXTRA["tag"], _EXTRA["name_bytes"], _EXTRA["value_bytes"]
_ITEM: Final = layout.EXTRA_ITEM_BYTES
_MESSAGE_ID, _KEY, _HEADER = (
    np.uint8(tag) for tag in (ExtraTag.MESSAGE_ID, ExtraTag.KEY, ExtraTag.HEADER)
)
_NAME_MOST: Final = np.iinfo(np.uint8).max
_VALUE_MOST: Final = np.iinfo(np.uint16).max
_ENTRY: Final = layout.ENTRY_BYTES
_UNIT: Final = layout.POSITION_UNIT
_HELD: Final = layout.ROW_HELD
_QUEUE_ID_MAX: Final = layout.QUEUE_ID_MAX
_SPACE, _DELETE = np.uint8(ord(" ")), np.uint8(0x7F)
_C1_LEAD, _C1_END = np.uint8(0xC2), np.uint8(0xA0)  # U+0080 to U+009F in UTF-8: C2 80 to C2 9F
_TURN = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@primitive
def _argument(arguments: int, place: int) -> Any:
    return load_i64(arguments + 8 * place)


@primitive
def _item_bytes(text: Any) -> Any:
    """Return the bytes of the item of an extra that holds a text; 0 where there is none."""
    return _ITEM + text_bytes(text) if text_bytes(text) > 0 else np.int64(0)


@primitive
def _extra_bytes(keys: Any, message_id: Any, headers: Any, most: int) -> Any:
    """Return the bytes of a message's extra; NOT_PLAIN for what is none. A name has `most` bytes at most."""
    refused = np.int64(NOT_PLAIN)
    total = _item_bytes(message_id)
    if text_count(keys) < 0 or text_count(headers) < 0 or not 0 <= text_bytes(message_id) <= most:
        return refused
    for i in range(text_count(keys)):
        key = text_at(keys, i)
        if not 0 < text_bytes(key) <= most:
            return refused
        total += _item_bytes(key)
    for i in range(text_count(headers)):
        name, value = text_bytes(name_at(headers, i)), text_bytes(value_at(headers, i))
        if not 0 <= name <= _NAME_MOST or not 0 <= value <= _VALUE_MOST:
            return refused
        total += _ITEM + name + value
    return total


@primitive
def _write_item(place: int, tag: Any, text: Any) -> Any:
    """Write an item that has a text; return where the next one goes."""
    if text_bytes(text) <= 0:
        return place
    return _write_bytes(_write_item_head(place, tag, np.int64(0), text_bytes(text)), text)


@primitive
def _write_item_head(place: int, tag: Any, name_bytes: int, value_bytes: int) -> Any:
    store_u8(place + _TAG, tag)
    store_u8(place + _NAME_BYTES, np.uint8(name_bytes))
    store_u16(place + _VALUE_BYTES, np.uint16(value_bytes))
    return place + _ITEM


@primitive
def _write_bytes(place: int, text: Any) -> Any:
    copy_bytes(place, text_address(text), text_bytes(text))
    return place + text_bytes(text)


@primitive
def _write_extra(place: int, keys: Any, message_id: Any, headers: Any) -> Any:
    """Write a message's extra; return where the body goes. `logfile.extras` has the same in Python."""
    place = _write_item(place, _MESSAGE_ID, message_id)
    for i in range(text_count(keys)):
        place = _write_item(place, _KEY, text_at(keys, i))
    for i in range(text_count(headers)):
        name, value = name_at(headers, i), value_at(headers, i)
        place = _write_item_head(place, _HEADER, text_bytes(name), text_bytes(value))
        place = _write_bytes(_write_bytes(place, name), value)
    return place


# -- queues that are new to the journal ------------------------------------------------------------------


@primitive
def _has_room(words: Any, name_bytes: int) -> bool:
    """Return whether tables have room for one more queue of one more topic."""
    topics = words[W_TOPIC_COUNT]
    used = load_i64(words[W_NAME_ENDS] + 8 * (topics - 1)) if topics > 0 else np.int64(0)
    return bool(
        topics < words[W_TOPIC_LIMIT]
        and words[W_QUEUE_COUNT] < words[W_QUEUE_LIMIT]
        and used + name_bytes <= words[W_NAMES_LIMIT]
    )


@primitive
def _is_topic(name: int, length: int) -> bool:
    """Return whether a text is a legal topic, as `value_rules.check_topic` does."""
    if length > MAX_TOPIC_BYTES:
        return False
    last = _SPACE
    for i in range(length):
        value = load_u8(name + i)
        if value < _SPACE or value == _DELETE or (last == _C1_LEAD and value < _C1_END):
            return False
        last = value
    return True


@short_kernel
def _define(
    queues: Any, words: Any, stage: Any, name: int, length: int, queue_id: int, turn: int
) -> Any:
    """Define a queue in the node and its journal; return the node's number of it, or REFUSED."""
    if (
        not _has_room(queues, length)
        or not _has_room(words, length)
        or words[W_NEXT_SLOT] + ROOM_OF_ONE > words[W_SLOT_LIMIT]
    ):
        return np.int64(REFUSED)
    known = number_queue(queues, name, length, queue_id)
    state = queues[W_STATES] + STATE_BYTES * known
    first, hint = load_i64(state + N_NEXT), hint_of(state)
    its_number = define_queue(words, stage, name, length, queue_id, first, hint)
    place_queue(state, its_number, turn)
    return known


# -- the message -------------------------------------------------------------------------------------------


@short_kernel
def _append(
    arguments: int, topic: Any, queue_id: Any, body: Any, keys: Any, message_id: Any, headers: Any,
    delivery: Any, timestamp: Any, expected: Any,
) -> Any:  # fmt: skip
    """Stage one message; return its offset, or REFUSED with nothing done.

    The ranges are those of `message_columns.check_message`, which says what is wrong. `delivery` are the
    items that follow the others of an extra, of a message with a `deliver_at`: only that one may go to
    the timer's topic, and is held there. The list of arguments is flat, since each is taken from Python by
    its own type.
    """
    refused = np.int64(REFUSED)
    name, name_bytes, body_bytes = text_address(topic), text_bytes(topic), text_bytes(body)
    extra_bytes = _extra_bytes(keys, message_id, headers, _argument(arguments, A_MOST_KEY))
    if (
        name_bytes <= 0
        or not is_number(queue_id)
        or not 0 <= number(queue_id) <= _QUEUE_ID_MAX
        or not 0 <= body_bytes <= _argument(arguments, A_MOST_BODY)
        or not 0 <= extra_bytes <= _argument(arguments, A_MOST_EXTRA)
        or text_bytes(delivery) < 0
        or (
            load_u8(name) < _SPACE and text_bytes(delivery) == 0
        )  # no caller may name the timer's topic
        or not is_number(timestamp)
        or not is_number(expected)
    ):
        return refused
    is_held = load_u8(name) < _SPACE
    extra_bytes += text_bytes(delivery)
    queues = carray(numbers_at(_argument(arguments, A_QUEUES)), (WORD_COUNT,))
    turn = _argument(arguments, A_TURN)
    known = find_queue(queues, name, name_bytes, number(queue_id))
    is_placed, offset = False, np.int64(0)
    if known >= 0:
        of_node = queues[W_STATES] + STATE_BYTES * known
        is_placed = (load_u64(of_node + N_PLACE) >> _TURN) == np.uint64(turn)
        offset = load_i64(of_node + N_NEXT)
    if number(expected) != NO_EXPECTATION and number(expected) != offset:
        return refused
    words = carray(numbers_at(_argument(arguments, A_TABLES)), (WORD_COUNT,))
    stage = carray(numbers_at(_argument(arguments, A_STAGE)), (STAGE_WORD_COUNT,))
    time, used = number(timestamp), stage[V_USED]
    base = words[W_BASE_TIME] if words[W_HAS_BASE] != 0 else time
    padded = row_bytes(body_bytes, extra_bytes, is_far(time, base))
    entry = np.int64(0) if is_placed else _ENTRY + name_bytes
    if used + padded > stage[V_LIMIT] - stage[V_ENTRY_USED] - entry:
        return refused
    if not is_placed:
        if not is_held and not _is_topic(name, name_bytes):
            return refused
        known = _define(queues, words, stage, name, name_bytes, number(queue_id), turn)
        if known < 0:
            return refused
    of_node = queues[W_STATES] + STATE_BYTES * known
    queue = np.uint32(load_u64(of_node + N_PLACE) & _LOW)
    size = (body_bytes | np.int64(_HELD)) if is_held else body_bytes
    begin = write_head(stage[V_ADDRESS] + used, padded, size, queue, time, base, extra_bytes)
    begin = _write_bytes(_write_extra(begin, keys, message_id, headers), delivery)
    copy_bytes(begin, text_address(body), body_bytes)
    state = words[W_STATES] + STATE_BYTES * np.int64(queue)
    words[W_BASE_TIME], words[W_HAS_BASE] = base, np.int64(1)  # before a reader may find the row
    if not note_row(words, state, np.uint32((stage[V_BEGIN] + used) // _UNIT)):
        return refused  # what was written is no row: the stage does not reach it
    add_totals(words, np.int64(load_u32(state + S_TOPIC)), 1, body_bytes, time, time)
    stage[V_USED] = used + padded
    stage[V_COUNT] += 1
    store_i64(of_node + N_NEXT, offset + 1)
    return offset


_ARGUMENTS: Final = (
    types.int64, TEXT, INTEGER, BYTES, TEXTS, TEXT, PAIRS, BYTES, INTEGER, INTEGER,
)  # fmt: skip


def load() -> Any:
    """Return what calls the kernel, from numba's cache, or compiled in seconds."""
    return direct_call(_append, *_ARGUMENTS)
