"""The models of bodies: they validate what is read, and openapi.yaml is made of them.

Entries and lookups come in thousands, so they are typed dicts: pydantic checks names, types and
ranges, and makes no object a row. The index checks the rules of text (length in bytes, control
characters) and which names go together, in every API alike; the schemas repeat those rules for
readers. A test (schemathesis) sends what the schemas allow and what they forbid.

Depends on pydantic, clock, times, answer, schema and value_rules.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer import Explain  # noqa: TC001 - pydantic reads the annotation
from tierdex.indexfile.schema import MESSAGE_RANGES
from tierdex.times import AGO_PATTERN, DATE_PATTERN, RFC3339_PATTERN, parse_time
from tierdex.value_rules import (
    INT64_MAX,
    INT64_MIN,
    SECONDS,
    Durability,
)

TOPIC_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": r"^[^\x00-\x1f\x7f-\x9f]+$",
    "description": "1 to 255 bytes of UTF-8, no control characters",
}
KEY_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 4096,
    "description": "at most `max_key_bytes` bytes of UTF-8",
}
TIME_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer", "format": "int64", "minimum": INT64_MIN, "maximum": INT64_MAX},
        {
            "type": "string",
            "pattern": RFC3339_PATTERN,
            "description": "RFC 3339 with an offset",
        },
        {"type": "string", "pattern": DATE_PATTERN, "description": "a day in UTC"},
    ]
}
ASKED_TIME_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        *TIME_SCHEMA["anyOf"],
        {
            "type": "string",
            "pattern": AGO_PATTERN,
            "description": "before now: `7d` and `-7d` are a week ago; not beside a `cursor`",
        },
    ]
}


def _milliseconds(value: Any, **how: Any) -> Any:
    try:
        return parse_time(value, field="", **how) if isinstance(value, str) else value
    except InvalidRequestError as error:
        raise PydanticCustomError("time", "{reason}", {"reason": error.detail}) from None


def given_time(value: Any) -> Any:
    """Return milliseconds of a text that says when something was; a number may not look like seconds."""
    if type(value) is int and value in SECONDS:
        value = str(value)  # which says what is wrong
    return _milliseconds(value)


def asked_time(value: Any) -> Any:
    """Return milliseconds of a text that says where a range begins: before now, too."""
    return _milliseconds(value, now_ms=SystemClock().now_ms)


def asked_end(value: Any) -> Any:
    """Return milliseconds of a text that says where a range ends: a day ends with its last one."""
    return _milliseconds(value, now_ms=SystemClock().now_ms, is_end=True)


def _location_field(name: str, number_format: str) -> Any:
    lowest, highest = MESSAGE_RANGES[name]
    return Field(strict=True, ge=lowest, le=highest, json_schema_extra={"format": number_format})


Topic = Annotated[str, WithJsonSchema(TOPIC_SCHEMA)]
Key = Annotated[str, WithJsonSchema(KEY_SCHEMA)]
Int64 = Annotated[
    int, Field(strict=True, ge=INT64_MIN, le=INT64_MAX, json_schema_extra={"format": "int64"})
]
Time = Annotated[Int64, BeforeValidator(given_time), WithJsonSchema(TIME_SCHEMA)]
AskedTime = Annotated[Int64, BeforeValidator(asked_time), WithJsonSchema(ASKED_TIME_SCHEMA)]
AskedEnd = Annotated[Int64, BeforeValidator(asked_end), WithJsonSchema(ASKED_TIME_SCHEMA)]
QueueId = Annotated[int, _location_field("queue_id", "int32")]
Offset = Annotated[int, _location_field("offset", "int64")]
Size = Annotated[int, _location_field("size", "int64")]
ROW: Final = ConfigDict(extra="forbid")


class Given(BaseModel):
    """A body that the service reads: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


def has(*names: str) -> dict[str, Any]:
    """Return the rule that these members are there, and not null."""
    return {
        "required": list(names),
        "properties": {name: {"type": ["string", "array"], "minItems": 1} for name in names},
    }


