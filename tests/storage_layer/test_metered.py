from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import NotFoundError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore, RequestCounts
from tierdex.storage_layer.retrying import RetryingStore, RetryPolicy
from tierdex.testing.faulty_store import Fault, FaultyStore


@pytest.fixture
def store():
    store = MeteredStore(MemoryStore())
    store.put("key", b"0123456789")
    return store


def test_every_verb_is_counted_with_its_bytes(store):
    with store.measure() as counts:
        store.get("key", 2, 3)
        store.put_if_absent("other", b"ab")
        store.head("key")
        list(store.list(""))
        store.list_folders("")
        store.delete("key")
    assert dict(counts.by_verb) == {
        "get": 1,
        "put_if_absent": 1,
        "head": 1,
        "list": 1,
        "list_folders": 1,
        "delete": 1,
    }
    assert (counts.bytes_read, counts.bytes_written, counts.failures) == (3, 2, 0)
    assert counts.requests == 6


def test_failed_request_is_a_request(store):
    with store.measure() as counts, pytest.raises(NotFoundError):
        store.get("nothing")
    assert (counts.gets, counts.failures) == (1, 1)


def test_totals_have_the_time_of_each_verb_and_the_name_of_each_failure():
    clock = ManualClock()

    class SlowStore(MemoryStore):
        def get(self, key, position=None, length=None):
            clock.advance(0.2)
            return super().get(key, position, length)

    store = MeteredStore(SlowStore(), clock=clock)
    store.put("key", b"0123")
    store.scoped(RequestCounts()).get("key")
    with pytest.raises(NotFoundError):
        store.get("nothing")
    totals = store.totals()
    assert totals.failures == {("get", "NotFoundError"): 1}
    assert totals.times["get"].sum == pytest.approx(0.4)
    assert dict(totals.times["get"].buckets())["0.1"] == 0
    assert dict(totals.times["get"].buckets())["+Inf"] == 2
    assert (totals.bytes_read, totals.bytes_written) == (4, 4)


def test_range_of_no_bytes_is_no_request(store):
    with store.measure() as counts:
        store.get("key", 2, 0)
    assert counts.requests == 0


def test_listing_counts_each_page_that_was_begun():
    store = MeteredStore(MemoryStore())
    for number in range(1001):
        store.put(f"{number:04d}", b"")
    with store.measure() as counts:
        list(store.list("none"))
        next(store.list(""))
        list(store.list(""))
    assert counts.by_verb["list"] == 1 + 1 + 2


def test_scope_counts_its_own_requests_on_whatever_thread(store):
    mine, theirs = RequestCounts(), RequestCounts()
    my_store, their_store = store.scoped(mine), store.scoped(theirs)
    with store.measure() as all_of_them, ThreadPoolExecutor(4) as pool:
        list(pool.map(my_store.get, ["key"] * 20))
        list(pool.map(their_store.get, ["key"] * 5))
    assert (mine.gets, theirs.gets, all_of_them.gets) == (20, 5, 25)
    assert store.total.gets == 25


def test_scope_of_a_scope_counts_in_both(store):
    outer, inner = RequestCounts(), RequestCounts()
    store.scoped(outer).scoped(inner).get("key")
    assert (outer.gets, inner.gets) == (1, 1)


def test_measuring_ends_with_its_scope(store):
    with store.measure() as counts:
        store.get("key")
    store.get("key")
    assert counts.gets == 1


def test_every_attempt_of_a_retried_request_is_counted():
    clock = ManualClock()
    faulty = FaultyStore(MemoryStore())
    policy = RetryPolicy(4, clock=clock, ids=SeededIds(1))
    store = MeteredStore(faulty, decorate=lambda inner: RetryingStore(inner, policy))
    store.put("key", b"x")
    faulty.fail("get", fault=Fault.FAIL_BEFORE, count=2)
    counts = RequestCounts()
    assert store.scoped(counts).get("key") == b"x"
    assert (counts.gets, counts.failures, counts.bytes_read) == (3, 2, 1)
