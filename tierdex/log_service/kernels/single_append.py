"""One message, from Python's values to a row in the open stage: checks, offset, row, slot.

It takes what a caller of `append` gave, as it is, and does all or nothing: it returns -1 when anything is
out of the ordinary (a value, a queue that the journal does not know, no room), and the caller takes the
general path, which finds out. It keeps the GIL; what kernels without it touch as well is guarded by
`append_lock`.

Python and the kernel share *arguments*, an i8 array whose places are named A_* below. Depends on arguments,
intrinsics, compile, layout, offsets, stage_rows, state and value_rules.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.np.numpy_support import carray

from tierdex.fileparts.kernels.arguments import (
    BYTES,
    INTEGER,
    NOT_PLAIN,
    TEXT,
    TEXTS,
    is_number,
    number,
    text_address,
    text_at,
    text_bytes,
    text_count,
)
from tierdex.fileparts.kernels.compile import direct_call, primitive, short_kernel
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
from tierdex.log_service.kernels.offsets import N_NEXT, N_PLACE
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.stage_rows import is_far, row_bytes, write_head
from tierdex.logfile.journal.kernels.state import (
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
    W_STATES,
    WORD_COUNT,
    add_totals,
    find_queue,
    note_row,
)
from tierdex.logfile.layout import ExtraTag
from tierdex.value_rules import SECONDS_BEGIN, SECONDS_END

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
_MESSAGE_ID, _KEY = np.uint8(ExtraTag.MESSAGE_ID), np.uint8(ExtraTag.KEY)
_UNIT: Final = layout.POSITION_UNIT
_QUEUE_ID_MAX: Final = layout.QUEUE_ID_MAX
_SPACE = np.uint8(ord(" "))
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
def _extra_bytes(keys: Any, message_id: Any, most: int) -> Any:
    """Return the bytes of a message's extra; NOT_PLAIN for a name that is none, or above `most` bytes."""
    count = text_count(keys)
    total = _item_bytes(message_id)
    if count < 0 or not 0 <= text_bytes(message_id) <= most:
        return np.int64(NOT_PLAIN)
    for i in range(count):
        key = text_at(keys, i)
        if not 0 < text_bytes(key) <= most:
            return np.int64(NOT_PLAIN)
        total += _item_bytes(key)
    return total


@primitive
def _write_item(place: int, tag: Any, text: Any) -> Any:
    """Write an item that has a text; return where the next one goes."""
    if text_bytes(text) <= 0:
        return place
    store_u8(place + _TAG, tag)
    store_u8(place + _NAME_BYTES, np.uint8(0))
    store_u16(place + _VALUE_BYTES, np.uint16(text_bytes(text)))
    copy_bytes(place + _ITEM, text_address(text), text_bytes(text))
    return place + _ITEM + text_bytes(text)


@short_kernel
def _append(
    arguments: int, topic: Any, queue_id: Any, body: Any, keys: Any, message_id: Any, timestamp: Any,
    expected: Any,
) -> Any:  # fmt: skip
    """Stage one message; return its offset, or REFUSED with nothing done.

    The ranges are those of `message_columns.check_message`, which says what is wrong. The list of
    arguments is flat, since each is taken from Python by its own type.
    """
    refused = np.int64(REFUSED)
    body_bytes = text_bytes(body)
    extra_bytes = _extra_bytes(keys, message_id, _argument(arguments, A_MOST_KEY))
    if (
        text_bytes(topic) <= 0
        or not is_number(queue_id)
        or not 0 <= number(queue_id) <= _QUEUE_ID_MAX
        or not 0 <= body_bytes <= _argument(arguments, A_MOST_BODY)
        or not 0 <= extra_bytes <= _argument(arguments, A_MOST_EXTRA)
        or load_u8(text_address(topic)) < _SPACE  # the timer's topic, which no caller may name
        or not is_number(timestamp)
        or SECONDS_BEGIN <= number(timestamp) < SECONDS_END
        or not is_number(expected)
    ):
        return refused
    queues = carray(numbers_at(_argument(arguments, A_QUEUES)), (WORD_COUNT,))
    known = find_queue(queues, text_address(topic), text_bytes(topic), number(queue_id))
    if known < 0:
        return refused
    of_node = queues[W_STATES] + STATE_BYTES * known
    place, offset = load_u64(of_node + N_PLACE), load_i64(of_node + N_NEXT)
    if (place >> _TURN) != np.uint64(_argument(arguments, A_TURN)):
        return refused
    if number(expected) != NO_EXPECTATION and number(expected) != offset:
        return refused
    words = carray(numbers_at(_argument(arguments, A_TABLES)), (WORD_COUNT,))
    stage = carray(numbers_at(_argument(arguments, A_STAGE)), (STAGE_WORD_COUNT,))
    time, base, used = number(timestamp), words[W_BASE_TIME], stage[V_USED]
    padded = row_bytes(body_bytes, extra_bytes, is_far(time, base))
    if words[W_HAS_BASE] == 0 or used + padded > stage[V_LIMIT] - stage[V_ENTRY_USED]:
        return refused
    queue = np.uint32(place & _LOW)
    begin = write_head(stage[V_ADDRESS] + used, padded, body_bytes, queue, time, base, extra_bytes)
    begin = _write_item(begin, _MESSAGE_ID, message_id)
    for i in range(text_count(keys)):
        begin = _write_item(begin, _KEY, text_at(keys, i))
    copy_bytes(begin, text_address(body), body_bytes)
    state = words[W_STATES] + STATE_BYTES * np.int64(queue)
    if not note_row(words, state, np.uint32((stage[V_BEGIN] + used) // _UNIT)):
        return refused  # what was written is no row: the stage does not reach it
    add_totals(words, np.int64(load_u32(state + S_TOPIC)), 1, body_bytes, time, time)
    stage[V_USED] = used + padded
    stage[V_COUNT] += 1
    store_i64(of_node + N_NEXT, offset + 1)
    return offset


_ARGUMENTS: Final = (types.int64, TEXT, INTEGER, BYTES, TEXTS, TEXT, INTEGER, INTEGER)


def load() -> Any:
    """Return what calls the kernel, from numba's cache, or compiled in seconds."""
    return direct_call(_append, *_ARGUMENTS)
