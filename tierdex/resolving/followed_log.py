"""Messages of a log of another system: any source that can be followed, asked for one record at a time.

A source serves one thread. Idle ones wait here for the next caller; one that raised is closed.

Depends on following, resolver, rule and index_service.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tierdex.following.source import RememberingSource
from tierdex.resolving.resolver import Found, TooLargeError, refuse_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.following.source import Source
    from tierdex.index_service.answer import Entry
    from tierdex.resolving.resolver import Wanted
    from tierdex.resolving.rule import Rule


class FollowedLog:
    """The messages of one source. See `Resolver`.

    `shows_headers` is false where headers repeat what the value says: a field of the value that is masked
    would be seen there.
    """

    def __init__(
        self,
        open_source: Callable[[], Source],
        name: str,
        rule: Rule,
        *,
        shows_headers: bool = True,
        memory: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """`open_source` connects to nothing yet. `memory` is what the follower's source remembers now."""
        self.name = name
        self._open = open_source
        self._rule = rule
        self.shows_headers = shows_headers
        self._memory = memory
        self._idle: deque[tuple[Source, Any]] = deque()  # with the memory that each was told

    def where(self, entry: Entry) -> str:
        try:
            source, told = self._idle.pop()  # that which fetched it, most likely
        except IndexError:  # all are busy, or none was opened
            return f"{self.name}, partition {entry.queue_id}, offset {entry.offset}"
        if entry.source is not None or entry.queue_id is None:
            self._idle.append((source, told))
            return self.name
        place = source.place_of(entry.queue_id, entry.offset)
        self._idle.append((source, told))
        return f"{self.name}, {place}"

    def fetch(self, entry: Entry, wanted: Wanted) -> Found | None:
        refuse_rows(entry)
        if entry.size > wanted.max_bytes:
            raise TooLargeError(entry.size)
        source, told = self._idle.pop() if self._idle else (self._open(), None)
        try:
            told = self._recall(source, told)
            record = source.fetch(entry.queue_id, entry.offset)
        except BaseException:
            source.close()
            raise
        self._idle.append((source, told))
        if record is None:
            return None
        names = self._rule.names_of(record)
        shown = record if self.shows_headers else replace(record, headers=())
        return Found(shown, names, self._rule)

    def _recall(self, source: Source, told: Any) -> Any:
        """Give a source its memory, unless it has it; return the memory."""
        if self._memory is None or not isinstance(source, RememberingSource):
            return None
        memory = self._memory()
        if told is not memory:
            source.recall(memory)
        return memory

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()
