"""The only door to the local file system: files, mappings, folders, locks.

Every call is one system call or the smallest safe group of them, so that a simulated disk can stand
in for it (`tierdex.testing.simulated_disk`) and every call is a place where a crash or an error may
strike. What each call makes durable:

* `OpenFile.sync`, `sync_data`, `Mapping.sync`  -- the bytes (and the size) of that file
* `sync_folder`                       -- the names in that folder: creations, renames, removals
* everything else                     -- nothing: it is visible at once and survives a killed
                                         process, not a power cut

Errors are plain `OSError` that name their path: layers above say what they mean. Depends on numpy,
fork and reservation.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import shutil
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Protocol, TypeVar

import numpy as np

from tierdex.fork import tell_child
from tierdex.reservation import ask_for_overwriting, keeps_reserved

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="_LocalFile | _LocalMapping")

PAGE_BYTES = mmap.PAGESIZE


class Mapping(Protocol):
    """A file's bytes in memory. `array` is uint8, one element a byte.

    Stores into a writable one are the file's at once when `is_shared`; else each is brought there by
    `write_back`, and nobody else sees it before: the file system may lack a block for it.
    """

    array: np.ndarray
    is_shared: bool

    def populate(self, position: int, length: int) -> None:
        """Bring pages into memory, ready for stores; advice only, and never an error.

        Without it each page faults when it is first stored to. The file has blocks there.
        """
        ...

    def write_back(self, position: int, length: int) -> None:
        """Bring what was stored into these bytes into the file. Raises OSError (ENOSPC)."""
        ...

    def sync(self, position: int, length: int) -> None:
        """Make the bytes [position, position + length) of the file durable. Raises OSError."""
        ...

    def close(self) -> None:
        """Give the mapping back once no array view of it is left."""
        ...


class OpenFile(Protocol):
    """One open file. Reads and writes name their position: there is no cursor to share."""

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
        """Take the file for this one alone while it is open. Raises BlockingIOError when it is in use."""
        ...

    def forget_cached(self) -> None:
        """Ask the kernel to drop clean cached pages, so that the next read comes from the device."""
        ...

    def map(self, length: int, *, writable: bool) -> Mapping:
        """Map the first `length` bytes. Raises OSError when the file is shorter."""
        ...

    def close(self) -> None: ...


class FolderLock(Protocol):
    """An exclusive lock that ends with the process that holds it; a child of fork has no part in it."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """Folders and files. Safe to share between threads."""

    def open(
        self, path: Path, *, writable: bool = False, create: bool = False, exclusive: bool = False
    ) -> OpenFile:
        """Open a file; `create` makes it when absent, `exclusive` refuses one that is there."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents; one that is there is fine."""
        ...

    def list_folder(self, path: Path) -> list[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        ...

    def exists(self, path: Path) -> bool: ...
    def is_folder(self, path: Path) -> bool: ...
    def file_size(self, path: Path) -> int: ...
    def modified_ms(self, path: Path) -> int: ...
    def rename(self, source: Path, target: Path) -> None:
        """Move atomically, replacing the target."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give the file a second name. Raises FileExistsError: this is create-if-absent."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a name; an absent one is fine."""
        ...

    def sync_folder(self, path: Path) -> None: ...
    def free_bytes(self, path: Path) -> int: ...
    def lock(self, path: Path, holder: str) -> FolderLock:
        """Take the lock file and write `holder` into it. Raises BlockingIOError when it is held."""
        ...


def make_durable_folder(filesystem: FileSystem, folder: Path) -> None:
    """Make a folder and its parents; all their names are durable on return. Raises OSError.

    Without it a power cut may take a new folder away with everything synced inside. Each folder's name
    is made durable before the next is made in it, so that of those which are there already, made by
    another process or before a crash, only the innermost may not be.
    """
    absent = []
    while not filesystem.is_folder(folder):
        absent.append(folder)
        folder = folder.parent
    try:
        filesystem.sync_folder(folder.parent)
    except OSError as error:  # one that cannot be written was made there by somebody else
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
    for made in reversed(absent):  # the outermost first
        filesystem.make_folder(made)
        filesystem.sync_folder(made.parent)


class LocalFileSystem:
    """The machine's file system."""

    def open(
        self, path: Path, *, writable: bool = False, create: bool = False, exclusive: bool = False
    ) -> _LocalFile:
        flags = os.O_CLOEXEC | (os.O_RDWR if writable or create else os.O_RDONLY)
        flags |= (os.O_CREAT if create else 0) | (os.O_EXCL if exclusive else 0)
        return _LocalFile(path, os.open(path, flags, 0o644))

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def list_folder(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def file_size(self, path: Path) -> int:
        return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

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
    """A lock held on an open descriptor: the kernel lets go of it when the last copy is closed.

    A fork copies it. The child closes its own, or it would hold the folder after its parent's end; it
    must not unlock it, which would unlock the parent's.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        tell_child(self._after_fork)  # before it is locked: a fork may come at any time

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
                self._close()  # lets go of the folder, whatever the disk says

    def _after_fork(self) -> None:
        self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _naming_path(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Let an error of a call on a descriptor say whose it is, as calls on a path do."""

    @wraps(call)
    def named(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(self, *arguments, **named)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise

    return named


class _LocalFile:
    """A file descriptor with positional reads and writes."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @_naming_path
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @_naming_path
    def read_at(self, position: int, length: int) -> bytes:
        chunks = []
        while length > 0 and (chunk := os.pread(self._descriptor, length, position)):
            chunks.append(chunk)
            position += len(chunk)
            length -= len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    @_naming_path
    def write_at(self, position: int, data: Buffer) -> None:
        _write_all(self._descriptor, position, data)

    @_naming_path
    def reserve(self, position: int, length: int) -> None:
        # Whole pages: a store makes the file system map all blocks of its page, up to the file's end,
        # and these may be smaller than a page.
        first, end = position - position % PAGE_BYTES, position + length
        whole = min(-(-end // PAGE_BYTES) * PAGE_BYTES, os.fstat(self._descriptor).st_size)
        os.posix_fallocate(self._descriptor, first, max(end, whole) - first)

    def ask_for_overwriting(self) -> None:
        ask_for_overwriting(self._descriptor)

    @_naming_path
    def truncate(self, length: int) -> None:
        os.ftruncate(self._descriptor, length)

    @_naming_path
    def sync(self) -> None:
        os.fsync(self._descriptor)

    @_naming_path
    def sync_data(self) -> None:
        os.fdatasync(self._descriptor)

    @_naming_path
    def lock_shared(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    @_naming_path
    def lock_alone(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def forget_cached(self) -> None:
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    @_naming_path
    def map(self, length: int, *, writable: bool) -> _LocalMapping:
        if writable and not keeps_reserved(self._descriptor):
            return _PrivateMapping(self.path, self._descriptor, length)
        return _LocalMapping(self.path, self._descriptor, length, "r+" if writable else "r")

    def close(self) -> None:
        os.close(self._descriptor)


class _LocalMapping:
    """A shared mapping. The numpy view pins the pages until the last view is gone."""

    is_shared = True

    def __init__(
        self, path: Path, descriptor: int, length: int, mode: Literal["r", "r+", "c"]
    ) -> None:
        self.path = path
        size = os.fstat(descriptor).st_size
        if size < length:  # a store or load beyond the end would be a SIGBUS, not an error
            raise OSError(errno.EIO, f"file holds {size} bytes, {length} were to be mapped")
        with os.fdopen(os.dup(descriptor), "r+b" if mode == "r+" else "rb") as file:
            try:
                self.array: np.ndarray = np.memmap(file, dtype=np.uint8, mode=mode, shape=(length,))
            except ValueError as error:  # its writer's seal cut it since the look above
                raise OSError(errno.EIO, f"cut below {length} bytes while being mapped") from error

    def populate(self, position: int, length: int) -> None:
        first = position - position % PAGE_BYTES
        _populate(self.array.ctypes.data + first, position + length - first)

    def write_back(self, position: int, length: int) -> None:
        """Do nothing: what was stored is the file's."""

    @_naming_path
    def sync(self, position: int, length: int) -> None:
        first = position - position % PAGE_BYTES
        _msync(self.array.ctypes.data + first, position + length - first)

    def close(self) -> None:
        # No munmap by hand: it would turn a late reader's load into a crash. But the pages of a large
        # file are let go here, without the GIL, which the munmap that is to come will hold.
        if len(self.array) >= _LARGE_MAPPING:
            _LIBC.madvise(
                ctypes.c_void_p(self.array.ctypes.data),
                ctypes.c_size_t(len(self.array)),
                _MADV_DONTNEED,
            )
        self.array = np.empty(0, np.uint8)


class _PrivateMapping(_LocalMapping):
    """A mapping whose changed pages are this process' own until `write_back`.

    Pages that were written whole, one piece behind the other, are let go of: they are read from the
    page cache from then on, so memory holds what was stored at random, and the newest rows.
    """

    is_shared = False

    def __init__(self, path: Path, descriptor: int, length: int) -> None:
        super().__init__(path, descriptor, length, "c")
        self._descriptor = os.dup(descriptor)
        self._begin = self._end = 0  # of the pieces that follow each other and are still held

    def populate(self, position: int, length: int) -> None:
        """Do nothing: pages that are not stored to must not become this process' own."""

    @_naming_path
    def write_back(self, position: int, length: int) -> None:
        _write_all(self._descriptor, position, self.array.data[position : position + length])
        if not self._begin <= position <= self._end:
            self._begin = position
        self._end = position + length
        first = -(-self._begin // PAGE_BYTES) * PAGE_BYTES
        last = self._end - self._end % PAGE_BYTES - PAGE_BYTES  # the next piece's record is zeroed
        if last - first >= _HELD_BYTES:
            _LIBC.madvise(
                ctypes.c_void_p(self.array.ctypes.data + first),
                ctypes.c_size_t(last - first),
                _MADV_DONTNEED,
            )
            self._begin = last

    @_naming_path
    def sync(self, position: int, length: int) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        # No page is let go of here: a late reader would find those of the file, without our stores.
        self.array = np.empty(0, np.uint8)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _write_all(descriptor: int, position: int, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        written = os.pwrite(descriptor, view, position)
        position += written
        view = view[written:]


def _msync(address: int, length: int) -> None:
    """Call msync(MS_SYNC) without holding the GIL, which mmap.flush() would."""
    if length and _LIBC.msync(ctypes.c_void_p(address), ctypes.c_size_t(length), _MS_SYNC):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _populate(address: int, length: int) -> None:
    """Call madvise(MADV_POPULATE_WRITE) without holding the GIL. A kernel before 5.14 refuses it."""
    if length:
        _LIBC.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), _MADV_POPULATE_WRITE)


_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_SYNC = 4  # <sys/mman.h>, Linux
_MADV_POPULATE_WRITE = 23  # likewise
_MADV_DONTNEED = (
    4  # likewise; of a shared mapping: the pages stay in the cache, and come back when read
)
_LARGE_MAPPING = 16 << 20
_HELD_BYTES = 1 << 20  # of a private mapping, written and not yet let go of
