"""Each verb of a message log as both clients have it: its arguments, its request, the reading of its answer.

Bodies go as Arrow, or as base64 in a request with one message; reads come as Arrow, so that they give the
same `ReadAnswer` as the embedded log, over the same columns. Pure, as calls.py.

Depends on answers, arrow, call, errors, message_batches, log_service and value_rules.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tierdex.client.answers import read_explain, read_hints, read_json, read_missing, read_unasked
from tierdex.client.arrow import arrow_body, load_arrow, message_columns, read_table
from tierdex.client.call import ARROW_STREAM, Call, Pause, json_body, query_string
from tierdex.errors import UnavailableError
from tierdex.log_service.answer import (
    AppendReceipt,
    ExpiredMessage,
    FoundMessages,
    Message,
    TimerHour,
)
from tierdex.log_service.append.given_messages import GivenMessages, body_of, headers_of
from tierdex.log_service.levels import Level, level_of
from tierdex.value_rules import INT64_MAX, INT64_MIN, one_or_many, out_of_range

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.client.call import Steps
    from tierdex.column_types import (
        Bodies,
        Body,
        HeaderLists,
        Headers,
        Integers,
        KeyLists,
        Texts,
        Times,
    )
    from tierdex.log_service.answer import ReadAnswer
    from tierdex.times import Time
    from tierdex.value_rules import Durability, Keys, ReadPolicyName

T = TypeVar("T")
PATH = "/v1/messages"
_IN_ARROW = {"accept": ARROW_STREAM}
_NO_OFFSET = -1  # of a message that waits for its `deliver_at`
_WAIT_STEP_S = 10.0  # of one request, below the client's timeout
_PAUSE_S = 0.1  # where a service waits shorter than it was asked to


class QueuePage(NamedTuple):
    """Some queues of a topic, and the queue to go on with, None at the end."""

    queue_ids: list[int]
    next_queue_id: int | None


def append(
    *,
    topic: str,
    queue_id: int,
    body: Body,
    key: str | None = None,
    keys: Keys | None = None,
    message_id: str | None = None,
    headers: Headers | None = None,
    timestamp: Time | None = None,
    deliver_at: Time | None = None,
    expect_offset: int | None = None,
    durability: Durability = "disk",
) -> Call[int]:
    """Append one message; return its offset, -1 where it waits. Raises as `MessageLog.append`."""
    keys = one_or_many(key, keys)
    given = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at)
    message = {name: value for name, value in given._asdict().items() if value is not None}
    message["body"] = b64encode(body_of(body, "body")).decode()
    if headers is not None:
        message["headers"] = [
            {"name": name, "value": b64encode(value).decode()}
            for name, value in headers_of(headers, "headers")
        ]
    if keys is not None:
        message["keys"] = [keys] if isinstance(keys, str) else list(keys)
    for name, value in message.items():
        if isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
            raise out_of_range(value, INT64_MIN, INT64_MAX, name)  # JSON here has no larger ones
    sent = json_body({"messages": [{**message, "encoding": "base64"}]})
    asked = query_string(durability=durability, expect_offset=expect_offset)
    return Call("POST", PATH, _first_offset, asked, sent, is_repeatable=False)


def _first_offset(body: bytes) -> int:
    offset = read_json(body)["offsets"][0]
    return _NO_OFFSET if offset is None else int(offset)


def append_batch(
    *,
    topic: Texts,
    queue_id: Integers,
    body: Bodies,
    key: Texts | None = None,
    keys: KeyLists | None = None,
    message_id: Texts | None = None,
    headers: HeaderLists | None = None,
    timestamp: Times | None = None,
    deliver_at: Times | None = None,
    durability: Durability = "disk",
) -> Call[AppendReceipt]:
    """Append messages by column, all or none; return their offsets."""
    level = level_of(durability, "durability")
    keys = one_or_many(key, keys)
    given = GivenMessages(topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at)

    def read(body: bytes) -> AppendReceipt:
        offsets = read_table(body).column("offset").fill_null(_NO_OFFSET)
        return AppendReceipt(offsets.to_numpy(), level)

    return Call(
        "POST", PATH, read, {"durability": durability}, arrow_body(message_columns(given._asdict())),
        ARROW_STREAM, is_repeatable=False, headers=_IN_ARROW,
    )  # fmt: skip


def read(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    max_count: int = 100,
    max_bytes: int = 1 << 20,
    wait: float = 0.0,
    visible: Durability = "disk",
    policy: ReadPolicyName | None = None,
    group: str | None = None,
) -> Steps[ReadAnswer]:
    """Return messages of a queue from `offset` on; at its end wait for more, up to `wait` seconds."""
    asked = query_string(
        topic=topic, queue_id=queue_id, offset=offset, max_count=max_count, max_bytes=max_bytes,
        visible=visible, policy=policy, group=group,
    )  # fmt: skip
    load_arrow()  # before anything is sent
    now: float = yield Pause()
    deadline = now + wait
    while True:
        left = deadline - now
        step = min(left, _WAIT_STEP_S)
        waiting = {"wait_ms": str(max(1, round(step * 1000)))} if step > 0 else {}
        answer: ReadAnswer = yield Call(
            "GET", PATH, _read_messages, {**asked, **waiting}, headers=_IN_ARROW
        )
        if len(answer) or not answer.complete or left <= _WAIT_STEP_S:
            return answer
        now = yield Pause()
        if left - (deadline - now) < step:
            now = yield Pause(_PAUSE_S)


def read_arrow(
    topic: str,
    queue_id: int,
    offset: int,
    *,
    max_count: int = 100,
    max_bytes: int = 1 << 20,
    wait: float = 0.0,
    visible: Durability = "disk",
    policy: ReadPolicyName | None = None,
    group: str | None = None,
) -> Steps[Any]:
    """Return the same as an Arrow table, as `MessageLog.read_arrow` does."""
    answer = yield from read(
        topic, queue_id, offset, max_count=max_count, max_bytes=max_bytes, wait=wait,
        visible=visible, policy=policy, group=group,
    )  # fmt: skip
    return answer.table()


def _read_messages(body: bytes) -> ReadAnswer:
    from tierdex.client.message_batches import read_messages

    return read_messages(body)


def get(
    topic: str | None = None,
    *,
    key: str | None = None,
    message_id: str | None = None,
    begin: Time | None = None,
    end: Time | None = None,
    max_count: int = 64,
    cursor: str | None = None,
    visible: Durability = "disk",
    policy: ReadPolicyName | None = None,
    fresh_within: float | None = None,
    hints: bool = False,
) -> Call[FoundMessages]:
    """Return the messages of a topic's key, or of a message ID, newest first, with their bodies."""
    asked = query_string(
        topic=topic, key=key, message_id=message_id, begin=begin, end=end, max_count=max_count,
        cursor=cursor, visible=visible, policy=policy, fresh_within=fresh_within, hints=hints,
        encoding="base64",
    )  # fmt: skip
    return Call("GET", PATH, read_found, asked)


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
        messages, read_missing(document), document["next_cursor"], expired, read_explain(document),
        document.get("as_of", 0), read_unasked(document), read_hints(document),
    )  # fmt: skip


