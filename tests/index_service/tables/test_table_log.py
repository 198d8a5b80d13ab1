"""The log of a followed table's state: what a crash leaves, what damage does, what readers beside it see."""

from __future__ import annotations

import pytest

import tierdex
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.tables.followed_tables import FollowedTables
from tierdex.index_service.tables.table_log import TableLog, path_of_topic
from tierdex.index_service.tables.table_state import TableHead
from tierdex.indexfile.schema import TABLE_ROW_SCHEMA

HEAD = TableHead("orders", "delta:/t", "delta:/t", "uuid-1", "/t", ("id",), None, None)
SMALL = {"slot_count": 1024, "item_capacity": 65536, "background": False, "node": "here"}


def files_record(*paths, first=0):
    rows = [[first + n, path, 10, None, {}] for n, path in enumerate(paths)]
    return {"kind": "files", "files": rows}


def step(number, *, begun=(), ended=()):
    return {
        "kind": "step", "step": number, "snapshot": str(number), "version": number,
        "time_ms": 1000 * number, "columns": "{}" if number == 1 else "", "ended": list(ended),
        "begun": [[file, 5, "", None] for file in begun],
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "data" / "tables"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def log(folder):
    made = TableLog(LocalFileSystem(), folder, "orders")
    made.begin(HEAD)
    made.append(files_record("a", "b"))
    made.append(step(1, begun=[0, 1]))
    return made


def reread(folder):
    return TableLog(LocalFileSystem(), folder, "orders").refresh()


def test_state_is_what_the_records_made(log, folder):
    log.append(files_record("c", first=2), step(2, begun=[2], ended=[0]))
    state = reread(folder)
    assert state == log.state
    assert sorted(state.live_paths()) == ["b", "c"]
    assert [state.files[0].life_at(each) is not None for each in (1, 2)] == [True, False]


@pytest.mark.parametrize("left", [b"0", b"00000000 {", b'00000000 {"kind": "step"}\n', b"\0" * 30])
def test_line_that_a_crash_cut_short_is_no_record_and_is_written_over(log, folder, left):
    path = path_of_topic(folder, "orders")
    whole = path.read_bytes()
    path.write_bytes(whole + left)
    assert reread(folder) == log.state
    again = TableLog(LocalFileSystem(), folder, "orders")
    again.refresh()
    again.append(step(2, ended=[0]))
    assert sorted(reread(folder).live_paths()) == ["b"]


def test_damaged_line_makes_the_topic_incomplete_and_shows_no_row(log, folder, tmp_path):
    with tierdex.Index.open(tmp_path / "data", **SMALL) as index:
        index.put_batch(
            topic="orders",
            key=["7"],
            schema=TABLE_ROW_SCHEMA,
            table_file=0,
            position=[3],
            timestamp=1,
        )
    path = path_of_topic(folder, "orders")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError):
        reread(folder)
    with tierdex.Index.open(tmp_path / "data", **SMALL) as index:
        answer = index.query("orders", key="7")
        assert (answer.entries, answer.complete) == ([], False)
        assert index.tables()[0].trouble is not None


def test_reader_sees_a_snapshot_whole_or_the_one_before(log, folder):
    tables = FollowedTables(LocalFileSystem(), folder.parent)
    tables.refresh()
    before = tables.state_of("orders")
    log.append(files_record("c", first=2), step(2, begun=[2], ended=[0, 1]))
    assert tables.state_of("orders") is before
    tables.refresh()
    assert sorted(tables.state_of("orders").live_paths()) == ["c"]
    assert sorted(before.live_paths()) == ["a", "b"]


def test_snapshots_that_are_not_kept_leave_their_files_dead(log, folder, tmp_path):
    log.append(step(2, ended=[0]))
    log.append({"kind": "kept", "first": 2})
    state = reread(folder)
    assert [each.step for each in state.snapshots] == [2]
    assert state.columns_at(2) == "{}"
    tables = FollowedTables(LocalFileSystem(), tmp_path / "data")
    tables.refresh()
    (told,) = tables.infos()
    assert (told.live_files, told.dead_files, told.snapshots) == (1, 1, 1)


def test_file_that_comes_back_lives_again(log):
    log.append(step(2, ended=[0]))
    state = log.append(step(3, begun=[0]))
    lives = [state.files[0].life_at(each) is not None for each in (1, 2, 3)]
    assert lives == [True, False, True]


def test_record_out_of_order_is_refused(log):
    with pytest.raises(ValueError, match="step 3 follows 1"):
        log.append(step(3))
    with pytest.raises(ValueError, match="file 5 follows 1"):
        log.append(files_record("x", first=5))


def test_answer_is_incomplete_when_the_table_was_not_looked_at_for_too_long(folder, tmp_path):
    from tierdex.clock import ManualClock

    clock = ManualClock()
    head = TableHead(
        "orders",
        "delta:/t",
        "delta:/t",
        "uuid-1",
        "/t",
        ("id",),
        None,
        None,
        {"max_staleness": "60"},
    )
    made = TableLog(LocalFileSystem(), folder, "orders")
    made.begin(head)
    made.append(files_record("a"))
    made.append(step(1, begun=[0]))
    with tierdex.Index.open(tmp_path / "data", clock=clock, **SMALL) as index:
        made.note_look({"looked_at": clock.now_ms(), "behind": 0, "trouble": None})
        assert index.query("orders", key="7").complete
        clock.advance(61)
        answer = index.query("orders", key="7")
        assert not answer.complete
        assert "last looked at" in answer.missing[-1].reason
