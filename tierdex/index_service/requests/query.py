"""A checked query: what is asked, for which times, how much of it.

Every value of a caller is looked at here, once, before anything happens. Errors name the field as
the caller wrote it. Times are inclusive int64 milliseconds; None means unbounded.

Depends on cursor, entry_rules, indexfile and times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

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
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.times import optional_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.settings import Settings

DEFAULT_MAX_COUNT = 64
_LOOKUP_FIELDS = frozenset({"topic", "key", "message_id", "begin", "end", "max_count"})


class QueryValues(NamedTuple):
    """The values of one query as a caller gave them, not yet checked."""

    topic: object = None
    key: object = None
    message_id: object = None
    begin: object = None
    end: object = None
    max_count: object = DEFAULT_MAX_COUNT
    cursor: object = None


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

    def asked(self) -> dict[str, Any]:
        """Return what `make_request` made it of, but for the page, as plain JSON values."""
        name = "key" if self.kind == 0 else "message_id"
        values = {"topic": self.topic, name: self.text, "begin": self.begin, "end": self.end}
        return {name: value for name, value in values.items() if value is not None}

    def digest(self) -> bytes:
        """Return what binds a cursor to this query; `max_count` may change from page to page."""
        return digest_query(self.topic, self.kind, self.text, self.begin, self.end)


def make_request(
    settings: Settings, values: QueryValues, *, field: str = "", key_hash: int | None = None
) -> QueryRequest:
    """Check one query's values; `key_hash` is given where it is known already.

    Raises InvalidRequestError naming `field` + the value's name.
    """
    topic, key, message_id, begin, end, max_count, cursor = values
    if (key is None) == (message_id is None):
        raise InvalidRequestError(
            "give either `key` (with `topic`) or `message_id`", field=f"{field}key"
        )
    checked_topic = None
    if topic is not None:
        checked_topic = check_topic(topic, f"{field}topic")
    elif key is not None:
        raise InvalidRequestError("a lookup by key needs its topic", field=f"{field}topic")
    name = f"{field}key" if message_id is None else f"{field}message_id"
    text = check_key(key if message_id is None else message_id, name, settings.max_key_bytes)
    first = optional_ms(begin, f"{field}begin")
    last = optional_ms(end, f"{field}end", is_end=True)
    begin_ms, end_ms = INT64_MIN if first is None else first, INT64_MAX if last is None else last
    if begin_ms > end_ms:
        raise InvalidRequestError(f"{begin_ms} is after `end` {end_ms}", field=f"{field}begin")
    count = check_integer(max_count, f"{field}max_count", 1, settings.max_count_limit)
    kind = KIND_KEY if message_id is None else KIND_MESSAGE_ID
    if key_hash is None:
        key_hash = _hash(checked_topic, kind, text)
    request = QueryRequest(checked_topic, text, kind, key_hash, begin_ms, end_ms, count)
    if cursor is None:
        return request
    if not isinstance(cursor, str):
        raise InvalidRequestError("must be a string", field=f"{field}cursor")
    return replace(request, cursor=decode_cursor(cursor, request.digest()))


def _hash(topic: str | None, kind: int, text: str) -> int:
    if kind == KIND_MESSAGE_ID:
        return hashing.message_id_hash(text)
    assert topic is not None
    return hashing.key_hash(topic, text)


def make_requests(
    settings: Settings, lookups: object, max_count: int = DEFAULT_MAX_COUNT
) -> list[QueryRequest]:
    """Check the lookups of one batch; all or none are accepted. `max_count` is for those without."""
    if not isinstance(lookups, list | tuple):
        raise InvalidRequestError("must be a list of lookups", field="lookups")
    if len(lookups) > settings.max_lookups:
        raise InvalidRequestError(
            f"{len(lookups)} lookups, at most {settings.max_lookups} in one call", field="lookups"
        )
    requests = []
    for number, lookup in enumerate(lookups):
        field = f"lookups[{number}]"
        values = QueryValues(**{"max_count": max_count, **_lookup_fields(lookup, field)})
        requests.append(make_request(settings, values, field=f"{field}."))
    return requests


def make_names(settings: Settings, lookups: object) -> list[QueryRequest]:
    """Check names that are to be forgotten: {topic, key} or {message_id, topic?}; there is at least one."""
    requests = make_requests(settings, lookups)
    if not requests:
        raise InvalidRequestError("name at least one key or message ID", field="lookups")
    if any(r.begin > INT64_MIN or r.end < INT64_MAX for r in requests):
        raise InvalidRequestError("all times of a key are forgotten", field="lookups")
    return requests


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
