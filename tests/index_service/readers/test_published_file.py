"""A published file: requests by the rule, and a fault in between is not a fault of the file."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.storage_layer.memory import MemoryStore


class Noisy(MemoryStore):
    """A memory store that damages the next `damaged` reads of files' objects on their way."""

    damaged = 0
    reads = 0

    def get(self, key, position=None, length=None):
        data = super().get(key, position, length)
        if "/files/" not in key:
            return data
        self.reads += 1
        if self.damaged > 0:
            self.damaged -= 1
            return bytes(byte ^ 0x55 for byte in data)
        return data


@pytest.fixture
def store():
    return Noisy()


@pytest.fixture
def index(make_index, store):
    index = make_index(store=store)
    for offset in range(40):
        put(index, f"K{offset % 4}", offset)
    index.roll()
    index.run_compaction()
    store.reads = 0
    return index


def ask(index, *, batch):
    lookup = {"topic": "orders", "key": "K1"}
    return index.query_batch([lookup])[0] if batch else index.query(**lookup)


@pytest.mark.parametrize("batch", [False, True])
def test_a_page_damaged_on_its_way_is_fetched_again(index, store, batch):
    store.damaged = 1
    answer = ask(index, batch=batch)
    assert (len(answer.entries), answer.complete, store.reads) == (10, True, 2)
    assert ask(index, batch=batch) == answer
    assert store.reads == 2  # the good one was kept


@pytest.mark.parametrize("batch", [False, True])
def test_a_page_damaged_twice_is_missing_not_empty(index, store, batch):
    store.damaged = 2
    answer = ask(index, batch=batch)
    assert (answer.entries, answer.complete, len(answer.missing)) == ([], False, 1)
    assert len(ask(index, batch=batch).entries) == 10


@pytest.mark.parametrize("batch", [False, True])
def test_a_sidecar_damaged_on_its_way_is_fetched_again(index, make_index, store, batch):
    reader = make_index(None, store=store)
    store.damaged = 1
    answer = ask(reader, batch=batch)
    assert (len(answer.entries), answer.complete) == (10, True)


def test_pages_in_memory_cost_no_request(index, store):
    first = index.query("orders", key="K2", explain=True)
    again = index.query("orders", key="K2", explain=True)
    assert (first.explain.requests, again.explain.requests) == (1, 0)
    assert offsets(first) == offsets(again)


def test_many_keys_of_one_page_share_a_request(index, store):
    answers = index.query_batch([{"topic": "orders", "key": f"K{n}"} for n in range(4)])
    assert [len(answer.entries) for answer in answers] == [10] * 4
    assert store.reads == 1


def test_lookups_of_one_long_run_in_different_times_are_found_together(make_index, store):
    index = make_index(store=store, item_capacity=20_000)
    count = 6000
    index.put_batch(
        topic="orders", keys=["hot"] * count, queue_id=0, offset=list(range(count)), size=1,
        timestamp=list(range(count)),
    )  # fmt: skip
    index.roll()
    index.run_compaction()
    lookups = [
        {"topic": "orders", "key": "hot", "begin": begin, "end": begin + 700, "max_count": 1000}
        for begin in (10, 5000, 300, 4000, 5300, 0)
    ]
    answers = index.query_batch(lookups)
    for lookup, answer in zip(lookups, answers, strict=True):
        first = min(count, lookup["end"] + 1) - 1
        assert offsets(answer) == list(range(first, lookup["begin"] - 1, -1))
        assert answer.complete
