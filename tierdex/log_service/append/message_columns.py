"""What a caller appends, checked and made uniform: one message, or Arrow, numpy and list columns.

Everything is checked before anything is appended; a refusal names the first offending row the way a caller
sees it: ``messages[17].queue_id``. Nothing here runs a row in Python, but for headers
and what is no Arrow column.

Depends on times, value_rules, value_columns, logfile and the rest of log_service; pyarrow and numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.log_service.append.appender import AppendRows
from tierdex.log_service.append.given_messages import GivenMessages, body_of, headers_of
from tierdex.log_service.append.name_columns import plain_extras
from tierdex.log_service.files.queue_table import RowQueues
from tierdex.logfile.columns import BinaryColumn
from tierdex.logfile.extras import Extra, encode_extra, encode_extras
from tierdex.logfile.layout import HOUR_MS, MARKS_QUEUE
from tierdex.times import to_ms, written_times
from tierdex.value_rules import (
    INT32_MAX,
    INT64_MIN,
    SECONDS,
    check_integer,
    check_key,
    check_time,
    check_topic,
    out_of_range,
)

if TYPE_CHECKING:
    from tierdex.settings import Settings
    from tierdex.value_columns import Rows

EXTRA_BYTES_MOST = 32 << 10  # so that a message with its extra fits a stage
AT_ONCE = INT64_MIN  # the `deliver_at` of a message without one
DELIVER_AT_END = MARKS_QUEUE * HOUR_MS  # the first one that no queue of the timer is for
_NO_ROWS = np.zeros(1, np.uint32)


def check_message(settings: Settings, given: GivenMessages, now_ms: int) -> GivenMessages:
    """Return one message as the kernel takes it. Raises InvalidRequestError, RequestTooLargeError."""
    topic = check_topic(given.topic, "topic")
    queue_id = check_integer(given.queue_id, "queue_id", 0, INT32_MAX)
    time = now_ms if given.timestamp is None else to_ms(given.timestamp, "timestamp")
    body = body_of(given.body, "body")
    _check_size(len(body), settings.max_message_bytes, "body")
    extra = _extra(settings, given.keys, given.message_id, given.headers, "")
    if extra is None:
        return GivenMessages(topic, queue_id, body, timestamp=time)
    _check_extras(settings, len(encode_extra(extra)))
    return GivenMessages(
        topic, queue_id, body, list(extra.keys), extra.message_id, list(extra.headers), time
    )


def check_due(deliver_at: Any) -> int:
    """Return when one message is to be delivered. Raises InvalidRequestError."""
    due = to_ms(deliver_at, "deliver_at")
    if due >= DELIVER_AT_END:
        raise out_of_range(due, INT64_MIN, DELIVER_AT_END - 1, "deliver_at")
    return due


def check_deliver_at(given: GivenMessages, count: int) -> np.ndarray:
    """Return when each message is to be delivered (i8), AT_ONCE for those that do not say it.

    One value stands for all; a column may hold None, an Arrow one null. Raises InvalidRequestError.
    """
    is_list = isinstance(given.deliver_at, list | tuple)
    asked = written_times(
        given.deliver_at, lambda row: f"messages[{row}].deliver_at" if is_list else "deliver_at"
    )
    is_one = isinstance(asked, int | np.integer)
    if is_one:
        check_time(asked, "deliver_at")
    values, is_null = _without_nulls(asked)
    times = np.broadcast_to(_rows(count).times(values, "deliver_at"), count)
    if is_null is not None:
        times = np.where(is_null, AT_ONCE, times)
    is_wrong = ((times >= SECONDS.start) & (times < SECONDS.stop)) | (times >= DELIVER_AT_END)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        field = "deliver_at" if is_one else f"messages[{row}].deliver_at"
        check_time(int(times[row]), field)
        raise out_of_range(int(times[row]), INT64_MIN, DELIVER_AT_END - 1, field)
    return times


def _without_nulls(values: Any) -> tuple[Any, np.ndarray | None]:
    """Return (a column without None and null, which rows had one)."""
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        if not values.null_count:
            return values, None
        is_null = np.asarray(values.is_null())
        if is_null.all():  # whatever its type
            return np.zeros(len(values), np.int64), is_null
        try:
            return values.fill_null(pa.scalar(0, values.type)), is_null
        except pa.ArrowException as error:
            raise InvalidRequestError(f"must be integers: {error}", field="deliver_at") from error
    if isinstance(values, int | np.integer | np.ndarray):
        return values, None
    listed = _listed(values, "deliver_at")
    is_null = np.array([value is None for value in listed], bool)
    return [0 if value is None else value for value in listed], is_null


def check_messages(settings: Settings, given: GivenMessages, now_ms: int) -> AppendRows:
    """Return a batch. Raises InvalidRequestError naming the first bad row and field."""
    bodies = _bodies(given.body)
    count = len(bodies)
    if count > settings.max_batch_entries:
        raise RequestTooLargeError(
            f"{count} messages, at most {settings.max_batch_entries} in one call", field="messages"
        )
    row = bodies.first_longer(settings.max_message_bytes)
    if row >= 0:
        _check_size(len(bodies.value(row)), settings.max_message_bytes, f"messages[{row}].body")
    rows = _rows(count)
    topics, topic_index = rows.topics(given.topic)
    names = _topic_column([topic.encode() for topic in topics])
    index = _NO_ROWS if topic_index is None else topic_index.view(np.uint32)
    ids = rows.integers(given.queue_id, "queue_id", np.dtype(np.int32), 0, INT32_MAX)
    times = rows.times(now_ms if given.timestamp is None else given.timestamp, "timestamp")
    extras = _extras(settings, given, count)
    return AppendRows(RowQueues(names, index, ids, count), bodies, times, extras)


# -- columns ---------------------------------------------------------------------------------------------


def _bodies(body: Any) -> BinaryColumn:
    import pyarrow as pa

    if isinstance(body, BinaryColumn):
        return body
    if isinstance(body, pa.Array | pa.ChunkedArray):
        return BinaryColumn.from_arrow(body)
    if isinstance(body, bytes | str) or not hasattr(body, "__len__"):
        raise InvalidRequestError(
            "must be a column: Arrow binary, or a list of bytes", field="body"
        )
    listed = list(body)
    for row, value in enumerate(listed):
        if not isinstance(value, bytes):
            listed[row] = body_of(value, f"messages[{row}].body")
    return BinaryColumn.from_values(listed)


def _topic_column(names: list[bytes]) -> BinaryColumn:
    return BinaryColumn.from_values(names, field="topic")


def _extras(settings: Settings, given: GivenMessages, count: int) -> BinaryColumn | None:
    """Return the extra of each message, or None when no message has one."""
    if given.keys is None and given.message_id is None and given.headers is None:
        return None
    if given.headers is None:
        plain = plain_extras(settings, given.keys, given.message_id, count)
        if plain is not None:
            _check_extras(settings, plain.largest)
            return plain
    columns = []
    for name, values in (
        ("keys", given.keys), ("message_id", given.message_id), ("headers", given.headers),
    ):  # fmt: skip
        if values is None:
            columns.append([None] * count)
            continue
        listed = values.to_pylist() if hasattr(values, "to_pylist") else _listed(values, name)
        _check_length(len(listed), count, name)
        columns.append(listed)
    encoded = BinaryColumn(
        *encode_extras(
            [
                _extra(settings, keys, message_id, headers, f"messages[{row}].")
                for row, (keys, message_id, headers) in enumerate(zip(*columns, strict=True))
            ]
        )
    )
    _check_extras(settings, encoded.largest)
    return encoded


def _extra(
    settings: Settings, keys: Any, message_id: Any, headers: Any, prefix: str
) -> Extra | None:
    """Return a message's extra, None when it has none. `keys` may be one key."""
    if keys is None and message_id is None and headers is None:
        return None
    most = settings.max_key_bytes
    if keys is None or isinstance(keys, str):
        listed = [] if keys is None else [keys]
    elif isinstance(keys, Iterable):
        listed = list(keys)
    else:
        raise InvalidRequestError("must be a list of strings", field=f"{prefix}keys")
    if message_id is not None:
        check_key(message_id, f"{prefix}message_id", most)
    return Extra(
        message_id,
        tuple(check_key(key, f"{prefix}keys", most) for key in listed),
        tuple(headers_of(headers, f"{prefix}headers")),
    )


def _check_extras(settings: Settings, largest: int) -> None:
    most = min(settings.max_message_bytes, EXTRA_BYTES_MOST)
    if largest > most:
        raise RequestTooLargeError(
            f"keys, message ID and headers of a message have {largest} bytes, at most {most}",
            field="headers",
        )


def _rows(count: int) -> Rows:
    from tierdex.value_columns import Rows  # with pyarrow, which single messages do without

    return Rows("messages", count)


def _listed(values: Any, name: str) -> list[Any]:
    from tierdex.value_columns import check_is_column

    check_is_column(values, name)
    return list(values)


def _check_length(found: int, count: int, name: str) -> None:
    if found != count:
        raise InvalidRequestError(f"has {found} rows, body has {count}", field=name)


def _check_size(size: int, most: int, field: str) -> None:
    if size > most:
        raise RequestTooLargeError(f"has {size} bytes, at most {most}", field=field)
