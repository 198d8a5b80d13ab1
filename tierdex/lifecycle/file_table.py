"""Which files there are and in which state: a skip list by (number, node), read by snapshot.

::

    writers, one at a time            queries, never waiting
    insert / move / replace ...       with table.snapshot() as snapshot:
      a new list, O(log files)            for handle in snapshot.file_list.overlap(begin, end): ...
      publish a new version   ──────>     one reference read, one pin

A *version* has the immutable list of handles after a change. A query pins the version that it reads;
a handle that left the table is let go of when no version that contains it is pinned any more, and
its reader is closed then. Versions form a queue, oldest first: reclaiming goes from its head.

A pin needs no lock: it is set first, then the version is checked to be still the newest, and a
writer publishes first, then looks at the pins: one of the two sees the other (hazard pointer).

Depends on file_handle, file_state, paths and skip_list.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tierdex.lifecycle.file_state import check_transition
from tierdex.lifecycle.paths import LOCAL_STATES
from tierdex.lifecycle.skip_list import TIME_MAX, TIME_MIN, Bounds, SkipList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_state import FileState

_Files = SkipList[tuple[int, str], "FileHandle"]
_REBUILT_PART: Final = 8  # a change of more than one file in eight makes the list anew


def _bounds_of(key: tuple[int, str], handle: FileHandle) -> Bounds:
    """Return the times that a file may hold now or later, and the oldest file that it stands for."""
    parts = () if handle.row is None else handle.row.parts
    oldest = min((key, *((part.number, part.node) for part in parts)))
    if handle.is_live:
        return Bounds(TIME_MIN, TIME_MAX, oldest)
    return Bounds(handle.fixed_min_time, handle.fixed_max_time, oldest)


class FileList:
    """The files at one moment: an immutable skip list by (number, node). Pins no reader."""

    __slots__ = ("_files", "_local")

    def __init__(self, files: _Files, local: _Files) -> None:
        """`local` are those of `files` that lie in this folder, not yet published."""
        self._files = files
        self._local = local

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[FileHandle]:
        """Yield every file, newest first, as far as the caller goes."""
        return self._files.descend()

    def local(self) -> list[FileHandle]:
        """Return the files that are not published yet, oldest first; the others are not looked at."""
        return list(self._local)

    def get(self, number: int, node: str) -> FileHandle | None:
        return self._files.get((number, node))

    def iterate(
        self, low: tuple[int, str] | None = None, high: tuple[int, str] | None = None
    ) -> Iterator[FileHandle]:
        """Yield the files with low <= (number, node) <= high, oldest first."""
        return self._files.iterate(low, high)

    def overlap(
        self,
        begin: int | None = None,
        end: int | None = None,
        newest: tuple[int, str] | None = None,
    ) -> Iterator[FileHandle]:
        """Yield the files that may hold an entry in [begin, end], newest first; None is open.

        Looks no further than the caller goes. `newest` leaves out files after that one.
        """
        low = TIME_MIN if begin is None else begin
        high = TIME_MAX if end is None else end
        for handle in self._files.descend(low, high, newest):
            if handle.overlaps(begin, end):  # live files: asked now
                yield handle

    def across(self, number: int, node: str) -> Iterator[FileHandle]:
        """Yield the files of this number or later that stand for this file or older ones, newest first."""
        return self._files.across((number, node), (number, ""))

    def changed(self, remove: Sequence[FileHandle], add: Sequence[FileHandle]) -> FileList:
        """Return the files without some and with others. Raises KeyError."""
        return FileList(
            _changed(self._files, remove, add),
            _changed(self._local, list(filter(_is_local, remove)), list(filter(_is_local, add))),
        )

    def check(self) -> list[str]:
        """Return every broken invariant, in words."""
        broken = self._files.check() + self._local.check()
        if list(self._local) != list(filter(_is_local, self._files)):
            broken.append("the local files are not those of all files")
        return broken


def _is_local(handle: FileHandle) -> bool:
    return handle.state in LOCAL_STATES


def _changed(files: _Files, remove: Sequence[FileHandle], add: Sequence[FileHandle]) -> _Files:
    if (len(remove) + len(add)) * _REBUILT_PART > len(files):
        gone = {handle.key for handle in remove}
        kept = [handle for handle in files if handle.key not in gone]
        both = sorted((*kept, *add), key=lambda handle: handle.key)
        return SkipList(_bounds_of, [(handle.key, handle) for handle in both])
    added = {handle.key: handle for handle in add}
    for handle in remove:
        successor = added.pop(handle.key, None)
        if successor is None:
            files = files.remove(handle.key)
        else:
            files = files.replace(handle.key, successor)
    for key, handle in added.items():
        files = files.insert(key, handle)
    return files


class _Version:
    """The files after a change, and what to let go of once all versions before are out of use."""

    __slots__ = ("files", "pins", "retired")

    def __init__(self, files: FileList, retired: Sequence[FileHandle] = ()) -> None:
        self.files = files
        self.pins: set[object] = set()
        self.retired = retired  # left the table with this change


class FileSnapshot:
    """The files at one moment, newest first. Release it (or use `with`) to let readers close."""

    __slots__ = ("_table", "_version", "pin")

    def __init__(self, table: FileTable, version: _Version) -> None:
        self._table = table
        self._version = version
        self.pin = object()

    @property
    def file_list(self) -> FileList:
        """Return the files to be searched. Who keeps it longer than the snapshot asks no reader."""
        return self._version.files

    @property
    def files(self) -> tuple[FileHandle, ...]:
        """Return every file, newest first: O(files), for who needs all."""
        return tuple(self._version.files)

    def release(self) -> None:
        """Let go; a second call does nothing. The handles' readers may be closed from here on."""
        self._version.pins.discard(self.pin)
        if self._version is not self._table.version:
            self._table.reclaim()

    def __enter__(self) -> FileSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # A snapshot dropped on the floor must not pin files for ever. No reclaim here: the collector
        # may run this while its thread holds the lock for it; the next change reclaims.
        self._version.pins.discard(self.pin)


