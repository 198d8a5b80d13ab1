"""The classes of answers: entries, completeness, freshness, the cost of a query, histograms, topics.

The embedded `Index` and the remote clients return the same classes. Times are int64 milliseconds
since the epoch, sizes bytes.

Depends on shown_message and errors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.errors import without_places

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.shown_message import ShownMessage


class Entry(NamedTuple):
    """One fact: where a message is.

    An entry of another schema has all its location fields in `location`, and None for `queue_id`,
    `offset` and `size`. Their types are those of a message's entry, which nearly every entry is.
    """

    topic: str
    queue_id: int
    offset: int
    size: int
    timestamp: int
    file_id: str
    state: str
    node: str
    location: dict[str, Any] | None = None  # only for schemas other than the message schema
    source: str | None = None
    hash_function: str | None = None  # set when the key itself was not verified by a 64-bit hash
    message: ShownMessage | None = None  # where it was asked for

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set, for JSON."""
        shown = self._asdict()
        for name in ("location", "source", "hash_function", "message"):
            if shown[name] is None:
                del shown[name]
        if self.message is not None:
            shown["message"] = self.message.to_dict()
        return shown


Identity = tuple[tuple[Any, ...], int]
"""What is the same in a repeat: (topic, then the location's fields in the schema's order), the time."""


def identity_of(entry: Entry) -> Identity:
    """Return an entry's identity: what a file's reader gives for its item as a `Candidate`."""
    if entry.location is None:
        return (entry.topic, entry.offset, entry.size, entry.queue_id), entry.timestamp
    return (entry.topic, *entry.location.values()), entry.timestamp


def without_repeats(entries: Iterable[Entry]) -> dict[Identity, Entry]:
    """Return the first entry of each identity, in order."""
    first: dict[Identity, Entry] = {}
    for entry in entries:
        first.setdefault(identity_of(entry), entry)
    return first


class LostOffsets(NamedTuple):
    """Offsets [begin, end) that a followed log lost before they were read; `noticed` int64 ms."""

    topic: str
    queue_id: int
    begin: int
    end: int
    noticed: int


class Missing(NamedTuple):
    """A file (or ``node:<name>``) that had to be read and could not be."""

    file: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        """Return it as callers see it: what the file is called, not where this machine keeps it."""
        return {"file": without_places(self.file), "reason": without_places(self.reason)}


class Hint(NamedTuple):
    """What a lookup that found nothing may have meant: `text` in words, the rest as a lookup takes it.

    Kinds: `no_topic` (the topic asked is not known), `near_topic`, `other_topic` (it has the key),
    `other_spelling` (another case, no blanks at the ends), `as_message_id`, `as_key`.
    """

    kind: str
    text: str
    topic: str | None = None
    key: str | None = None
    message_id: str | None = None


class Unasked(NamedTuple):
    """A node that may hold entries which are not published, and was not asked itself.

    What it acknowledged before `published_through` (ms) was looked at; None: it never said. Its last record
    is of `heard_at`, and said whether it held any then: `holds_unpublished`. A live owner may hold entries
    since; one of whom a record is missing is `late`, one of whom three are is `silent`.
    """

    node: str
    standing: str  # live | late | silent | closed | unknown
    published_through: int | None
    holds_unpublished: bool = True
    heard_at: int | None = None


class TableSeen(NamedTuple):
    """The snapshot of a lake's table that an answer is of: its ID, version and commit time (int64 ms).

    `behind` newer snapshots are known and not indexed, as of `looked_at` (int64 ms); None: not known.
    """

    table: str
    snapshot: str
    version: int
    time_ms: int
    looked_at: int | None = None
    behind: int | None = None


@dataclass(slots=True)
class FileExplain:
    """The part of one file in a query, and its cost."""

    file_id: str
    state: str
    node: str
    outcome: str  # read | pruned_by_time | pruned_by_topic | pruned_by_filter | skipped | missing
    start_ms: float = 0.0
    ms: float = 0.0
    requests: int = 0
    bytes: int = 0
    items: int = 0
    entries: int = 0
    false_positive: bool = False


@dataclass(slots=True)
class Stage:
    """A named part of a query and its duration."""

    name: str
    ms: float


