"""Models of what is asked about keys beyond one lookup: many lookups, a histogram, a journey.

Depends on pydantic, fields and models.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from typing_extensions import TypedDict

from tierdex.app.http.schemas.fields import (
    ROW,
    AskedEnd,
    AskedTime,
    Given,
    Int64,
    Key,
    Topic,
    has,
    must,
)
from tierdex.app.http.schemas.models import (
    LOOKUP_EXAMPLE,
    Answer,
    Entry,
    LostOffsets,
    Missing,
    Unasked,
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


class Histogram(BaseModel):
    """The entries of one lookup by time: `counts`, in buckets of `width_ms` from `begin` on.

    `begin` and `end` are the times of the first and the last entry, null without entries. `more`: older files
    hold entries that are not counted.
    """

    begin: Int64 | None
    end: Int64 | None
    width_ms: Int64
    counts: list[int]
    count: int
    more: bool
    complete: bool
    missing: list[Missing]
    as_of: Int64
    unasked: list[Unasked]


class JourneyEntry(Entry):
    """An entry, and the milliseconds since the one before it."""

    gap_ms: Int64 | None


class Journey(BaseModel):
    """One key over all topics, oldest entry first. `more` names topics whose oldest entries are left out.

    In `by_arrival` topics the newest arrivals of very many entries were taken: newer ones may be left out.
    """

    key: str
    entries: list[JourneyEntry]
    duration_ms: Int64 | None
    topics: int
    more: list[str]
    by_arrival: list[str]
    complete: bool
    missing: list[Missing]
    as_of: Int64
    unasked: list[Unasked]
    lost: list[LostOffsets]
    restricted: bool = Field(
        description="only topics were asked that the caller may read, which are not all topics"
    )
