"""The models of messages in bodies: what an append reads, and what a read of a queue answers.

Bodies and header values are bytes. JSON has text, so a message says how they are written: `text` (UTF-8)
or `base64`. What a read answers in one form can be sent back as it is.

Depends on pydantic, fields, models and value_rules.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tierdex.app.http.schemas.fields import Given, Int64, Key, Time, Topic, has, must
from tierdex.app.http.schemas.models import Hint, Missing, Unasked
from tierdex.value_rules import INT32_MAX, INT64_MAX, Durability

Encoding = Literal["text", "base64"]
LogOffset = Annotated[
    int, Field(strict=True, ge=0, le=INT64_MAX, json_schema_extra={"format": "int64"})
]
_QueueId = Annotated[
    int, Field(strict=True, ge=0, le=INT32_MAX, json_schema_extra={"format": "int32"})
]
_EXAMPLE: Final[Any] = {
    "topic": "orders",
    "queue_id": 0,
    "body": '{"id": 8841}',
    "keys": ["ORDER-8841"],
    "headers": [{"name": "trace", "value": "7F000001"}],
    "timestamp": 1700000000000,
}


class Header(TypedDict):
    """A header of a message: a name of at most 255 bytes, a value of at most 65,535."""

    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]
    name: str
    value: str


class MessageToAppend(TypedDict):
    """One message. `encoding` says how `body` and header values are written; none: `text`.

    With a `deliver_at` that is still to come it waits in the log until then.
    """

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        extra="forbid",
        json_schema_extra={**must({"not": has("key", "keys")}), "example": _EXAMPLE},
    )
    topic: Topic
    queue_id: _QueueId
    body: str
    encoding: NotRequired[Encoding]
    key: NotRequired[Key | None]
    keys: NotRequired[list[Key] | None]
    message_id: NotRequired[Key | None]
    headers: NotRequired[list[Header] | None]
    timestamp: NotRequired[Time | None]
    deliver_at: NotRequired[Time | None]


class MessagesToAppend(Given):
    """A batch, checked as a whole: all or none. An empty one brings earlier appends to the level."""

    messages: Annotated[list[MessageToAppend], Field(fail_fast=True)]


class Appended(BaseModel):
    """The offset of each message, in order of the body, and the level that all of them have reached.

    A message that waits for its `deliver_at` has no offset yet: null.
    """

    offsets: list[LogOffset | None]
    durability: Durability


class MessageHeader(BaseModel):
    """A header of a message."""

    name: str
    value: str


class Message(BaseModel):
    """A message. `encoding` says how `body` and header values are written here.

    `deliver_at` is that of a message that was appended with one. Of one that `is_forgotten` only the time is
    left, and the offset.
    """

    topic: str
    queue_id: int
    offset: LogOffset
    timestamp: Int64
    body: str
    encoding: Encoding
    keys: list[str]
    message_id: str | None
    headers: list[MessageHeader]
    deliver_at: Int64 | None
    is_forgotten: bool


class MissingMessages(Missing):
    """A file that could not be read; `offset` is the first one that it concerns, if that is known."""

    offset: LogOffset | None


class ReadExplain(BaseModel):
    """From where the bytes came: rows of journals, pages of other files as they are stored.

    `memory`: journals. `arena`: pages in memory. `disk`: local files. `kept_copy`: local copies of published
    files. `read_ahead`: of the store, fetched before. `store`: fetched for this read, which sent so many
    `requests`.
    """

    memory: int
    arena: int
    disk: int
    kept_copy: int
    read_ahead: int
    store: int
    requests: int


class Messages(BaseModel):
    """Consecutive messages of a queue, from `first_offset` on; read on at `next_offset`.

    `from_begin`: the offset asked for was below `begin_offset`. `end_offset` is behind the last message
    that may be seen. Not `complete`: what follows could not be read, and `missing` names it.
    A `generation` that rose says that a crash took offsets back.
    """

    topic: str
    queue_id: int
    messages: list[Message]
    first_offset: LogOffset
    next_offset: LogOffset
    begin_offset: LogOffset
    end_offset: LogOffset
    from_begin: bool
    generation: int
    complete: bool
    missing: list[MissingMessages]
    explain: ReadExplain


class ExpiredMessage(BaseModel):
    """Where a message was that retention has taken."""

    topic: str
    queue_id: int
    offset: LogOffset


class MessagesFound(BaseModel):
    """The messages of a key or message ID, newest arrival first: newer in time may be on a later page.

    Not `complete`: `missing` names what could not be read, or is not indexed yet. `expired`: messages under
    the key's hash that are gone from the log by their age. What the log acknowledged before `as_of` was
    looked at; `unasked` is its owner, when that holds more and is not this service.
    """

    messages: list[Message]
    complete: bool
    missing: list[MissingMessages]
    next_cursor: str | None
    expired: list[ExpiredMessage]
    explain: ReadExplain
    as_of: Int64
    unasked: list[Unasked]
    hints: list[Hint] | None = None


class LogQueue(BaseModel):
    """A queue of a topic, and which offsets it holds: `begin_offset` to below `end_offset`."""

    queue_id: int
    begin_offset: LogOffset
    end_offset: LogOffset


class LogQueues(BaseModel):
    """Without `topic`: all topics that hold messages. With it: its queues, sorted.

    Where there are more, `next_queue_id` is the `from_queue_id` to go on with.
    """

    topics: list[str]
    queues: list[LogQueue]
    next_queue_id: int | None
    restricted: bool = Field(
        description="topics that the caller may not read are left out, whether there are any or not"
    )


class EndOffsets(BaseModel):
    """The offset behind the last message that has each level.

    `remote` is null where that is not known: without a store, or while it was not reached.
    """

    received: LogOffset
    os: LogOffset
    disk: LogOffset
    remote: LogOffset | None


class LogOffsets(BaseModel):
    """The offsets of a queue; all are 0 for an unknown one.

    `offset` is the least one whose message is not older than the `timestamp` asked for.
    """

    topic: str
    queue_id: int
    begin_offset: LogOffset
    end_offsets: EndOffsets
    offset: LogOffset | None


class TimerHour(BaseModel):
    """An hour that begins at `begin`, and how many messages are to be delivered in it."""

    begin: Int64
    message_count: int


class TimerHours(BaseModel):
    """The hours that have messages to be delivered, in order."""

    hours: list[TimerHour]
