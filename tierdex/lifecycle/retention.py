"""Retention: which files expire, which entries are hidden. Pure.

The age of a file, and of every entry in it, counts from when the file was sealed: a backfill of old
entries does not expire on arrival, and an entry with a wrong future time does not keep its file.

* a file expires when its age reaches the longest retention of its topics
* an entry is hidden when its age reaches its own topic's retention, although its file is kept
* None keeps for ever; an unsealed file has no age
* a merged file is as old as its newest source. So only files of similar age are merged, and a file
  of which entries are hidden is not merged: no hidden entry is returned again, and none is kept for
  longer than its retention and a tenth

The manifest holds the rules, so all readers decide alike.

Depends on manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.lifecycle.manifests.manifest import Retention

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.topic_set import TopicSet

KEEP_FOR_EVER = Retention()
_SPAN_SHARE = 10  # files that are merged were sealed within this part of their retention


def make_retention(
    default_s: float | None, topics_s: Mapping[str, float | None] | None = None
) -> Retention:
    """Return the rules of settings in seconds; None keeps for ever."""
    topics = {topic: _milliseconds(limit) for topic, limit in (topics_s or {}).items()}
    return Retention(_milliseconds(default_s), topics)


def longest_retention(rules: Retention, topics: TopicSet) -> int | None:
    """Return the longest retention (ms) of a file with these topics; None: for ever.

    `topics` None means any topic at all, so the longest of all rules counts.
    """
    limits = _limits(rules, topics)
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None


def shortest_retention(rules: Retention, topics: TopicSet) -> int | None:
    """Return the shortest retention (ms) of any of these topics; None: all are kept for ever."""
    return min((limit for limit in _limits(rules, topics) if limit is not None), default=None)


def _limits(rules: Retention, topics: TopicSet) -> list[int | None]:
    if not rules.topics_ms or not topics:
        return [rules.default_ms, *rules.topics_ms.values()]
    return rules.of_hashes(topics)


def is_expired(rules: Retention, topics: TopicSet, sealed_at_ms: int | None, now_ms: int) -> bool:
    """Return whether a file's longest-kept topic has expired."""
    limit = longest_retention(rules, topics)
    return limit is not None and sealed_at_ms is not None and now_ms - sealed_at_ms >= limit


def plan_expiry(
    rows: Iterable[FileRow], rules: Retention, now_ms: int, *, before_ms: int | None = None
) -> list[FileRow]:
    """Return the rows to remove, oldest first: expired, or sealed before `before_ms` (by hand)."""
    gone = [
        row
        for row in rows
        if is_expired(rules, row.topics, row.sealed_at_ms, now_ms)
        or (before_ms is not None and row.sealed_at_ms < before_ms)
    ]
    return sorted(gone, key=lambda row: row.number)


def is_of_an_age(rules: Retention, rows: Iterable[FileRow]) -> bool:
    """Return whether a merge of these files would make no entry much younger than it is."""
    rows = list(rows)
    limits = [shortest_retention(rules, row.topics) for row in rows]
    shortest = min((limit for limit in limits if limit is not None), default=None)
    if shortest is None:
        return True
    span = max(row.sealed_at_ms for row in rows) - min(row.begin_ms for row in rows)
    return span <= shortest // _SPAN_SHARE


def begins_to_hide(rules: Retention, row: FileRow, now_ms: int) -> bool:
    """Return whether entries of any of the file's topics are no longer returned."""
    limit = shortest_retention(rules, row.topics)
    return limit is not None and now_ms - row.sealed_at_ms >= limit


def hidden_from(rules: Retention, topic: str, sealed_at_ms: int | None) -> int | None:
    """Return since when entries of `topic` in a file sealed then are no longer returned; None: they are."""
    limit = rules.of(topic)
    return None if limit is None or sealed_at_ms is None else sealed_at_ms + limit


def is_hidden(rules: Retention, topic: str, sealed_at_ms: int | None, now_ms: int) -> bool:
    """Return whether entries of `topic` in a file sealed then are no longer returned."""
    since = hidden_from(rules, topic, sealed_at_ms)
    return since is not None and now_ms >= since


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
