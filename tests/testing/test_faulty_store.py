from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import (
    AlreadyExistsError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
    TierdexError,
)
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import Fault, FaultyStore, Struck

BODY = bytes(range(200))


@pytest.fixture
def inner():
    return MemoryStore()


@pytest.fixture
def store(inner):
    return FaultyStore(inner)


@pytest.mark.parametrize(
    ("fault", "expected", "took_effect"),
    [
        (Fault.FAIL_BEFORE, StoreUnavailableError, False),
        (Fault.FAIL_AFTER, StoreUnavailableError, True),
        (Fault.TIMEOUT_BEFORE, StoreTimeoutError, False),
        (Fault.TIMEOUT_AFTER, StoreTimeoutError, True),
        (Fault.REFUSED, StoreRefusedError, False),
        (Fault.BUSY, StoreUnavailableError, False),
        (Fault.TAKEN_BY_OURSELVES, AlreadyExistsError, True),
    ],
)
def test_failed_write_took_effect_or_not(store, inner, fault, expected, took_effect):
    store.fail("put_if_absent", fault=fault)
    with pytest.raises(expected):
        store.put_if_absent("key", BODY)
    assert [found.key for found in inner.list("")] == (["key"] if took_effect else [])
    assert store.history == [Struck("put_if_absent", "key", fault)]


def test_nth_call_from_now_on_meets_its_fault(store):
    store.put("a", b"")
    store.fail("put", nth=2, fault=Fault.FAIL_BEFORE, count=2)
    outcomes = []
    for key in ("b", "c", "d", "e"):
        try:
            store.put(key, b"")
            outcomes.append("ok")
        except StoreUnavailableError:
            outcomes.append("failed")
    assert outcomes == ["ok", "failed", "failed", "ok"]


def test_short_and_altered_bodies_differ_from_the_truth(store, inner):
    inner.put("key", BODY)
    store.fail("get", nth=1, fault=Fault.SHORT_BODY)
    store.fail("get", nth=2, fault=Fault.ALTERED_BODY)
    short, altered = store.get("key"), store.get("key")
    assert len(short) < len(BODY)
    assert BODY.startswith(short)
    assert len(altered) == len(BODY)
    assert sum(a != b for a, b in zip(altered, BODY, strict=True)) == 1
    assert store.get("key") == BODY


def test_crawl_takes_its_time_on_the_clock(inner):
    clock = ManualClock()
    store = FaultyStore(inner, clock=clock, crawl_s=45)
    store.fail("put", fault=Fault.CRAWL)
    store.put("key", BODY)
    assert clock.monotonic() == 45


def test_nothing_gets_through_an_outage(store, inner):
    with store.outage():
        for call in (lambda: store.put("a", b""), lambda: list(store.list(""))):
            with pytest.raises(StoreUnavailableError):
                call()
    store.put("a", b"")
    assert inner.head("a").size == 0


def test_same_seed_gives_the_same_faults():
    def run(seed):
        chances = {Fault.FAIL_BEFORE: 0.2, Fault.TIMEOUT_AFTER: 0.1, Fault.SHORT_BODY: 0.1}
        store = FaultyStore(MemoryStore(), ids=SeededIds(seed), chances=chances)
        for number in range(200):
            for call in (store.put, lambda key, _: store.get(key)):
                try:
                    call(f"key{number}", b"body")
                except TierdexError:
                    continue
        return store.history

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert {struck.fault for struck in run(1)} == {
        Fault.FAIL_BEFORE,
        Fault.TIMEOUT_AFTER,
        Fault.SHORT_BODY,
    }
    assert all(s.verb == "get" for s in run(1) if s.fault is Fault.SHORT_BODY)
