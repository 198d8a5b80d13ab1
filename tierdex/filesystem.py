"""The only access to the local file system: files, mappings, folders, locks.

Every call is one system call or the smallest safe group of them, so that a simulated disk can stand
in for it (`tests.simulation.simulated_disk`) and every call is a place where a crash or an error may
strike. What each call makes durable:

* `OpenFile.sync`, `sync_data`, `Mapping.sync`  -- the bytes (and the size) of that file
* `sync_folder`                       -- the names in that folder: creations, renames, removals
* everything else                     -- nothing: it is visible at once and survives a killed
                                         process, not a power cut

Errors are plain `OSError` that name their path; the layers above make typed errors of them.

Depends on numpy, fork and local_file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from typing import TYPE_CHECKING, Protocol

from tierdex.fork import tell_child
from tierdex.local_file import FileStat, LocalFile

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from typing_extensions import Buffer


class Mapping(Protocol):
    """A file's bytes in memory. `array` is uint8, one element a byte.

    Stores into a writable mapping are stores into the file when `is_shared`. Otherwise `write_back`
    writes each of them into the file, and no other process sees it before: the file system may lack
    a block.
    """

    array: np.ndarray
    is_shared: bool

    def populate(self, position: int, length: int) -> None:
        """Bring pages into memory for later stores; advice only, never an error.

        Without it the first store to each page faults. The file has blocks there.
        """
        ...

    def write_back(self, position: int, length: int) -> None:
        """Write the stores to these bytes into the file. Raises OSError (ENOSPC)."""
        ...

    def sync(self, position: int, length: int) -> None:
        """Make the bytes [position, position + length) of the file durable. Raises OSError."""
        ...

    def close(self) -> None:
        """Unmap the file once no array view of it is left."""
        ...


class OpenFile(Protocol):
    """One open file. Reads and writes name their position: there is no cursor to share."""

    def stat(self) -> FileStat:
        """Return what is open, whatever its name names now."""
        ...

    def size(self) -> int: ...
    def read_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`. Raises OSError; then any part of it may be written."""
        ...

    def reserve(self, position: int, length: int) -> None:
        """Reserve disk blocks, so that stores into a shared mapping cannot fail. Raises OSError (ENOSPC)."""
        ...

    def ask_for_overwriting(self) -> None:
        """Ask for an empty file to be overwritten in place, where the file system copies on write."""
        ...

    def truncate(self, length: int) -> None: ...
    def sync(self) -> None: ...
    def sync_data(self) -> None:
        """Make bytes and size durable, not the times of the inode: one journal commit less."""
        ...

    def lock_shared(self) -> None:
        """Keep the file from `lock_alone` of others while it is open here. Raises BlockingIOError."""
        ...

    def lock_alone(self) -> None:
        """Take the file for this one alone while it is open.

        Raises BlockingIOError when it is in use, or has a second name, which would see it overwritten.
        """
        ...

    def prove_alone(self) -> None:
        """Return when no other process can see the file being overwritten, and it lacks no block.

        It is not open or mapped elsewhere, in this process or another; it has one name; its blocks are no
        other file's. Raises BlockingIOError when it is open elsewhere or the system cannot tell, OSError.
        """
        ...

    def read_cached(self, position: int, length: int) -> bytes | None:
        """Return as `read_at` when all of it is in memory, None when some would come from the device.

        Where the system cannot tell, it is read.
        """
        ...

    def read_uncached(self, position: int, length: int) -> bytes:
        """Return as `read_at`, and leave nothing of it in memory: for what `read_cached` does not give."""
        ...

    def forget_cached(self) -> None:
        """Ask the kernel to drop clean cached pages, so that the next read comes from the device."""
        ...

    def map(self, length: int, *, writable: bool) -> Mapping:
        """Map the first `length` bytes. Raises OSError when the file is shorter."""
        ...

    def close(self) -> None: ...


