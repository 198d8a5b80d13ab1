"""A store in the memory of this process: for tests, trials and ``memory://name``.

`MemoryStore.shared(name)` returns the same objects to every caller of the same name, so that two
indexes of one process can share them; `MemoryStore()` is private. Nothing survives the process.

Depends on base and the clock.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.errors import AlreadyExistsError, NotFoundError
from tierdex.storage_layer.base import (
    Names,
    StoredObject,
    UploadSource,
    check_folder_prefix,
    check_key,
    check_prefix,
    check_range,
    check_users_key,
    check_users_prefix,
    range_beyond_end,
    read_source,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

    from tierdex.clock import Clock

_LAST = "\U0010ffff"  # sorts behind every character of a key


class _Objects:
    """The objects of one name: a dict, and its keys in order for listings. Guarded by `lock`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.data: dict[str, tuple[bytes, int]] = {}
        self.keys: list[str] = []


_SHARED: dict[str, _Objects] = {}
_SHARED_LOCK = threading.Lock()


class MemoryStore:
    """Objects in a dict. Every verb is one step under one lock, hence atomic."""

    def __init__(self, *, clock: Clock | None = None, any_key: bool = False) -> None:
        """With `any_key` it has objects of users."""
        self._clock = clock or SystemClock()
        self.contents = _Objects()
        self._name = ""
        self._check = check_users_key if any_key else check_key
        self._check_listed = check_users_prefix if any_key else check_prefix

    @classmethod
    def shared(cls, name: str, *, clock: Clock | None = None, any_key: bool = False) -> MemoryStore:
        """Return the store of this process with this name."""
        store = cls(clock=clock, any_key=any_key)
        store._name = name
        with _SHARED_LOCK:
            store.contents = _SHARED.setdefault(name, _Objects())
        return store

    @property
    def url(self) -> str:
        return f"memory://{self._name}"

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        start, length = check_range(position, length)
        if self._check(key) and length == 0:
            return b""
        data, _ = self._find(key)
        end = len(data) if length is None else start + length
        if end > len(data) or (start and start >= len(data)):
            raise range_beyond_end(f"{self.url}/{key}", start, length, len(data))
        return data[start:end]

    def put(self, key: str, data: Buffer) -> None:
        self._write(self._check(key), bytes(data), replace=True)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        self._write(self._check(key), bytes(data), replace=False)

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        self._write(self._check(key), read_source(source, 0, length), replace=True)

    def delete(self, key: str) -> None:
        objects = self.contents
        with objects.lock:
            if objects.data.pop(self._check(key), None) is not None:
                del objects.keys[bisect_left(objects.keys, key)]

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        self._check_listed(prefix)
        objects = self.contents
        with objects.lock:
            first = max(bisect_left(objects.keys, prefix), bisect_right(objects.keys, start_after))
            last = bisect_left(objects.keys, prefix + _LAST)
            found = [(key, *objects.data[key]) for key in objects.keys[first:last]]
        return (StoredObject(key, len(data), modified) for key, data, modified in found)

    def list_folders(self, prefix: str) -> Names:
        check_folder_prefix(prefix)
        below = (entry.key[len(prefix) :].partition("/") for entry in self.list(prefix))
        return sorted({name for name, slash, _ in below if slash})

    def head(self, key: str) -> StoredObject:
        data, modified_ms = self._find(self._check(key))
        return StoredObject(key, len(data), modified_ms)

    def time_ms(self) -> int:
        return self._clock.now_ms()

    def close(self) -> None:
        """Do nothing: other callers may share the store."""

    def _find(self, key: str) -> tuple[bytes, int]:
        with self.contents.lock:
            found = self.contents.data.get(key)
        if found is None:
            raise NotFoundError(f"{self.url} holds no object {key}")
        return found

    def _write(self, key: str, data: bytes, *, replace: bool) -> None:
        modified_ms = self._clock.now_ms()
        objects = self.contents
        with objects.lock:
            found = objects.data.get(key)
            if found is None:
                objects.keys.insert(bisect_left(objects.keys, key), key)
            elif not replace:
                if found[0] != data:
                    raise AlreadyExistsError(f"{self.url} holds another object {key}")
                return
            objects.data[key] = (data, modified_ms)
