"""Models of the operator's routes: files, nodes, expiry, forgetting, compaction, the service itself.

Depends on pydantic, fields and models.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from tierdex.app.http.schemas.fields import (
    ROW,
    AskedTime,
    Given,
    Int64,
    Key,
    Offset,
    QueueId,
    Topic,
)
from tierdex.app.http.schemas.models import LOOKUP_EXAMPLE, Entry, Missing


class File(BaseModel):
    """A file of the index or of the message log. `file_id` is opaque; times are int64 milliseconds.

    Of a log file `item_count` is the number of its messages, and `slot_count` 0. `published_at` is
    told of one file, `compacted_at` and `compaction_s` of one of the index; lists leave all three out.
    `dead_items` are those of rows that no kept snapshot of a followed table has, by a sample of the file.
    """

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
    kind: Literal["index", "log"] = "index"
    published_at: Int64 | None = None
    compacted_at: Int64 | None = None
    compaction_s: float | None = None
    dead_items: int | None = None


class Files(BaseModel):
    """Files of the index, then those of the message log, each newest first."""

    files: list[File]


class Node(BaseModel):
    """A node of the store; `problem` tells why its manifest cannot be read.

    A row without a name tells that the store cannot list its nodes.

    What its owners acknowledged before `published_through` is published, `lag_s` seconds ago; null: not
    known. `skew_s` is how far its clock is ahead of the store's. `standing` and `holds_unpublished` are of
    its last record, of `heard_at`.
    """

    node: str
    number: int
    files: int
    problem: str | None
    standing: Literal["live", "late", "silent", "closed", "retired", "shared", "unknown"]
    published_through: Int64 | None
    lag_s: float | None
    skew_s: float | None
    holds_unpublished: bool
    url: str | None
    heard_at: Int64 | None


class Nodes(BaseModel):
    """Every node of the store, as of the last refresh."""

    nodes: list[Node]
    clock_skew_s: float | None = Field(
        description="seconds that this service's clock is ahead of the store's, whose times these are; "
        "null: not known"
    )


class ExpireOrder(Given):
    """Expire the files of this node that were sealed before `before`."""

    model_config = ConfigDict(json_schema_extra={"example": {"before": "2023-11-14"}})
    before: AskedTime
    dry_run: Annotated[bool, Field(strict=True)] = False


class NameToForget(TypedDict, total=False):
    """A key of a topic, or a message ID of a topic or of any."""

    __pydantic_config__ = ConfigDict(**ROW)  # type: ignore[misc]
    topic: Topic | None
    key: Key | None
    message_id: Key | None


Seconds = Annotated[float, Field(strict=True, ge=0, le=60)]


class ForgetOrder(Given):
    """Forget what these names have now; `only` are the [queue_id, offset] that are meant."""

    model_config = ConfigDict(json_schema_extra={"example": {"lookups": [LOOKUP_EXAMPLE]}})
    lookups: Annotated[list[NameToForget], Field(min_length=1)]
    now: Annotated[bool, Field(strict=True)] = False
    only: list[tuple[QueueId, Offset]] | None = None
    wait: Seconds = 0.0
    dry_run: Annotated[bool, Field(strict=True)] = False


class ResumeOrder(Given):
    """Go on with a request to forget."""

    forgetting: str
    wait: Seconds = 0.0


class ForgottenFile(BaseModel):
    """A file that holds, or held, forgotten entries."""

    file_id: str
    node: str
    uuid: str
    object_key: str | None


class LingeringObject(BaseModel):
    """An object that is read no more, and is deleted after `until_ms`."""

    object_key: str
    node: str
    until_ms: Int64


class ForgottenMessage(BaseModel):
    """Where a message of a log is forgotten."""

    topic: str
    queue_id: int
    offset: Int64


class Receipt(BaseModel):
    """How far a request to forget has come; `entries` are where the messages lie.

    Of a message log: `messages` are those that are hidden from now on, `held_count` those beside them that
    wait for their `deliver_at`, or waited, `elsewhere` the nodes whose own logs have messages of the names.
    """

    forgetting: str
    time_ms: Int64
    complete: bool
    waiting: list[Missing]
    entries: list[Entry]
    holding: list[ForgottenFile]
    rewritten: list[ForgottenFile]
    lingering: list[LingeringObject]
    manifest: dict[str, int]
    digest: str
    messages: list[ForgottenMessage] | None = None
    held_count: int | None = None
    elsewhere: list[str] | None = None


class Forgettings(BaseModel):
    """The requests to forget of which some object may still hold entries, oldest first."""

    forgettings: list[str]


class Expired(BaseModel):
    """The files that were expired, or with `dry_run` would be."""

    files: list[File]
    dry_run: bool


class Verified(BaseModel):
    """The broken rules of a file, in words; none when it is sound."""

    file_id: str
    sound: bool
    problems: list[str]


class Compaction(BaseModel):
    """The compactor's state: backlog, running job, last error, totals, oldest unpublished age."""

    model_config = ConfigDict(extra="allow")


class Status(BaseModel):
    """The state of the service."""

    status: str


class Access(BaseModel):
    """Who the caller is and may do, and what this service has: a message log, messages to show.

    `rights` are as in `tierdex keys create --scope`; `admin`: they cover every route.
    """

    kind: Literal["key", "token", "anonymous"]
    name: str
    rights: list[str]
    admin: bool
    log: bool
    messages: bool


class Version(BaseModel):
    """The running program."""

    name: str
    version: str


class Rolled(BaseModel):
    """`rolled`: the unsealed file was not empty."""

    rolled: bool
