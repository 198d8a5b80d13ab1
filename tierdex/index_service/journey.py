"""`Journey`: one key over all topics, in the order of time.

::

    topics --> one batch of lookups, one a topic --> entries, oldest first, with the time between them

An owner tells the entries that it has not published when it is asked for a key, not their topics. So the
answer is no newer than the list of topics: a topic that only an owner knew was not asked.

A lookup returns the newest arrivals first, which need not be the newest in time: a backfill arrives today.
Of a topic with more entries than are wanted those not older than the oldest one found are looked up again,
which files of earlier times do not cost, until nothing newer in time can be left out.

Depends on answer and errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tierdex.errors import IncompleteAnswerError, InvalidRequestError
from tierdex.index_service.answer import Missing, Unasked, without_repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.index_service.answer import Answer, Entry, KnownTopics, LostOffsets
    from tierdex.value_rules import OnError

    _Ask = Callable[[list[dict[str, Any]], int], list[Answer]]

MAX_COUNT: Final = 16  # entries of a topic
_LOOKUPS_AT_ONCE: Final = 50_000
_LOOK_AGAIN: Final = 1000  # entries of a topic that one look at newer ones takes
_LOOKS_MAX: Final = 8  # at a topic; then the order of arrival decides, and the journey says so
_LOOKUPS_AGAIN: Final = 50  # in one batch
_Named = TypeVar("_Named", Missing, Unasked)


@dataclass(slots=True)
class Journey:
    """The entries of one key in `topics` topics, oldest first.

    `more` are topics that have more entries than these, the oldest of which are left out. In `by_arrival`
    topics it is not known that these are older: of very many entries the newest arrivals were taken. What
    `complete`, `missing`, `as_of`, `unasked` and `lost` say is that of an `Answer`, for all topics together.
    `restricted`: a service asked only the topics that the caller may read, which are not all topics.
    """

    key: str
    entries: list[Entry]
    topics: int = 0
    more: list[str] = field(default_factory=list)
    by_arrival: list[str] = field(default_factory=list)
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
            "by_arrival": list(self.by_arrival),
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
    """Return a key's journey over all topics of an index; of each the `max_count` newest in time (None: 16).

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
    ask = partial(_ask, index, on_error=on_error, fresh_within=fresh_within)
    answers = ask(lookups, _LOOKUPS_AT_ONCE)
    newest = _Newest(ask, most, [*map(_Topic, lookups, answers)] if names else [])
    if newest.left():
        newest.look(max(most, min(_LOOK_AGAIN, index.settings.max_count_limit)))
    entries = [entry for topic in newest.topics for entry in topic.entries]
    entries.sort(key=_place)
    answers += newest.answers
    return Journey(
        key,
        entries,
        topics=len(names),
        more=[topic.name for topic in newest.topics if topic.has_more],
        by_arrival=[topic.name for topic in newest.topics if topic.is_open],
        complete=all(answer.complete for answer in answers) and not known.missing,
        missing=_each_once(known.missing, *(answer.missing for answer in answers)),
        as_of=min(known.as_of, *(answer.as_of for answer in answers)),
        unasked=tuple(_each_once(known.unasked, *(answer.unasked for answer in answers))),
        restricted=topics is not None,
    )


def _ask(index: Any, lookups: list[dict[str, Any]], at_once: int, **how: Any) -> list[Answer]:
    """Return the answers in order. Raises InvalidRequestError with the name that the caller knows."""
    answers: list[Answer] = []
    for first in range(0, len(lookups), at_once):
        try:
            answers += index.query_batch(lookups[first : first + at_once], **how)
        except InvalidRequestError as error:  # the caller knows no lookups
            field = (error.field or "key").rpartition(".")[2]
            raise InvalidRequestError(error.detail, field=field) from None
    return answers


class _Topic:
    """The entries of one topic that are newest in time, as far as is known."""

    def __init__(self, lookup: dict[str, Any], answer: Answer) -> None:
        self.name: str = lookup["topic"]
        self.entries = answer.entries
        self.has_more = self.is_open = answer.next_cursor is not None
        self._lookup = lookup

    def lookup(self, count: int) -> dict[str, Any]:
        """Return the question for entries that may be newer than the oldest of these."""
        oldest = min(entry.timestamp for entry in self.entries)
        if oldest == self._lookup["begin"]:
            oldest += 1  # of that time alone there are more than one look takes
        self._lookup = {**self._lookup, "begin": oldest, "max_count": count}
        return self._lookup

    def take(self, answer: Answer, most: int) -> None:
        """Keep the newest of these and of what was found."""
        known = without_repeats([*self.entries, *answer.entries]).values()
        self.entries = sorted(known, key=_place, reverse=True)[:most]
        self.is_open = answer.next_cursor is not None


class _Newest:
    """Looks at the topics until nothing newer in time can be left out, or often enough."""

    def __init__(self, ask: _Ask, most: int, topics: list[_Topic]) -> None:
        self._ask = ask
        self._most = most
        self.topics = topics
        self.answers: list[Answer] = []

    def left(self) -> list[_Topic]:
        """Return the topics of which newer entries may be left out."""
        return [topic for topic in self.topics if topic.is_open and topic.entries]

    def look(self, count: int) -> None:
        """Take at most `count` entries of a topic at each look. Raises what `query_batch` raises."""
        for _ in range(_LOOKS_MAX):
            left = self.left()
            if not left:
                return
            found = self._ask([topic.lookup(count) for topic in left], _LOOKUPS_AGAIN)
            self.answers += found
            for topic, answer in zip(left, found, strict=True):
                topic.take(answer, self._most)


def _each_once(*parts: Iterable[_Named]) -> list[_Named]:
    """Return the nodes or files that any part names, each once, as it was first told."""
    found: dict[str, _Named] = {}
    for each in chain(*parts):
        found.setdefault(each[0], each)
    return list(found.values())


def _place(entry: Entry) -> tuple[Any, ...]:
    place = [-1 if each is None else each for each in (entry.queue_id, entry.offset)]
    return (entry.timestamp, entry.topic, *place, entry.file_id)
