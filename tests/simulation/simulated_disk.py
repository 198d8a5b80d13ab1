"""A file system in memory that loses its power, fails and fills up on command.

`SimulatedFileSystem` takes the place of `filesystem.LocalFileSystem` under the real code. Each call
is counted and traced, may be made to fail, and may be the last one before a crash::

    disk = SimulatedFileSystem()
    disk.crash_at(17)                       # before the 17th call, or after it with after=True
    with pytest.raises(SimulatedCrash): scenario(disk)
    for survivor in disk.crash_states(limit=1000, seed=1):
        check_recovery(survivor)            # each is a fresh disk in one state that a power cut may leave

After a power cut every unsynced 4 KiB page of a mapping, 512-byte sector of a write, size and
change of names persists or not, independently (see simulated_file and simulated_folders).
`restart()` is the other failure: the process dies (kill -9), the machine and its page cache live
on.

A store into a mapping needs no disk space here even when the disk is full; `reserve` and `write_at`
do. A load beyond the end of a file that was cut under a mapping is a SIGBUS here, too.

Depends on clock, local_file and the other modules of this folder.
"""

from __future__ import annotations

import errno
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.simulation.simulated_faults import (
    ANY,
    Call,
    CrashPoint,
    Fault,
    SimulatedCrash,
    sampled_choices,
)
from tests.simulation.simulated_file import PAGE, Effect, SimulatedFile
from tests.simulation.simulated_folders import Folder, FolderTree, failure
from tests.simulation.simulated_machine import Disk
from tierdex.clock import Clock, ManualClock
from tierdex.local_file import FileStat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

__all__ = ["ANY", "Call", "Effect", "SimulatedCrash", "SimulatedFileSystem"]


