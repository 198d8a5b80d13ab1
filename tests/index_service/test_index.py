from __future__ import annotations

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import (
    CursorExpiredError,
    FencedError,
    FolderInUseError,
    InvalidRequestError,
    ReadOnlyError,
)


def test_put_is_found_at_once(index):
    assert put(index, "A", 1) == "received"
    answer = index.query("orders", key="A")
    assert offsets(answer) == [1]
    assert answer.complete
    assert answer.entries[0].state == "unsealed"


def test_absent_key_and_unknown_topic_are_empty_and_complete(index):
    put(index, "A", 1)
    assert index.query("orders", key="B").entries == []
    answer = index.query("nobody", key="A")
    assert answer.entries == []
    assert answer.complete


def test_message_id_is_found_without_its_topic(index):
    index.put(
        topic="orders", keys=["K"], message_id="ID-1", queue_id=3, offset=7, size=1, timestamp=5
    )
    entry = index.query(message_id="ID-1").entries[0]
    assert (entry.topic, entry.queue_id, entry.offset) == ("orders", 3, 7)
    assert index.query("orders", message_id="ID-1").entries == [entry]
    assert index.query("other", message_id="ID-1").entries == []
    assert index.query("orders", key="ID-1").entries == []


STAGES = ["unsealed", "sealed and published", "reopened"]


@pytest.mark.parametrize("stage", STAGES)
def test_answer_is_the_same_in_every_state(make_index, stage):
    index = make_index()
    for offset in range(300):
        put(index, f"K{offset % 7}", offset)
    expected = [offset for offset in reversed(range(300)) if offset % 7 == 3]
    if stage != "unsealed":
        index.roll()
        index.run_compaction()
        assert [file.state for file in index.files()] == ["uploaded"]
    if stage == "reopened":
        index.close()
        index = make_index()
    answer = index.query("orders", key="K3", max_count=1000)
    assert offsets(answer) == expected
    assert answer.complete


def test_newest_file_comes_first_and_stops_the_walk_at_max_count(index):
    for offset in range(30):
        put(index, "A", offset)
        if offset % 10 == 9:
            index.roll()
    index.run_compaction()
    answer = index.query("orders", key="A", max_count=12, explain=True)
    assert offsets(answer) == list(range(29, 17, -1))
    assert answer.explain.files_read == 2
    assert answer.next_cursor


def test_pages_by_cursor_give_every_entry_once_across_states(index):
    for offset in range(100):
        put(index, "A", offset)
        if offset in (20, 60):
            index.roll()
            index.run_compaction()
    found, cursor, pages = [], None, 0
    while True:
        answer = index.query("orders", key="A", max_count=9, cursor=cursor)
        found += offsets(answer)
        cursor = answer.next_cursor
        pages += 1
        if pages == 3:
            index.roll()
        if pages == 5:
            index.run_compaction()
        if cursor is None:
            break
    assert found == list(range(99, -1, -1))


def test_cursor_of_another_query_is_refused(index):
    put(index, "A", 1)
    put(index, "A", 2)
    cursor = index.query("orders", key="A", max_count=1).next_cursor
    with pytest.raises(InvalidRequestError, match="another query"):
        index.query("orders", key="B", cursor=cursor)
    with pytest.raises(InvalidRequestError, match="not a cursor"):
        index.query("orders", key="A", cursor="nonsense")


def test_cursor_into_an_expired_file_is_refused(index, clock):
    put(index, "A", 1)
    put(index, "A", 2)
    index.roll()
    index.run_compaction()
    cursor = index.query("orders", key="A", max_count=1).next_cursor
    clock.advance(10)
    index.expire(before=clock.now_ms())
    with pytest.raises(CursorExpiredError):
        index.query("orders", key="A", cursor=cursor)


def test_query_of_range_includes_file_that_began_earlier(index, clock):
    put(index, "A", 1, timestamp=10_000)
    put(index, "A", 2, timestamp=90_000)
    index.roll()
    clock.advance(3600)
    put(index, "A", 3, timestamp=50_000)
    assert offsets(index.query("orders", key="A", begin=40_000, end=95_000)) == [3, 2]
    assert offsets(index.query("orders", key="A", begin=10_000, end=10_000)) == [1]


def test_location_put_twice_is_returned_once(index):
    for _ in range(2):
        for offset in (1, 2, 3):
            put(index, "A", offset)
        index.roll()
        index.run_compaction()
    assert offsets(index.query("orders", key="A")) == [3, 2, 1]


def test_batch_answers_equal_single_answers(index):
    for offset in range(500):
        put(index, f"K{offset % 50}", offset, message_id=f"M{offset}")
        if offset % 120 == 119:
            index.roll()
        if offset == 300:
            index.run_compaction()
    lookups = [{"topic": "orders", "key": f"K{i}", "max_count": 5} for i in range(60)]
    lookups += [{"message_id": f"M{i}"} for i in range(0, 600, 7)]
    lookups += [{"topic": "orders", "key": "K1", "begin": 1200, "end": 1300}]
    batch = index.query_batch(lookups)
    for lookup, answer in zip(lookups, batch, strict=True):
        single = index.query(**lookup)
        assert answer.entries == single.entries
        assert answer.complete
        assert (answer.next_cursor is None) == (single.next_cursor is None)


