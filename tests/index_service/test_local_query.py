"""Lookups that memory alone answers give what the full query gives, from both local forms."""

from __future__ import annotations

import pytest

from tierdex.clock import ManualClock
from tierdex.errors import TierdexError
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
