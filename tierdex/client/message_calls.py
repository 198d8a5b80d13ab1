"""Each verb of a message log as an HTTP call: the request, and the reading of its response. Pure.

Bodies go as Arrow, or as base64 in a request with one message; answers come as Arrow, so that a read gives
the same `ReadAnswer` as the embedded log, over the same columns.

Depends on calls, answers, times, log_service, logfile, value_rules and pyarrow.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import orjson

from tierdex.client.answers import read_json
from tierdex.client.calls import ARROW_STREAM, Call, arrow_body, json_body, query_string, read_table
from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.log_service.answer import (
    AppendReceipt,
    ExpiredMessage,
    FoundMessages,
    Message,
    MissingMessages,
    ReadAnswer,
    TimerHour,
)
from tierdex.log_service.levels import Level, level_of
from tierdex.log_service.read_policy import ReadExplain
from tierdex.logfile.columns import BinaryColumn
from tierdex.logfile.extras import Extra, encode_extras
from tierdex.logfile.layout import MESSAGE_FORGOTTEN
from tierdex.logfile.messages import MessageBatch
from tierdex.times import written_times
from tierdex.value_rules import INT64_MAX, INT64_MIN, out_of_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.log_service.given_messages import GivenMessages
    from tierdex.times import Time

PATH = "/v1/messages"
_IN_ARROW = {"accept": ARROW_STREAM}
_NO_OFFSET = -1  # of a message that waits for its `deliver_at`


class QueuePage(NamedTuple):
    """Some queues of a topic, and the queue to go on with, None at the end."""

    queue_ids: list[int]
    next_queue_id: int | None


def append(given: GivenMessages, expect_offset: int | None, durability: str) -> Call[int]:
    """Return the call for one message."""
    message = {name: value for name, value in given._asdict().items() if value is not None}
    try:
        message["body"] = b64encode(given.body).decode()
        if given.headers is not None:
            pairs = [(name, b64encode(value).decode()) for name, value in given.headers]
            message["headers"] = [{"name": name, "value": value} for name, value in pairs]
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"must be bytes: {error}", field="body") from error
    if given.keys is not None:
        message["keys"] = [given.keys] if isinstance(given.keys, str) else list(given.keys)
    for name, value in message.items():
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            raise out_of_range(value, INT64_MIN, INT64_MAX, name)  # JSON here has no larger ones
    body = json_body({"messages": [{**message, "encoding": "base64"}]})
    asked = query_string({"durability": durability, "expect_offset": expect_offset})
    return Call("POST", PATH, _first_offset, asked, body, is_read=False)


def _first_offset(body: bytes) -> int:
    offset = read_json(body)["offsets"][0]
    return _NO_OFFSET if offset is None else int(offset)


def append_batch(given: GivenMessages, durability: str) -> Call[AppendReceipt]:
    """Return the call for columns of messages, each a column or one value for all rows."""
    level = level_of(durability, "durability")

    def read(body: bytes) -> AppendReceipt:
        offsets = read_table(body).column("offset").fill_null(_NO_OFFSET)
        return AppendReceipt(offsets.to_numpy(), level)

    return Call(
        "POST", PATH, read, {"durability": durability}, arrow_body(_table(given)), ARROW_STREAM,
        is_read=False, headers=_IN_ARROW,
    )  # fmt: skip


def _table(given: GivenMessages) -> Any:
    """Return the columns as an Arrow table of the types that the service takes."""
    import pyarrow as pa

    texts = pa.string()
    header = pa.struct([("name", texts), ("value", pa.binary())])
    body = given.body
    if isinstance(body, bytes | str) or not hasattr(body, "__len__"):
        raise InvalidRequestError(
            "must be a column: Arrow binary, or a list of bytes", field="body"
        )
    arrays = {}
    for name, value in given._asdict().items():
        kinds = {"topic": texts, "body": pa.large_binary(), "message_id": texts}
        kind = kinds.get(name)
        if value is None:
            continue
        if name in ("timestamp", "deliver_at"):
            value = written_times(value, f"messages[{{}}].{name}".format)
        try:
            if isinstance(value, pa.Array | pa.ChunkedArray):
                arrays[name] = value
            elif isinstance(value, str | int | np.integer):
                arrays[name] = pa.repeat(pa.scalar(value, kind), len(body))
            elif name == "keys":
                arrays[name] = _keys(value)
            elif name == "headers":
                rows = [
                    None if row is None else [{"name": n, "value": v} for n, v in row]
                    for row in value
                ]
                arrays[name] = pa.array(rows, pa.list_(header))
            else:
                arrays[name] = pa.array(value, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidRequestError(f"cannot be sent: {error}", field=name) from error
        if len(arrays[name]) != len(body):
            raise InvalidRequestError(
                f"has {len(arrays[name])} rows, body has {len(body)}", field=name
            )
    return pa.table(arrays)


def _keys(rows: Sequence[Any]) -> Any:
    import pyarrow as pa

    listed = [[row] if isinstance(row, str) else row for row in rows]
    return pa.array(listed, pa.list_(pa.string()))


def read(
    topic: str, queue_id: int, offset: int, limits: dict[str, Any], wait: float
) -> Call[ReadAnswer]:
    """Return the call that reads a queue; `wait` in seconds."""
    asked = {"topic": topic, "queue_id": queue_id, "offset": offset, **limits}
    if wait > 0:
        asked["wait_ms"] = max(1, round(wait * 1000))
    return Call("GET", PATH, read_messages, query_string(asked), headers=_IN_ARROW)


def read_messages(body: bytes) -> ReadAnswer:
    """Return a read's answer from an Arrow stream."""
    table = read_table(body)
    about = orjson.loads(table.schema.metadata[b"answer"])
    return ReadAnswer(
        about["topic"], about["queue_id"], about["first_offset"], about["begin_offset"],
        about["end_offset"], _batch(table, about["next_offset"] - len(table)), about["from_begin"],
        _missing(about),
        about["generation"],
        _explain(about),
    )  # fmt: skip


