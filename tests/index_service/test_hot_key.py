"""Pages of a key with very many entries: each costs its entries, wherever it is, in every form of file."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.index_service.conftest import put
from tierdex.errors import TierdexError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore

PAGE = 10_000
ONE_CHUNK = 4096  # items that are read beyond what a page needs


def put_hot(index, first, count, *, queues=4):
    """Put entries of the key "hot", of several queues, whose times go up and down."""
    numbers = np.arange(first, first + count)
    index.put_batch(
        topic="orders",
        keys=["hot"] * count,
        queue_id=(numbers % queues).astype(np.int32),
        offset=numbers // queues * 10,
        size=np.full(count, 10),
        timestamp=1_700_000_000_000 + numbers * 7919 % 1_000_003,
    )


class Walk:
    """Pages of the key, one after the other; what each holds and costs."""

    def __init__(self, index, page=PAGE):
        self.index, self.page = index, page
        self.numbers, self.items, self.requests = [], [], []
        self.cursor = None

    def next(self, pages=1):
        for _ in range(pages):
            answer = self.index.query(
                "orders", key="hot", max_count=self.page, cursor=self.cursor, explain=True
            )
            assert answer.complete, answer.missing
            self.numbers += [e.offset // 10 * 4 + e.queue_id for e in answer.entries]
            self.items.append(sum(file.items for file in answer.explain.files))
            self.requests.append(answer.explain.requests)
            self.cursor = answer.next_cursor
            if self.cursor is None:
                return self
        return self

    def check_costs(self, first):
        """Every page from number `first` on was charged for what it returned, and a chunk more."""
        dear = [items for items in self.items[first:] if items > self.page + ONE_CHUNK]
        assert not dear, (self.items, first)


@pytest.fixture
def store(clock):
    return FaultyStore(MemoryStore(clock=clock), ids=SeededIds(7), clock=clock)


def states(index):
    return Counter(info.state for info in index.files() if info.item_count)


def compact(index):
    try:
        index.run_compaction()
    except TierdexError:
        return  # the store is away: what can be done here was done


def test_very_many_entries_come_once_each_through_every_state(make_index, store, clock):
    count = 250_000
    settings = {
        "store": store, "node": "a", "item_capacity": 62_500, "slot_count": 1000,
        "merge_below_items": 150_000, "put_buffer_entries": 16,
    }  # fmt: skip
    index = make_index(**settings, merge_min_files=9)
    for first in range(0, count, 62_500):
        put_hot(index, first, 62_500)
        clock.advance(1)
    walk = Walk(index, count // 100).next(10)
    walk.check_costs(0)
    index.roll()
    put_hot(index, count, 1000)  # newer than the walk: on none of its pages
    assert states(index).keys() <= {"unsealed", "sealed"}
    walk.next(10).check_costs(0)
    store.begin_outage()
    compact(index)
    assert states(index)["compacted"] >= 2
    walk.next(15).check_costs(21)  # one page finds its place in the file's other form
    store.end_outage()
    clock.advance(3600)
    index.run_compaction()
    assert states(index).keys() == {"uploaded"}
    walk.next(5).check_costs(21)
    index.close()
    walk.index = make_index(**settings | {"item_capacity": 125_000}, merge_min_files=2)
    walk.next(10).check_costs(21)
    walk.index.run_compaction()
    assert states(walk.index)["uploaded"] < 5
    walk.next(20).check_costs(51)
    walk.next(1000).check_costs(51)
    assert walk.numbers == list(range(count - 1, -1, -1))
    assert max(walk.requests[51:]) <= 3


@pytest.mark.parametrize("form", ["chained", "compacted", "published"])
def test_a_small_page_costs_no_more_deep_in_a_long_run(make_index, form):
    index = make_index(store=MemoryStore() if form == "published" else None, item_capacity=50_000)
    put_hot(index, 0, 30_000)
    if form != "chained":
        index.roll()
        index.run_compaction()
    walk = Walk(index, page=100).next(150)
    assert walk.numbers == list(range(29_999, 14_999, -1))
    assert max(walk.items) <= 1500


@pytest.mark.parametrize("form", ["chained", "compacted"])
def test_replayed_entries_come_once_however_they_are_paged(make_index, form):
    index = make_index(item_capacity=20_000)
    put_hot(index, 0, 3000)
    index.roll()
    put_hot(index, 1000, 1500)
    put_hot(index, 2800, 300)
    if form == "compacted":
        index.roll()
        index.run_compaction()
    walk = Walk(index, page=170).next(1000)
    assert sorted(walk.numbers) == list(range(3100))
    assert len(walk.numbers) == 3100


def test_pages_go_on_when_times_and_offsets_are_out_of_order(make_index):
    index = make_index(item_capacity=20_000)
    order = np.random.default_rng(3).permutation(2000).tolist()
    for number in order:
        put(index, "hot", number // 4 * 10, queue_id=number % 4, timestamp=number * 7919 % 2003)
    walk = Walk(index, page=150).next(1000)
    assert walk.numbers == order[::-1]


def test_a_page_that_begins_elsewhere_than_it_did_is_found_by_a_walk(make_index):
    index = make_index(item_capacity=20_000)
    put_hot(index, 0, 3000)
    walk = Walk(index, page=100).next(5)
    index.roll()
    index.run_compaction()
    walk.next(1)
    assert walk.items[-1] >= 600
    walk.next(20).check_costs(6)
    assert walk.numbers == list(range(2999, 3000 - 2601, -1))
