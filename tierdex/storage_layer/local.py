"""A store in a folder: an object is a file, a key is its path below the root.

The order of steps makes each write atomic and durable::

    put             write .put-X · sync it · rename it onto the name (visible) · sync the folder (durable)
    put_if_absent   write .put-X · sync it · link it to the name (visible, or the name is taken)
                    · unlink .put-X · sync the folder (durable)
    delete          unlink the name · sync the folder

Before the first file of a folder is written, the folder and its parents are made and synced. A name
that starts with a dot is no key: readers never see a temporary file that a crash left, and this
process removes it at its first write into the folder, once the file is an hour old. After a failed
sync the next attempt writes a new file.

One difference from an object store: with an object ``a`` there can be no object ``a/b``.

Depends on base and the ground; every file operation goes through `FileSystem`.
"""

from __future__ import annotations

import contextlib
import errno
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.disk_errors import advice_for
from tierdex.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
)
from tierdex.filesystem import LocalFileSystem, make_durable_folder
from tierdex.ids import SystemIds
from tierdex.storage_layer.base import (
    Names,
    StoredObject,
    UploadSource,
    check_folder_prefix,
    check_key,
    check_prefix,
    check_range,
    range_beyond_end,
    read_source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource

TEMPORARY = ".put-"
LEFTOVER_AGE_MS = 3_600_000  # no put takes an hour: an older temporary file has lost its writer
COPY_BYTES = 8 << 20

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST}


