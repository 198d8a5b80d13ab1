"""Files of rows that are forgotten whole: all of their entries, on every node or one, not what came later."""

from __future__ import annotations

import pytest

import tierdex
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.ids import SeededIds
from tierdex.indexfile.schema import PARQUET_ROW_SCHEMA, TEXT_LINE_SCHEMA
from tierdex.storage_layer.memory import MemoryStore

SMALL = {"slot_count": 64, "item_capacity": 1024, "background": False, "remote_interval": 0}


@pytest.fixture
def world(tmp_path):
    """Two owners of one store, and its clock."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    made = [
        tierdex.Index.open(
            tmp_path / name, store=store, node=name, clock=clock, ids=SeededIds(number),
            merge_min_files=2, grace_time=5.0, **SMALL,
        )
        for number, name in enumerate("ab")
    ]  # fmt: skip
    yield clock, *made
    for each in made:
        each.close()


def put(index, source, keys, time=1_700_000_000_000):
    for number, key in enumerate(keys):
        index.put_batch(
            topic="o", keys=[key], timestamp=time, schema=TEXT_LINE_SCHEMA,
            source=source, offset=[number * 10], size=10,
        )  # fmt: skip


def sources(index, key):
    index.refresh()
    single = [entry.source for entry in index.query("o", key=key).entries]
    (batch,) = index.query_batch([{"topic": "o", "key": key}])
    assert [entry.source for entry in batch.entries] == single
    return sorted(single)


def test_every_entry_of_a_file_is_hidden_and_others_are_not(world):
    _, a, _ = world
    put(a, "/x.csv", ["K", "L"])
    put(a, "/y.csv", ["K"])
    a.put_batch(
        topic="o", keys=["K"], timestamp=5, schema=PARQUET_ROW_SCHEMA, source="/x.csv",
        row_group=0, row=[0],
    )  # fmt: skip
    a.put(topic="o", keys=["K"], queue_id=0, offset=0, size=1, timestamp=1_700_000_000_000)
    receipt = a.forget_sources("/x.csv")
    assert receipt.is_complete
    assert len(receipt.holding) == 2
    assert [entry.source for entry in a.query("o", key="K").entries] == [None, "/y.csv"]
    assert sources(a, "L") == []


@pytest.mark.parametrize("publishes", [False, True])
def test_what_is_put_later_of_the_file_shows_through_compaction_and_merges(world, publishes):
    clock, a, _ = world
    put(a, "/x.csv", ["K", "L"])
    if publishes:
        a.flush("remote")
    receipt = a.forget_sources(["/x.csv"])
    put(a, "/x.csv", ["K"], time=1_700_000_000_001)
    assert (sources(a, "K"), sources(a, "L")) == (["/x.csv"], [])
    for _ in range(4):
        a.flush("remote")
        put(a, "/z.csv", ["Z"])
        clock.advance(31)
        a.run_compaction()
        assert (sources(a, "K"), sources(a, "L")) == (["/x.csv"], [])
        assert [e.timestamp for e in a.query("o", key="K").entries] == [1_700_000_000_001]
    assert a.forgettings() == []  # the files were merged without its entries
    with pytest.raises(tierdex.errors.NotFoundError):
        a.resume_forgetting(receipt.forgetting)


def test_file_is_forgotten_on_every_node_or_on_one(world):
    clock, a, b = world
    for index in (a, b):
        put(index, "/x.csv", ["K"], time=1_700_000_000_000 + (index is b))
        index.flush("remote")
    clock.advance(31)
    a.forget_sources("/x.csv", own=True)
    assert sources(a, "K") == sources(b, "K") == ["/x.csv"]
    receipt = a.forget_sources("/x.csv")
    for _ in range(3):
        if receipt.is_complete:
            break
        for index in (a, b):
            clock.advance(31)
            index.run_compaction()
        receipt = a.resume_forgetting(receipt)
    assert receipt.is_complete
    assert sources(a, "K") == sources(b, "K") == []


def test_files_are_written_anew_at_once_where_that_is_asked(world):
    clock, a, _ = world
    put(a, "/x.csv", ["K"])
    put(a, "/y.csv", ["K"])
    a.flush("remote")
    receipt = a.forget_sources("/x.csv", now=True)
    assert receipt.is_complete
    assert receipt.holding == []
    assert len(receipt.rewritten) == 1
    clock.advance(60)
    a.run_compaction()
    assert a.forgettings() == []
    assert sources(a, "K") == ["/y.csv"]


def test_dry_run_and_an_unknown_file_change_nothing(world):
    _, a, _ = world
    put(a, "/x.csv", ["K"])
    assert len(a.forget_sources("/x.csv", dry_run=True).holding) == 1
    assert a.forget_sources("/unknown").is_complete
    assert a.forgettings() == []
    assert sources(a, "K") == ["/x.csv"]
    for wrong in ([], "", [1], 7):
        with pytest.raises(InvalidRequestError):
            a.forget_sources(wrong)


def test_it_outlives_a_restart(tmp_path):
    folder = tmp_path / "data"
    with tierdex.Index.open(folder, **SMALL) as index:
        put(index, "/x.csv", ["K", "L"])
        index.forget_sources("/x.csv")
        put(index, "/x.csv", ["L"], time=1_700_000_000_001)
    with tierdex.Index.open(folder, **SMALL) as index:
        assert (sources(index, "K"), sources(index, "L")) == ([], ["/x.csv"])
    with tierdex.Index.open(folder, read_only=True) as index:
        assert (sources(index, "K"), sources(index, "L")) == ([], ["/x.csv"])
