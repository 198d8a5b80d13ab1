"""The messages at some entries' places in an unsealed journal, from Python's entries to Python's messages.

::

    entry -> queue -> row -> has its extra the very key, or message ID? -> a message, at a list's end

It takes entries as an answer of the index has them. What is out of the ordinary (a message of another file,
above the limit, forgotten or held; damage) is REFUSED, and the caller takes the general path. It keeps the
GIL: staged rows stay where they are meanwhile.

Depends on arguments, made_objects, objects, compile, intrinsics, layout, locate, state and rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tierdex.fileparts.kernels.arguments import TEXT, text_address, text_bytes
from tierdex.fileparts.kernels.compile import carray, direct_call, short_kernel, types
from tierdex.fileparts.kernels.intrinsics import (
    load_i64,
    load_u8,
    load_u16,
    numbers_at,
)
from tierdex.fileparts.kernels.made_objects import (
    LIST,
    append_made,
    collector_off,
    collector_on,
    let_go,
    list_address,
    new_tuple,
    put_bytes,
    put_made,
    put_number,
    put_object,
    put_text,
)
from tierdex.fileparts.kernels.objects import take_entry
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels.locate import first_offset, gather_rows, messages_below
from tierdex.logfile.journal.kernels.state import (
    STAGE_WORD_COUNT,
    W_BASE_TIME,
    WORD_COUNT,
    find_queue,
)
from tierdex.logfile.kernels.rows import open_row

REFUSED: Final = -1
# Places of the arguments (i8 each), which last as long as the journal's tables do.
(
    M_WORDS,
    M_STAGE,
    M_ENTRY_TYPE,
    M_MESSAGE_TYPE,
    M_NONE,
    M_FALSE,
    M_PLACE,
) = range(7)  # fmt: skip; the last is where an address may be written
# The fields of a message, in order.
_TOPIC, _QUEUE_ID, _OFFSET, _TIME, _BODY, _KEYS, _ID, _HEADERS, _DELIVER_AT, _FORGOTTEN = range(10)
_FIELDS = 10
_ITEM: Final = layout.EXTRA_ITEM_BYTES
_PLACES = layout.places(layout.EXTRA)
_TAG, _NAME_BYTES, _VALUE_BYTES = _PLACES["tag"], _PLACES["name_bytes"], _PLACES["value_bytes"]
_ID_TAG, _KEY_TAG, _HEADER_TAG, _DELIVER_TAG = (
    layout.ExtraTag.MESSAGE_ID.value,
    layout.ExtraTag.KEY.value,
    layout.ExtraTag.HEADER.value,
    layout.ExtraTag.DELIVER_AT.value,
)
_NO, _YES, _BAD = 0, 1, -1


@short_kernel
def _item(place: int) -> Any:
    """Return (tag, bytes of the name, bytes of the value) of an item of an extra."""
    return (
        np.int64(load_u8(place + _TAG)),
        np.int64(load_u8(place + _NAME_BYTES)),
        np.int64(load_u16(place + _VALUE_BYTES)),
    )


@short_kernel
def _is_same(one: int, other: int, count: Any) -> Any:
    same = True
    for i in range(count):
        same &= load_u8(one + i) == load_u8(other + i)
    return same


@short_kernel
def _look_over(extra: int, extra_bytes: Any, wanted: int, name: int, name_bytes: Any) -> Any:
    """Return (whether an item of the tag `wanted` is the name, or _BAD; keys; headers) of an extra."""
    found, keys, headers = np.int64(_NO), np.int64(0), np.int64(0)
    place, end, last = np.int64(extra), extra + extra_bytes, np.int64(0)
    bad = np.int64(_BAD), keys, headers
    while place < end:
        if place + _ITEM > end:
            return bad
        tag, label, value = _item(place)
        begin = place + _ITEM + label
        place = begin + value
        is_once = tag in (_ID_TAG, _DELIVER_TAG)
        if place > end or tag < last + (is_once and tag == last) or tag < _ID_TAG:
            return bad
        if tag > _DELIVER_TAG or (label > 0 and tag != _HEADER_TAG):
            return bad
        if tag == _DELIVER_TAG and value != 8:
            return bad
        keys += tag == _KEY_TAG
        headers += tag == _HEADER_TAG
        if tag == wanted and value == name_bytes and _is_same(begin, name, value):
            found = np.int64(_YES)
        last = tag
    return found, keys, headers


@short_kernel
def _put_extra(arguments: int, message: int, extra: int, extra_bytes: Any, counts: Any) -> Any:
    """Put keys, message ID, headers and delivery, which were looked over; return 1, or 0."""
    none = load_i64(arguments + 8 * M_NONE)
    keys, headers = new_tuple(np.int64(0), counts[0]), new_tuple(np.int64(0), counts[1])
    if keys == 0 or headers == 0:
        return np.int64(0)  # without memory nothing is given back either
    made = put_made(message, np.int64(_KEYS), keys) & put_made(message, np.int64(_HEADERS), headers)
    has_id = has_delivery = False
    place, end, key, header = np.int64(extra), extra + extra_bytes, np.int64(0), np.int64(0)
    while place < end:
        tag, label, value = _item(place)
        begin = place + _ITEM + label
        if tag == _KEY_TAG:
            made &= put_text(keys, key, begin, value)
            key += 1
        elif tag == _HEADER_TAG:
            pair = new_tuple(np.int64(0), np.int64(2))
            if pair == 0:
                return np.int64(0)
            made &= put_made(headers, header, pair)
            made &= put_text(pair, np.int64(0), begin - label, label)
            made &= put_bytes(pair, np.int64(1), begin, value)
            header += 1
        elif tag == _ID_TAG:
            made &= put_text(message, np.int64(_ID), begin, value)
            has_id = True
        else:
            made &= put_number(message, np.int64(_DELIVER_AT), load_i64(begin))
            has_delivery = True
        place = begin + value
    if not has_id:
        made &= put_object(message, np.int64(_ID), none)
    if not has_delivery:
        made &= put_object(message, np.int64(_DELIVER_AT), none)
    return made


@short_kernel
def _take(
    arguments: int, entries: int, number: int, limit: int, name: int, name_bytes: Any, tag: int, found: int
) -> Any:  # fmt: skip
    """Append the message of an entry, if it has the name; return the bytes read, or REFUSED."""
    topic, text, size, queue_id, offset, are_numbers = take_entry(
        entries, np.int64(number), load_i64(arguments + 8 * M_ENTRY_TYPE)
    )
    if topic == 0 or size <= 0 or are_numbers == 0:
        return np.int64(REFUSED)
    tables = carray(numbers_at(load_i64(arguments + 8 * M_WORDS)), (WORD_COUNT,))
    stage = carray(numbers_at(load_i64(arguments + 8 * M_STAGE)), (STAGE_WORD_COUNT,))
    queue = find_queue(tables, text, size, queue_id)
    if queue < 0:
        return np.int64(REFUSED)
    ordinal = offset - first_offset(tables, queue)
    if not 0 <= ordinal < messages_below(tables, queue, limit):
        return np.int64(REFUSED)
    place = load_i64(arguments + 8 * M_PLACE)
    gather_rows(tables, stage, queue, ordinal, np.int64(1), place)
    time, flags, body, body_bytes, extra, extra_bytes = open_row(
        load_i64(place), tables[W_BASE_TIME]
    )
    is_it, keys, headers = _look_over(extra, extra_bytes, tag, name, name_bytes)
    if flags != 0 or is_it == _BAD:
        return np.int64(REFUSED)
    if is_it == _NO:  # another key of this hash
        return body_bytes + extra_bytes
    message = new_tuple(load_i64(arguments + 8 * M_MESSAGE_TYPE), np.int64(_FIELDS))
    if message == 0:
        return np.int64(REFUSED)
    made = (
        put_object(message, np.int64(_TOPIC), topic)
        & put_number(message, np.int64(_QUEUE_ID), queue_id)
        & put_number(message, np.int64(_OFFSET), offset)
        & put_number(message, np.int64(_TIME), time)
        & put_bytes(message, np.int64(_BODY), body, body_bytes)
        & put_object(message, np.int64(_FORGOTTEN), load_i64(arguments + 8 * M_FALSE))
        & _put_extra(arguments, message, extra, extra_bytes, (keys, headers))
    )
    if made == 0:
        let_go(message)
        return np.int64(REFUSED)
    if append_made(found, message) == 0:
        return np.int64(REFUSED)
    return body_bytes + extra_bytes


@short_kernel
def _find_messages(
    arguments: int, key: Any, message_id: Any, entries: Any, count: int, limit: int, found: Any
) -> Any:
    """Append the messages of the first `count` entries that have the key, or the message ID, to `found`.

    `limit` is the byte of the file below which messages are seen. Returns the bytes of bodies and extras
    that were read, or REFUSED: `found` may have got some.
    """
    name, name_bytes, tag = text_address(key), text_bytes(key), np.int64(_KEY_TAG)
    if text_bytes(message_id) != 0:
        name, name_bytes, tag = text_address(message_id), text_bytes(message_id), np.int64(_ID_TAG)
    listed, out = list_address(entries), list_address(found)
    if name_bytes <= 0 or listed == 0 or out == 0:
        return np.int64(REFUSED)
    was_on, content = collector_off(), np.int64(0)
    for number in range(count):
        taken = _take(arguments, listed, number, limit, name, name_bytes, tag, out)
        if taken < 0:
            content = np.int64(REFUSED)
            break
        content += taken
    if was_on:
        collector_on()
    return content


def load() -> Any:
    """Return what calls the kernel, from numba's cache, or compiled in seconds."""
    return direct_call(
        _find_messages, types.int64, TEXT, TEXT, LIST, types.int64, types.int64, LIST
    )
