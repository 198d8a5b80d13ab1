"""Hints of a lookup that found nothing, within what its caller may read.

That a topic is not known is always said: "not found" is true of a topic that was never written, too. A topic
that was known once is asked for no more, so that a lookup of an absent key stays as quick as it is. The other
hints take a batch of lookups, and come where they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tierdex.app.http.service import record_of
from tierdex.app.rights import Scope
from tierdex.errors import UnavailableError
from tierdex.index_service.hints import find_hints, topic_hints

if TYPE_CHECKING:
    from starlette.requests import Request

    from tierdex.app.http.service import RequestRecord
    from tierdex.index_service.answer import Hint


class Asked(Protocol):
    """The parts of a lookup that hints are about."""

    @property
    def topic(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...
    @property
    def message_id(self) -> str | None: ...
    @property
    def hints(self) -> bool: ...


async def hints_of(request: Request, asked: Asked, *, is_complete: bool) -> tuple[Hint, ...]:
    """Return the hints of a lookup without entries; `is_complete` as its answer says."""
    record = record_of(request)
    is_known = asked.topic is None or asked.topic in record.service.known_topics
    if not asked.hints and (is_known or not is_complete):
        return ()
    return await record.service.in_thread(_find, record, asked)  # type: ignore[no-any-return]


def _find(record: RequestRecord, asked: Asked) -> tuple[Hint, ...]:
    service = record.service
    try:
        known = service.index_to_query.known_topics()
        names = set(known.names)
        if service.log is not None:
            names.update(service.log.topics())
        service.known_topics = frozenset(names)
        readable = sorted(topic for topic in names if record.may(Scope.READ, topic))
        if asked.hints:
            found = find_hints(
                service.index_to_query, asked.topic, key=asked.key, message_id=asked.message_id,
                topics=readable, may=lambda topic: record.may(Scope.READ, topic),
            )  # fmt: skip
        else:
            found = tuple(topic_hints(asked.topic, readable))
    except UnavailableError:
        if asked.hints:
            raise
        return ()  # the answer itself is whole without the list of topics
    if known.missing:  # a node or file that may hold the topic could not be read
        return tuple(hint for hint in found if hint.kind != "no_topic")
    return found