def _batch(table: Any, first_offset: int) -> MessageBatch:
    """Return the rows of an answer as a log's own reads give them."""
    bodies = BinaryColumn.from_arrow(table.column("body"))
    begin, end = int(bodies.offsets[0]), int(bodies.offsets[-1])
    extras = [
        Extra(
            message_id, tuple(keys or ()), tuple((h["name"], h["value"]) for h in headers or ()), deliver_at
        )
        for keys, message_id, headers, deliver_at in zip(
            *(
                table.column(name).to_pylist()
                for name in ("keys", "message_id", "headers", "deliver_at")
            ),
            strict=True,
        )
    ]  # fmt: skip
    extra_offsets, extra_bytes = encode_extras(extras)
    batch = MessageBatch(first_offset, len(table), end - begin, len(extra_bytes))
    if len(table):
        batch.times[:] = table.column("timestamp").to_numpy()
        is_forgotten = table.column("is_forgotten").to_numpy()
        batch.flags[:] = np.where(is_forgotten, MESSAGE_FORGOTTEN, 0)
        batch.body_offsets[:] = bodies.offsets - begin
        batch.bodies[:] = bodies.data[begin:end]
        batch.extra_offsets[:] = extra_offsets
        batch.extras[:] = extra_bytes
    return batch


def get(asked: dict[str, Any]) -> Call[FoundMessages]:
    """Return the call for the messages of a key or message ID."""
    return Call("GET", PATH, read_found, query_string({**asked, "encoding": "base64"}))


def read_found(body: bytes) -> FoundMessages:
    """Return the messages of a key from a JSON answer."""
    document = read_json(body)
    messages = tuple(
        Message(
            row["topic"], row["queue_id"], row["offset"], row["timestamp"], b64decode(row["body"]),
            tuple(row["keys"]), row["message_id"],
            tuple((header["name"], b64decode(header["value"])) for header in row["headers"]),
            row["deliver_at"],
            row["is_forgotten"],
        )
        for row in document["messages"]
    )  # fmt: skip
    expired = tuple(ExpiredMessage(**row) for row in document.get("expired", ()))
    return FoundMessages(
        messages, _missing(document), document["next_cursor"], expired, _explain(document)
    )


def _missing(document: dict[str, Any]) -> tuple[MissingMessages, ...]:
    return tuple(MissingMessages(m["file"], m["reason"], m["offset"]) for m in document["missing"])


def _explain(document: dict[str, Any]) -> ReadExplain:
    return ReadExplain(**document.get("explain", {}))  # an older service does not say


def timers() -> Call[list[TimerHour]]:
    def read_hours(body: bytes) -> list[TimerHour]:
        return [TimerHour(**hour) for hour in read_json(body)["hours"]]

    return Call("GET", "/v1/timers", read_hours)


def log_topics() -> Call[list[str]]:
    return Call("GET", "/v1/queues", lambda body: list(read_json(body)["topics"]))


def queues(topic: str, from_queue_id: int) -> Call[QueuePage]:
    """Return the call for the queues of a topic from one on."""

    def read_page(body: bytes) -> QueuePage:
        document = read_json(body)
        ids = [int(row["queue_id"]) for row in document["queues"]]
        return QueuePage(ids, document["next_queue_id"])

    asked = {"topic": topic, "from_queue_id": from_queue_id, "max_count": 10_000}
    return Call("GET", "/v1/queues", read_page, query_string(asked))


def begin_offset(topic: str, queue_id: int) -> Call[int]:
    return _offsets(topic, queue_id, None, lambda told: int(told["begin_offset"]))


def end_offset(topic: str, queue_id: int, level: str) -> Call[int]:
    wanted: Level = level_of(level, "level")

    def pick(told: dict[str, Any]) -> int:
        end = told["end_offsets"][wanted.name.lower()]
        if end is None:
            raise UnavailableError(
                "what is published is not known to the service: its store was not reached, or there is none"
            )
        return int(end)

    return _offsets(topic, queue_id, None, pick)


def end_offsets(topic: str, queue_id: int) -> Call[dict[str, int | None]]:
    return _offsets(topic, queue_id, None, lambda told: dict(told["end_offsets"]))


def offset_at(topic: str, queue_id: int, timestamp: Time) -> Call[int]:
    return _offsets(topic, queue_id, timestamp, lambda told: int(told["offset"]))


def _offsets(topic: str, queue_id: int, timestamp: Time | None, pick: Any) -> Call[Any]:
    asked = query_string({"topic": topic, "queue_id": queue_id, "timestamp": timestamp})
    return Call("GET", "/v1/offsets", lambda body: pick(read_json(body)), asked)