def must(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the schema's members that demand `rule`.

    Generators of clients take `anyOf` beside `properties` for a union, and drop the properties. Not
    to break a rule is the same, and they leave `not` alone.
    """
    return {"not": {"not": rule}}


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


LOOKUP_EXAMPLE: Final[Any] = {"topic": "orders", "key": "ORDER-8841"}
_ENTRY_EXAMPLE: Final[dict[str, Any]] = {
    "topic": "orders",
    "queue_id": 0,
    "offset": 4096,
    "size": 512,
    "timestamp": 1700000000000,
}


class EntryToPut(TypedDict):
    """One fact: key(s) or message ID, where the message is, and its time."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        **ROW,
        json_schema_extra={
            **must(
                {
                    "anyOf": [has("key"), has("keys"), has("message_id")],
                    "not": has("key", "keys"),
                }
            ),
            "example": {
                **_ENTRY_EXAMPLE,
                "keys": ["ORDER-8841"],
                "message_id": "7F000001",
            },
        },
    )
    topic: Topic
    keys: NotRequired[list[Key] | None]
    key: NotRequired[Key | None]
    message_id: NotRequired[Key | None]
    queue_id: QueueId
    offset: Offset
    size: Size
    timestamp: Time


class EntriesToPut(Given):
    """A batch, applied as a whole or not at all. An empty one brings earlier puts to the level."""

    entries: Annotated[list[EntryToPut], Field(fail_fast=True)]
    # No default in openapi.yaml: a generated client would send it, against the one in the query.
    durability: Durability = Field(
        "os",
        description="the level to reach, if the query does not say it; none: `os`",
        json_schema_extra=_without_default,
    )


class PutAnswer(BaseModel):
    """The number of entries put, and the level that all of them have reached."""

    accepted: int
    durability: Durability


class ShownHeader(BaseModel):
    """A header of a message, or a field."""

    name: str
    value: str


class ShownMessage(BaseModel):
    """The message that an entry points at, or why there is none.

    `key`, `body` and header values are as `encoding` says; `text` is the body as people read it: JSON set
    out in lines, or plain text. `decoded` names what was undone, `masked` the places that are `***`.
    """

    outcome: Literal[
        "shown", "gone", "mismatch", "unavailable", "too_large", "withheld", "unresolved"
    ]
    reason: str | None
    where: str | None
    timestamp: Int64 | None
    size: int | None
    encoding: Literal["text", "base64"]
    key: str | None
    headers: list[ShownHeader]
    body: str | None
    form: Literal["json", "text", "binary"] | None
    text: str | None
    decoded: list[str]
    masked: list[str]


class LostOffsets(BaseModel):
    """Offsets from `begin` to below `end` that a followed log lost before they were indexed."""

    topic: str
    queue_id: int
    begin: Int64
    end: Int64
    noticed: Int64


class Entry(BaseModel):
    """The location of a message. `location` and `source` are for files of other schemas only."""

    topic: str
    queue_id: int | None
    offset: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None
    size: int | None
    timestamp: Int64
    file_id: str
    state: str
    node: str
    location: dict[str, Any] | None = None
    source: str | None = None
    hash_function: str | None = None
    message: ShownMessage | None = None


class Missing(BaseModel):
    """A file (or `node:<name>`) that should have been asked and could not be."""

    file: str
    reason: str


class Hint(BaseModel):
    """What a lookup that found nothing may have meant: in words, and as a lookup takes it."""

    kind: Literal[
        "no_topic", "near_topic", "other_topic", "other_spelling", "as_message_id", "as_key"
    ]
    text: str
    topic: str | None = None
    key: str | None = None
    message_id: str | None = None


class TableSeen(BaseModel):
    """The snapshot of a lake's table that an answer is of, and when its commit was.

    `behind` newer snapshots were known and not indexed at `looked_at`.
    """

    table: str
    snapshot: str
    version: Int64
    time_ms: Int64
    looked_at: Int64 | None
    behind: Int64 | None


class TableInfo(BaseModel):
    """A lake's table that a topic follows: its newest indexed snapshot, and how much of it is dead.

    `trouble` says why the follower stands still, if it does. `dead_files` are in no kept snapshot.
    """

    topic: str
    table: str
    source: str
    snapshot: str | None
    version: Int64 | None
    snapshot_time: Int64 | None
    looked_at: Int64 | None
    behind: Int64 | None
    trouble: str | None
    live_files: Int64
    live_rows: Int64
    deleted_rows: Int64
    dead_files: Int64
    snapshots: Int64