@dataclass(slots=True)
class Explain:
    """The plan that ran. Requests for manifests, sidecars and rows of files and tables are counted apart."""

    files_considered: int = 0
    files_pruned_by_time: int = 0
    files_pruned_by_filter: int = 0
    files_read: int = 0
    requests: int = 0
    bytes: int = 0
    false_positives: int = 0
    cost_usd: float = 0.0
    manifest_requests: int = 0
    sidecar_requests: int = 0
    message_requests: int = 0
    message_bytes: int = 0
    milliseconds: float = 0.0
    stages: list[Stage] = field(default_factory=list)
    files: list[FileExplain] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)  # as `nodes()` lists them
    id_time: dict[str, Any] | None = None  # the form of the message ID, and the times that it left
    proof: dict[str, Any] | None = None  # see proof.py

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Answer:
    """The entries found, newest file first, newest arrival first.

    `complete` is false when a file that had to be read could not be (`missing` tells which and
    why): then "no entries" does not mean "was never sent". `next_cursor` is set when there may be
    more. Everything acknowledged anywhere before `as_of` (ms) was looked at; what was acknowledged
    since may be missing, and `unasked` names the nodes that hold some of it, for all that is known.

    `lost` are messages of a followed log that were gone before they could be indexed. `hints`, where
    asked for, are what a lookup without entries may have meant. Of a topic that follows a lake's `table` the
    entries are those of live rows, as of that snapshot's commit.
    """

    entries: list[Entry]
    complete: bool = True
    missing: list[Missing] = field(default_factory=list)
    next_cursor: str | None = None
    as_of: int = 0
    explain: Explain | None = None
    unasked: tuple[Unasked, ...] = ()
    lost: tuple[LostOffsets, ...] = ()
    hints: tuple[Hint, ...] = ()
    table: TableSeen | None = None

    def to_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "entries": [entry.to_dict() for entry in self.entries],
            "complete": self.complete,
            "missing": [missing.to_dict() for missing in self.missing],
            "next_cursor": self.next_cursor,
            "as_of": self.as_of,
            "unasked": [unasked._asdict() for unasked in self.unasked],
        }
        if self.explain is not None:
            shown["explain"] = self.explain.to_dict()
        if self.lost:
            shown["lost"] = [each._asdict() for each in self.lost]
        if self.hints:
            shown["hints"] = [each._asdict() for each in self.hints]
        if self.table is not None:
            shown["table"] = self.table._asdict()
        return shown


def _made_when_read(owner: type, name: str) -> None:
    """Let a field hold what makes its value: most callers of an answer look at few fields."""
    slot: Any = vars(owner)[name]

    def read(self: object) -> Any:
        value = slot.__get__(self)
        if not callable(value):
            return value
        made = value()
        slot.__set__(self, made)
        return made

    setattr(owner, name, property(read, slot.__set__))


_made_when_read(Answer, "next_cursor")
_made_when_read(Explain, "nodes")


class KnownTopics(NamedTuple):
    """The topics that any file of a view holds, sorted.

    A topic of which an entry was acknowledged anywhere before `as_of` (int64 ms) is among them; of later
    ones the nodes in `unasked` may hold entries that they have not published. `missing` names the nodes
    because of which the list is older than was asked for (`fresh_within`), and files that are gone or
    damaged.
    """

    names: list[str]
    as_of: int
    unasked: tuple[Unasked, ...]
    missing: tuple[Missing, ...] = ()


DEFAULT_BUCKETS: Final = 60
BUCKETS_LEAST: Final = 10  # fewer would be wider than an int64 tells
BUCKETS_MOST: Final = 1000


@dataclass(slots=True)
class Histogram:
    """The entries of one lookup by time, in buckets of `width_ms` from `begin` on.

    `begin` and `end` are the times (int64 ms) of the first and the last entry, None without entries; the last
    bucket ends with `end`. `more`: the newest files had as many entries as were to be counted, and
    older ones are left out. `complete`, `missing`, `as_of` and `unasked` are those of an `Answer`.
    """

    begin: int | None = None
    end: int | None = None
    width_ms: int = 1
    counts: list[int] = field(default_factory=list)
    more: bool = False
    complete: bool = True
    missing: list[Missing] = field(default_factory=list)
    as_of: int = 0
    unasked: tuple[Unasked, ...] = ()

    @property
    def count(self) -> int:
        """The entries that are counted."""
        return sum(self.counts)

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "count": self.count,
            "missing": [missing.to_dict() for missing in self.missing],
            "unasked": [unasked._asdict() for unasked in self.unasked],
        }
