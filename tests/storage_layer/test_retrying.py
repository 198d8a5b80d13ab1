from __future__ import annotations

import gc
import weakref

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import (
    AlreadyExistsError,
    NotFoundError,
    StoreRefusedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.retrying import LONGEST_ASKED_PAUSE_S, RetryingStore, RetryPolicy
from tierdex.testing.faulty_store import Fault, FaultyStore


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def faulty(clock):
    return FaultyStore(MemoryStore(), clock=clock)


@pytest.fixture
def store(faulty, clock):
    return RetryingStore(faulty, RetryPolicy(4, clock=clock, ids=SeededIds(1)))


def test_passing_failure_is_not_noticed(store, faulty):
    faulty.fail("put", fault=Fault.TIMEOUT_BEFORE, count=3)
    store.put("key", b"x")
    assert faulty.calls("put") == 4


def test_lasting_failure_is_raised_after_the_attempts_are_used_up(store, faulty, clock):
    store.put("key", b"x")
    with faulty.outage(), pytest.raises(StoreUnavailableError):
        store.get("key")
    assert faulty.calls("get") == 4
    assert 0 < clock.monotonic() < 0.2 + 0.4 + 0.8  # three pauses, full jitter


def test_last_error_keeps_its_type(store, faulty):
    faulty.fail("get", fault=Fault.TIMEOUT_BEFORE, count=4)
    with pytest.raises(StoreTimeoutError):
        store.get("key")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda store: store.get("nothing"), NotFoundError),
        (lambda store: store.put_if_absent("key", b"other"), AlreadyExistsError),
        (lambda store: store.delete("refused"), StoreRefusedError),
    ],
    ids=["not_found", "already_exists", "refused"],
)
def test_what_cannot_change_is_not_repeated(store, faulty, call, expected):
    store.put("key", b"x")
    faulty.fail("delete", fault=Fault.REFUSED)
    with pytest.raises(expected):
        call(store)
    assert faulty.calls("get") + faulty.calls("put_if_absent") + faulty.calls("delete") == 1


def test_own_conditional_write_whose_answer_was_lost_is_a_success(store, faulty):
    faulty.fail("put_if_absent", fault=Fault.TIMEOUT_AFTER)
    store.put_if_absent("key", b"mine")
    assert store.get("key") == b"mine"
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("key", b"theirs")


def test_pause_asked_by_the_store_is_kept_up_to_a_limit(clock):
    class Overloaded(MemoryStore):
        def __init__(self):
            super().__init__()
            self.asked = [20.0, 3600.0]

        def get(self, key, position=None, length=None):
            if self.asked:
                raise StoreUnavailableError("slow down", retry_after_s=self.asked.pop(0))
            return super().get(key, position, length)

    store = RetryingStore(Overloaded(), RetryPolicy(4, clock=clock, ids=SeededIds(1)))
    store.put("key", b"x")
    assert store.get("key") == b"x"
    assert 20 + LONGEST_ASKED_PAUSE_S <= clock.monotonic() < 21 + LONGEST_ASKED_PAUSE_S


def test_listing_that_breaks_goes_on_behind_what_it_yielded(store, faulty):
    keys = [f"key{number}" for number in range(10)]
    for key in keys:
        store.put(key, b"")
    faulty.fail("list", fault=Fault.FAIL_AFTER, count=3)  # each time after half of the rest
    assert [found.key for found in store.list("")] == keys
    assert faulty.calls("list") == 4


def test_closed_store_makes_one_attempt(store, faulty, clock):
    store.close()
    faulty.begin_outage()
    with pytest.raises(StoreUnavailableError):
        store.get("key")
    assert faulty.calls("get") == 1
    assert clock.monotonic() == 0


def test_error_that_was_handled_keeps_nothing_of_its_callers(store):
    """A ring of error and frames would keep a file mapped until the collector comes by."""

    class Held:
        pass

    def ask() -> weakref.ref[Held]:
        held = Held()
        with pytest.raises(NotFoundError):
            store.get("nothing")
        return weakref.ref(held)

    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()
