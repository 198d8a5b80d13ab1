"""Models of answers about one key beyond a lookup: its histogram and its journey.

Depends on pydantic and models.
"""

from __future__ import annotations

from pydantic import BaseModel, Field

from tierdex.app.http.schemas.models import (
    Entry,
    Int64,
    LostOffsets,
    Missing,
    Unasked,
)


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
