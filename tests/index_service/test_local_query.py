"""Lookups that memory alone answers give what the full query gives, from both local forms."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.clock import ManualClock
from tierdex.errors import BacklogFullError, TierdexError
from tierdex.ids import SeededIds
from tierdex.index_service.request import make_request
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore


@pytest.fixture
def store():
    return FaultyStore(MemoryStore(), ids=SeededIds(1), clock=ManualClock())


@pytest.fixture
def index(make_index, store):
    """Four compacted files and an unsealed one; k0 lies in all of them, k1 .. k4 in one each."""
    index = make_index(store=store, filter_bits=16)
    for number in range(5):
        put = {"topic": "orders", "queue_id": 0, "size": 10, "timestamp": 1000 + number}
        index.put(keys=["k0"], offset=number, **put)
        index.put(keys=[f"k{number}"], message_id=f"m{number}", offset=100 + number, **put)
        if number < 4:
            index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()
    assert [info.state for info in index.files()] == ["unsealed", *["compacted"] * 4]
    return index


def full_answer(index, **lookup):
    request = make_request(index._settings, **lookup)
    return index._queries.run(request, explain=False, fail=False)


@pytest.mark.parametrize(
    "lookup",
    [
        {"topic": "orders", "key": "k0"},
        {"topic": "orders", "key": "k2"},
        {"topic": "orders", "key": "k0", "begin": 1001, "end": 1002},
        {"topic": "orders", "key": "absent"},
        {"message_id": "m3"},
        {"message_id": "m9"},
    ],
)
def test_an_answer_from_memory_equals_the_full_one(index, lookup):
    index.query(topic="orders", key="k0")  # teaches the topic
    answer = index.query_local(**lookup)
    assert answer is not None
    assert answer.entries == full_answer(index, **lookup).entries


def test_a_key_in_every_file_comes_newest_file_first(index):
    index.query(topic="orders", key="k0")
    answer = index.query_local("orders", key="k0")
    assert [entry.offset for entry in answer.entries] == [4, 3, 2, 1, 100, 0]


def test_filters_of_no_bits_leave_files_to_be_asked(make_index, store):
    index = make_index(store=store, filter_bits=0)
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
    index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()
    index.query("t", key="a")
    assert [entry.offset for entry in index.query_local("t", key="a").entries] == [1]
    assert index.query_local("t", key="b").entries == []


def test_nothing_is_told_from_memory_while_a_file_is_missing(make_index, tmp_path):
    index = make_index()
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
    index.query("t", key="a")
    assert index.query_local("t", key="a").complete
    damaged = tmp_path / "data" / "quarantine" / "sealed-7"
    damaged.write_bytes(b"x")
    index.refresh()
    assert index.query_local("t", key="a") is None
    assert not index.query("t", key="a").complete
    damaged.unlink()
    index.refresh()
    assert index.query_local("t", key="a").complete


def test_what_was_received_and_cannot_be_written_is_not_told_from_memory(make_index, monkeypatch):
    index = make_index()
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
    index.query("t", key="a")
    index.put(topic="t", keys=["a"], queue_id=0, offset=2, size=1, timestamp=1)

    def refuse():
        raise BacklogFullError("full", retry_after_s=1.0)

    with monkeypatch.context() as patched:
        patched.setattr(index._writer, "flush_buffer", refuse)
        assert index.query_local("t", key="a") is None
        assert not index.query("t", key="a").complete
    assert len(index.query_local("t", key="a").entries) == 2


@pytest.mark.parametrize(
    "lookup",
    [
        {"topic": "orders"},
        {"key": "k0"},
        {"topic": "orders", "key": 5},
        {"topic": "orders", "key": ""},
        {"topic": "orders", "key": "\ud800"},
        {"topic": ["orders"], "key": "k0"},
        {"topic": "orders", "message_id": "m3", "key": "k0"},
        {"topic": "orders", "key": "k0", "max_count": 2.0},
        {"topic": "orders", "key": "k0", "max_count": 0},
        {"topic": "orders", "key": "k0", "begin": "1"},
        {"topic": "orders", "key": "k0", "begin": 2, "end": 1},
    ],
)
def test_lookup_that_is_wrong_is_not_answered_from_memory(index, lookup):
    index.query("orders", key="k0")
    assert index.query_local(**lookup) is None
    with pytest.raises(TierdexError):
        index.query(**lookup)


def test_wrong_name_is_not_answered_by_an_index_without_files(make_index):
    index = make_index()
    assert index.query("orders", key="k0").entries == []
    assert index.query_local("orders", key="k0").entries == []
    assert index.query_local("orders", key=5) is None


def test_closed_index_answers_nothing_from_memory(index):
    index.query("orders", key="k0")
    index.close()
    assert index.query_local("orders", key="k0") is None
    assert index._parts.local_queries._files.sources == ()
    assert index._parts.local_queries._plans == {}


def test_location_repeated_in_two_files_that_are_not_compacted_is_told_once(make_index):
    index = make_index()
    for _ in range(2):
        put(index, "a", 1)
        index.roll()
    put(index, "a", 2)
    index.query("orders", key="a")
    assert offsets(index.query_local("orders", key="a")) == [2, 1]


def test_topic_that_comes_to_a_file_late_is_found_there(make_index):
    index = make_index()
    put(index, "a", 1, topic="other")
    for offset in range(3):
        index.query("orders", key="a")
        put(index, "a", offset)
        answer = index.query_local("orders", key="a")
        assert offsets(answer) == list(range(offset, -1, -1))
    index.query_local("orders", key="absent")
    plan = index._parts.local_queries._plans["orders"]
    assert len(plan.newest) == 1
    assert not plan.asks_others


def test_no_file_is_kept_for_a_topic_that_nobody_asks_for_any_more(make_index):
    index = make_index()
    put(index, "a", 1, topic="seldom")
    put(index, "a", 1)
    for topic in ("seldom", "orders"):
        index.query(topic, key="a")
        assert index.query_local(topic, key="a").entries
    assert set(index._parts.local_queries._plans) == {"seldom", "orders"}
    index.roll()
    put(index, "a", 2)
    assert offsets(index.query_local("orders", key="a")) == [2, 1]
    assert set(index._parts.local_queries._plans) == {"orders"}
