"""One file, read by ranges: on this machine, or an object of a store. It counts what it reads.

Depends on errors, filesystem and storage_layer.
"""

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from tierdex.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from tierdex.filesystem import FileSystem

_FILE_URL: Final = "file://"


class RangeFile(io.RawIOBase):
    """A file for readers that seek: each read is one range, of which `requests` and `bytes` tell.

    `length` and `changed_ms`, the time of its last change, are as they were when it was opened.
    """

    def __init__(
        self,
        read_at: Callable[[int, int], bytes],
        length: int,
        changed_ms: int | None = None,
        together: ThreadPoolExecutor | None = None,
    ) -> None:
        self._together = together
        self._read_at = read_at
        self.length = length
        self.changed_ms = changed_ms
        self.requests = 0
        self.bytes = 0
        self._at = 0

    def read_at(self, position: int, length: int) -> bytes:
        """Return the bytes of a range, fewer at the end."""
        length = max(0, min(length, self.length - position))
        if length == 0:
            return b""
        self.requests += 1
        self.bytes += length
        return self._read_at(position, length)

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, (position, length), fewer at the end.

        Of an object they are asked for together: each takes as long as all of them.
        """
        if self._together is None or len(ranges) < 2:
            return [self.read_at(*each) for each in ranges]
        clipped = [(begin, max(0, min(size, self.length - begin))) for begin, size in ranges]
        self.requests += len(clipped)
        self.bytes += sum(size for _, size in clipped)
        return list(self._together.map(lambda each: self._read_at(*each), clipped))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        data = self.read_at(self._at, self.length - self._at if size < 0 else size)
        self._at += len(data)
        return data


def address_of_path(path: Path) -> str:
    """Return the address of a local file as text: its path, or a URL where its name is no UTF-8."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return _FILE_URL + quote(os.fsencode(path))
    return str(path)


def address_of(text: str) -> str:
    """Return the address under which a file stands in entries, of a path or URL as a user gives it."""
    if is_local(text):
        given = Path(text.removeprefix(_FILE_URL))
        return address_of_path((given if given.exists() else path_of_address(text)).absolute())
    return text.partition("?")[0].replace("s3a://", "s3://", 1)


def is_address(name: str) -> bool:
    """Say whether a name is a path or URL of its own, not one below a folder."""
    return "://" in name or name.startswith("/")


def address_below(root: str, name: str) -> str:
    """Return the address of a name below a folder, or the name where it is an address of its own."""
    return name if is_address(name) else f"{root.rstrip('/')}/{name}"


def is_local(address: str) -> bool:
    """Return whether an address is that of a file of this machine."""
    return "://" not in address or address.startswith(_FILE_URL)


def path_of_address(address: str) -> Path:
    """Return the path of a local file's address; ``%E9`` in a URL stands for that byte."""
    if not address.startswith(_FILE_URL):
        return Path(address)
    return Path(os.fsdecode(unquote_to_bytes(address.removeprefix(_FILE_URL))))


def bucket_and_key(url: str) -> tuple[str, str]:
    """Return the URL of an object's bucket, and the object's key."""
    scheme, _, rest = url.replace("s3a://", "s3://", 1).partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key


@contextmanager
def opened_file(filesystem: FileSystem, address: str, parameters: str = "") -> Iterator[RangeFile]:
    """Open a local path, or an object by its URL (``s3://bucket/key``), for reading by ranges.

    A key stands in a URL as it is, whatever its characters; `parameters` (``?region=...``) are the store's.
    Raises NotFoundError, and what the store raises.
    """
    if is_local(address):
        path = path_of_address(address)
        if not filesystem.exists(path):
            raise NotFoundError(f"{address} is gone")
        file = filesystem.open(path)
        try:
            yield RangeFile(file.read_at, file.size(), file.stat().modified_ms)
        finally:
            file.close()
        return
    from tierdex.storage_layer.open import open_objects

    root, key = bucket_and_key(address)
    store = open_objects(root + parameters)
    try:
        found = store.head(key)
        yield RangeFile(
            lambda position, count: store.get(key, position, count), found.size, found.modified_ms
        )
    finally:
        store.close()