class SimulatedFileSystem:
    """The `FileSystem` contract on a simulated disk. Safe to share between threads.

    `mapping_sync_keeps_size=False` makes `Mapping.sync` leave the size uncertain, which POSIX allows
    and Linux does not do.
    """

    is_cold = False  # nothing that is read is in memory, as far as `read_cached` tells

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        capacity_bytes: int | None = None,
        mapping_sync_keeps_size: bool = True,
    ) -> None:
        self._disk = Disk(FolderTree(), clock or ManualClock(), capacity_bytes)
        self.mapping_sync_keeps_size = mapping_sync_keeps_size
        self.persisted: tuple[str, ...] = ()

    # -- knobs ------------------------------------------------------------------------------------

    @property
    def trace(self) -> list[Call]:
        """Every call so far, in order; clear it to begin a new count."""
        return self._disk.trace

    @property
    def capacity_bytes(self) -> int | None:
        """The disk's size; None is endless. May be changed at any time."""
        return self._disk.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, value: int | None) -> None:
        self._disk.capacity_bytes = value

    def fail(
        self, kind: str, nth: int = 1, number: int = errno.EIO, *,
        for_ever: bool = False, written_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Make the nth call of a kind from now on fail with an errno, once or from then on.

        A failing write writes `written_bytes` first (a short write); a failing sync marks pages clean.
        """
        self._disk.faults.append(Fault(kind, nth, number, for_ever, written_bytes))

    def heal(self) -> None:
        """Forget all faults and crash points."""
        self._disk.faults.clear()
        self._disk.crash_points.clear()

    def crash_at(self, nth: int, *, kind: str = ANY, after: bool = False) -> None:
        """Raise SimulatedCrash before (or after) the nth call of a kind from now on, and ever after."""
        self._disk.crash_points.append(CrashPoint(kind, nth, after))

    def note_stores_at_every_call(self) -> None:
        """Make a crash also leave older contents of mapped pages: those at each call. Costs time."""
        self._disk.note_stores_at_every_call = True

    # -- failures ---------------------------------------------------------------------------------

    def other_process(self) -> SimulatedFileSystem:
        """Return another instance on the same disk: it sees everything, and its locks collide."""
        return self._instance(self._disk)

    def restart(self) -> SimulatedFileSystem:
        """Return the disk as the next process sees it after a kill -9: all written, no lock held.

        What was not synced is still uncertain. Faults, crash points and the trace begin anew.
        """
        with self._disk.guard:
            disk = Disk(self._disk.tree, self._disk.clock, self._disk.capacity_bytes)
            self._disk.is_dead = True
            for file in self._disk.tree.files():
                file.process_ended()
        return self._instance(disk)

    def pending_effects(self) -> list[Effect]:
        """Return every change that a power cut now may keep or lose."""
        with self._disk.guard:
            if not self._disk.is_dead:
                self._disk.note_stores()
            files = sorted(self._disk.tree.files(), key=lambda file: file.path)
            return [*self._disk.tree.uncertain(), *(e for f in files for e in f.uncertain())]

    def crash(self, choose: Callable[[Effect], bool]) -> SimulatedFileSystem:
        """Return the disk after a power cut that kept the pending effects that `choose` names."""
        with self._disk.guard:
            pending = self.pending_effects()
            kept = {id(effect) for effect in pending if choose(effect)}
            tree = self._disk.tree.after_crash(lambda effect: id(effect) in kept)
            survivor = self._instance(Disk(tree, self._disk.clock, self._disk.capacity_bytes))
            survivor.persisted = tuple(
                f"{number} {effect}" for number, effect in enumerate(pending) if id(effect) in kept
            )
            return survivor

    def crash_states(self, limit: int, seed: int) -> Iterator[SimulatedFileSystem]:
        """Yield at most `limit` different states that a power cut now may leave.

        All of them where there are no more than that. Else: nothing, everything, each effect alone and
        each alone missing, every prefix in order, then seeded samples of all densities.
        """
        pending = self.pending_effects()
        if len(pending) < limit.bit_length():  # 2 ** len(pending) <= limit
            choices: Iterator[tuple[bool, ...]] = itertools.product(
                (False, True), repeat=len(pending)
            )
        else:
            choices = itertools.islice(sampled_choices(len(pending), seed), limit)
        for choice in choices:
            kept = {id(effect) for effect, keep in zip(pending, choice, strict=True) if keep}
            yield self.crash(lambda effect, kept=kept: id(effect) in kept)  # type: ignore[misc]

    def _instance(self, disk: Disk) -> SimulatedFileSystem:
        instance = SimulatedFileSystem.__new__(SimulatedFileSystem)
        instance._disk = disk
        instance.mapping_sync_keeps_size = self.mapping_sync_keeps_size
        instance.persisted = ()
        return instance

    # -- the contract of FileSystem ---------------------------------------------------------------

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> _SimulatedOpenFile:
        with self._disk.call("open", path):
            tree = self._disk.tree
            node = tree.find(path)
            if node is not None and exclusive:
                raise failure(errno.EEXIST, path)
            if node is None and create:
                self._create(path, 0o600 if private else 0o644)
            return _SimulatedOpenFile(self, path, tree.file(path), writable or create)

    def make_folder(self, path: Path) -> None:
        with self._disk.call("make_folder", path):
            for folder in [*reversed(path.parents), path]:
                node = self._disk.tree.find(folder)
                if isinstance(node, SimulatedFile):
                    raise failure(errno.EEXIST if folder == path else errno.ENOTDIR, folder)
                if node is None:
                    parent = self._disk.tree.folder(folder.parent)
                    self._disk.tree.assign(
                        "folder", folder, (parent, folder.name, Folder(str(folder)))
                    )

    def list_folder(self, path: Path) -> list[str]:
        with self._disk.call("list_folder", path):
            if self._disk.tree.find(path) is None:
                return []
            return sorted(self._disk.tree.folder(path).entries)

    def stat(self, path: Path) -> FileStat | None:
        with self._disk.call("stat", path):
            node = self._find_or_none(path)
            if isinstance(node, SimulatedFile):
                return _stat_of(node)
            return None if node is None else FileStat(0, id(node), "folder", 0, 0)

    def exists(self, path: Path) -> bool:
        with self._disk.call("stat", path):
            return self._find_or_none(path) is not None

    def is_folder(self, path: Path) -> bool:
        with self._disk.call("stat", path):
            return isinstance(self._find_or_none(path), Folder)

    def file_size(self, path: Path) -> int:
        with self._disk.call("stat", path):
            return self._disk.tree.file(path).size

    def modified_ms(self, path: Path) -> int:
        with self._disk.call("stat", path):
            return self._disk.tree.file(path).modified_ms

    def permissions(self, path: Path) -> int:
        with self._disk.call("stat", path):
            return self._disk.tree.file(path).permissions

    def rename(self, source: Path, target: Path) -> None:
        with self._disk.call("rename", source):
            tree = self._disk.tree
            node, replaced = tree.find(source), tree.find(target)
            if node is None:
                raise failure(errno.ENOENT, source)
            if node is replaced:
                return
            if isinstance(replaced, Folder) and not isinstance(node, Folder):
                raise failure(errno.EISDIR, target)
            if isinstance(replaced, SimulatedFile) and isinstance(node, Folder):
                raise failure(errno.ENOTDIR, target)
            if isinstance(replaced, Folder) and replaced.entries:
                raise failure(errno.ENOTEMPTY, target)
            old, new = tree.folder(source.parent), tree.folder(target.parent)
            tree.assign("rename", target, (old, source.name, None), (new, target.name, node))

    def link(self, source: Path, target: Path) -> None:
        with self._disk.call("link", target):
            node = self._disk.tree.file(source)
            if self._disk.tree.find(target) is not None:
                raise failure(errno.EEXIST, target)
            parent = self._disk.tree.folder(target.parent)
            self._disk.tree.assign("link", target, (parent, target.name, node))

    def unlink(self, path: Path) -> None:
        with self._disk.call("unlink", path):
            if self._disk.tree.find(path) is None:
                return
            self._disk.tree.file(path)
            parent = self._disk.tree.folder(path.parent)
            self._disk.tree.assign("unlink", path, (parent, path.name, None))

    def sync_folder(self, path: Path) -> None:
        with self._disk.call("sync_folder", path):
            self._disk.tree.sync(self._disk.tree.folder(path))

    def free_bytes(self, path: Path) -> int:
        with self._disk.call("free_bytes", path):
            return max(0, self._disk.free_pages()) * PAGE

    def lock(self, path: Path, holder: str) -> _SimulatedLock:
        with self._disk.call("lock", path):
            if self._disk.tree.find(path) is None:
                self._create(path, 0o644)
            file = self._disk.tree.file(path)
            if file in self._disk.locked:
                raise failure(errno.EAGAIN, path)
            lock = self._disk.locked[file] = _SimulatedLock(self._disk, file)
            file.truncate(0)
            file.write(0, holder.encode())
            return lock

    def _create(self, path: Path, permissions: int) -> None:
        parent = self._disk.tree.folder(path.parent)
        file = SimulatedFile(str(path), modified_ms=self._disk.clock.now_ms())
        file.permissions = permissions
        self._disk.tree.assign("create", path, (parent, path.name, file))

    def _find_or_none(self, path: Path) -> SimulatedFile | Folder | None:
        try:
            return self._disk.tree.find(path)
        except NotADirectoryError:
            return None


def _stat_of(file: SimulatedFile) -> FileStat:
    return FileStat(0, id(file), "file", file.size, file.modified_ms * 1_000_000)


class _SimulatedOpenFile:
    """One open file of a simulated disk; it keeps its file when the name goes."""

    def __init__(
        self, system: SimulatedFileSystem, path: Path, file: SimulatedFile, writable: bool
    ) -> None:
        self._system = system
        self._disk = system._disk
        self._path = path
        self._file = file
        self._writable = writable
        self._is_open = True
        self.is_alone = False
        file.open_count += 1

    def stat(self) -> FileStat:
        with self._disk.call("stat", self._path):
            self._check()
            return _stat_of(self._file)

    def size(self) -> int:
        with self._disk.call("stat", self._path):
            self._check()
            return self._file.size

    def read_at(self, position: int, length: int) -> bytes:
        with self._disk.call("read", self._path):
            self._check()
            return self._file.read(position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        payload = bytes(memoryview(data).cast("B"))
        with self._disk.call(
            "write", self._path, lambda fault: self._write(position, payload[: fault.written_bytes])
        ):
            self._write(position, payload)

    def reserve(self, position: int, length: int) -> None:
        with self._disk.call("reserve", self._path):
            self._check(writing=True)
            if length <= 0 or position < 0:
                raise failure(errno.EINVAL, self._path)
            self._disk.take_space(self._file, position, length)
            self._file.reserve(position, length)

    def ask_for_overwriting(self) -> None:
        """Do nothing: this disk overwrites in place."""

    def truncate(self, length: int) -> None:
        with self._disk.call("truncate", self._path):
            self._check(writing=True)
            self._file.truncate(length)
            self._file.modified_ms = self._disk.clock.now_ms()

    def sync(self) -> None:
        with self._disk.call("sync", self._path, lambda _: self._file.fail_sync()):
            self._check()
            self._file.sync()

    def sync_data(self) -> None:
        with self._disk.call("sync", self._path, lambda _: self._file.fail_sync()):
            self._check()
            self._file.sync()

    def lock_shared(self) -> None:
        self._lock_against([other for other in self._file.users if other.is_alone])
        self.is_alone = False

    def lock_alone(self) -> None:
        self._lock_against(list(self._file.users))
        self.is_alone = True

    def _lock_against(self, others: list[Any]) -> None:
        with self._disk.call("lock_file", self._path):
            self._check()
            if any(other is not self for other in others):
                raise failure(errno.EAGAIN, self._path)
            self._file.users.append(self)

    def prove_alone(self) -> None:
        with self._disk.call("lease", self._path):
            self._check()
            file = self._file
            if file.open_count > 1 or file.is_mapped or self._disk.tree.name_count(file) != 1:
                raise failure(errno.EAGAIN, self._path)

    def read_cached(self, position: int, length: int) -> bytes | None:
        return None if self._system.is_cold else self.read_at(position, length)

    def read_uncached(self, position: int, length: int) -> bytes:
        with self._disk.call("read_uncached", self._path):
            self._check()
            return self._file.read(position, length)

    def forget_cached(self) -> None:
        with self._disk.call("forget", self._path):
            self._check()
            self._file.forget_cached()

    def map(self, length: int, *, writable: bool) -> _SimulatedMapping:
        with self._disk.call("map", self._path):
            self._check(writing=writable)
            array = self._file.map(length, writable=writable)
            return _SimulatedMapping(self._system, self._path, self._file, array)

    def close(self) -> None:  # never a failpoint: closing makes nothing durable and loses nothing
        with self._disk.guard:
            self._check()
            self._is_open = False
            self._file.users = [user for user in self._file.users if user is not self]
            self._file.open_count = max(0, self._file.open_count - 1)  # 0 after a restart

    def _write(self, position: int, payload: bytes) -> None:
        self._check(writing=True)
        room = len(payload)
        try:
            self._disk.take_space(self._file, position, room)
        except OSError:
            # The kernel writes what fits before it says that the disk is full.
            room = self._disk.free_pages() * PAGE
            self._file.write(position, payload[: max(0, room - position % PAGE)])
            raise
        self._file.write(position, payload)
        self._file.modified_ms = self._disk.clock.now_ms()

    def _check(self, *, writing: bool = False) -> None:
        if not self._is_open or (writing and not self._writable):
            raise failure(errno.EBADF, self._path)


class _SimulatedMapping:
    """A file's bytes, shared with every other mapping and with reads and writes of the file."""

    is_shared = True

    def __init__(
        self, system: SimulatedFileSystem, path: Path, file: SimulatedFile, array: np.ndarray
    ) -> None:
        self.array = array
        self._system = system
        self._path = path
        self._file = file

    def populate(self, position: int, length: int) -> None:
        """Do nothing: all bytes are in memory."""

    def write_back(self, position: int, length: int) -> None:
        """Do nothing: what was stored is the file's."""

    def sync(self, position: int, length: int) -> None:
        disk = self._system._disk
        failing = lambda _: self._file.fail_sync(position, length)  # noqa: E731
        with disk.call("mapping_sync", self._path, failing):
            keeps_size = self._system.mapping_sync_keeps_size
            self._file.sync_pages(position, length, with_size=keeps_size)

    def close(self) -> None:
        self.array = np.empty(0, np.uint8)


class _SimulatedLock:
    """A lock that ends with its release, its process (`restart`) or its machine (`crash`)."""

    def __init__(self, disk: Disk, file: SimulatedFile) -> None:
        self._disk = disk
        self._file = file

    def release(self) -> None:
        with self._disk.guard:
            if not self._disk.is_dead and self._disk.locked.get(self._file) is self:
                self._file.truncate(0)
                del self._disk.locked[self._file]
