"""Which files there are and in which state: a skip list by (number, node), read by snapshot.

::

    writers, one at a time            queries, never waiting
    insert / move / replace ...       with table.snapshot() as snapshot:
      change the skip list                for handle in snapshot.overlap(begin, end): ...
      publish a new version   ──────>     one reference read, one pin

A *version* is the immutable list of handles after a change. A query pins the version that it reads;
a handle that left the table is let go of when no version that contains it is pinned any more, and
its reader is closed then. Versions form a queue, oldest first: reclaiming goes from its head.

A pin needs no lock: it is set first, then the version is checked to be still the newest, and a
writer publishes first, then looks at the pins: one of the two sees the other (hazard pointer).

Depends on file_handle, file_state, skip_list and numpy.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.lifecycle.file_state import FileState, check_transition
from tierdex.lifecycle.skip_list import SkipList

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from tierdex.lifecycle.file_handle import FileHandle

_LOOP_MAX: Final = 32  # up to here a plain loop beats numpy's fixed cost
_INT64: Final = np.iinfo(np.int64)


class _Version:
    """An immutable list of handles, newest first, and what happens once it is out of use."""

    __slots__ = ("_times", "files", "pins", "retired")

    def __init__(self, files: tuple[FileHandle, ...]) -> None:
        self.files = files
        self.pins: set[object] = set()
        self.retired: list[FileHandle] = []  # left the table with the next version
        self._times: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def times(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (min_time, max_time), one element a file, built once; open-ended for live files."""
        times = self._times
        if times is None:
            low = [_INT64.min if file.is_live else file.min_time for file in self.files]
            high = [_INT64.max if file.is_live else file.max_time for file in self.files]
            # Two threads may build it at the same time: equal arrays, either may stay.
            times = self._times = (np.array(low, np.int64), np.array(high, np.int64))
        return times


class FileSnapshot:
    """The files at one moment, newest first. Release it (or use `with`) to let readers close."""

    __slots__ = ("_table", "_version", "pin")

    def __init__(self, table: FileTable, version: _Version) -> None:
        self._table = table
        self._version = version
        self.pin = object()

    @property
    def files(self) -> tuple[FileHandle, ...]:
        return self._version.files

    @property
    def min_time(self) -> NDArray[np.int64]:
        """Return one int64 ms a file of `files`; the smallest int64 for a file that still grows."""
        return self._version.times()[0]

    @property
    def max_time(self) -> NDArray[np.int64]:
        return self._version.times()[1]

    def overlap(self, begin: int | None = None, end: int | None = None) -> list[FileHandle]:
        """Return the files that may hold an entry in [begin, end], newest first; None is open."""
        files = self._version.files
        if (begin is None and end is None) or len(files) <= _LOOP_MAX:
            return [file for file in files if file.overlaps(begin, end)]
        min_time, max_time = self._version.times()
        mask = np.ones(len(files), np.bool_)
        if end is not None:
            mask &= min_time <= end
        if begin is not None:
            mask &= max_time >= begin
        kept = (files[place] for place in np.flatnonzero(mask))
        return [file for file in kept if file.overlaps(begin, end)]  # live files: asked now

    def by_state(self, state: FileState) -> list[FileHandle]:
        return [file for file in self._version.files if file.state is state]

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
        self._files: SkipList[tuple[int, str], FileHandle] = SkipList()
        self.version = _Version(())
        self._versions = deque([self.version])
        self._reclaim_lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def snapshot(self) -> FileSnapshot:
        """Return the files as of now, pinned. O(1), no lock."""
        while True:
            version = self.version
            snapshot = FileSnapshot(
                self, version
            )  # first: whatever is raised, its pin goes with it
            version.pins.add(snapshot.pin)
            if version is self.version:
                return snapshot
            version.pins.discard(
                snapshot.pin
            )  # a writer was faster: its reclaim may not have seen us

    def get(self, number: int, node: str) -> FileHandle | None:
        return self._files.get((number, node))

    def iterate(
        self, low: tuple[int, str] | None = None, high: tuple[int, str] | None = None
    ) -> Iterator[FileHandle]:
        """Yield the files with low <= (number, node) <= high, oldest first, without a lock.

        Files that come and go meanwhile may or may not be seen. Readers are not pinned.
        """
        return self._files.iterate(low, high)

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
            before = self.version
            try:
                for handle in remove:
                    self._files.remove(handle.key)
                for handle in add:
                    self._files.insert(handle.key, handle)
                self._publish(remove)
            except BaseException:  # of a signal handler: all of the change, or nothing
                if self.version is before:
                    self._undo()
                raise
        self.reclaim()

    def reclaim(self) -> None:
        """Let go of handles that neither the table nor any pinned version holds."""
        retired: list[FileHandle] = []
        with self._reclaim_lock:
            # The oldest version first: a handle retired by version n may be in every one before n.
            while len(self._versions) > 1 and not self._versions[0].pins:
                retired += self._versions.popleft().retired
        for handle in retired:
            handle.release()

    def check(self) -> list[str]:
        """Return every broken invariant, in words."""
        broken = self._files.check()
        if tuple(self._files)[::-1] != self.version.files:
            broken.append("the newest version differs from the skip list")
        return broken

    def _succeed(self, handle: FileHandle, **changes: Any) -> FileHandle:
        with self._lock:
            self._check_change((), (handle,))
            successor = handle.successor(**changes)
            assert successor.key == handle.key, "a file keeps its number"
            before = self.version
            try:
                self._files.replace(handle.key, successor)
                self._publish((handle,))
            except BaseException:
                if self.version is before:
                    self._undo()
                raise
        self.reclaim()
        return successor

    def _check_change(self, add: Sequence[FileHandle], remove: Sequence[FileHandle]) -> None:
        gone = {handle.key for handle in remove}
        if any(self._files.get(handle.key) is not handle for handle in remove):
            raise KeyError("a handle to be removed or moved is not the newest of its file")
        taken = {handle.key for handle in add}
        there = [key for key in taken - gone if self._files.get(key) is not None]
        if len(taken) != len(add) or len(gone) != len(remove) or there:
            raise KeyError(f"a file is there already, or named twice: {there}")

    def _undo(self) -> None:
        """Make the newest version's files those of the skip list again. The caller holds the lock."""
        files: SkipList[tuple[int, str], FileHandle] = SkipList()
        for handle in reversed(self.version.files):
            files.insert(handle.key, handle)
        self._files = files
        with self._reclaim_lock:
            if self._versions[-1] is not self.version:
                self._versions.pop()  # nobody saw it

    def _publish(self, retired: Sequence[FileHandle]) -> None:
        """Make the skip list's files the newest version. The caller holds the lock."""
        version = _Version(tuple(self._files)[::-1])
        with self._reclaim_lock:
            before = self.version
            self._versions.append(version)
            self.version = version  # visible to queries from here on
            before.retired.extend(retired)  # last: were it not published, they would be in use
