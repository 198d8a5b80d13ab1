"""The models of bodies: they validate what is read, and openapi.yaml is made of them.

Entries and lookups come in thousands, so they are typed dicts: pydantic checks names, types and
ranges, and makes no object a row. The index checks the rules of text (length in bytes, control
characters) and which names go together, in every API alike; the schemas repeat those rules for
readers. A test (schemathesis) sends what the schemas allow and what they forbid.

Depends on pydantic, fields and answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tierdex.app.http.schemas.fields import (
    ROW,
    Given,
    Int64,
    Key,
    Offset,
    QueueId,
    Size,
    Time,
    Topic,
    has,
    must,
    without_default,
)
from tierdex.index_service.answer import Explain  # noqa: TC001 - pydantic reads the annotation
from tierdex.value_rules import Durability  # noqa: TC001 - pydantic reads the annotation

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
        json_schema_extra=without_default,
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