class FileTable:
    """The skip list of files. One instance a process; every state change goes through it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.version = _Version(FileList(SkipList(_bounds_of), SkipList(_bounds_of)))
        self._versions = deque([self.version])
        self._reclaim_lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.version.files)

    def snapshot(self) -> FileSnapshot:
        """Return the files as of now, pinned. O(1), no lock."""
        while True:
            version = self.version
            snapshot = FileSnapshot(self, version)  # whatever is raised, its pin goes with it
            version.pins.add(snapshot.pin)
            if version is self.version:
                return snapshot
            # A writer was faster: its reclaim may not have seen us.
            version.pins.discard(snapshot.pin)

    def get(self, number: int, node: str) -> FileHandle | None:
        """Return a file's newest handle, without a lock; its reader is not pinned."""
        return self.version.files.get(number, node)

    def insert(self, *handles: FileHandle) -> None:
        """Add files; all become visible at once. Raises KeyError when one is there already."""
        self.change(add=handles)

    def remove(self, *handles: FileHandle) -> None:
        """Take files out; their readers close after the last query. Raises KeyError."""
        self.change(remove=handles)

    def replace(self, old: Sequence[FileHandle], new: Sequence[FileHandle]) -> None:
        """Swap files (a merge): no query sees both or neither. A number may be kept."""
        self.change(remove=old, add=new)

    def move(self, handle: FileHandle, state: FileState, **changes: Any) -> FileHandle:
        """Return the file's handle in its next state, with `changes` (`reader=`, `path=`, ...).

        Raises IllegalTransitionError, and KeyError when `handle` is not the file's newest.
        """
        check_transition(handle.state, state)
        return self._succeed(handle, state=state, **changes)

    def update(self, handle: FileHandle, **changes: Any) -> FileHandle:
        """Return the file's handle with `changes` that leave its state as it is. Raises KeyError."""
        assert "state" not in changes, "use move"
        return self._succeed(handle, **changes)

    def change(self, *, add: Iterable[FileHandle] = (), remove: Iterable[FileHandle] = ()) -> None:
        """Remove, then add, as one step for every query. Raises KeyError; then nothing changed."""
        add, remove = tuple(add), tuple(remove)
        with self._lock:
            self._check_change(add, remove)
            self._publish(remove, add)
        self.reclaim()

    def reclaim(self) -> None:
        """Let go of handles that neither the table nor any pinned version holds."""
        retired: list[FileHandle] = []
        with self._reclaim_lock:
            # The oldest version first: a handle retired by version n may be in every one before n.
            while self._versions[0] is not self.version and not self._versions[0].pins:
                self._versions.popleft()
                retired += self._versions[0].retired
        for handle in retired:
            handle.release()

    def check(self) -> list[str]:
        """Return every broken invariant, in words."""
        return self.version.files.check()

    def _succeed(self, handle: FileHandle, **changes: Any) -> FileHandle:
        with self._lock:
            self._check_change((), (handle,))
            successor = handle.successor(**changes)
            assert successor.key == handle.key, "a file keeps its number"
            self._publish((handle,), (successor,))
        self.reclaim()
        return successor

    def _check_change(self, add: Sequence[FileHandle], remove: Sequence[FileHandle]) -> None:
        gone = {handle.key for handle in remove}
        if any(self.get(*handle.key) is not handle for handle in remove):
            raise KeyError("a handle to be removed or moved is not the newest of its file")
        taken = {handle.key for handle in add}
        there = [key for key in taken - gone if self.get(*key) is not None]
        if len(taken) != len(add) or len(gone) != len(remove) or there:
            raise KeyError(f"a file is there already, or named twice: {there}")

    def _publish(self, remove: Sequence[FileHandle], add: Sequence[FileHandle]) -> None:
        """Make the next version out of the newest one. The caller holds the lock."""
        version = _Version(self.version.files.changed(remove, add), remove)
        with self._reclaim_lock:
            try:
                self._versions.append(version)
                self.version = version  # visible to queries from here on
            except BaseException:  # of a signal handler: all of the change, or nothing
                if self.version is not version and self._versions[-1] is version:
                    self._versions.pop()  # nobody saw it
                raise