class Tables(BaseModel):
    """The followed tables of the topics that the caller may read, by topic."""

    tables: list[TableInfo]


class Unasked(BaseModel):
    """A node that may hold entries which are not published, and was not asked itself.

    `holds_unpublished` is what its last record said, of `heard_at`; since then it may hold more. `standing`:
    `late` when one record is missing, `silent` when three are.
    """

    node: str
    standing: str
    published_through: Int64 | None
    holds_unpublished: bool
    heard_at: Int64 | None


class Answer(BaseModel):
    """Entries newest file and arrival first: newer in time may be on a later page.

    Everything acknowledged anywhere before `as_of` was looked at.

    What was acknowledged since may be missing: `unasked` names the nodes that hold some of it.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "entries": [
                    {
                        **_ENTRY_EXAMPLE,
                        "file_id": "00000001700000000000-node-1",
                        "state": "uploaded",
                        "node": "node-1",
                    }
                ],
                "complete": True,
                "missing": [],
                "next_cursor": "AAABjPq2ZAA",  # null there is dropped by FastAPI
                "as_of": 1700000060000,
                "unasked": [],
            }
        }
    )
    entries: list[Entry]
    complete: bool
    missing: list[Missing]
    next_cursor: str | None
    as_of: Int64
    unasked: list[Unasked]
    explain: Explain | None = None
    lost: list[LostOffsets] | None = None
    hints: list[Hint] | None = Field(
        None,
        description="of an answer without entries: that no such topic is known; more with `hints`",
    )
    table: TableSeen | None = Field(
        None, description="where the topic follows a lake's table: entries are its live rows"
    )


class Lookup(TypedDict, total=False):
    """One lookup of a batch."""

    __pydantic_config__ = ConfigDict(  # type: ignore[misc]
        **ROW,
        json_schema_extra={
            **must({"oneOf": [has("topic", "key"), has("message_id")]}),
            "example": LOOKUP_EXAMPLE,
        },
    )
    topic: Topic | None
    key: Key | None
    message_id: Key | None
    begin: AskedTime | None
    end: AskedEnd | None
    max_count: (
        Annotated[
            int,
            Field(strict=True),
            WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 10_000}),
        ]
        | None
    )


class Lookups(Given):
    """Many lookups, answered in their order."""

    lookups: Annotated[list[Lookup], Field(fail_fast=True)]


class Answers(BaseModel):
    """One answer for each lookup."""

    answers: list[Answer]


class TopicInfo(BaseModel):
    """One topic. An item is one key, or the message ID, of an entry.

    `item_count` items are known to be the topic's; at most `uncounted` more are, in files that tell no
    counts by topic. Its times lie within `min_time` and `max_time`; null: it has messages without keys only.
    """

    topic: str
    item_count: int
    uncounted: int
    min_time: Int64 | None
    max_time: Int64 | None
    files: int


class Topics(BaseModel):
    """The topics that have entries, sorted. `details`, where asked for: of those and the message log's.

    `restricted`: those of the topics that the caller may read, which are not all topics. Where `as_of` is
    asked for: a topic of an entry acknowledged anywhere before it is among them; of later ones the nodes
    in `unasked` may hold entries that they have not published; because of those in `missing` the list is
    older than `fresh_within`, or lacks the topics of a file that is gone or damaged.
    """

    topics: list[str]
    restricted: bool
    details: list[TopicInfo] | None = None
    as_of: Int64 | None = None
    unasked: list[Unasked] | None = None
    missing: list[Missing] | None = None


class Watermark(BaseModel):
    """End offsets below which everything put, in put order, is at the level; null: nothing is."""

    topic: str
    queue_id: int
    os: Int64 | None
    disk: Int64 | None
    remote: Int64 | None


class PublishedWatermark(BaseModel):
    """The end offset up to which a node has published a queue; null: nothing of it."""

    topic: str
    queue_id: int
    node: str
    published: Int64 | None


class Nothing(Given):
    """No members."""


class Problem(BaseModel):
    """RFC 9457. `type` ends in the kind: `urn:tierdex:problem:invalid-request` and so on."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
    field: str | None = None
    missing: list[Missing] | None = None
    next_offset: Int64 | None = None
    end_offsets: dict[str, Int64] | None = None
    retry_after_s: float | None = None
