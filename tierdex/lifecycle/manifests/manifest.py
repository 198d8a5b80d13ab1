"""A node's manifest: rows of published files, the commits that change them, the resulting state.

::

    state 0 --commit 1--> state 1 --commit 2--> state 2 ...        (applied_commit.py)

A commit carries one `Change`. Some commits also carry the whole state after that change (a
checkpoint), so that a reader can begin there; the others repeat commits since then, so that a reader
needs not ask for each. Everything here is a frozen value, shared freely.

A file is identified by its uuid. A uuid that was ever listed is *known* until its object is deleted
and forgotten; a known uuid is never added again, which makes publishing idempotent. `floor` and
`number` only rise, and a dropped object is never listed again, so a deletion by an actor with an
old state is harmless.

Nothing here grows with the topics or queues that were ever used: names and end offsets lie in the
files themselves, and in a *queue table*, an object of its own (decision 0015).

What a program of before would misread is committed in a form that it refuses: `means_more`. A node goes back
to the plain form with the commit after which nothing of the kind is listed.

Times are int64 milliseconds. manifest_codec.py has the bytes. Must not import anything that does
I/O.

Depends on topic_set and file_row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tierdex.lifecycle.manifests.file_row import (
    INDEX_KIND,
    FileRef,
    FileRow,
    Uuid,
)
from tierdex.lifecycle.topic_set import topic_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierdex.lifecycle.manifests.forgotten import Forgetting
    from tierdex.lifecycle.manifests.live_record import LiveRecord

NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


def _nothing() -> Mapping[Any, Any]:
    return NOTHING


class NodeKind(Enum):
    """The kinds of nodes: owned or shared. On the wire: never rename."""

    OWNED = "owned"  # one writer, fenced by epochs
    SHARED = "shared"  # jobs, optimistic


@dataclass(frozen=True)
class Retention:
    """How long entries are kept, counted from the sealing of their file; None: for ever."""

    default_ms: int | None = None
    topics_ms: Mapping[str, int | None] = field(default_factory=_nothing)

    @property
    def has_limits(self) -> bool:
        """Return whether anything is not kept for ever."""
        return any(limit is not None for limit in (self.default_ms, *self.topics_ms.values()))

    def of(self, topic: str) -> int | None:
        return self.topics_ms.get(topic, self.default_ms)

    def of_hashes(self, topics: Iterable[int]) -> list[int | None]:
        """Return the limit of each topic of a `TopicSet`."""
        return [self._by_hash.get(topic, self.default_ms) for topic in topics]

    @cached_property
    def _by_hash(self) -> Mapping[int, int | None]:
        return {topic_hash(topic): limit for topic, limit in self.topics_ms.items()}


class NodeOwner(NamedTuple):
    """One owner that a node had: the uuid of the opening that claimed it."""

    node: str
    owner: Uuid


class RemoveReason(Enum):
    """Why a row left the list. On the wire: never rename."""

    EXPIRED = "expired"
    MERGED = "merged"
    REPLACED = "replaced"  # another node's merge holds its entries
    LOST = "lost"  # the operator gave the object up


class QueueTableRef(NamedTuple):
    """The node's newest queue table: the end offsets of every queue that is published, as one object."""

    object_key: str
    uuid: Uuid
    bytes: int
    crc: int


class Dropped(NamedTuple):
    """An object that is no longer listed and waits out its grace time."""

    object_key: str
    uuid: Uuid
    number: int
    reason: RemoveReason
    dropped_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one commit. A field at its default changes nothing."""

    add: tuple[FileRow, ...] = ()
    remove: Mapping[Uuid, RemoveReason] = field(default_factory=_nothing)  # uuid -> why
    forget: tuple[Uuid, ...] = ()  # uuids of dropped objects that were deleted
    forget_replaced: tuple[FileRef, ...] = ()  # refs whose owners have dropped them
    floor: int | None = None
    collected: int | None = None  # manifest numbers up to here are tombstones
    rollback: int | None = None  # the operator gave up the lost commits up to here
    retention: Retention | None = None
    queue_table: QueueTableRef | None = None
    covers: tuple[Uuid, ...] = ()  # listed files whose ends the newest queue table holds
    streams: Mapping[str, int] = field(default_factory=_nothing)  # query id -> last batch id
    outstanding: Mapping[Uuid, int] | None = None  # in place of the state's, see there
    retires: bool = False  # the operator gives up what the node's owners have not published
    adopts: tuple[NodeOwner, ...] = ()  # owners whose folder's files are published here
    merge_floor: int | None = None
    expires: tuple[Uuid, ...] = ()  # listed files that are about to be removed: see expiry
    forgettings: tuple[Forgetting, ...] = ()  # begun, or as far as they have come
    ends: tuple[Uuid, ...] = ()  # forgettings of which no file holds an entry any more

    @property
    def is_empty(self) -> bool:
        return self == NO_CHANGE

    @property
    def means_more(self) -> bool:
        """Return whether a program that knows manifest format 2 only would misread the change."""
        return bool(self.forgettings) or any(row.means_more for row in self.add)


NO_CHANGE: Final = Change()


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One manifest object: who, when, the change, and sometimes the whole state after it."""

    node: str
    number: int
    kind: NodeKind
    epoch: int  # 0 in a shared node
    owner: Uuid  # uuid of the opening that committed; zeros in a shared node
    commit_id: Uuid
    time_ms: int
    base: int  # number of the newest checkpoint, this one included
    change: Change
    published_through: int | None = None  # of its owner, once this commit is there: see live_record
    checkpoint: ManifestState | None = None
    # What its object repeats of the commits before it, back to the newest checkpoint: oldest first.
    repeats: tuple[Commit, ...] = field(default=(), compare=False)


