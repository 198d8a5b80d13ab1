"""Messages of a JSON, ndjson or Arrow body, as the columns that `MessageLog.append_batch` takes.

Arrow columns: `topic` string (or dictionary of strings), `queue_id` any integer type, `body` binary or
string; if wanted `keys` list of string, or `key` string, `message_id` string, `headers` list of
struct<name: string, value: binary>, `timestamp` integer milliseconds or an Arrow timestamp, `deliver_at` as
well, nulls allowed.

Depends on numpy, pyarrow, arrow_stream, http, log_service, times and value_rules.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pydantic import Field, TypeAdapter

from tierdex.app.http.codecs.arrow_stream import read_stream
from tierdex.app.http.schemas.message_models import MessagesToAppend, MessageToAppend
from tierdex.app.http.schemas.validation import parse_json, validate, validate_json
from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.log_service.append.commit import PendingBatch
from tierdex.times import as_meant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.log_service.append.commit import PendingAppend
    from tierdex.log_service.message_log import MessageLog
    from tierdex.settings import Settings
    from tierdex.value_rules import Durability

_BATCH = TypeAdapter(MessagesToAppend)
_MESSAGES: TypeAdapter[Sequence[MessageToAppend]] = TypeAdapter(
    Annotated[list[MessageToAppend], Field(fail_fast=True)]
)
_REQUIRED = ("topic", "queue_id", "body")
_OPTIONAL = ("keys", "key", "message_id", "headers", "timestamp", "deliver_at")
# Exact types: of others a few bytes could stand for a list of any length (`list<null>`).
_TEXTS = (pa.string(), pa.large_string())
_HEADER = pa.struct([("name", pa.string()), ("value", pa.binary())])
_KINDS = {
    "keys": tuple(pa.list_(kind) for kind in _TEXTS)
    + tuple(pa.large_list(kind) for kind in _TEXTS),
    "key": _TEXTS,
    "message_id": _TEXTS,
    "headers": (pa.list_(_HEADER), pa.large_list(_HEADER)),
}


class MessageColumns(NamedTuple):
    """Columns of one length (lists or Arrow) by the name that `append_batch` gives them."""

    row_count: int
    columns: Mapping[str, Any]

    @property
    def batch(self) -> Mapping[str, Any]:
        """The arguments of `append_batch`."""
        return self.columns

    def append_nowait(
        self, log: MessageLog, durability: Durability, expect_offset: int | None
    ) -> PendingBatch:
        """Stage all messages, or none. Raises what `append_batch_nowait` raises."""
        if expect_offset is not None:
            raise InvalidRequestError(
                "is for a JSON or ndjson body of one message", field="expect_offset"
            )
        return log.append_batch_nowait(**self.columns, durability=durability)


@dataclass(frozen=True, slots=True)
class OneMessage:
    """The one message of a JSON or ndjson body, by the names of the arguments of `append`."""

    columns: Mapping[str, Any]
    row_count = 1

    @property
    def batch(self) -> Mapping[str, Any]:
        """The arguments of `append_batch`."""
        return {name: [value] for name, value in self.columns.items() if value is not None}

    def append_at_once(
        self, log: MessageLog, durability: Durability, expect_offset: int | None
    ) -> PendingBatch | None:
        """Stage the message where memory alone does it: for the event loop. None: use a thread."""
        if self.columns.get("deliver_at") is not None:
            return None
        given = {name: value for name, value in self.columns.items() if name != "deliver_at"}
        pending = log.append_at_once(**given, durability=durability, expect_offset=expect_offset)
        return None if pending is None else _batch_of(pending)

    def append_nowait(
        self, log: MessageLog, durability: Durability, expect_offset: int | None
    ) -> PendingBatch:
        """Stage the message. Raises what `append_nowait` raises."""
        try:
            return _batch_of(
                log.append_nowait(
                    **self.columns, durability=durability, expect_offset=expect_offset
                )
            )
        except InvalidRequestError as error:
            if (error.field or "").partition("[")[0] in {*_REQUIRED, *_OPTIONAL}:
                raise type(error)(error.detail, field=f"messages[0].{error.field}") from error
            raise


def _batch_of(pending: PendingAppend) -> PendingBatch:
    return PendingBatch(np.array([pending.offset]), pending.commit, pending.level)


def read_messages(body: bytes, limits: Settings, now_ms: int) -> MessageColumns | OneMessage:
    """Return the messages of a JSON body. Raises InvalidRequestError naming the first wrong field."""
    return _columns_of(validate_json(_BATCH, body).messages, limits, now_ms)


def read_message_lines(body: bytes, limits: Settings, now_ms: int) -> MessageColumns | OneMessage:
    """Return the messages of a body with one a line; blank lines are skipped."""
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    _refuse_too_many(len(lines), limits)
    values = [parse_json(line, f"messages[{number}]") for number, line in enumerate(lines)]
    return _columns_of(validate(_MESSAGES, values, place="messages"), limits, now_ms)


def read_message_table(body: bytes | bytearray, limits: Settings) -> MessageColumns:
    """Return the messages of an Arrow stream. Raises InvalidRequestError naming a column."""
    table = read_stream(body, max_rows=limits.max_batch_entries, field="messages")
    names = table.column_names
    for name in names:
        if name not in _REQUIRED and name not in _OPTIONAL:
            raise InvalidRequestError("there is no such field", field=f"messages.{name[:64]}")
        if names.count(name) > 1:
            raise InvalidRequestError("is there twice", field=f"messages.{name}")
    for name in _REQUIRED:
        if name not in names:
            raise InvalidRequestError("is required", field=f"messages.{name}")
    columns: dict[str, Any] = {name: table.column(name).combine_chunks() for name in names}
    for name in columns.keys() & _KINDS.keys():
        if columns[name].type not in _KINDS[name]:
            raise InvalidRequestError(
                f"must be {_KINDS[name][0]}, not {columns[name].type}", field=f"messages.{name}"
            )
    if "key" in columns:
        if "keys" in columns:
            raise InvalidRequestError("give either `key` or `keys`", field="messages.key")
        columns["keys"] = columns.pop("key")
    if "headers" in columns:
        columns["headers"] = [
            [_pair(row, header) for header in listed or ()]
            for row, listed in enumerate(columns["headers"].to_pylist())
        ]
    return MessageColumns(table.num_rows, columns)


def _pair(row: int, header: Any) -> tuple[str, bytes]:
    if header is None or header["name"] is None or header["value"] is None:
        raise InvalidRequestError("must not hold null", field=f"messages[{row}].headers")
    return header["name"], header["value"]


def _columns_of(
    messages: Sequence[MessageToAppend], limits: Settings, now_ms: int
) -> MessageColumns | OneMessage:
    if len(messages) == 1:
        return _one(messages[0], now_ms)
    _refuse_too_many(len(messages), limits)
    decoded = [_decoded(number, message) for number, message in enumerate(messages)]
    columns: dict[str, Any] = {
        "topic": [message["topic"] for message in messages],
        "queue_id": [message["queue_id"] for message in messages],
        "body": [body for body, _ in decoded],
        "timestamp": as_meant([_time(message, now_ms) for message in messages]),
        "headers": [headers for _, headers in decoded],
        "keys": [_keys(number, message) for number, message in enumerate(messages)],
        "message_id": [message.get("message_id") for message in messages],
        "deliver_at": [message.get("deliver_at") for message in messages],
    }
    for name in ("headers", "keys", "message_id", "deliver_at"):
        if not any(value is not None for value in columns[name]):
            del columns[name]
    return MessageColumns(len(messages), columns)


def _one(message: MessageToAppend, now_ms: int) -> OneMessage:
    body, headers = _decoded(0, message)
    (timestamp,) = as_meant([_time(message, now_ms)])
    return OneMessage({
        "topic": message["topic"], "queue_id": message["queue_id"], "body": body, "headers": headers,
        "key": message.get("key"), "keys": message.get("keys"), "message_id": message.get("message_id"),
        "timestamp": timestamp, "deliver_at": message.get("deliver_at"),
    })  # fmt: skip


def _keys(number: int, message: MessageToAppend) -> Any:
    key, keys = message.get("key"), message.get("keys")
    if key is not None and keys is not None:
        raise InvalidRequestError("give either `key` or `keys`", field=f"messages[{number}].key")
    return keys if key is None else [key]


def _time(message: MessageToAppend, now_ms: int) -> int:
    given = message.get("timestamp")
    return max(now_ms, message.get("deliver_at") or now_ms) if given is None else given


def _decoded(number: int, message: MessageToAppend) -> tuple[bytes, list[tuple[str, bytes]] | None]:
    """Return body and headers as bytes, None for no headers."""
    is_base64 = message.get("encoding") == "base64"

    def decode(text: str, name: str) -> bytes:
        if not is_base64:
            return text.encode()
        try:
            return binascii.a2b_base64(text, strict_mode=True)
        except ValueError as error:
            raise InvalidRequestError(
                f"is not base64: {error}", field=f"messages[{number}].{name}"
            ) from error

    headers = [
        (header["name"], decode(header["value"], f"headers[{place}].value"))
        for place, header in enumerate(message.get("headers") or ())
    ]
    return decode(message["body"], "body"), headers or None


def _refuse_too_many(count: int, limits: Settings) -> None:
    if count > limits.max_batch_entries:
        raise RequestTooLargeError(
            f"{count} messages, at most {limits.max_batch_entries} in one call", field="messages"
        )
