from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import StoreRefusedError, StoreUnavailableError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore
from tierdex.storage_layer.open import open_store
from tierdex.storage_layer.probe import probe
from tierdex.testing.faulty_store import Fault, FaultyStore


def test_probe_sends_four_requests_and_leaves_nothing():
    clock = ManualClock()
    store = MeteredStore(MemoryStore(clock=clock))
    assert probe(store, "nodes/a/", SeededIds(1)) == clock.now_ms()
    assert dict(store.total.by_verb) == {"put_if_absent": 2, "head": 1, "delete": 1}


@pytest.mark.parametrize(("nth", "fault"), [(1, Fault.FAIL_AFTER), (2, Fault.FAIL_BEFORE)])
def test_probe_removes_its_object_when_it_fails_half_way(nth, fault):
    inner = MemoryStore()
    store = FaultyStore(inner)
    store.fail("put_if_absent", nth=nth, fault=fault)
    with pytest.raises(StoreUnavailableError):
        probe(store, "", SeededIds(1))
    assert list(inner.list("")) == []


def test_probe_tells_that_deleting_is_not_allowed():
    store = FaultyStore(MemoryStore())
    store.fail("delete", fault=Fault.REFUSED)
    with pytest.raises(StoreRefusedError):
        probe(store, "", SeededIds(1))


def test_both_servers_honour_conditional_writes(s3_server):
    store = open_store(s3_server.make_url("prefix"))
    probe(store, "nodes/a/", SeededIds(1))
    assert list(store.list("")) == []
    store.close()
