"""Checks of a store before an index writes to it: conditional writes, and the store's clock.

A server that ignores ``If-None-Match: *`` answers every create-if-absent with success; two writers
would then overwrite each other's manifest unnoticed. Two conditional writes of one fresh key show
it.

Depends on base, errors and ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import AlreadyExistsError, StoreRefusedError

if TYPE_CHECKING:
    from tierdex.ids import IdSource
    from tierdex.storage_layer.base import Store


def probe(store: Store, prefix: str, ids: IdSource) -> int:
    """Write, try to overwrite, and remove one small object below `prefix` ("" or ending with "/").

    Returns the store's own wall time (ms), by which it dated the object. Sends four requests, one more
    where a refused write is compared. Raises StoreRefusedError when the store ignores the condition, or
    does not permit writes or deletes.
    """
    token = ids.uuid().hex()
    key = f"{prefix}probe-{token}"
    try:
        store.put_if_absent(key, f"first {token}".encode())
        _write_again(store, key, token)
        return store.head(key).modified_ms
    finally:  # after a failed write too: it may have taken effect
        store.delete(key)


def read_store_time(store: Store, prefix: str, ids: IdSource) -> int:
    """Return the store's own wall time (ms), the modification time of a small object made now.

    Sends three requests. Raises what the store raises.
    """
    key = f"{prefix}probe-{ids.uuid().hex()}"
    try:
        store.put(key, b"what is the time?")
        return store.head(key).modified_ms
    finally:
        store.delete(key)


def _write_again(store: Store, key: str, token: str) -> None:
    try:
        store.put_if_absent(key, f"second {token}".encode())
    except AlreadyExistsError:
        return
    raise StoreRefusedError(
        f"{store.url} ignores conditional writes (If-None-Match: *): two writers could overwrite each "
        "other. Use a store that honours them (AWS S3, Ceph, MinIO, a local folder) or upgrade this one"
    )
