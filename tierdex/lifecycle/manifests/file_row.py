"""The row of a published file in a manifest, and the names and places of files.

A row may say that its file is of another *kind* than an index file, or holds a range of hashes only.
Programs of before know neither: `means_more`. Every value here is frozen, and shared freely.

Depends on topic_set only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tierdex.lifecycle.topic_set import TopicSet

Uuid = bytes  # 16 bytes; the alias also keeps the type's name apart from rows' field `bytes`
INDEX_KIND: Final = "index"
LOG_KIND: Final = "log"  # the messages of a log, grouped by queue
NOTES_KIND: Final = "notes"  # what the log's folder noted of itself: at most one a node


class HashRange(NamedTuple):
    """The key hashes from `first` to `last`, both included, unsigned 64 bit."""

    first: int
    last: int

    def holds(self, key_hash: int) -> bool:
        return self.first <= key_hash <= self.last


class HashGroups(NamedTuple):
    """Where a file's hash groups lie: a reader fetches one instead of the whole sidecar."""

    position: int  # of group 0 in the file
    stride: int  # bytes from one group to the next
    group_count: int
    head_end: int  # from the sidecar's begin to here lie the parts that decode pages


class FileRef(NamedTuple):
    """One file of some node, named in a way that survives its deletion."""

    node: str
    uuid: Uuid
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """One published file. `begin_ms` is its birth; its age counts from `sealed_at_ms`.

    `parts` are the files that were merged into this one, back to the first generation, so that
    cursors stay valid; `replaces` are those of them that other nodes list: readers leave them out.

    A reader leaves alone what is of a `kind` that it does not know: it neither asks nor removes it.
    """

    uuid: Uuid
    number: int
    object_key: str
    bytes: int
    item_count: int
    slot_count: int
    min_time: int
    max_time: int
    begin_ms: int
    sealed_at_ms: int
    sidecar_position: int  # the tail [sidecar_position, bytes) is the sidecar
    tail_crc: int
    topics: TopicSet
    schema: str
    tells: bool = False  # the end offsets of its queues count for the node's watermarks
    replaces: tuple[FileRef, ...] = ()
    parts: tuple[FileRef, ...] = ()
    kind: str = INDEX_KIND
    hash_range: HashRange | None = None  # entries with other hashes are not in it; None: any may be
    # A merge left out what the node `forgotten` listed at this number; None: no merge, or of before.
    forgets_through: int | None = None
    groups: HashGroups | None = None  # None: the sidecar is read whole

    @property
    def means_more(self) -> bool:
        """Return whether a program that knows manifest format 2 only would misread the row."""
        return self.kind != INDEX_KIND or self.hash_range is not None


class FilePlace(NamedTuple):
    """Where a file lies in the order of a node's files; `row` is that of a published one."""

    node: str
    number: int
    row: FileRow | None = None
