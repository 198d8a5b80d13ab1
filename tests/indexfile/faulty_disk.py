"""A local file system with knobs: a disk that fills up, a sync that fails."""

from __future__ import annotations

import errno
from typing import Any

from tierdex.filesystem import LocalFileSystem


class FaultyFileSystem(LocalFileSystem):
    """`free_reserve` bytes may still be reserved (None: any); `fail_syncs` syncs will fail."""

    def __init__(self) -> None:
        self.free_reserve: int | None = None
        self.fail_syncs = 0
        self.forgotten = 0

    def open(self, path, **flags) -> Any:
        return _FaultyFile(super().open(path, **flags), self)


class _FaultyFile:
    def __init__(self, file, disk: FaultyFileSystem) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def reserve(self, position: int, length: int) -> None:
        if self._disk.free_reserve is not None:
            if length > self._disk.free_reserve:
                raise OSError(errno.ENOSPC, "no space left")
            self._disk.free_reserve -= length
        self._file.reserve(position, length)

    def sync(self) -> None:
        _fail_if_due(self._disk)
        self._file.sync()

    def forget_cached(self) -> None:
        self._disk.forgotten += 1
        self._file.forget_cached()

    def map(self, length: int, *, writable: bool):
        return _FaultyMapping(self._file.map(length, writable=writable), self._disk)


class _FaultyMapping:
    def __init__(self, mapping, disk: FaultyFileSystem) -> None:
        self._mapping, self._disk = mapping, disk

    def __getattr__(self, name):
        return getattr(self._mapping, name)

    def sync(self, position: int, length: int) -> None:
        _fail_if_due(self._disk)
        self._mapping.sync(position, length)


def _fail_if_due(disk: FaultyFileSystem) -> None:
    if disk.fail_syncs:
        disk.fail_syncs -= 1
        raise OSError(errno.EIO, "input/output error")
