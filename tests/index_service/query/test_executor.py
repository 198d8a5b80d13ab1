"""The walk: order, early stop, look-ahead, repeats, budgets, and what explain says of it."""

from __future__ import annotations

import threading

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import IncompleteAnswerError, StoreUnavailableError
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


class Shop(MemoryStore):
    """Counts reads of files' objects; `fail` decides by the key."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.reads = 0
        self.fail = lambda key: False

    def get(self, key, position=None, length=None):
        if "/files/" in key:
            with self.lock:
                self.reads += 1
            if self.fail(key):
                raise StoreUnavailableError("away")
        return super().get(key, position, length)


@pytest.fixture
def store():
    return Shop()


@pytest.fixture
def make_published(make_index, store):
    """Return an index with published files, each holding the offsets given for it."""

    def make(*files, **settings):
        index = make_index(store=store, page_cache_bytes=0, **settings)
        for numbers in files:
            for offset in numbers:
                put(index, "A", offset)
            index.roll()
        index.run_compaction()
        store.reads = 0
        return index

    return make


def check_explain(answer, store, reads_before=0):
    """What explain says adds up, and is what the store saw."""
    told = answer.explain
    assert told.requests + told.sidecar_requests == store.reads - reads_before
    assert sum(line.requests for line in told.files) == told.requests + told.sidecar_requests
    assert sum(line.bytes for line in told.files) == told.bytes
    assert sum(line.entries for line in told.files) == len(answer.entries)
    assert len(told.files) == told.files_considered
    outcomes = [line.outcome for line in told.files]
    assert told.files_read == outcomes.count("read")
    assert told.files_pruned_by_time == outcomes.count("pruned_by_time")
    assert told.files_pruned_by_filter == outcomes.count("pruned_by_filter")


def test_as_many_files_are_asked_as_could_be_needed(make_published, store):
    index = make_published(*[[n] for n in range(6)], look_ahead=4)
    answer = index.query("orders", key="A", max_count=1, explain=True)
    assert (offsets(answer), store.reads) == ([5], 1)
    check_explain(answer, store)
    store.reads = 0
    answer = index.query("orders", key="A", max_count=3, explain=True)
    assert (offsets(answer), store.reads) == ([5, 4, 3], 3)
    check_explain(answer, store)


@pytest.mark.parametrize("max_count", [1, 2, 5, 6, 7])
def test_max_count_is_exact_at_every_edge(make_published, store, max_count):
    index = make_published([0, 1, 2], [3, 4, 5])
    answer = index.query("orders", key="A", max_count=max_count, explain=True)
    assert offsets(answer) == [5, 4, 3, 2, 1, 0][:max_count]
    assert (answer.next_cursor is None) == (max_count > 6)
    check_explain(answer, store)


def test_repeats_of_a_location_are_returned_once_and_not_counted(make_published):
    index = make_published([1], [2, 2], [2], [2, 3])
    assert offsets(index.query("orders", key="A")) == [3, 2, 1]
    assert offsets(index.query("orders", key="A", max_count=3)) == [3, 2, 1]


def test_a_file_that_cannot_be_read_is_missing_and_the_others_answer(make_published, store):
    index = make_published([1], [2], [3])
    row = sorted(index.files(), key=lambda file: file.file_id)[1]
    handles = components_of(index).table.snapshot().files
    key = next(handle.row.object_key for handle in handles if handle.file_id == row.file_id)
    store.fail = lambda asked: asked == key
    answer = index.query("orders", key="A", explain=True)
    assert offsets(answer) == [3, 1]
    assert [name for name, _ in answer.missing] == [row.file_id]
    assert sorted(line.outcome for line in answer.explain.files) == ["missing", "read", "read"]
    with pytest.raises(IncompleteAnswerError) as caught:
        index.query("orders", key="A", on_error="fail")
    assert caught.value.missing == answer.missing
    assert index.query("orders", key="A", max_count=1, on_error="fail").complete


def test_a_budget_of_requests_ends_in_an_incomplete_answer(make_published, store):
    index = make_published(*[[n] for n in range(6)], query_max_requests=2, look_ahead=1)
    answer = index.query("orders", key="A", explain=True)
    assert offsets(answer) == [5, 4]
    assert not answer.complete
    assert store.reads == 2
    assert all("query_max_requests" in reason for _, reason in answer.missing)


def test_a_budget_of_items_ends_in_an_incomplete_answer(make_index):
    index = make_index(query_max_items=50)
    for offset in range(100):
        put(index, "A", offset)
    answer = index.query("orders", key="A", max_count=1000)
    assert not answer.complete
    assert "query_max_items" in answer.missing[0].reason


def test_no_request_is_sent_for_what_filter_time_or_topic_exclude(make_published, store):
    index = make_published([1], [2])
    for asked in ({"key": "absent"}, {"key": "A", "begin": 5000}, {"key": "A", "end": 999}):
        answer = index.query("orders", explain=True, **asked)
        assert (answer.entries, answer.complete) == ([], True)
        check_explain(answer, store)
    answer = index.query("other", key="A", explain=True)
    assert [line.outcome for line in answer.explain.files] == ["pruned_by_topic"] * 2
    assert store.reads == 0
    assert index.query("orders", key="absent", explain=True).explain.files_pruned_by_filter == 2


def test_sidecars_are_counted_apart(make_published, make_index, store):
    make_published([1], [2])
    reader = make_index(None, store=store, page_cache_bytes=0)
    answer = reader.query("orders", key="A", explain=True)
    assert (answer.explain.requests, answer.explain.sidecar_requests) == (2, 2)
    check_explain(answer, store)
    before = store.reads
    answer = reader.query("orders", key="A", explain=True)
    assert (answer.explain.requests, answer.explain.sidecar_requests) == (2, 0)
    check_explain(answer, store, before)


def test_the_bill_counts_every_request(make_published):
    index = make_published([1], [2], cost_per_get_usd=0.5, cost_per_gib_usd=0.0)
    assert index.query("orders", key="A", explain=True).explain.cost_usd == 1.0
