"""A file, and a node, as operators see them.

Depends on nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tierdex.lifecycle.table.file_handle import FileHandle


class FileInfo(NamedTuple):
    """One file of the view. Times are int64 ms; `begin` is the file's birth, not its entries'."""

    file_id: str
    state: str
    begin: int
    min_time: int | None
    max_time: int | None
    item_count: int
    slot_count: int
    bytes: int
    node: str
    sealed_at: int | None = None
    topics: list[str] | None = None
    reason: str | None = None  # of a file that cannot be read: nothing else is known of it
    kind: str = "index"  # or "log": `item_count` is then its messages
    published_at: int | None = (
        None  # the store's time of its object; None: not published, or not asked
    )
    compacted_at: int | None = (
        None  # when it was written in its compacted form, which took `compaction_s`
    )
    compaction_s: float | None = None
    # Entries of rows that no kept snapshot of a followed table has, by a sample; None: no table's file.
    dead_items: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


class NodeInfo(NamedTuple):
    """One node of the store. `problem` tells why its manifest cannot be read; the rest is older then."""

    node: str
    number: int  # of the newest commit that was read; 0: none
    files: int
    problem: str | None = None
    standing: str = (
        "unknown"  # live, late, silent, closed, retired, shared, unknown: see manifests.liveness
    )
    published_through: int | None = (
        None  # ms: what it acknowledged before is published; None: not known
    )
    lag_s: float | None = None  # how long ago that is
    skew_s: float | None = None  # how far its clock is ahead of the store's; None: not known
    holds_unpublished: bool = False  # as of `heard_at`: it may hold more since
    url: str | None = None  # where it answers itself
    heard_at: int | None = None  # ms: its last record, of which all of this is; None: it wrote none


class TopicInfo(NamedTuple):
    """One topic of the view. An item is one key, or the message ID, of an entry.

    `item_count` items are known to be the topic's; at most `uncounted` more are, in files that tell no
    counts by topic here. Its times (int64 ms) lie within `min_time` and `max_time`, None without items.
    """

    topic: str
    item_count: int = 0
    uncounted: int = 0
    min_time: int | None = None
    max_time: int | None = None
    files: int = 0

    def with_file(
        self, counted: int, min_time: int, max_time: int, uncounted: int = 0
    ) -> TopicInfo:
        """Return this topic with one more file that holds it."""
        return TopicInfo(
            self.topic,
            self.item_count + counted,
            self.uncounted + uncounted,
            min_time if self.min_time is None else min(self.min_time, min_time),
            max_time if self.max_time is None else max(self.max_time, max_time),
            self.files + 1,
        )


def unreadable_file(name: str, state: str, reason: str) -> FileInfo:
    """Return the row of a file that cannot be opened."""
    return FileInfo(name, state, 0, None, None, 0, 0, 0, "", reason=reason)


def describe_handle(handle: FileHandle, topics: list[str] | None) -> FileInfo:
    """Return the row of a file in the table; `topics` None: unknown without its sidecar."""
    items = handle.item_count
    return FileInfo(
        file_id=handle.file_id,
        state=handle.state.value,
        begin=handle.begin_ms,
        min_time=handle.min_time if items else None,
        max_time=handle.max_time if items else None,
        item_count=items,
        slot_count=handle.slot_count,
        bytes=handle.bytes,
        node=handle.node,
        sealed_at=handle.sealed_at_ms,
        topics=topics,
    )


class TableInfo(NamedTuple):
    """A followed table: its newest indexed snapshot, what is known of newer ones, and its size.

    Times are int64 ms. `live_files` and `live_rows` are those of the newest indexed snapshot, `dead_files`
    such as no kept snapshot has; `deleted_rows` are rows of live files that are deleted. `behind` snapshots
    are known and not indexed; None: the table was not looked at. `trouble` is why, or why it stands still.
    """

    topic: str
    table: str
    source: str
    snapshot: str | None
    version: int | None
    snapshot_time: int | None
    looked_at: int | None
    behind: int | None
    trouble: str | None
    live_files: int
    live_rows: int
    deleted_rows: int
    dead_files: int
    snapshots: int

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()
