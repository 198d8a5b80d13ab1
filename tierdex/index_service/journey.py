"""`Journey`: one key over all topics, in the order of time.

::

    topics --> one batch of lookups, one a topic --> entries, oldest first, with the time between them

An owner tells the entries that it has not published when it is asked for a key, not their topics. So the
answer is no newer than the list of topics, whoever answered: a topic that nobody else knew was not asked.

Depends on answer and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tierdex.errors import IncompleteAnswerError, InvalidRequestError
from tierdex.index_service.answer import Missing, Unasked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.answer import Answer, Entry, LostOffsets
    from tierdex.index_service.known_topics import KnownTopics
    from tierdex.value_rules import OnError

MAX_COUNT: Final = 16  # entries of a topic
_LOOKUPS_AT_ONCE: Final = 50_000
_Named = TypeVar("_Named", Missing, Unasked)


@dataclass(slots=True)
class Journey:
    """The entries of one key in `topics` topics, oldest first.

    `more` are topics that have more entries than these, the oldest of which are left out. What `complete`,
    `missing`, `as_of`, `unasked` and `lost` say is that of an `Answer`, for all topics together.
    `restricted`: a service asked only the topics that the caller may read, which are not all topics.
    """

    key: str
    entries: list[Entry]
    topics: int = 0
    more: list[str] = field(default_factory=list)
    complete: bool = True
    missing: list[Missing] = field(default_factory=list)
    as_of: int = 0
    unasked: tuple[Unasked, ...] = ()
    lost: tuple[LostOffsets, ...] = ()
    restricted: bool = False

    @property
    def gaps_ms(self) -> list[int | None]:
        """Milliseconds between each entry and the one before it; None for the first."""
        times = [entry.timestamp for entry in self.entries]
        return [None, *(after - before for before, after in pairwise(times))][: len(times)]

    @property
    def duration_ms(self) -> int | None:
        """Milliseconds from the first entry to the last; None without entries."""
        return self.entries[-1].timestamp - self.entries[0].timestamp if self.entries else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "entries": [
                {**entry.to_dict(), "gap_ms": gap}
                for entry, gap in zip(self.entries, self.gaps_ms, strict=True)
            ],
            "duration_ms": self.duration_ms,
            "topics": self.topics,
            "more": list(self.more),
            "complete": self.complete,
            "missing": [missing.to_dict() for missing in self.missing],
            "as_of": self.as_of,
            "unasked": [unasked._asdict() for unasked in self.unasked],
            "lost": [lost._asdict() for lost in self.lost],
            "restricted": self.restricted,
        }


def find_journey(
    index: Any,
    key: str,
    *,
    begin: int | None = None,
    end: int | None = None,
    max_count: int | None = None,
    on_error: OnError = "partial",
    fresh_within: float | None = None,
    topics: KnownTopics | None = None,
) -> Journey:
    """Return a key's journey over all topics of an index; `max_count` newest entries of each (None: 16).

    `topics` restricts it to some. Raises what `query_batch` raises.
    """
    known: KnownTopics = topics or index.known_topics(fresh_within=fresh_within)
    if known.missing and on_error == "fail":
        told = ", ".join(f"{name} ({reason})" for name, reason in known.missing[:3])
        raise IncompleteAnswerError(f"not all topics are known: {told}", missing=known.missing)
    names = known.names
    most = MAX_COUNT if max_count is None else max_count
    asked = {"key": key, "begin": begin, "end": end, "max_count": most}
    # Without topics the key is checked all the same.
    lookups = [{"topic": topic, **asked} for topic in names or ("none",)]
    answers: list[Answer] = []
    for first in range(0, len(lookups), _LOOKUPS_AT_ONCE):
        part = lookups[first : first + _LOOKUPS_AT_ONCE]
        try:
            answers += index.query_batch(part, on_error=on_error, fresh_within=fresh_within)
        except InvalidRequestError as error:  # the caller knows no lookups
            field = (error.field or "key").rpartition(".")[2]
            raise InvalidRequestError(error.detail, field=field) from None
    entries = [entry for answer in answers for entry in answer.entries] if names else []
    entries.sort(key=_place)
    return Journey(
        key,
        entries,
        topics=len(names),
        more=[topic for topic, answer in zip(names, answers, strict=False) if answer.next_cursor],
        complete=all(answer.complete for answer in answers) and not known.missing,
        missing=_each_once(known.missing, *(answer.missing for answer in answers)),
        as_of=min(known.as_of, *(answer.as_of for answer in answers)),
        unasked=tuple(_each_once(known.unasked, *(answer.unasked for answer in answers))),
        restricted=topics is not None,
    )


def _each_once(*parts: Iterable[_Named]) -> list[_Named]:
    """Return the nodes or files that any part names, each once, as it was first told."""
    found: dict[str, _Named] = {}
    for each in chain(*parts):
        found.setdefault(each[0], each)
    return list(found.values())


def _place(entry: Entry) -> tuple[Any, ...]:
    place = [-1 if each is None else each for each in (entry.queue_id, entry.offset)]
    return (entry.timestamp, entry.topic, *place, entry.file_id)