def timers() -> Call[list[TimerHour]]:
    """Return the hours in which messages are to be delivered, in order, and how many each."""

    def read_hours(body: bytes) -> list[TimerHour]:
        return [TimerHour(**hour) for hour in read_json(body)["hours"]]

    return Call("GET", "/v1/timers", read_hours)


def log_topics() -> Call[list[str]]:
    """Return the topics that hold messages, sorted."""
    return Call("GET", "/v1/queues", lambda body: list(read_json(body)["topics"]))


def queues(topic: str) -> Steps[list[int]]:
    """Return the queues of a topic that hold messages, sorted."""
    found: list[int] = []
    at: int | None = 0
    while at is not None:
        asked = query_string(topic=topic, from_queue_id=at, max_count=10_000)
        page = yield Call("GET", "/v1/queues", _read_queues, asked)
        found += page.queue_ids
        at = page.next_queue_id
    return found


def _read_queues(body: bytes) -> QueuePage:
    document = read_json(body)
    ids = [int(row["queue_id"]) for row in document["queues"]]
    return QueuePage(ids, document["next_queue_id"])


def begin_offset(topic: str, queue_id: int) -> Call[int]:
    """Return the offset of the first message of a queue that is still there."""
    return _offsets(topic, queue_id, None, lambda told: int(told["begin_offset"]))


def end_offset(topic: str, queue_id: int, *, level: Durability = "disk") -> Call[int]:
    """Return the offset behind the last message that has `level`."""
    wanted: Level = level_of(level, "level")

    def pick(told: dict[str, Any]) -> int:
        end = told["end_offsets"][wanted.name.lower()]
        if end is None:
            raise UnavailableError(
                "the service does not know what is published: it has no store, or has not reached it"
            )
        return int(end)

    return _offsets(topic, queue_id, None, pick)


def end_offsets(topic: str, queue_id: int) -> Call[dict[str, int | None]]:
    """Return the offset behind the last message of each level, as `MessageLog.end_offsets` does."""
    return _offsets(topic, queue_id, None, lambda told: dict(told["end_offsets"]))


def offset_at(topic: str, queue_id: int, timestamp: Time) -> Call[int]:
    """Return the least offset whose message has a time >= `timestamp`; the end if none has."""
    return _offsets(topic, queue_id, timestamp, lambda told: int(told["offset"]))


def _offsets(
    topic: str, queue_id: int, timestamp: Time | None, pick: Callable[[dict[str, Any]], T]
) -> Call[T]:
    asked = query_string(topic=topic, queue_id=queue_id, timestamp=timestamp)
    return Call("GET", "/v1/offsets", lambda body: pick(read_json(body)), asked)
