"""A store that is a folder of another store: it adds a prefix to every key.

Depends on base only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.storage_layer.base import (
    Names,
    Store,
    StoredObject,
    UploadSource,
    check_folder_prefix,
    check_key,
    check_prefix,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer


class PrefixedStore:
    """The part of `inner` below `prefix`, which ends with a slash. Owns `inner` (closes it)."""

    def __init__(self, inner: Store, prefix: str) -> None:
        self._inner = inner
        self._prefix = check_folder_prefix(prefix)

    @property
    def url(self) -> str:
        base, mark, query = self._inner.url.partition("?")
        return f"{base}/{self._prefix.rstrip('/')}{mark}{query}"

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        return self._inner.get(self._prefix + check_key(key), position, length)

    def put(self, key: str, data: Buffer) -> None:
        self._inner.put(self._prefix + check_key(key), data)

    def put_if_absent(self, key: str, data: Buffer) -> None:
        self._inner.put_if_absent(self._prefix + check_key(key), data)

    def upload(self, key: str, source: UploadSource, length: int) -> None:
        self._inner.upload(self._prefix + check_key(key), source, length)

    def delete(self, key: str) -> None:
        self._inner.delete(self._prefix + check_key(key))

    def list(self, prefix: str, start_after: str = "") -> Iterator[StoredObject]:
        skip = len(self._prefix)
        # An empty `start_after` needs no special case: every key of ours is above the bare prefix.
        listed = self._inner.list(self._prefix + check_prefix(prefix), self._prefix + start_after)
        return (entry._replace(key=entry.key[skip:]) for entry in listed)

    def list_folders(self, prefix: str) -> Names:
        return self._inner.list_folders(self._prefix + check_folder_prefix(prefix))

    def head(self, key: str) -> StoredObject:
        return self._inner.head(self._prefix + check_key(key))._replace(key=key)

    def time_ms(self) -> int | None:
        return self._inner.time_ms()

    def close(self) -> None:
        self._inner.close()
