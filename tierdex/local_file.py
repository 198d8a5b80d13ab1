"""An open file of the machine's file system, and its mappings.

A writable mapping is shared where the file system keeps reserved blocks (see reservation.py), so that a
store into it is a store into the file. Elsewhere it is private, and `write_back` writes each piece.

Depends on numpy and reservation.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import signal
import stat
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Concatenate,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
)

import numpy as np

from tierdex.reservation import ask_for_overwriting, keeps_reserved, own_blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="LocalFile | LocalMapping")

PAGE_BYTES = mmap.PAGESIZE
_CACHESTAT = 451  # the number of the call on every architecture


def _naming_path(call: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make an error of a call on a descriptor name its path, as calls on a path do."""

    @wraps(call)
    def named(self: S, /, *arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(self, *arguments, **named)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise

    return named


class FileStat(NamedTuple):
    """What a path names, links followed: `kind` is file, folder, pipe, socket or device."""

    device: int
    inode: int
    kind: str
    size: int
    modified_ns: int
    is_link: bool = False

    @property
    def identity(self) -> tuple[int, int]:
        """What a file is, whatever its names: (device, inode)."""
        return self.device, self.inode

    @property
    def modified_ms(self) -> int:
        return self.modified_ns // 1_000_000

    @classmethod
    def of(cls, found: os.stat_result, *, is_link: bool = False) -> FileStat:
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "device")
        return cls(
            found.st_dev, found.st_ino, kind, found.st_size, found.st_mtime_ns, is_link
        )  # fmt: skip


_KINDS: Final = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}


class LocalFile:
    """A file descriptor with positional reads and writes."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @_naming_path
    def stat(self) -> FileStat:
        return FileStat.of(os.fstat(self._descriptor))

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

    def write_at(self, position: int, data: Buffer) -> None:
        try:  # not `_naming_path`: each commit of a log comes by here
            _write_all(self._descriptor, position, data)
        except OSError as error:
            error.filename = error.filename or str(self.path)
            raise

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
        self._refuse_second_name()

    def _refuse_second_name(self) -> None:
        if os.fstat(self._descriptor).st_nlink != 1:  # a backup by hard links
            raise BlockingIOError(errno.EAGAIN, "it has another name")

    @_naming_path
    def prove_alone(self) -> None:
        # A process that opens the file under the lease waits until it is given back, and the kernel signals:
        # by default SIGIO, which ends a process. SIGURG is ignored unless the program wants it.
        fcntl.fcntl(self._descriptor, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except (
            OSError
        ) as error:  # it is open elsewhere; or no leases here, or the file of another user
            raise BlockingIOError(errno.EAGAIN, f"no lease: {error.strerror}") from error
        fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        self._refuse_second_name()
        own_blocks(self._descriptor)

    @_naming_path
    def read_cached(self, position: int, length: int) -> bytes | None:
        end = min(position + length, os.fstat(self._descriptor).st_size)
        pages = -(-end // PAGE_BYTES) - position // PAGE_BYTES
        if position < end and _pages_in_memory(self._descriptor, position, end - position) < pages:
            return None
        return self.read_at(position, length)

    @_naming_path
    def read_uncached(self, position: int, length: int) -> bytes:
        # Random: or the kernel reads megabytes ahead, which stay in memory. The hint is the descriptor's, and
        # no more than a hint: threads may set it and take it back in any order.
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        found = self.read_at(position, length)
        first = position - position % PAGE_BYTES  # pages of which a part is named would stay
        last = -(-(position + length) // PAGE_BYTES) * PAGE_BYTES
        os.posix_fadvise(self._descriptor, first, last - first, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_NORMAL)
        return found

    def forget_cached(self) -> None:
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    @_naming_path
    def map(self, length: int, *, writable: bool) -> LocalMapping:
        if writable and not keeps_reserved(self._descriptor):
            return PrivateMapping(self.path, self._descriptor, length)
        return LocalMapping(self.path, self._descriptor, length, "r+" if writable else "r")

    def close(self) -> None:
        os.close(self._descriptor)


class LocalMapping:
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
            except ValueError as error:  # its writer's seal cut it since the check above
                raise OSError(errno.EIO, f"cut below {length} bytes while being mapped") from error

    def populate(self, position: int, length: int) -> None:
        first = position - position % PAGE_BYTES
        _populate(self.array.ctypes.data + first, position + length - first)

    def write_back(self, position: int, length: int) -> None:
        """Do nothing: stores are in the file already."""

    @_naming_path
    def sync(self, position: int, length: int) -> None:
        first = position - position % PAGE_BYTES
        _msync(self.array.ctypes.data + first, position + length - first)

    def close(self) -> None:
        # No explicit munmap: it would turn a late reader's load into a crash. But the pages of a large
        # file are released here, without the GIL, which the later munmap holds.
        if len(self.array) >= _LARGE_MAPPING:
            _LIBC.madvise(
                ctypes.c_void_p(self.array.ctypes.data),
                ctypes.c_size_t(len(self.array)),
                _MADV_DONTNEED,
            )
        self.array = np.empty(0, np.uint8)


class PrivateMapping(LocalMapping):
    """A mapping whose changed pages belong to this process until `write_back`.

    Pages that were written whole, one piece after the other, are released and read from the page
    cache from then on. So memory holds only the pages with scattered stores, and the newest rows.
    """

    is_shared = False

    def __init__(self, path: Path, descriptor: int, length: int) -> None:
        super().__init__(path, descriptor, length, "c")
        self._descriptor = os.dup(descriptor)
        self._begin = self._end = 0  # of the consecutive pieces that are still held

    def populate(self, position: int, length: int) -> None:
        """Do nothing: pages without stores must not become this process's own."""

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
        # No page is released here: a late reader would load the file's page, without our stores.
        self.array = np.empty(0, np.uint8)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _pages_in_memory(descriptor: int, position: int, length: int) -> int:
    """Return how many pages of a range are in the page cache; all, where the system cannot tell.

    A read that may not wait (RWF_NOWAIT) tells as well, but begins to bring in what it does not find.
    """
    asked, counts = (ctypes.c_uint64 * 2)(position, length), (ctypes.c_uint64 * 5)()
    if _LIBC.syscall(_CACHESTAT, descriptor, asked, counts, 0) < 0:  # a kernel before 6.5
        return length
    return int(counts[0])


def _write_all(descriptor: int, position: int, data: Buffer) -> None:
    view = memoryview(data)
    if view.format != "B" or view.ndim != 1:
        view = view.cast("B")
    while (written := os.pwrite(descriptor, view, position)) < len(view):
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
_HELD_BYTES = 1 << 20  # of a private mapping, written and not yet released
