"""Requests at the store's boundary: what a lookup in published files may cost."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore


@pytest.fixture
def store():
    return MeteredStore(MemoryStore())


@pytest.fixture
def published(make_index, store):
    """An index whose only file is published, with 900 keys."""
    index = make_index(store=store)
    for offset in range(900):
        put(index, f"K{offset}", offset)
    index.flush("remote")
    return index


def test_lookup_of_key_that_the_filter_excludes_sends_nothing(published, store):
    with store.measure() as counts:
        answer = published.query("orders", key="absent", explain=True)
    assert counts.requests == 0
    assert answer.complete
    assert answer.explain.files_pruned_by_filter == 1


def test_lookup_of_key_that_is_there_sends_exactly_one_get(published, store):
    with store.measure() as counts:
        answer = published.query("orders", key="K77", explain=True)
    assert offsets(answer) == [77]
    assert (counts.requests, counts.gets) == (1, 1)
    assert counts.bytes_read <= 8192
    assert answer.explain.requests == 1


def test_lookup_without_sidecar_sends_one_get_more(make_index, published, store):
    mount = make_index(None, store=store, page_cache_bytes=0)
    with store.measure() as counts:
        assert offsets(mount.query("orders", key="K5")) == [5]
    assert counts.gets == 2
    with store.measure() as counts:
        assert offsets(mount.query("orders", key="K6")) == [6]
    assert counts.gets == 1


def test_no_request_is_sent_for_files_after_the_last_wanted_entry(make_index, store):
    index = make_index(store=store, merge_below_items=0)
    for offset in range(10):
        put(index, "A", offset)
        index.flush("remote")
    with store.measure() as counts:
        answer = index.query("orders", key="A", max_count=1)
    assert offsets(answer) == [9]
    assert counts.gets == 1


def test_batch_fetches_each_page_once(published, store):
    lookups = [{"topic": "orders", "key": f"K{i}"} for i in range(900)]
    with store.measure() as counts:
        answers = published.query_batch(lookups)
    assert [offsets(answer) for answer in answers] == [[i] for i in range(900)]
    assert counts.gets <= 2


def test_file_of_other_topics_is_pruned_without_its_filter(published, store):
    with store.measure() as counts:
        answer = published.query("nobody", key="K1", explain=True)
    assert counts.requests == 0
    assert [line.outcome for line in answer.explain.files] == ["pruned_by_topic"]


def test_refresh_with_nothing_to_learn_costs_one_get_a_node_and_one_listing(published, store):
    published.refresh()
    with store.measure() as counts:
        published.refresh()
    assert counts.by_verb == {"get": 1, "list_folders": 1}


def test_run_with_pages_outside_the_range_is_still_one_get(make_index, store):
    index = make_index(store=store, item_capacity=20_000)
    for offset in range(3000):
        put(index, "A", offset, timestamp=offset % 1000)
    index.flush("remote")
    with store.measure() as counts:
        answer = index.query("orders", key="A", begin=0, end=1, max_count=100)
    assert len(answer.entries) == 6
    assert counts.gets == 1