class LocalStore:
    """Objects as files below `root`, which the first write makes.

    Thread safety: safe to share; the lock guards only the set of folders known to be durable.
    """

    def __init__(
        self,
        root: Path,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._root = Path(root).absolute()
        self._filesystem = filesystem or LocalFileSystem()
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._lock = threading.Lock()
        self._durable_folders: set[Path] = set()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        start, length = check_range(position, length)
        path = self._path(key)
        if length == 0:
            return b""
        with self._reading(key):
            file = self._filesystem.open(path)
            try:
                size = file.size()
                end = size if length is None else start + length
                if end > size or (start and start >= size):
                    raise range_beyond_end(str(path), start, length, size)
                data = file.read_at(start, end - start)
            finally:
                file.close()
        if len(data) != end - start:  # the file was cut during the read, which `put` never does
            raise range_beyond_end(str(path), start, length, start + len(data))
        return data

    def put(self, key: str, data: Buffer) -> None:
        path = self._path(key)
        with self._writing(key), self._temporary(path, _BytesSource(data)) as temporary:
            self._filesystem.rename(temporary, path)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        path = self._path(key)
        with self._writing(key), self._temporary(path, _BytesSource(data)) as temporary:
            try:
                self._filesystem.link(temporary, path)
            except FileExistsError:
                # The folder is synced all the same: an earlier attempt of ours may have died before.
                if not self._holds(path, bytes(data)):
                    raise AlreadyExistsError(f"{self.url} holds another object {key}") from None

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        path = self._path(key)
        with self._writing(key), self._temporary(path, source, length) as temporary:
            self._filesystem.rename(temporary, path)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._writing(key):
            if self._filesystem.exists(path):
                self._filesystem.unlink(path)
                self._filesystem.sync_folder(path.parent)

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        folder, _, _ = check_prefix(prefix).rpartition("/")
        return self._walk(f"{folder}/" if folder else "", prefix, start_after)

    def list_folders(self, prefix: str) -> Names:
        check_folder_prefix(prefix)
        with self._reading(prefix):
            names = self._names(prefix)
        return [name for name in names if next(self._walk(f"{prefix}{name}/", "", ""), None)]

    def head(self, key: str) -> StoredObject:
        path = self._path(key)
        with self._reading(key):
            if self._filesystem.is_folder(path):
                raise IsADirectoryError(errno.EISDIR, "is a folder", str(path))
            return self._describe(key, path)

    def time_ms(self) -> int:
        """Return this machine's time: who serves a network folder is not asked."""
        return self._clock.now_ms()

    def close(self) -> None:
        """Do nothing: no file stays open between two calls."""

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _describe(self, key: str, path: Path) -> StoredObject:
        return StoredObject(
            key, self._filesystem.file_size(path), self._filesystem.modified_ms(path)
        )

    # -- writing ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _temporary(
        self, path: Path, source: UploadSource, length: int | None = None
    ) -> Iterator[Path]:
        """Write `source` into a synced temporary file beside `path`; the body makes it visible.

        After the body the temporary name is gone and the folder is durable; after an error in the
        body the temporary name is gone, so that only a crash leaves one.
        """
        folder = path.parent
        self._make_durable(folder)
        temporary = folder / f"{TEMPORARY}{self._ids.uuid().hex()}"
        try:
            self._write(temporary, source, length)
            yield temporary
        finally:
            self._filesystem.unlink(temporary)
            self._filesystem.sync_folder(folder)

    def _write(self, path: Path, source: UploadSource, length: int | None) -> None:
        file = self._filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            if isinstance(source, _BytesSource):
                file.write_at(0, source.data)
            else:
                assert length is not None
                for position in range(0, length, COPY_BYTES):
                    size = min(COPY_BYTES, length - position)
                    file.write_at(position, read_source(source, position, size))
            file.sync()
        finally:
            file.close()

    def _holds(self, path: Path, data: bytes) -> bool:
        file = self._filesystem.open(path)
        try:
            return file.size() == len(data) and file.read_at(0, len(data)) == data
        finally:
            file.close()

    def _make_durable(self, folder: Path) -> None:
        """Make `folder` durable, once a process: a crash may have left it unsynced."""
        with self._lock:
            if folder in self._durable_folders:
                return
        make_durable_folder(self._filesystem, folder)
        self._remove_leftovers(folder)
        with self._lock:
            self._durable_folders.add(folder)

    def _remove_leftovers(self, folder: Path) -> None:
        oldest_ms = self._clock.now_ms() - LEFTOVER_AGE_MS
        for name in self._filesystem.list_folder(folder):
            if name.startswith(TEMPORARY):
                path = folder / name
                with contextlib.suppress(FileNotFoundError):  # another process removed it first
                    if self._filesystem.modified_ms(path) < oldest_ms:
                        self._filesystem.unlink(path)

    # -- listing ------------------------------------------------------------------------------------

    def _names(self, folder: str) -> Names:
        try:
            names = self._filesystem.list_folder(self._root / folder)
        except NotADirectoryError:  # an object has the name of the folder
            return []
        return [name for name in names if not name.startswith(".")]

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[StoredObject]:
        """Yield what lies below `folder` ("" or ending with a slash) in the order of whole keys."""
        with self._reading(folder):
            names = self._names(folder)
        entries = []
        for name in names:
            key = f"{folder}{name}"
            below = f"{key}/"
            if not (key.startswith(prefix) or prefix.startswith(below)):
                continue
            if below <= start_after and not start_after.startswith(below):
                continue  # the object and all below it come before: spares a look at each
            # A folder sorts with its slash: "a-b" comes before "a/x", as it does in an object store.
            with self._reading(key):
                is_folder = self._filesystem.is_folder(self._root / key)
            entries.append((below if is_folder else key, is_folder))
        for key, is_folder in sorted(entries):
            if is_folder:
                yield from self._walk(key, prefix, start_after)
            elif key > start_after and key.startswith(prefix):
                with contextlib.suppress(NotFoundError), self._reading(key):  # deleted meanwhile
                    yield self._describe(key, self._root / key)

    # -- errors -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reading(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _ABSENT:
                raise NotFoundError(f"{self.url} holds no object {key}") from error
            raise self._translate(error, key) from error

    @contextlib.contextmanager
    def _writing(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with self._lock:
                self._durable_folders.clear()  # the tree was changed: no folder is known to be durable
            raise self._translate(error, key) from error

    def _translate(self, error: OSError, key: str) -> StoreRefusedError | StoreUnavailableError:
        what = f"{self.url}/{key}: {error.strerror or error}"
        if error.errno in _REFUSED:
            advice = advice_for(error) or "mend the folder's permissions or what lies there"
            return StoreRefusedError(f"{what}: {advice}")
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreUnavailableError(f"{what}: free space on the store's disk")
        return StoreUnavailableError(what)


class _BytesSource:
    """An object that is in memory already, written in one call."""

    def __init__(self, data: Buffer) -> None:
        self.data = data

    def read_at(self, position: int, length: int) -> bytes:
        return bytes(memoryview(self.data)[position : position + length])
