"""Query parameters, declared as models that FastAPI reads, and read strictly.

A number is digits, a boolean is `true` or `false`, a time is what `times` says. A name must
be known and given once; text must be UTF-8. The index checks the meaning of the values.

Depends on pydantic, fields, message_models, times, index_service.answer, schema, settings and value_rules.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import parse_qsl

from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from tierdex.app.http.schemas.fields import (
    ASKED_TIME_SCHEMA,
    KEY_SCHEMA,
    TOPIC_SCHEMA,
    asked_end,
    asked_time,
)
from tierdex.app.http.schemas.message_models import Encoding  # noqa: TC001 - read by pydantic
from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer import BUCKETS_LEAST, BUCKETS_MOST, DEFAULT_BUCKETS
from tierdex.indexfile.schema import MESSAGE_RANGES
from tierdex.settings import MIB, NODE_PATTERN
from tierdex.times import MS_PATTERN
from tierdex.value_rules import INT32_MAX, INT64_MAX, Durability, ReadPolicyName

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.requests import Request

_REPLACED = "\ufffd"
_INTEGER = re.compile(r"-?[0-9]{1,19}")


def _whole_number(value: Any) -> Any:
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise PydanticCustomError("whole_number", "must be a whole number")
    return value


def _truth(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise PydanticCustomError("truth", "must be true or false")
    return value


_MILLISECONDS: Final = {"type": "string", "pattern": MS_PATTERN}
_QUEUE_MIN, _QUEUE_MAX = MESSAGE_RANGES["queue_id"]
_QUEUE_SCHEMA: Final = {
    "type": "integer", "format": "int32", "minimum": _QUEUE_MIN, "maximum": _QUEUE_MAX,
}  # fmt: skip
_IN_QUERY: Final = WithJsonSchema({"anyOf": [*ASKED_TIME_SCHEMA["anyOf"], _MILLISECONDS]})
Topic = Annotated[str, WithJsonSchema(TOPIC_SCHEMA)]
Key = Annotated[str, WithJsonSchema(KEY_SCHEMA)]
Time = Annotated[int, BeforeValidator(asked_time), _IN_QUERY]
EndTime = Annotated[int, BeforeValidator(asked_end), _IN_QUERY]
MaxCount = Annotated[
    int,
    BeforeValidator(_whole_number),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 10_000}),
]
OnError = Annotated[
    Literal["partial", "fail"],
    Field(
        description="what a file that cannot be asked does to the answer: `complete: false`, or 503"
    ),
]


_DIGITS: Final = BeforeValidator(_whole_number)
LogQueueId = Annotated[
    int, _DIGITS, Field(ge=0, le=INT32_MAX, json_schema_extra={"format": "int32"})
]
LogOffset = Annotated[
    int, _DIGITS, Field(ge=0, le=INT64_MAX, json_schema_extra={"format": "int64"})
]
MaxQueues = Annotated[int, _DIGITS, Field(ge=1, le=10_000)]
MaxMessages = Annotated[int, _DIGITS, Field(ge=1, le=100_000)]
MaxMessageBytes = Annotated[int, _DIGITS, Field(ge=1, le=16 * MIB)]
WaitMs = Annotated[int, _DIGITS, Field(ge=0, le=60_000)]
Buckets = Annotated[int, _DIGITS, Field(ge=BUCKETS_LEAST, le=BUCKETS_MOST)]
CountLimit = Annotated[int, _DIGITS, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EntriesQuery(BaseModel):
    """One lookup, by key or by message ID."""

    topic: Topic | None = Field(
        None, description="topic of `key`; narrows `message_id`", examples=["orders"]
    )
    key: Key | None = Field(
        None, description="the key to look up; or `message_id`", examples=["ORDER-8841"]
    )
    message_id: Key | None = Field(None, description="the message ID to look up; or `key`")
    begin: Time | None = Field(
        None, description="earliest time, inclusive: milliseconds or RFC 3339"
    )
    end: EndTime | None = Field(None, description="latest time, inclusive")
    max_count: MaxCount | None = Field(None, description="most entries to answer; none: 64")
    cursor: str | None = Field(None, description="`next_cursor` of the answer before, unchanged")
    explain: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="tell the plan that ran"
    )
    on_error: OnError = "partial"
    fresh_within: Seconds | None = Field(
        None, description="seconds; an older answer (see `as_of`) is incomplete and names the nodes"
    )
    snapshot: str | None = Field(
        None, description="of a topic that follows a lake's table: a snapshot's ID or version"
    )
    proof: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="with `explain`: what in the store said no, to be checked by others"
    )
    message: Annotated[bool, BeforeValidator(_truth)] = Field(
        False,
        description="with each entry its message, fetched from its log: needs the scope `message`",
    )
    max_message_bytes: MaxMessageBytes | None = Field(
        None, description="with `message`: longest message to fetch; none, and at most: the setting"
    )
    message_timeout: Seconds | None = Field(
        None,
        description="with `message`: seconds to wait for messages; none, and at most: the setting",
    )
    hints: Annotated[bool, BeforeValidator(_truth)] = Field(
        False,
        description="with an answer without entries what may have been meant: near topics, the key in "
        "other topics and spellings",
    )
    id_time: str | None = Field(
        None,
        description="a message ID of this form narrows the times: `uuidv7`, `ulid`, `snowflake:EPOCH_MS`, "
        "`off`; none: the setting",
        pattern=r"^(off|uuidv7|ulid|snowflake:(0|[1-9][0-9]{0,14}))$",
    )


class HistogramQuery(BaseModel):
    """One lookup, whose entries are counted."""

    topic: Topic | None = Field(
        None, description="topic of `key`; narrows `message_id`", examples=["orders"]
    )
    key: Key | None = Field(None, description="the key; or `message_id`", examples=["ORDER-8841"])
    message_id: Key | None = Field(None, description="the message ID; or `key`")
    begin: Time | None = Field(None, description="earliest time, inclusive")
    end: EndTime | None = Field(None, description="latest time, inclusive")
    buckets: Buckets = Field(
        DEFAULT_BUCKETS, description="most counts, from the first entry to the last"
    )
    max_count: CountLimit | None = Field(
        None,
        description="entries to count, newest files first; none, and at most: `query_max_entries`",
    )
    on_error: OnError = "partial"
    fresh_within: Seconds | None = Field(
        None, description="seconds; an older answer (see `as_of`) is incomplete and names the nodes"
    )


class JourneysQuery(BaseModel):
    """One key, in all topics."""

    key: Key = Field(description="the key to look up in every topic", examples=["ORDER-8841"])
    begin: Time | None = Field(None, description="earliest time, inclusive")
    end: EndTime | None = Field(None, description="latest time, inclusive")
    max_count: MaxCount | None = Field(None, description="most entries of a topic; none: 16")
    on_error: OnError = "partial"
    fresh_within: Seconds | None = Field(
        None, description="seconds; as for one lookup, of the list of topics, too"
    )
    message: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="with each entry its message: needs the scope `message`"
    )
    max_message_bytes: MaxMessageBytes | None = Field(None, description="as for one lookup")
    message_timeout: Seconds | None = Field(None, description="as for one lookup")


class LookupsQuery(BaseModel):
    """Parameters of all lookups of a batch."""

    on_error: OnError | None = Field(
        None, description="as for one lookup; none: JSON `partial`, Arrow `fail`"
    )
    max_count: MaxCount | None = Field(
        None, description="most entries a lookup that does not say it (JSON: 64, Arrow: 1)"
    )
    fresh_within: Seconds | None = Field(
        None, description="seconds; older answers (see `as_of`) are incomplete and name the nodes"
    )
    message: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="JSON only; as for one lookup, its bounds hold for the whole batch"
    )
    max_message_bytes: MaxMessageBytes | None = Field(None, description="as for one lookup")
    message_timeout: Seconds | None = Field(
        None, description="seconds for all messages of the batch"
    )


class PutQuery(BaseModel):
    """The durability of a put."""

    durability: Durability | None = Field(
        None, description="the level to reach, for bodies that do not say it; none: `os`"
    )


class AppendQuery(BaseModel):
    """How messages are appended."""

    durability: Durability = Field("disk", description="the level to reach before the answer")
    expect_offset: LogOffset | None = Field(
        None,
        description="append the body's one message only if this offset is next in its queue; else 409",
    )


class MessagesQuery(BaseModel):
    """A part of one queue; or the messages of a key or message ID."""

    topic: Topic | None = Field(None, description="topic of the queue, or of `key`")
    queue_id: LogQueueId | None = Field(None, description="queue; or `key`, or `message_id`")
    offset: LogOffset | None = Field(
        None, description="first offset of the queue; none: its begin, as for one below that"
    )
    key: Key | None = Field(None, description="key whose messages to answer, newest arrival first")
    message_id: Key | None = Field(None, description="message ID whose messages to answer")
    begin: Time | None = Field(None, description="of a key: earliest time, inclusive")
    end: EndTime | None = Field(None, description="of a key: latest time, inclusive")
    cursor: str | None = Field(None, description="of a key: `next_cursor` of the answer before")
    fresh_within: Seconds | None = Field(
        None,
        description="of a key: seconds; an older answer is incomplete and names the log's node",
    )
    hints: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="of a key: as for a lookup of entries"
    )
    max_count: MaxMessages | None = Field(
        None, description="most messages to answer; none: 100, of a key 64"
    )
    max_bytes: MaxMessageBytes | None = Field(
        None, description="of a queue: most bytes of bodies after the first message; none: 1 MiB"
    )
    wait_ms: WaitMs | None = Field(
        None, description="of a queue: milliseconds to wait for more at its end"
    )
    visible: Durability = Field("disk", description="the level that a message needs to be seen")
    policy: ReadPolicyName | None = Field(
        None,
        description="where published messages come from (setting `read_policy`); none: as is set there",
    )
    group: Topic | None = Field(
        None,
        description="of a queue: name of a reader that reads on; published messages are fetched ahead of it "
        "from its first read on",
    )
    encoding: Encoding = Field(
        "text", description="how JSON writes bodies; what is not UTF-8 is `base64` in any case"
    )


class QueuesQuery(BaseModel):
    """Topics, or the queues of one."""

    topic: Topic | None = Field(None, description="topic whose queues to list; none: list topics")
    from_queue_id: LogQueueId = Field(0, description="least queue to list")
    max_count: MaxQueues = Field(1000, description="most queues to list")


class OffsetsQuery(BaseModel):
    """One queue, and a time in it."""

    topic: Topic = Field(description="topic")
    queue_id: LogQueueId = Field(description="queue")
    timestamp: Time | None = Field(
        None,
        description="tell the least offset whose message is not older: milliseconds or RFC 3339",
    )


class TopicsQuery(BaseModel):
    """How much to tell of each topic."""

    details: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="tell counts and times, too; may send the store a few requests"
    )
    as_of: Annotated[bool, BeforeValidator(_truth)] = Field(
        False, description="tell until when these are all topics, and which nodes may hold others"
    )
    fresh_within: Seconds | None = Field(
        None, description="seconds; with `as_of`: name the nodes because of which the list is older"
    )


class WatermarkQuery(BaseModel):
    """One queue."""

    topic: Topic = Field(description="topic")
    queue_id: Annotated[
        int,
        BeforeValidator(_whole_number),
        WithJsonSchema(_QUEUE_SCHEMA),
    ] = Field(description="queue")
    node: str | None = Field(
        None, description="how far this node, ours or not, has published", pattern=NODE_PATTERN
    )


def refuse_other_parameters(request: Request, known: Collection[str]) -> None:
    """Raise InvalidRequestError for what FastAPI ignores: unknown or repeated names, bad UTF-8."""
    if not request.scope["query_string"]:
        return
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise InvalidRequestError("there is no such parameter", field=name[:64])
        if name in seen:
            raise InvalidRequestError("is there more than once", field=name)
        seen.add(name)
        if _REPLACED in value:
            _refuse_bad_utf8(request.scope["query_string"])
    if not request.scope["query_string"].isascii():
        raise InvalidRequestError("must be ASCII, all else percent-encoded", field="query")


def _refuse_bad_utf8(raw: bytes) -> None:
    """Raise InvalidRequestError for bytes that are not UTF-8; a caller may send U+FFFD itself."""
    for name, value in parse_qsl(raw.decode("latin-1"), errors="surrogateescape"):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError("is not UTF-8", field=name) from None
