"""What a caller appends, checked and made uniform: one message, or Arrow, numpy and list columns.

Everything is checked before anything is appended; a refusal names the first offending row the way a caller
sees it: ``messages[17].queue_id``. Nothing here runs a row in Python, but for headers
and what is no Arrow column.

Depends on value_rules, logfile and the other modules of this folder; pyarrow and numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.log_service.appender import AppendRows
from tierdex.log_service.name_columns import plain_extras
from tierdex.log_service.queue_table import RowQueues
from tierdex.logfile.columns import BinaryColumn
from tierdex.logfile.extras import Extra, encode_extras
from tierdex.logfile.layout import HOUR_MS, MARKS_QUEUE
from tierdex.value_rules import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    SECONDS,
    check_integer,
    check_key,
    check_time,
    check_topic,
    missing,
    out_of_range,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.log_service.given_messages import GivenMessages
    from tierdex.settings import Settings

EXTRA_BYTES_MOST = 32 << 10  # so that a message with its extra fits a stage
AT_ONCE = INT64_MIN  # the `deliver_at` of a message without one
DELIVER_AT_END = MARKS_QUEUE * HOUR_MS  # the first one that no queue of the timer is for
_NO_ROWS = np.zeros(1, np.uint32)


def check_message(settings: Settings, given: GivenMessages, now_ms: int) -> AppendRows:
    """Return one message as rows. Raises InvalidRequestError, RequestTooLargeError."""
    topic = check_topic(given.topic, "topic").encode()
    queue_id = check_integer(given.queue_id, "queue_id", 0, INT32_MAX)
    time = now_ms if given.timestamp is None else check_integer(given.timestamp, "timestamp")
    if not isinstance(given.body, bytes | bytearray | memoryview):
        raise InvalidRequestError("must be bytes", field="body")
    body = np.frombuffer(given.body, np.uint8)
    _check_size(len(body), settings.max_message_bytes, "body")
    extra = _extra(settings, given.keys, given.message_id, given.headers, "")
    rows = RowQueues(_topic_column([topic]), _NO_ROWS, np.array([queue_id], np.int32), 1)
    extras = BinaryColumn(*encode_extras([extra])) if extra else None
    if extras is not None:
        _check_extras(settings, extras)
    return AppendRows(
        rows, BinaryColumn(np.array([0, len(body)], np.int64), body), np.array([time]), extras
    )


def check_deliver_at(given: GivenMessages, count: int) -> np.ndarray:
    """Return when each message is to be delivered (i8), AT_ONCE for those that do not say it.

    One value stands for all; a column may hold None, an Arrow one null. Raises InvalidRequestError.
    """
    times = np.broadcast_to(
        _integers(
            _without_nulls(given.deliver_at), "deliver_at", count, np.dtype(np.int64), INT64_MIN, INT64_MAX
        ),
        count,
    )  # fmt: skip
    is_wrong = ((times >= SECONDS.start) & (times < SECONDS.stop)) | (times >= DELIVER_AT_END)
    if is_wrong.any():
        row = int(np.argmax(is_wrong))
        is_one = isinstance(given.deliver_at, int | np.integer)
        field = "deliver_at" if is_one else f"messages[{row}].deliver_at"
        check_time(int(times[row]), field)
        raise out_of_range(int(times[row]), INT64_MIN, DELIVER_AT_END - 1, field)
    return times


def _without_nulls(values: Any) -> Any:
    """Return a column with AT_ONCE where it has None or null."""
    import pyarrow as pa

    if isinstance(values, int | np.integer | np.ndarray):
        return values
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return [AT_ONCE if value is None else value for value in _listed(values, "deliver_at")]
    if not values.null_count:
        return values
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ms"), safe=False)
    try:
        return values.cast(pa.int64()).fill_null(AT_ONCE)
    except pa.ArrowException as error:
        raise InvalidRequestError(f"must be integers: {error}", field="deliver_at") from error


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
    topics, topic_index = _topics(given.topic, count)
    ids = _integers(given.queue_id, "queue_id", count, np.dtype(np.int32), 0, INT32_MAX)
    if given.timestamp is None:
        times = np.array([now_ms], np.int64)
    else:
        times = _integers(
            given.timestamp, "timestamp", count, np.dtype(np.int64), INT64_MIN, INT64_MAX
        )
    extras = _extras(settings, given, count)
    return AppendRows(RowQueues(topics, topic_index, ids, count), bodies, times, extras)


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
            raise InvalidRequestError("must be bytes", field=f"messages[{row}].body")
    return BinaryColumn.from_values(listed)


def _topics(topic: Any, count: int) -> tuple[BinaryColumn, np.ndarray]:
    """Return the distinct topics, and the topic of each row (u4), or one 0 for all."""
    import pyarrow as pa

    if isinstance(topic, str):
        return _topic_column([check_topic(topic, "topic").encode()]), _NO_ROWS
    try:
        column = (
            topic
            if isinstance(topic, pa.Array | pa.ChunkedArray)
            else pa.array(_listed(topic, "topic"))
        )
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as error:
        raise InvalidRequestError(f"must be strings: {error}", field="topic") from error
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    _check_length(len(column), count, "topic")
    if column.null_count:
        raise missing(f"messages[{int(np.argmax(np.asarray(column.is_null())))}].topic")
    index = np.ascontiguousarray(column.indices, np.uint32)
    names = column.dictionary.to_pylist()
    for number, name in enumerate(names):
        try:
            check_topic(name, "topic")
        except InvalidRequestError as error:
            rows = np.flatnonzero(index == number)
            if len(rows):
                raise InvalidRequestError(
                    error.detail, field=f"messages[{int(rows[0])}].topic"
                ) from error
            names[number] = "unused"  # a dictionary may hold what no row names
    return _topic_column([name.encode() for name in names]), index


def _topic_column(names: list[bytes]) -> BinaryColumn:
    return BinaryColumn.from_values(names, field="topic")


def _integers(
    values: Any, name: str, count: int, dtype: np.dtype, lowest: int, highest: int
) -> np.ndarray:
    """Return a column, or one value for all rows."""
    import pyarrow as pa

    if isinstance(values, int | np.integer):
        return np.array([check_integer(values, name, lowest, highest)], dtype)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        if values.null_count:
            row = int(np.argmax(np.asarray(values.is_null())))
            raise missing(f"messages[{row}].{name}")
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        values = np.asarray(values)
    elif not isinstance(values, np.ndarray):
        listed = _listed(values, name)
        values = np.array(
            [check_integer(v, f"messages[{row}].{name}", lowest, highest) for row, v in enumerate(listed)],
            dtype,
        )  # fmt: skip
    if values.dtype.kind == "M":
        values = values.astype("datetime64[ms]").astype(np.int64)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidRequestError(f"must be integers, not {values.dtype}", field=name)
    _check_length(len(values), count, name)
    if count and not lowest <= int(values.min()) <= int(values.max()) <= highest:
        row = int(np.argmax((values < lowest) | (values > highest)))
        raise out_of_range(int(values[row]), lowest, highest, f"messages[{row}].{name}")
    return np.ascontiguousarray(values, dtype)


def _extras(settings: Settings, given: GivenMessages, count: int) -> BinaryColumn | None:
    """Return the extra of each message, or None when no message has one."""
    if given.keys is None and given.message_id is None and given.headers is None:
        return None
    if given.headers is None:
        plain = plain_extras(settings, given.keys, given.message_id, count)
        if plain is not None:
            _check_extras(settings, plain)
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
    _check_extras(settings, encoded)
    return encoded


def _extra(
    settings: Settings, keys: Any, message_id: Any, headers: Any, prefix: str
) -> Extra | None:
    """Return a message's extra, None when it has none. `keys` may be one key."""
    if keys is None and message_id is None and headers is None:
        return None
    most = settings.max_key_bytes
    listed: Sequence[Any] = [keys] if isinstance(keys, str) else list(keys or ())
    if message_id is not None:
        check_key(message_id, f"{prefix}message_id", most)
    pairs = []
    for header in headers or ():
        if (
            not isinstance(header, tuple | list) or len(header) != 2
            or not isinstance(header[0], str) or not isinstance(header[1], bytes)
        ):  # fmt: skip
            raise InvalidRequestError("must be pairs of a name and bytes", field=f"{prefix}headers")
        pairs.append((header[0], header[1]))
    return Extra(
        message_id,
        tuple(check_key(key, f"{prefix}keys", most) for key in listed),
        tuple(pairs),
    )


def _check_extras(settings: Settings, extras: BinaryColumn) -> None:
    most = min(settings.max_message_bytes, EXTRA_BYTES_MOST)
    if extras.largest > most:
        raise RequestTooLargeError(
            f"keys, message ID and headers of a message have {extras.largest} bytes, at most {most}",
            field="headers",
        )


def _listed(values: Any, name: str) -> list[Any]:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InvalidRequestError(
            "must be an Arrow, numpy or list column, or one value", field=name
        )
    return list(values)


def _check_length(found: int, count: int, name: str) -> None:
    if found != count:
        raise InvalidRequestError(f"has {found} rows, body has {count}", field=name)


def _check_size(size: int, most: int, field: str) -> None:
    if size > most:
        raise RequestTooLargeError(f"has {size} bytes, at most {most}", field=field)
