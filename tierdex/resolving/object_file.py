"""One file, read by ranges: on this machine, or an object of a store. It counts what it reads.

Depends on errors, filesystem and storage_layer.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.filesystem import FileSystem


class RangeFile(io.RawIOBase):
    """A file for readers that seek: each read is one range, of which `requests` and `bytes` tell."""

    def __init__(self, read_at: Callable[[int, int], bytes], length: int) -> None:
        self._read_at = read_at
        self.length = length
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


@contextmanager
def opened_file(filesystem: FileSystem, address: str) -> Iterator[RangeFile]:
    """Open a local path, or an object by its URL (``s3://bucket/key``), for reading by ranges.

    Raises NotFoundError, and what the store raises.
    """
    if "://" not in address:
        path = Path(address)
        if not filesystem.exists(path):
            raise NotFoundError(f"{path} is gone")
        file = filesystem.open(path)
        try:
            yield RangeFile(file.read_at, file.size())
        finally:
            file.close()
        return
    from tierdex.storage_layer.open import open_store

    url, question, parameters = address.partition("?")
    folder, _, key = url.rpartition("/")
    store = open_store(folder.replace("s3a://", "s3://", 1) + question + parameters)
    try:
        length = store.head(key).size
        yield RangeFile(lambda position, count: store.get(key, position, count), length)
    finally:
        store.close()
