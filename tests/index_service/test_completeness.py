"""An answer says when it cannot be trusted: nothing unreadable looks like "not found"."""

from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import BacklogFullError, IncompleteAnswerError, StoreUnavailableError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore


@pytest.fixture
def store():
    return FaultyStore(MemoryStore(), ids=SeededIds(1))


def test_unreachable_store_makes_the_answer_incomplete(make_index, store):
    index = make_index(store=store)
    put(index, "A", 1)
    index.flush("remote")
    put(index, "A", 2)
    with store.outage():
        answer = index.query("orders", key="A")
        assert offsets(answer) == [2]
        assert not answer.complete
        assert answer.missing[0].file == index.files()[-1].file_id
        with pytest.raises(IncompleteAnswerError):
            index.query("orders", key="A", on_error="fail")
        assert not index.query_batch([{"topic": "orders", "key": "A"}])[0].complete
    assert offsets(index.query("orders", key="A")) == [2, 1]


def test_stale_manifest_makes_the_answer_incomplete(make_index, store, clock):
    index = make_index(store=store, max_staleness=60.0, node="a")
    put(index, "A", 1)
    assert index.query("orders", key="A").complete
    with store.outage():
        clock.advance(61)
        index.refresh()
        answer = index.query("orders", key="A")
    assert [missing.file for missing in answer.missing][-1] == "node:a"
    index.refresh()
    assert index.query("orders", key="A").complete


def test_store_that_is_down_at_start_lets_local_work_go_on(make_index, store):
    index = make_index(store=store)
    put(index, "A", 1)
    index.roll()
    index.close()
    with store.outage():
        index = make_index(store=store)
        assert offsets(index.query("orders", key="A")) == [1]
        put(index, "A", 2)
        index.roll()
        with pytest.raises(StoreUnavailableError):
            index.run_compaction()
        assert offsets(index.query("orders", key="A")) == [2, 1]
    index.run_compaction()
    assert {file.state for file in index.files()} == {"uploaded"}
    assert offsets(index.query("orders", key="A")) == [2, 1]


def test_corrupt_local_file_is_quarantined_and_named(make_index, tmp_path):
    index = make_index(store="memory://quarantine")
    put(index, "A", 1)
    index.roll()
    index.close()
    (sealed,) = (tmp_path / "data" / "unsealed").iterdir()
    sealed.write_bytes(sealed.read_bytes()[:100])
    index = make_index(store="memory://quarantine")
    answer = index.query("orders", key="A")
    assert answer.entries == []
    assert not answer.complete
    assert "unsealed" in answer.missing[0].file
    assert list((tmp_path / "data" / "quarantine").iterdir())


def test_deleted_object_is_named_after_one_refresh(make_index, store):
    index = make_index(store=store, node="a")
    put(index, "A", 1)
    index.flush("remote")
    for found in list(store.list("nodes/a/files/")):
        store.delete(found.key)
    answer = index.query("orders", key="A")
    assert not answer.complete


def put_until_refused(index, clock):
    """Put and acknowledge entries until the backlog is full; return the last one that was taken."""
    for offset in range(100_000):
        try:
            put(index, f"K{offset}", offset, durability="os")
        except BacklogFullError:
            return offset - 1
        clock.advance(0.01)
    raise AssertionError("puts were never refused")


def test_backlog_above_its_budget_refuses_puts_and_loses_nothing(make_index, store, clock):
    index = make_index(store=store, disk_budget_bytes=200_000, item_capacity=100)
    with store.outage():
        accepted = put_until_refused(index, clock)
        assert offsets(index.query("orders", key=f"K{accepted}")) == [accepted]
        assert offsets(index.query("orders", key="K0")) == [0]
    index.run_compaction()
    clock.advance(1)
    put(index, "again", 1, durability="os")
    assert offsets(index.query("orders", key="K0")) == [0]
