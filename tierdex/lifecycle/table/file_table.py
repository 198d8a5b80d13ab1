"""The table of files and their states: a skip list by (number, node), read by snapshot.

::

    writers, one at a time            queries, never waiting
    insert / move / replace ...       with table.snapshot() as snapshot:
      a new list, O(log files)            for handle in snapshot.file_list.overlap(begin, end): ...
      publish a new version   ──────>     one reference read, one pin

A *version* has the immutable list of handles after a change. A query pins the version that it
reads. A handle that left the table is released, and its reader closed, when no pinned version
contains it. Versions form a queue, oldest first; reclaiming starts at its head.

A pin needs no lock. The query sets its pin, then checks that its version is still the newest; a
writer publishes a version, then looks at the pins. One of the two sees the other (hazard pointer).

Depends on file_handle, file_state, paths and skip_list.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from tierdex.lifecycle.file_state import check_transition
from tierdex.lifecycle.paths import LOCAL_STATES
from tierdex.lifecycle.table.skip_list import TIME_MAX, TIME_MIN, Bounds, SkipList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tierdex.lifecycle.file_state import FileState
    from tierdex.lifecycle.table.file_handle import FileHandle

_Files = SkipList[tuple[int, str], "FileHandle"]
_REBUILT_PART: Final = 8  # a change of more than one file in eight builds a new list


def _bounds_of(key: tuple[int, str], handle: FileHandle) -> Bounds:
    """Return the times that a file may hold now or later, and the oldest file that it contains."""
    parts = () if handle.row is None else handle.row.parts
    oldest = min((key, *((part.number, part.node) for part in parts)))
    if handle.is_live:
        return Bounds(TIME_MIN, TIME_MAX, oldest)
    return Bounds(handle.fixed_min_time, handle.fixed_max_time, oldest)


class FileList:
    """The files at one moment: an immutable skip list by (number, node). Pins no reader."""

    __slots__ = ("_files", "_local")

    def __init__(self, files: _Files, local: _Files) -> None:
        """`local` are those of `files` that lie in this folder and are not published."""
        self._files = files
        self._local = local

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[FileHandle]:
        """Yield every file, newest first, lazily."""
        return self._files.descend()

    def local(self) -> list[FileHandle]:
        """Return the files that are not published, oldest first, without a walk over the others."""
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

        Lazy: it walks no further than the caller reads. `newest` leaves out files after that one.
        """
        low = TIME_MIN if begin is None else begin
        high = TIME_MAX if end is None else end
        for handle in self._files.descend(low, high, newest):
            if handle.overlaps(begin, end):  # a live file grows: its times are read now
                yield handle

    def across(self, number: int, node: str) -> Iterator[FileHandle]:
        """Yield the files of this number or later that contain this file or older ones, newest first."""
        return self._files.across((number, node), (number, ""))

    def changed(self, remove: Sequence[FileHandle], add: Sequence[FileHandle]) -> FileList:
        """Return the files without `remove` and with `add`. Raises KeyError."""
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
    """The files after a change, and the handles to release once no earlier version is in use."""

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
        """The files of the snapshot. After its release they may be read, but not their readers."""
        return self._version.files

    @property
    def files(self) -> tuple[FileHandle, ...]:
        """Every file, newest first: O(files)."""
        return tuple(self._version.files)

    def release(self) -> None:
        """Release the snapshot, once. The handles' readers may be closed from here on."""
        self._version.pins.discard(self.pin)
        if self._version is not self._table.version:
            self._table.reclaim()

    def __enter__(self) -> FileSnapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # A snapshot that was not released must not pin files for ever. No reclaim here: the garbage
        # collector may run this in a thread that holds the lock of it. The next change reclaims.
        self._version.pins.discard(self.pin)


class FileTable:
    """The skip list of files, one a process. Every change of a state goes through it."""

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
            snapshot = FileSnapshot(self, version)  # it takes its pin away, also after an exception
            version.pins.add(snapshot.pin)
            if version is self.version:
                return snapshot
            # A writer published meanwhile: its reclaim may have missed this pin.
            version.pins.discard(snapshot.pin)

    def get(self, number: int, node: str) -> FileHandle | None:
        """Return a file's newest handle, without a lock; its reader is not pinned."""
        return self.version.files.get(number, node)

    def insert(self, *handles: FileHandle) -> None:
        """Add files; all become visible at once. Raises KeyError when one is there."""
        self.change(add=handles)

    def remove(self, *handles: FileHandle) -> None:
        """Remove files; their readers close after the last query. Raises KeyError."""
        self.change(remove=handles)

    def replace(self, old: Sequence[FileHandle], new: Sequence[FileHandle]) -> None:
        """Replace files by others (a merge): no query sees both or neither. A number may be kept."""
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
        """Release the handles that neither the table nor a pinned version holds."""
        retired: list[FileHandle] = []
        with self._reclaim_lock:
            # The oldest version first: a handle retired by version n may be in every one before n.
            while self._versions[0] is not self.version and not self._versions[0].pins:
                self._versions.popleft()
                version = self._versions[0]
                retired += version.retired
                version.retired = ()  # it may be the newest for hours: it keeps no reader's memory
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
            raise KeyError(f"a file is there already, or is named twice: {there}")

    def _publish(self, remove: Sequence[FileHandle], add: Sequence[FileHandle]) -> None:
        """Make the next version from the newest one. The caller holds the lock."""
        version = _Version(self.version.files.changed(remove, add), remove)
        with self._reclaim_lock:
            try:
                self._versions.append(version)
                self.version = version  # visible to queries from here on
            except (
                BaseException
            ):  # from a signal handler: the change is made as a whole, or not at all
                if self.version is not version and self._versions[-1] is version:
                    self._versions.pop()  # no query saw it
                raise
