"""Entries of rows that no kept snapshot has leave the index, and the log of the table's state its history."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of
from tests.following.tables.test_table_model import IDS, TableWorld
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.tables import table_log
from tierdex.index_service.tables.table_log import TableLog, encode_state, state_of_log

deltalake = pytest.importorskip("deltalake")
HISTORY = {"history": "0s"}


def rows(begin, end, note="first"):
    return pa.table({"id": list(range(begin, end)), "note": [note] * (end - begin)})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "orders"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def index(tmp_path, clock):
    with tierdex.Index.open(
        tmp_path / "data", store=f"file://{tmp_path}/store", clock=clock, **SMALL
    ) as opened:
        yield opened


def follow(index, path, **wanted):
    return index_once(index, f"delta:{path}", "orders", "id", options=HISTORY, **wanted)


def published(index, clock, *, seconds=0):
    """Publish all that there is, after some seconds; return the files."""
    clock.advance(seconds)
    index.roll()
    index.run_compaction()
    return index.files()


def right(index, path):
    now = pa.table(deltalake.DeltaTable(path).to_pyarrow_table())
    ever = [str(number) for number in range(200)]
    assert faults(index, "orders", keys_of(now, "id"), ever) == {}


def test_merge_leaves_dead_entries_out_once_no_reader_can_want_them(index, path, clock):
    deltalake.write_deltalake(path, rows(0, 100))
    follow(index, path)
    published(index, clock)
    clock.advance(10)
    deltalake.write_deltalake(path, rows(50, 120, "second"), mode="overwrite")
    follow(index, path)
    files = published(index, clock)
    assert [(file.item_count, file.dead_items) for file in files] == [(70, 0), (100, 100)]
    right(index, path)
    files = published(index, clock, seconds=4000)  # the grace time has passed: all of one is dead
    assert sum(file.item_count for file in files) == 70
    assert sum(file.dead_items for file in files) == 0
    right(index, path)
    (told,) = index.tables()
    assert (told.live_rows, told.snapshots) == (70, 1)


def test_entries_of_a_kept_snapshot_stay(index, path, clock):
    deltalake.write_deltalake(path, rows(0, 100))
    index_once(index, f"delta:{path}", "orders", "id")
    published(index, clock)
    deltalake.write_deltalake(path, rows(50, 120, "second"), mode="overwrite")
    index_once(index, f"delta:{path}", "orders", "id")
    files = published(index, clock, seconds=4000)
    assert sum(file.item_count for file in files) == 170
    assert len(index.query("orders", key="7", snapshot=0).entries) == 1


def test_file_that_comes_back_after_its_number_was_forgotten_is_read_again(index, path, clock):
    deltalake.write_deltalake(path, rows(0, 100))
    follow(index, path)
    clock.advance(10)
    deltalake.write_deltalake(path, rows(50, 120, "second"), mode="overwrite")
    follow(index, path)
    published(index, clock, seconds=4000)
    deltalake.DeltaTable(path).restore(0)
    assert follow(index, path).messages == 100
    right(index, path)
    published(index, clock, seconds=4000)
    right(index, path)


def test_log_without_its_history_makes_the_same_state(index, path, tmp_path, monkeypatch):
    for number in range(6):
        deltalake.write_deltalake(path, rows(number, number + 3), mode="overwrite")
        follow(index, path)
    deltalake.DeltaTable(path).delete("id = 6")
    state = index.followed_tables.state_of("orders")
    assert state_of_log(encode_state(state), "it") == state
    monkeypatch.setattr(table_log, "_SHORT_BYTES", 0)
    log = tmp_path / "data" / "tables" / "orders.table"
    before = log.stat().st_size
    for _ in range(3):
        follow(index, path)
    assert log.stat().st_size < before
    read = TableLog(LocalFileSystem(), log.parent, "orders").refresh()
    assert read == index.followed_tables.state_of("orders")
    right(index, path)
    deltalake.write_deltalake(path, rows(100, 110), mode="append")
    follow(index, path)
    right(index, path)


def test_another_table_is_begun_anew_where_the_caller_accepts_it(index, path, clock):
    deltalake.write_deltalake(path, rows(0, 50))
    follow(index, path)
    shutil.rmtree(path)
    deltalake.write_deltalake(path, rows(40, 60))
    with pytest.raises(InvalidRequestError, match="--accept-other-log"):
        follow(index, path)
    assert len(index.query("orders", key="7").entries) == 1
    follow(index, path, accept_other_log=True)
    right(index, path)
    follow(index, path)
    right(index, path)
    published(index, clock)
    assert sum(file.item_count for file in published(index, clock, seconds=4000)) == 20
    right(index, path)


@pytest.mark.parametrize("seed", range(4))
def test_answers_stay_right_while_merges_leave_dead_entries_out(tmp_path, seed):
    world = TableWorld(tmp_path / "table", seed)
    every = [str(number) for number in range(IDS)]
    given = {**SMALL, "grace_time": 0, "store": f"file://{tmp_path}/store", "merge_min_files": 2}
    with tierdex.Index.open(tmp_path / "data", **given) as index:
        for _ in range(12):
            world.change()
            kept = world.random.choice(["0s", "0s", "1h"])
            index_once(index, f"delta:{world.path}", "t", "id", options={"history": kept})
            for _ in range(world.random.randint(0, 2)):
                index.roll()
                index.run_compaction()
            for each in index.followed_tables.state_of("t").snapshots[-3:]:
                expected = world.rows_at[each.version]
                assert faults(index, "t", expected, every, snapshot=each.snapshot) == {}
        index_once(index, f"delta:{world.path}", "t", "id", options={"history": "0s"})
        for _ in range(3):
            index.roll()
            index.run_compaction()
        assert faults(index, "t", world.rows_at[-1], every) == {}
        live = world.rows_at[-1].total()
        assert sum(file.item_count for file in index.files()) <= live / 0.7