class FolderLock(Protocol):
    """An exclusive lock that ends with the process that holds it; a child of fork does not share it."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Folders and files. Safe to share between threads."""

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> OpenFile:
        """Open a file; `create` makes it when absent, `exclusive` refuses one that is there.

        It never waits for the other end of a pipe: reading what is no file fails.

        A `private` one is made for its owner alone; made by root, for the owner of its folder.
        """
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents, unless they exist."""
        ...

    def list_folder(self, path: Path) -> list[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        ...

    def stat(self, path: Path) -> FileStat | None:
        """Return what a path names; None for nothing, and for a link to nothing."""
        ...

    def exists(self, path: Path) -> bool: ...
    def is_folder(self, path: Path) -> bool: ...
    def file_size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def permissions(self, path: Path) -> int:
        """Return the permission bits of a file."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move atomically, replacing the target."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name. Raises FileExistsError: this is create-if-absent."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a name, if it exists."""
        ...

    def sync_folder(self, path: Path) -> None: ...
    def free_bytes(self, path: Path) -> int: ...
    def lock(self, path: Path, holder: str) -> FolderLock:
        """Take the lock file and write `holder` into it. Raises BlockingIOError when it is held."""
        ...


def make_durable_folder(filesystem: FileSystem, folder: Path) -> None:
    """Make a folder and its parents; all their names are durable on return. Raises OSError.

    Otherwise a power cut may remove a new folder with all synced files inside. The name of each
    folder is made durable before the next is made in it. So of the existing folders, made by
    another process or before a crash, only the name of the innermost may not be durable.
    """
    absent = []
    while not filesystem.is_folder(folder):
        absent.append(folder)
        folder = folder.parent
    try:
        filesystem.sync_folder(folder.parent)
    except OSError as error:  # a folder that we cannot write was made by another user
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
    for made in reversed(absent):  # the outermost first
        filesystem.make_folder(made)
        filesystem.sync_folder(made.parent)


def read_aside(file: OpenFile, position: int, length: int) -> bytes:
    """Return bytes of a file; what comes from the device for it pushes nothing out of memory."""
    found = file.read_cached(position, length)
    return file.read_uncached(position, length) if found is None else found


class LocalFileSystem:
    """The machine's file system."""

    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> LocalFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if writable or create else os.O_RDONLY)
        flags |= (os.O_CREAT if create else 0) | (os.O_EXCL if exclusive else 0)
        if not (writable or create):
            flags |= os.O_NONBLOCK  # of a file it means nothing; a pipe would wait for its writer
        descriptor = os.open(path, flags, 0o600 if private else 0o644)
        if private and os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(descriptor, folder.st_uid, folder.st_gid)
        return LocalFile(path, descriptor)

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def list_folder(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def stat(self, path: Path) -> FileStat | None:
        try:
            found = path.lstat()
            if not stat.S_ISLNK(found.st_mode):
                return FileStat.of(found)
            return FileStat.of(path.stat(), is_link=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:  # links that lead to each other
                return None
            raise

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def permissions(self, path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def lock(self, path: Path, holder: str) -> _LocalLock:
        lock = _LocalLock(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        try:
            lock.take(holder)
        except OSError as error:
            error.filename = str(path)
            raise
        return lock


class _LocalLock:
    """A lock held on an open descriptor: the kernel releases it when the last copy is closed.

    A fork copies the descriptor. The child closes its copy, or it would hold the folder after its
    parent's end; it must not unlock it, which would unlock the parent's.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        tell_child(self._after_fork)  # before it is locked, since a fork may happen at any time

    def take(self, holder: str) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, holder.encode(), 0)
        except OSError:
            self._close()
            raise

    def release(self) -> None:
        if self._descriptor is not None:
            try:
                os.ftruncate(self._descriptor, 0)
            finally:
                self._close()  # releases the folder also after an error

    def _after_fork(self) -> None:
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