class Checkpoint(NamedTuple):
    """A checkpoint that was the newest once: its manifest number, when it was committed."""

    number: int
    time_ms: int


class Hint(NamedTuple):
    """The end of a node's history when its writer last wrote it: see manifest_log.py."""

    checkpoint: int  # the newest one then; 0: there was none yet
    number: int  # the newest commit then
    live: LiveRecord | None = None  # of the owner; none from a shared node and from older programs


class Tombstone(NamedTuple):
    """Overwrites a collected number; the history continues at `newest`, a checkpoint."""

    node: str
    number: int
    newest: int


@dataclass(frozen=True, kw_only=True)
class ManifestState:
    """The content of a node's manifest at `number`; number 0 is a node without a commit."""

    node: str
    number: int = 0
    kind: NodeKind | None = None
    epoch: int = 0
    owner: Uuid = bytes(16)
    time_ms: int = 0  # of the commit with this number
    base: int = 0
    base_ms: int = 0  # when the newest checkpoint was committed
    checkpoints: tuple[Checkpoint, ...] = ()  # some of those before it, oldest first
    collected: int = 0
    rollback: int = 0  # the newest number that was ever given up for lost
    floor: int = 0
    highest_number: int = 0  # of all files ever listed; new ones must lie above
    files: Mapping[Uuid, FileRow] = field(default_factory=_nothing)
    dropped: Mapping[Uuid, Dropped] = field(default_factory=_nothing)
    replaced: frozenset[FileRef] = frozenset()
    retention: Retention = Retention()
    queue_table: QueueTableRef | None = None
    uncovered: frozenset[Uuid] = frozenset()  # listed files that tell more than the queue table
    streams: Mapping[str, int] = field(default_factory=_nothing)
    published_through: int | None = None  # of the owner, with its newest commit; None: never said
    # Owners of before whose folder did not come back -> until when all that they acknowledged is published.
    outstanding: Mapping[Uuid, int] = field(default_factory=_nothing)
    is_retired: bool = False  # what its owner has not published is given up, until it commits again
    adopted: frozenset[NodeOwner] = (
        frozenset()
    )  # whose folder's files are, or will be, published here
    forgettings: Mapping[Uuid, Forgetting] = field(default_factory=_nothing)
    expiring: frozenset[Uuid] = frozenset()  # listed files that merges of other nodes leave alone
    merge_floor: int = (
        0  # who merges other nodes' files looks at their lists again from this number on
    )
    # The commits since the newest checkpoint, oldest first: the next one repeats them.
    since: tuple[Commit, ...] = field(default=(), compare=False, repr=False)

    def names_owner_of(self, live: LiveRecord) -> bool:
        """Return whether a record is that of the owner that this manifest names."""
        return live.epoch == self.epoch and live.owner == self.owner

    @cached_property
    def means_more(self) -> bool:
        """Return whether a program that knows manifest format 2 only would misread the state."""
        return bool(self.forgettings) or self._lists_more

    @cached_property
    def _lists_more(self) -> bool:
        return any(row.means_more for row in self.files.values())

    @cached_property
    def index_files(self) -> Mapping[Uuid, FileRow]:
        """The listed index files: what queries ask, and merges and retention of an index take up."""
        return self.files_of(INDEX_KIND)

    def files_of(self, kind: str) -> Mapping[Uuid, FileRow]:
        """Return the listed files of a kind."""
        if kind == INDEX_KIND and not self._lists_more:
            return self.files
        return MappingProxyType({uuid: r for uuid, r in self.files.items() if r.kind == kind})

    def knows(self, uuid: Uuid) -> bool:
        """Return whether the file is, or was, published here: itself or as a part of a merge."""
        return uuid in self.files or uuid in self.dropped or uuid in self._part_uuids

    def lists_number(self, number: int) -> bool:
        """Return whether a file of this number is listed: itself or as a part of a merge."""
        return number in self._numbers

    @cached_property
    def _numbers(self) -> frozenset[int]:
        own = {row.number for row in self.files.values()}
        parts = (part for row in self.files.values() for part in row.parts)
        return frozenset(own.union(part.number for part in parts if part.node == self.node))

    @cached_property
    def _part_uuids(self) -> frozenset[Uuid]:
        return frozenset(part.uuid for row in self.files.values() for part in row.parts)


def replaced_by(states: Iterable[ManifestState]) -> frozenset[FileRef]:
    """Return the files that merges listed in these manifests contain."""
    return frozenset[FileRef]().union(*(state.replaced for state in states))


def unexplained_drops(states: Sequence[ManifestState]) -> frozenset[FileRef]:
    """Return the files that were dropped for a merge which none of these manifests lists.

    Manifests are read one after the other. The merge was committed to one of them, or to a node
    that was not listed yet, after that manifest was read. A second read finds it.
    """
    replaced = replaced_by(states)
    return frozenset(
        ref
        for state in states
        for dropped in state.dropped.values()
        if dropped.reason is RemoveReason.REPLACED
        and (ref := FileRef(state.node, dropped.uuid, dropped.number)) not in replaced
    )


def is_replaced(row: FileRow, node: str, replaced: frozenset[FileRef]) -> bool:
    """Return whether merges of other nodes (their `replaced` sets, united) hold the row's entries.

    A row that is itself a merge counts as replaced when other nodes' merges hold all of its parts,
    apart from the parts that the row itself replaces.
    """
    if not replaced:
        return False
    if FileRef(node, row.uuid, row.number) in replaced:
        return True
    parts = set(row.parts).difference(row.replaces)
    return bool(parts) and replaced.issuperset(parts)


class Draft(NamedTuple):
    """The commit that a caller drafts on top of the state that it was given."""

    kind: NodeKind
    epoch: int
    owner: bytes
    change: Change
    published_through: int | None = None
