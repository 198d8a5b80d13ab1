"""The shapes of bodies, for openapi.yaml: what the hand-written checks accept and answer.

These models document; they check nothing on the hot paths, where columns are checked instead. A
test (schemathesis) sends what they allow and what they forbid, and holds the service to them.

Depends on pydantic.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tierdex.app.times import MAX_INT64, MIN_INT64, RFC3339_PATTERN

TOPIC_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]+$"
Topic = Annotated[
    str,
    Field(
        min_length=1,
        max_length=255,
        pattern=TOPIC_PATTERN,
        description="1 to 255 bytes of UTF-8, no control characters",
    ),
]
Key = Annotated[
    str,
    Field(min_length=1, max_length=4096, description="at most `max_key_bytes` bytes of UTF-8"),
]
Int64 = Annotated[int, Field(ge=MIN_INT64, le=MAX_INT64, json_schema_extra={"format": "int64"})]
Rfc3339 = Annotated[str, Field(pattern=RFC3339_PATTERN, description="RFC 3339 with an offset")]
Time = Int64 | Rfc3339
QueueId = Annotated[int, Field(ge=0, le=(1 << 31) - 1, json_schema_extra={"format": "int32"})]
Offset = Annotated[int, Field(ge=0, le=MAX_INT64, json_schema_extra={"format": "int64"})]
Size = Annotated[int, Field(ge=0, le=(1 << 32) - 1, json_schema_extra={"format": "int64"})]
Durability = Literal["received", "os", "disk", "remote"]


class Given(BaseModel):
    """A body that the service reads: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


_HAS_KEY: Any = {"required": ["key"], "properties": {"key": {"type": "string"}}}
_HAS_KEYS: Any = {"required": ["keys"], "properties": {"keys": {"type": "array", "minItems": 1}}}
_HAS_MESSAGE_ID: Any = {
    "required": ["message_id"],
    "properties": {"message_id": {"type": "string"}},
}


class EntryToPut(Given):
    """One fact: key(s) or message ID, where the message is, and its time."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "anyOf": [_HAS_KEY, _HAS_KEYS, _HAS_MESSAGE_ID],
            "not": {
                "required": ["key", "keys"],
                "properties": {"key": {"type": "string"}, "keys": {"type": "array"}},
            },
            "example": {
                "topic": "orders",
                "keys": ["ORDER-8841"],
                "message_id": "7F000001",
                "queue_id": 0,
                "offset": 4096,
                "size": 512,
                "timestamp": 1700000000000,
            },
        },
    )
    topic: Topic
    keys: list[Key] | None = None
    key: Key | None = None
    message_id: Key | None = None
    queue_id: QueueId
    offset: Offset
    size: Size
    timestamp: Time


class EntriesToPut(Given):
    """A batch, applied as a whole or not at all; an empty one brings earlier puts to the level."""

    entries: list[EntryToPut]
    durability: Durability = "os"


class PutAnswer(BaseModel):
    """How many entries were put, and the level that they all have reached."""

    accepted: int
    durability: Durability


class Entry(BaseModel):
    """Where a message is. `location` and `source` are there for files of other schemas only."""

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


class Missing(BaseModel):
    """A file (or `node:<name>`) that should have been asked and could not be."""

    file: str
    reason: str


class Answer(BaseModel):
    """Entries newest file first; `as_of` is how fresh the knowledge of other writers' files is."""

    entries: list[Entry]
    complete: bool
    missing: list[Missing]
    next_cursor: str | None
    as_of: Int64
    explain: dict[str, Any] | None = None


class Lookup(Given):
    """One question of a batch."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["topic", "key"],
                    "properties": {"topic": {"type": "string"}, "key": {"type": "string"}},
                },
                _HAS_MESSAGE_ID,
            ],
        },
    )
    topic: Topic | None = None
    key: Key | None = None
    message_id: Key | None = None
    begin: Time | None = None
    end: Time | None = None
    max_count: Annotated[int, Field(ge=1, le=10_000)] | None = None


class Lookups(Given):
    """Many questions, answered in their order."""

    lookups: list[Lookup]


class Answers(BaseModel):
    """One answer a lookup."""

    answers: list[Answer]


class Topics(BaseModel):
    """The topics that have entries, sorted."""

    topics: list[str]


class Watermark(BaseModel):
    """End offsets below which everything put, in put order, is at the level; null: nothing is."""

    topic: str
    queue_id: int
    os: Int64 | None
    disk: Int64 | None
    remote: Int64 | None


class File(BaseModel):
    """An index file. `file_id` is opaque and unique over nodes; times are int64 milliseconds."""

    file_id: str
    state: str
    begin: Int64 | None
    min_time: Int64 | None
    max_time: Int64 | None
    item_count: int
    slot_count: int
    bytes: int
    node: str
    sealed_at: Int64 | None = None
    topics: list[str] | None = None
    reason: str | None = None


class Files(BaseModel):
    """Index files, newest first."""

    files: list[File]


class Node(BaseModel):
    """A node of the store; `problem` says why its manifest cannot be read. No name: none can be listed."""

    node: str
    number: int
    files: int
    problem: str | None


class Nodes(BaseModel):
    """Every node of the store, as of the last refresh."""

    nodes: list[Node]


class ExpireOrder(Given):
    """Files of this node that were sealed before this time go."""

    before: Time
    dry_run: bool = False


class Expired(BaseModel):
    """The files that went, or with `dry_run` would go."""

    files: list[File]
    dry_run: bool


class Verified(BaseModel):
    """What is broken in a file, in words; nothing when it is sound."""

    file_id: str
    sound: bool
    problems: list[str]


class Compaction(BaseModel):
    """What the compactor does: backlog, running job, last error, totals, oldest unpublished age."""

    model_config = ConfigDict(extra="allow")


class Rolled(BaseModel):
    """Whether there was anything to roll."""

    rolled: bool


class Nothing(Given):
    """No members."""


class Status(BaseModel):
    """How the service is."""

    status: str


class Version(BaseModel):
    """What runs."""

    name: str
    version: str


class RowProblem(BaseModel):
    """One wrong value of a batch."""

    field: str
    detail: str


class Problem(BaseModel):
    """RFC 9457. `type` ends in the kind: `urn:tierdex:problem:invalid-request` and so on."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str
    request_id: str
    field: str | None = None
    errors: list[RowProblem] | None = None
    missing: list[Missing] | None = None
    retry_after_s: float | None = None


MODELS: tuple[type[BaseModel], ...] = (
    Answer, Answers, Compaction, Entry, EntriesToPut, EntryToPut, ExpireOrder, Expired, File, Files,
    Lookup, Lookups, Missing, Node, Nodes, Nothing, Problem, PutAnswer, Rolled, RowProblem, Status,
    Topics, Verified, Version, Watermark,
)  # fmt: skip
