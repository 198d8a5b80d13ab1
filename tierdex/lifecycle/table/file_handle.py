"""One file as the running process knows it: its contents, its place, its reader.

A handle is a value. A file that changes its state gets a new handle (`FileTable.move`); a holder of
the old handle keeps it, with its reader. The reader is opaque here: anything with `close()`. The
handles of a file that only moved share it, and it is closed when the table and every query have
released it (`Lease`).

Depends on file_state, paths and file_row.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifests.file_row import FilePlace
from tierdex.lifecycle.paths import make_file_id

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.lifecycle.manifests.file_row import FileRow, Uuid
    from tierdex.lifecycle.topic_set import TopicSet


class Closing(Protocol):
    """A reader, as far as this layer uses it."""

    def close(self) -> None: ...


class LiveReader(Closing, Protocol):
    """The reader of a file that still grows: its values change under the handle.

    A value may lag behind and never runs ahead of what a query may see. An empty file has 0 items,
    and its times mean nothing.
    """

    @property
    def item_count(self) -> int: ...
    @property
    def min_time(self) -> int: ...
    @property
    def max_time(self) -> int: ...
    @property
    def bytes_used(self) -> int: ...


class Lease:
    """Counts the users of a reader; the last release closes it. Safe to share between threads."""

    __slots__ = ("_lock", "_users", "reader")

    def __init__(self, reader: Closing) -> None:
        self.reader = reader
        self._lock = threading.Lock()
        self._users = 1

    def acquire(self) -> None:
        """Add a user. The caller makes sure that the lease has one meanwhile."""
        with self._lock:
            assert self._users > 0, "the reader is closed"
            self._users += 1

    def release(self) -> None:
        with self._lock:
            assert self._users > 0, "released twice"
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self.reader.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileHandle:
    """One file in one state. Times are int64 ms, sizes bytes.

    Made by `FileTable.insert` and its like; never changed, only succeeded. The `fixed_*` fields
    hold for a file that no longer grows; the properties of the same names hold for every file.
    """

    number: int
    node: str
    uuid: Uuid
    state: FileState
    lease: Lease | None = None
    path: Path | None = None  # of a local file
    row: FileRow | None = None  # of a published file
    slot_count: int = 0
    begin_ms: int = 0
    sealed_at_ms: int | None = None
    topics: TopicSet = None
    fixed_item_count: int = 0
    fixed_min_time: int = 0
    fixed_max_time: int = 0
    fixed_bytes: int = 0

    @classmethod
    def of_row(cls, row: FileRow, node: str, reader: Closing | None = None) -> FileHandle:
        """Return the handle of a published file."""
        return cls(
            number=row.number,
            node=node,
            uuid=row.uuid,
            state=FileState.UPLOADED,
            lease=None if reader is None else Lease(reader),
            row=row,
            slot_count=row.slot_count,
            begin_ms=row.begin_ms,
            sealed_at_ms=row.sealed_at_ms,
            topics=row.topics,
            **_held_by(row),
        )

    @property
    def key(self) -> tuple[int, str]:
        """The key by which files are ordered."""
        return self.number, self.node

    @property
    def place(self) -> FilePlace:
        return FilePlace(self.node, self.number, self.row)

    @property
    def file_id(self) -> str:
        return make_file_id(self.number, self.node)

    @property
    def reader(self) -> Any:
        """The reader; valid while a snapshot with this handle, or an `acquire`, is held."""
        return None if self.lease is None else self.lease.reader

    @property
    def object_key(self) -> str | None:
        return None if self.row is None else self.row.object_key

    @property
    def is_live(self) -> bool:
        """Whether the file still grows."""
        return self.state is FileState.UNSEALED and self.lease is not None

    @property
    def item_count(self) -> int:
        return int(self.reader.item_count) if self.is_live else self.fixed_item_count

    @property
    def min_time(self) -> int:
        return int(self.reader.min_time) if self.is_live else self.fixed_min_time

    @property
    def max_time(self) -> int:
        return int(self.reader.max_time) if self.is_live else self.fixed_max_time

    @property
    def bytes(self) -> int:
        return int(self.reader.bytes_used) if self.is_live else self.fixed_bytes

    def may_hold_hash(self, key_hash: int) -> bool:
        """Return False for a piece of a run that holds other hashes only."""
        hashes = None if self.row is None else self.row.hash_range
        return hashes is None or hashes.holds(key_hash)

    def overlaps(self, begin: int | None, end: int | None) -> bool:
        """Return whether an entry of the file may lie in [begin, end], both inclusive."""
        if self.item_count == 0:
            return False
        return (end is None or self.min_time <= end) and (begin is None or self.max_time >= begin)

    def acquire(self) -> FileHandle:
        """Keep the reader open beyond the snapshot; pair with `release`."""
        if self.lease is not None:
            self.lease.acquire()
        return self

    def release(self) -> None:
        if self.lease is not None:
            self.lease.release()

    def __enter__(self) -> FileHandle:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def successor(self, **changes: Any) -> FileHandle:
        """Return the handle with `changes`; a new `reader` gets a lease of its own.

        Without a new reader both handles share the lease, which counts both. A new `row` fixes the
        contents, and so does leaving the unsealed state.
        """
        row = changes.get("row")
        if row is not None:
            changes = _held_by(row) | changes
        elif self.is_live and changes.get("state", self.state) is not FileState.UNSEALED:
            changes = _held_by(self) | changes
        if "reader" in changes:
            reader = changes.pop("reader")
            return replace(self, lease=None if reader is None else Lease(reader), **changes)
        return replace(self.acquire(), **changes)


def _held_by(source: FileRow | FileHandle) -> dict[str, Any]:
    return {
        "fixed_item_count": source.item_count,
        "fixed_min_time": source.min_time,
        "fixed_max_time": source.max_time,
        "fixed_bytes": source.bytes,
    }


def live_handle(
    *, number: int, node: str, uuid: Uuid, path: Path, reader: LiveReader, slot_count: int,
    begin_ms: int,
) -> FileHandle:  # fmt: skip
    """Return the handle of a file that accepts entries."""
    return FileHandle(
        number=number,
        node=node,
        uuid=uuid,
        state=FileState.UNSEALED,
        lease=Lease(reader),
        path=path,
        slot_count=slot_count,
        begin_ms=begin_ms,
    )
