"""A checked query: what is asked, for which times, how much of it.

Every value of a caller is looked at here, once, before anything happens. Errors name the field as
the caller wrote it. Times are inclusive int64 milliseconds; None means unbounded.

Depends on cursor, entry_rules and indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.cursor import Cursor, decode_cursor, digest_query
from tierdex.index_service.requests.entry_rules import (
    INT64_MAX,
    INT64_MIN,
    check_integer,
    check_key,
    check_topic,
)
from tierdex.indexfile import hashing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.settings import Settings

DEFAULT_MAX_COUNT = 64
_LOOKUP_FIELDS = frozenset({"topic", "key", "message_id", "begin", "end", "max_count"})


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """One valid query. `kind` is 0 for a key, 1 for a message ID."""

    topic: str | None
    text: str
    kind: int
    key_hash: int
    begin: int
    end: int
    max_count: int
    cursor: Cursor | None = None

    def digest(self) -> bytes:
        """Return what binds a cursor to this query; `max_count` may change from page to page."""
        return digest_query(self.topic, self.kind, self.text, self.begin, self.end)


def make_request(
    settings: Settings,
    *,
    topic: object = None,
    key: object = None,
    message_id: object = None,
    begin: object = None,
    end: object = None,
    max_count: object = DEFAULT_MAX_COUNT,
    cursor: object = None,
    field: str = "",
) -> QueryRequest:
    """Check one query's values. Raises InvalidRequestError naming `field` + the value's name."""
    if (key is None) == (message_id is None):
        raise InvalidRequestError(
            "give either `key` (with `topic`) or `message_id`", field=f"{field}key"
        )
    if topic is not None:
        check_topic(topic, f"{field}topic")
    elif key is not None:
        raise InvalidRequestError("a lookup by key needs its topic", field=f"{field}topic")
    name = f"{field}key" if message_id is None else f"{field}message_id"
    text = check_key(key if message_id is None else message_id, name, settings.max_key_bytes)
    begin_ms = INT64_MIN if begin is None else check_integer(begin, f"{field}begin")
    end_ms = INT64_MAX if end is None else check_integer(end, f"{field}end")
    if begin_ms > end_ms:
        raise InvalidRequestError(f"{begin_ms} is after `end` {end_ms}", field=f"{field}begin")
    count = check_integer(max_count, f"{field}max_count", 1, settings.max_count_limit)
    kind = 0 if message_id is None else 1
    key_hash = hashing.key_hash(str(topic), text) if kind == 0 else hashing.message_id_hash(text)
    request = QueryRequest(
        None if topic is None else str(topic), text, kind, key_hash, begin_ms, end_ms, count
    )
    if cursor is None:
        return request
    if not isinstance(cursor, str):
        raise InvalidRequestError("must be a string", field=f"{field}cursor")
    return QueryRequest(
        request.topic, text, kind, key_hash, begin_ms, end_ms, count,
        decode_cursor(cursor, request.digest()),
    )  # fmt: skip


def make_requests(settings: Settings, lookups: object) -> list[QueryRequest]:
    """Check the lookups of one batch; all or none are accepted."""
    if not isinstance(lookups, list | tuple):
        raise InvalidRequestError("must be a list of lookups", field="lookups")
    if len(lookups) > settings.max_lookups:
        raise InvalidRequestError(
            f"{len(lookups)} lookups, at most {settings.max_lookups} in one call", field="lookups"
        )
    return [
        make_request(settings, **_lookup_fields(lookup, f"lookups[{i}]"), field=f"lookups[{i}].")
        for i, lookup in enumerate(lookups)
    ]


def _lookup_fields(lookup: object, field: str) -> Mapping[str, Any]:
    if not isinstance(lookup, dict):
        raise InvalidRequestError(
            "must be an object with topic and key, or message_id", field=field
        )
    if unknown := lookup.keys() - _LOOKUP_FIELDS:
        raise InvalidRequestError(
            "there is no such field", field=f"{field}.{min(unknown, key=str)}"
        )
    return {name: value for name, value in lookup.items() if value is not None}
