"""The cursor behind a page that memory found, which is made when it is read.

Depends on requests and indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.index_service.requests.cursor import SUM_MODULUS, Cursor, digest_query
from tierdex.index_service.requests.repeats import Floors
from tierdex.indexfile.hashing import signed_bits
from tierdex.indexfile.row_identity import fingerprints, text_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.answer import Entry, Identity


class MessageColumns(NamedTuple):
    """What tells the messages of a page apart, newest first, by column."""

    topic: Sequence[str]
    offset: Sequence[int]
    size: Sequence[int]
    queue_id: Sequence[int]
    timestamp: Sequence[int]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> MessageColumns:
        """Take them from entries of messages; there is at least one."""
        topic, queue_id, offset, size, timestamp, *_ = zip(*entries, strict=True)
        return cls(topic, offset, size, queue_id, timestamp)

    def are_cleared_by(self, floors: Floors) -> bool:
        """Return whether no page before returned one of them, as far as that is quickly told."""
        latest = max(self.timestamp)
        return all(
            floors.clears(((topic, offset, size, queue_id), latest))
            for (topic, queue_id), (offset, size, _) in self._ranks(max).items()
        )

    def fingerprints(self) -> np.ndarray:
        """Return the fingerprints (u8[n, 2]) of their identities."""
        numbers = {topic: signed_bits(text_number(topic)) for topic in set(self.topic)}
        columns = np.array([[*map(numbers.__getitem__, self.topic)], *self[1:]], np.int64)
        return fingerprints(np.ascontiguousarray(columns.T).view(np.uint64))

    def floors_below(self, floors: Floors) -> Floors:
        """Return the floors when these were returned, too: the lowest of each queue, and the earliest."""
        lowest: list[Identity] = [
            ((topic, offset, size, queue_id), timestamp)
            for (topic, queue_id), (offset, size, timestamp) in self._ranks(min).items()
        ]
        earliest = self.timestamp.index(min(self.timestamp))
        location = tuple(column[earliest] for column in self[:-1])
        return floors.lowered([*lowest, (location, self.timestamp[earliest])])

    def _ranks(self, choose: Any) -> dict[tuple[str, int], tuple[int, int, int]]:
        """Return the least or greatest (offset, size, time) of each (topic, queue)."""
        ranks: Any = zip(self.offset, self.size, self.timestamp, strict=True)
        topic, queue_id, count = self.topic[0], self.queue_id[0], len(self.topic)
        if self.queue_id.count(queue_id) == count and self.topic.count(topic) == count:
            return {(topic, queue_id): choose(ranks)}
        names = zip(self.topic, self.queue_id, strict=True)
        chosen: dict[tuple[str, int], tuple[int, int, int]] = {}
        for name, rank in zip(names, ranks, strict=True):
            known = chosen.get(name)
            chosen[name] = rank if known is None else choose(known, rank)
        return chosen


class PendingCursor(NamedTuple):
    """What the cursor behind a page is made of, once it is read."""

    asked: tuple[object, ...]  # that `digest_query` takes
    entries: tuple[Entry, ...]  # of the page
    surroundings: tuple[bytes, bytes]
    place: int
    file_id: str
    before: Cursor | None  # that the page began with

    def __call__(self) -> str:
        """Return the cursor, as `CursorMaker.after` does."""
        columns = MessageColumns.of(self.entries)
        found = columns.fingerprints()
        floors, total = Floors(), sum(found[:, 0].tolist())
        if self.before is not None:
            floors, total = self.before.floors, total + self.before.returned
        return Cursor(
            digest_query(*self.asked),
            found[-1].tobytes(),
            total % SUM_MODULUS,
            *self.surroundings,
            self.place,
            self.file_id,
            columns.floors_below(floors),
        ).encode()
