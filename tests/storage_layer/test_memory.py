from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import NotFoundError
from tierdex.storage_layer.memory import MemoryStore


def test_stores_of_one_name_share_their_objects():
    MemoryStore.shared("shared-by-two").put("key", b"x")
    assert MemoryStore.shared("shared-by-two").get("key") == b"x"
    with pytest.raises(NotFoundError):
        MemoryStore.shared("another").get("key")


def test_private_store_shares_nothing():
    MemoryStore().put("key", b"x")
    assert list(MemoryStore().list("")) == []


def test_object_does_not_follow_the_callers_buffer():
    store, buffer = MemoryStore(), bytearray(b"before")
    store.put("key", buffer)
    buffer[:] = b"behind"
    assert store.get("key") == b"before"


def test_time_of_an_object_comes_from_the_clock():
    clock = ManualClock(5_000)
    store = MemoryStore(clock=clock)
    store.put("key", b"")
    clock.advance(10)
    assert store.head("key").modified_ms == 5_000
    store.put("key", b"")
    assert store.head("key").modified_ms == 15_000


def test_listing_is_a_snapshot():
    store = MemoryStore()
    for key in ("a", "b", "c"):
        store.put(key, b"")
    listing = store.list("")
    store.delete("b")
    store.put("d", b"")
    assert [found.key for found in listing] == ["a", "b", "c"]
