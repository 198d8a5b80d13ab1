"""`FileFolder`: a folder of users' files, on this machine or in a bucket, by names below it.

Depends on errors, filesystem, object_file and storage_layer.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from tierdex.errors import InvalidRequestError, NotFoundError, UnavailableError
from tierdex.files.object_file import (
    RangeFile,
    address_below,
    bucket_and_key,
    is_local,
    opened_file,
    path_of_address,
)
from tierdex.storage_layer.open import S3_PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tierdex.filesystem import FileSystem
    from tierdex.storage_layer.base import Store


_AT_ONCE: Final = 4


def with_parameters(address: str, options: Mapping[str, str]) -> str:
    """Return an address with those of the options that are parameters of its store."""
    said = {name: options[name] for name in S3_PARAMETERS if name in options}
    return f"{address}?{urlencode(said)}" if said else address


def is_below(address: str, roots: Iterable[str]) -> bool:
    """Say whether an address lies below one of some others, without steps up."""
    return ".." not in address.split("/") and any(address.startswith(f"{r}/") for r in roots)


def _plain(address: str) -> str:
    """Return an address as entries have it: a path without its scheme, s3:// for s3a://."""
    if address.startswith("file:/") and not address.startswith("file://"):
        address = "file://" + address.removeprefix("file:")  # as Hadoop writes it
    if address.startswith("file://"):
        return str(path_of_address(address))
    return address.replace("s3a://", "s3://", 1)


class FileFolder:
    """Names are paths below the folder, with ``/``. A disk or store that fails is an UnavailableError.

    Reading is safe to share between threads, until `close`.
    """

    def __init__(self, filesystem: FileSystem, address: str, also: Sequence[str] = ()) -> None:
        """`address` is a path or a URL (``s3://bucket/prefix?region=...``). No request is made.

        Files below the addresses `also` may be opened as well, by their own.
        """
        self._filesystem = filesystem
        url, question, parameters = address.partition("?")
        self._parameters = question + parameters
        self._is_local = is_local(address)
        if self._is_local:
            url = str(path_of_address(address).absolute())
            self._parameters = ""
        self.root = url.replace("s3a://", "s3://", 1).rstrip("/")
        self._roots = (self.root, *(_plain(each).rstrip("/") for each in also))
        self._lock = threading.Lock()
        self._opened: Store | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def address(self) -> str:
        """The address as it was given, with the parameters of its store."""
        return self.root + self._parameters

    def names(self, folder: str) -> list[tuple[str, int]]:
        """Return the names right below a folder, with their last change (int64 ms); none, if it is absent."""
        if self._is_local:
            return self._names_here(Path(self.root, folder))
        store, prefix = self._store()
        begin = f"{prefix}{folder}/"
        return [
            (found.key.removeprefix(begin), found.modified_ms)
            for found in store.list(begin)
            if "/" not in found.key.removeprefix(begin)
        ]

    def _names_here(self, path: Path) -> list[tuple[str, int]]:
        found = []
        try:
            for name in self._filesystem.list_folder(path):
                stat = self._filesystem.stat(path / name)
                if stat is not None and stat.kind == "file":
                    found.append((name, stat.modified_ns // 1_000_000))
        except OSError as error:
            raise UnavailableError(f"{path} cannot be read: {error}") from error
        return found

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, None when there is no such file."""
        try:
            with self.opened(name) as file:
                return file.read_at(0, file.length)
        except NotFoundError:
            return None
        except OSError as error:
            raise UnavailableError(f"{self.root}/{name} cannot be read: {error}") from error

    def exists(self, name: str) -> bool:
        """Say whether there is a file of the name."""
        try:
            with self.opened(name):
                return True
        except NotFoundError:
            return False

    def read_range(self, name: str, begin: int, length: int) -> bytes:
        """Return bytes of a file, fewer at its end. Raises NotFoundError."""
        with self.opened(name) as file:
            return file.read_at(begin, length)

    @contextmanager
    def opened(self, name: str, size: int | None = None) -> Iterator[RangeFile]:
        """Open a file below the folder, or by its own address, which must lie below it.

        An object of which the size is known is not asked for it: the first read says whether it is gone.
        """
        address = self.address_of(name)
        if is_local(address):
            with opened_file(self._filesystem, address) as file:
                yield file
            return
        bucket, key = bucket_and_key(address)
        if bucket != bucket_and_key(self.root)[0]:
            with opened_file(self._filesystem, address, self._parameters) as file:
                yield file
            return
        store = self._store()[0]
        changed_ms = None
        if size is None:
            found = store.head(key)
            size, changed_ms = found.size, found.modified_ms
        yield RangeFile(
            lambda begin, length: store.get(key, begin, length), size, changed_ms, self._together()
        )

    def _together(self) -> ThreadPoolExecutor:
        """Return the threads that ask for ranges of an object at once."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tierdex-ranges")
            return self._threads

    def address_of(self, name: str) -> str:
        """Return the address of a name, or of an address below the folder.

        Raises InvalidRequestError for one that lies elsewhere: a table's metadata may name any place.
        """
        address = _plain(address_below(self.root, _plain(name)))
        if not is_below(address, self._roots):
            raise InvalidRequestError(
                f"{name!r} does not lie below {' or '.join(self._roots)}", field="source"
            )
        return address

    def _store(self) -> tuple[Store, str]:
        from tierdex.storage_layer.open import open_objects

        root, key = bucket_and_key(self.root)
        with self._lock:
            if self._opened is None:
                self._opened = open_objects(root + self._parameters)
            return self._opened, f"{key}/" if key else ""

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()
        if opened is not None:
            opened.close()