def test_arrow_batch_gives_the_newest_entry_of_each_lookup(index):
    import pyarrow as pa

    for offset in range(100):
        put(index, f"K{offset % 10}", offset)
        if offset == 50:
            index.roll()
            index.run_compaction()
    table = pa.table({"topic": ["orders"] * 12, "key": [f"K{i}" for i in range(12)]})
    answer = index.query_batch_arrow(table, max_count=2)
    rows = list(zip(answer["lookup"].to_pylist(), answer["offset"].to_pylist(), strict=True))
    assert rows == [row for i in range(10) for row in ((i, 90 + i), (i, 80 + i))]


def test_watermark_rises_through_the_levels(index):
    put(index, "A", 100)
    assert index.watermark("orders", 0) == {"os": None, "disk": None, "remote": None}
    index.flush("os")
    assert index.watermark("orders", 0) == {"os": 110, "disk": None, "remote": None}
    index.flush("disk")
    put(index, "A", 200)
    index.flush("os")
    assert index.watermark("orders", 0) == {"os": 210, "disk": 110, "remote": None}
    index.flush("remote")
    assert index.watermark("orders", 0) == {"os": 210, "disk": 210, "remote": 210}


def test_second_writer_is_refused_and_reader_works_beside(make_index):
    index = make_index()
    put(index, "A", 1)
    index.flush("os")
    with pytest.raises(FolderInUseError, match="pid"):
        make_index()
    reader = make_index(read_only=True)
    assert offsets(reader.query("orders", key="A")) == [1]
    with pytest.raises(ReadOnlyError):
        put(reader, "A", 2)
    put(index, "A", 2)
    index.flush("os")
    reader.refresh()
    assert offsets(reader.query("orders", key="A")) == [2, 1]


def test_node_is_recovered_from_the_bucket_alone(make_index, tmp_path):
    index = make_index(store=str(tmp_path / "bucket"))
    for offset in range(20):
        put(index, "A", offset)
    index.flush("remote")
    put(index, "A", 999)
    index.close()
    fresh = make_index(tmp_path / "other", store=str(tmp_path / "bucket"), takeover=True)
    assert offsets(fresh.query("orders", key="A")) == list(range(19, -1, -1))
    assert fresh.watermark("orders", 0)["remote"] == 29


def test_fenced_owner_stops_puts_and_keeps_answering(make_index, tmp_path):
    old = make_index(store=str(tmp_path / "bucket"))
    put(old, "A", 1)
    old.flush("remote")
    new = make_index(tmp_path / "other", store=str(tmp_path / "bucket"), takeover=True)
    put(new, "A", 2)
    new.flush("remote")
    put(old, "A", 3)
    old.roll()
    with pytest.raises(FencedError):
        old.run_compaction()
    with pytest.raises(FencedError):
        put(old, "A", 4)
    assert 1 in offsets(old.query("orders", key="A"))


def test_index_answers_from_every_node_under_the_store(make_index, tmp_path):
    store = str(tmp_path / "bucket")
    first = make_index(tmp_path / "a", store=store, node="a")
    second = make_index(tmp_path / "b", store=store, node="b")
    put(first, "A", 1)
    first.flush("remote")
    put(second, "A", 2)
    second.flush("remote")
    first.refresh()
    assert sorted(offsets(first.query("orders", key="A"))) == [1, 2]
    mount = make_index(None, store=store)
    assert sorted(offsets(mount.query("orders", key="A"))) == [1, 2]
    assert {entry.node for entry in mount.query("orders", key="A").entries} == {"a", "b"}


def test_small_neighbours_are_merged_and_answers_stay(make_index, clock):
    index = make_index(merge_min_files=4)
    for offset in range(80):
        put(index, f"K{offset % 3}", offset)
        if offset % 10 == 9:
            index.roll()
            clock.advance(60)
            index.run_compaction()
    assert len(index.files()) < 8
    answer = index.query("orders", key="K1", max_count=1000)
    assert offsets(answer) == [offset for offset in reversed(range(80)) if offset % 3 == 1]
    assert all(index.verify_file(file.file_id) == [] for file in index.files())


def test_put_batch_takes_columns_of_any_kind(index):
    import numpy as np
    import pyarrow as pa

    level = index.put_batch(
        topic=pa.array(["x", "y", "x"]),
        keys=["a", None, "c"],
        message_id=pa.array(["1", "2", None]),
        queue_id=1,
        offset=np.array([10, 20, 30]),
        size=[1, 2, 3],
        timestamp=pa.array([1, 2, 3], pa.timestamp("ms")),
    )
    assert level == "os"
    assert offsets(index.query("x", key="a")) == [10]
    assert offsets(index.query(message_id="2")) == [20]
    assert index.query("x", key="c").entries[0].timestamp == 3
    assert index.topics() == ["x", "y"]


@pytest.mark.parametrize("rest", [[], [{"message_id": "none"}]], ids=["plain", "general"])
def test_max_count_of_a_batch_is_for_lookups_that_do_not_say_it(index, rest):
    for offset in range(5):
        put(index, "k", offset)
    plain = {"topic": "orders", "key": "k"}
    asked = [plain, plain, *rest] if not rest else [plain, {**plain, "max_count": 3}, *rest]
    counts = [len(answer.entries) for answer in index.query_batch(asked, max_count=2)]
    assert counts == ([2, 2] if not rest else [2, 3, 0])
    for wrong in (0, 10_001, 2.5, True):
        with pytest.raises(InvalidRequestError, match="max_count"):
            index.query_batch(asked, max_count=wrong)
