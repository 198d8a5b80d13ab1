"""Delta tables that deltalake writes: every change is answered rightly, and the row is shown."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

deltalake = pytest.importorskip("deltalake")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])


def rows(begin, end):
    numbers = range(begin, end)
    return pa.table(
        [list(numbers), [f"name-{n % 5}" for n in numbers], [f"note {n}" for n in numbers]],
        schema=SCHEMA,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "orders"


def table_of(path):
    return deltalake.DeltaTable(path)


def checked(index, path, **asked):
    """Index what is new, by ID and by name; compare every key with the table's own rows."""
    index_once(index, f"delta:{path}", "by-id", "id")
    index_once(index, f"delta:{path}", "by-name", "name")
    now = pa.table(table_of(path).to_pyarrow_table())
    ever = [str(number) for number in range(120)]
    assert faults(index, "by-id", keys_of(now, "id"), ever, **asked) == {}
    assert faults(index, "by-name", keys_of(now, "name"), **asked) == {}


def test_every_change_of_a_table_is_answered_as_the_table_is(index, path):
    deltalake.write_deltalake(path, rows(0, 50))
    checked(index, path)
    deltalake.write_deltalake(path, rows(50, 80), mode="append")
    checked(index, path)
    table_of(path).delete("id % 10 = 3")
    checked(index, path)
    table_of(path).update(updates={"name": "'other'"}, predicate="id < 20")
    checked(index, path)
    table_of(path).optimize.compact()
    checked(index, path)
    table_of(path).optimize.z_order(["id"])
    checked(index, path)
    deltalake.write_deltalake(path, rows(90, 95), mode="overwrite")
    checked(index, path)
    table_of(path).restore(1)
    checked(index, path)
    table_of(path).create_checkpoint()
    deltalake.write_deltalake(path, rows(95, 99), mode="append")
    checked(index, path)


def test_restored_file_is_not_read_again(index, path):
    deltalake.write_deltalake(path, rows(0, 50))
    index_once(index, f"delta:{path}", "orders", "id")
    deltalake.write_deltalake(path, rows(50, 60), mode="overwrite")
    index_once(index, f"delta:{path}", "orders", "id")
    table_of(path).restore(0)
    status = index_once(index, f"delta:{path}", "orders", "id")
    assert (status.messages, status.entries) == (0, 0)
    assert len(index.query("orders", key="7").entries) == 1
    assert index.query("orders", key="55").entries == []


def test_older_snapshot_is_asked_by_its_version(index, path):
    deltalake.write_deltalake(path, rows(0, 10))
    index_once(index, f"delta:{path}", "orders", "id")
    table_of(path).delete("id = 7")
    index_once(index, f"delta:{path}", "orders", "id")
    assert index.query("orders", key="7").entries == []
    before = index.query("orders", key="7", snapshot=0)
    assert [entry.location["snapshot"] for entry in before.entries] == ["0"]
    assert before.table.version == 0
    with pytest.raises(NotFoundError, match="kept are 0 to 1"):
        index.query("orders", key="7", snapshot=9)


def test_snapshot_of_a_topic_without_a_table_is_refused(index):
    index.put(topic="plain", key="k", queue_id=0, offset=0, size=1, timestamp=1)
    with pytest.raises(NotFoundError, match="follows no table"):
        index.query("plain", key="k", snapshot=1)


def test_page_is_filled_with_live_rows_behind_dead_ones(index, path):
    deltalake.write_deltalake(path, rows(0, 40))
    index_once(index, f"delta:{path}", "orders", "name")
    for _ in range(3):  # each rewrite leaves eight dead entries of a name before the live ones
        table_of(path).update(updates={"note": "'again'"})
        index_once(index, f"delta:{path}", "orders", "name")
    seen, cursor = [], None
    while True:
        answer = index.query("orders", key="name-2", max_count=3, cursor=cursor)
        assert len(answer.entries) <= 3
        seen += [entry.location["position"] for entry in answer.entries]
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 8


def test_batch_histogram_and_table_answer_live_rows_alone(index, path):
    deltalake.write_deltalake(path, rows(0, 40))
    index_once(index, f"delta:{path}", "orders", "id")
    table_of(path).delete("id >= 20")
    index_once(index, f"delta:{path}", "orders", "id")
    lookups = [{"topic": "orders", "key": str(number)} for number in range(40)]
    found = [len(answer.entries) for answer in index.query_batch(lookups)]
    assert found == [1] * 20 + [0] * 20
    table = pa.table({"topic": ["orders"] * 40, "key": [str(n) for n in range(40)]})
    answers = index.query_batch_arrow(table)
    assert answers.column("lookup").to_pylist() == list(range(20))
    assert all(answers.column("source").to_pylist())
    assert index.histogram("orders", key="3").count == 1
    assert index.histogram("orders", key="33").count == 0


def test_batch_as_a_table_takes_live_rows_behind_many_dead_ones(index, path):
    deltalake.write_deltalake(path, rows(0, 40))
    index_once(index, f"delta:{path}", "orders", "name")
    for _ in range(4):
        table_of(path).update(updates={"note": "'again'"})
        index_once(index, f"delta:{path}", "orders", "name")
    table_of(path).restore(0)  # the newest 32 entries of a name are dead now
    index_once(index, f"delta:{path}", "orders", "name")
    index.put(topic="plain", key="name-1", queue_id=1, offset=5, size=1, timestamp=1)
    asked = pa.table({
        "topic": ["orders", "plain", "orders", "orders"], "key": ["name-1", "name-1", "name-9", "name-2"],
    })  # fmt: skip
    found = index.query_batch_arrow(asked, max_count=3)
    assert found.column("lookup").to_pylist() == [0, 0, 0, 1, 3, 3, 3]
    assert found.column("position").to_pylist() == [36, 31, 26, None, 37, 32, 27]
    assert found.column("offset").to_pylist()[3] == 5
    assert len(set(found.column("source").to_pylist())) == 2
    assert found.column("source").to_pylist()[3] is None


def test_reader_of_the_store_alone_answers_as_the_follower_published(path, tmp_path):
    store = f"file://{tmp_path}/store"
    deltalake.write_deltalake(path, rows(0, 40))
    with tierdex.Index.open(tmp_path / "data", store=store, **SMALL) as index:
        index_once(index, f"delta:{path}", "orders", "id")
        table_of(path).delete("id = 7")
        index_once(index, f"delta:{path}", "orders", "id")
        index.roll()
        index.run_compaction()
        assert [entry.state for entry in index.query("orders", key="8").entries] == ["uploaded"]
        with tierdex.Index.open(store=store, background=False) as reader:
            assert [a.entries for a in reader.query_batch([{"topic": "orders", "key": "7"}])] == [
                []
            ]
            answer = reader.query("orders", key="7")
            assert (answer.entries, answer.complete, answer.table.version) == ([], True, 1)
            assert len(reader.query("orders", key="7", snapshot=0).entries) == 1
            deltalake.write_deltalake(path, rows(7, 8), mode="append")
            index_once(index, f"delta:{path}", "orders", "id")
            index.run_compaction()  # its entry is in no published file: its state is not published
            reader.refresh()
            assert reader.query("orders", key="7").table.version == 1
            index.roll()
            index.run_compaction()
            reader.refresh()
            assert len(reader.query("orders", key="7").entries) == 1
        with tierdex.Index.open(store=store, background=False) as reader:
            asked = pa.table({"topic": ["orders"] * 2, "key": ["7", "9"]})
            assert reader.query_batch_arrow(asked).column("position").to_pylist() == [
                0,
                8,
            ]  # in a new file without 7


def test_rows_are_missing_where_nothing_says_which_are_live(path, tmp_path):
    store = f"file://{tmp_path}/store"
    deltalake.write_deltalake(path, rows(0, 40))
    with tierdex.Index.open(tmp_path / "data", store=store, **SMALL) as index:
        index_once(index, f"delta:{path}", "orders", "id")
        index.roll()
        index.run_compaction()
    shutil.rmtree(tmp_path / "store" / "tables")
    with tierdex.Index.open(store=store, background=False) as reader:
        answers = [reader.query("orders", key="7")]
        answers += reader.query_batch([{"topic": "orders", "key": "7"}])
        for answer in answers:
            assert (answer.entries, answer.complete) == ([], False)
            assert "known where the table is followed" in answer.missing[0].reason
        asked = pa.table({"topic": ["orders"], "key": ["7"]})
        table = reader.query_batch_arrow(asked, on_error="partial")
        assert table.num_rows == 0
        assert b"missing" in table.schema.metadata


def test_row_is_shown_with_its_columns(index, path, tmp_path):
    deltalake.write_deltalake(path, rows(0, 40), partition_by=["name"])
    index_once(index, f"delta:{path}", "orders", "id")
    answer = index.query("orders", key="17")
    with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
        shown = messages.with_messages(answer, key="17", message_id=None)
    message = shown.entries[0].message
    assert message.outcome == "shown", message
    assert json.loads(message.text) == {"id": 17, "name": "name-2", "note": "note 17"}


def test_row_of_nested_columns_is_shown_as_it_is(index, path, tmp_path):
    lines = [None if n % 3 == 0 else [{"sku": f"s{n}", "count": n}] for n in range(10)]
    table = pa.table({
        "id": list(range(10)),
        "lines": pa.array(lines, pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        "tags": pa.array([None if n % 2 else [("a", n)] for n in range(10)], pa.map_("string", "int64")),
        "to": pa.array([{"city": None if n == 4 else f"c{n}"} for n in range(10)]),
    })  # fmt: skip
    deltalake.write_deltalake(path, table)
    index_once(index, f"delta:{path}", "orders", "id")
    index_once(index, f"delta:{path}", "cities", "to.city")
    expected = {
        "4": {
            "id": 4,
            "lines": [{"sku": "s4", "count": 4}],
            "tags": [["a", 4]],
            "to": {"city": None},
        },
        "3": {"id": 3, "lines": None, "tags": None, "to": {"city": "c3"}},
    }
    with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
        for key, row in expected.items():
            answer = index.query("orders", key=key)
            shown = messages.with_messages(answer, key=key, message_id=None).entries[0].message
            assert shown.outcome == "shown", shown
            assert json.loads(shown.text) == row
    assert len(index.query("cities", key="c7").entries) == 1


def test_row_of_a_vacuumed_file_is_gone_and_never_another_row(index, path, tmp_path):
    deltalake.write_deltalake(path, rows(0, 40))
    index_once(index, f"delta:{path}", "orders", "id")
    answer = index.query("orders", key="17")
    table_of(path).update(updates={"note": "'again'"})
    table_of(path).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
        shown = messages.with_messages(answer, key="17", message_id=None)
    assert shown.entries[0].message.outcome == "gone"


def test_unknown_reader_feature_is_refused_before_anything_is_indexed(index, path):
    deltalake.write_deltalake(path, rows(0, 10))
    commit = path / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            features = {"readerFeatures": ["timeCrystals"], "writerFeatures": ["timeCrystals"]}
            line["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    commit.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InvalidRequestError, match="timeCrystals"):
        index_once(index, f"delta:{path}", "orders", "id")
    assert index.tables() == []
    assert index.topics() == []


def test_another_table_in_the_place_of_the_first_is_refused(index, path):
    deltalake.write_deltalake(path, rows(0, 10))
    index_once(index, f"delta:{path}", "orders", "id")
    shutil.rmtree(path)
    deltalake.write_deltalake(path, rows(10, 20))
    with pytest.raises(InvalidRequestError, match="another table"):
        index_once(index, f"delta:{path}", "orders", "id")
    assert len(index.query("orders", key="7").entries) == 1


def test_other_keys_of_the_same_topic_are_refused(index, path):
    deltalake.write_deltalake(path, rows(0, 10))
    index_once(index, f"delta:{path}", "orders", "id")
    with pytest.raises(InvalidRequestError, match="was indexed by id"):
        index_once(index, f"delta:{path}", "orders", "name")


def test_path_outside_of_the_table_is_refused(index, path, tmp_path):
    deltalake.write_deltalake(path, rows(0, 10))
    commit = path / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["path"] = "../elsewhere.parquet"
    commit.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InvalidRequestError, match="does not lie below"):
        index_once(index, f"delta:{path}", "orders", "id")


def test_log_that_was_cleaned_up_is_read_from_its_checkpoint(index, path):
    deltalake.write_deltalake(path, rows(0, 10))
    index_once(index, f"delta:{path}", "orders", "id")
    for begin in (10, 20, 30):
        deltalake.write_deltalake(path, rows(begin, begin + 10), mode="append")
    table_of(path).create_checkpoint()
    for version in range(3):
        (path / "_delta_log" / f"{version:020}.json").unlink()
    index_once(index, f"delta:{path}", "orders", "id")
    assert faults(index, "orders", keys_of(rows(0, 40), "id")) == {}


def test_keys_are_templates_and_times_are_a_column(index, path):
    table = rows(0, 10).append_column("at", pa.array([1_700_000_000_000 + n for n in range(10)]))
    deltalake.write_deltalake(path, table)
    index_once(index, f"delta:{path}", "orders", "{name}/{id}", time="at")
    (entry,) = index.query("orders", key="name-2/7").entries
    assert entry.timestamp == 1_700_000_000_007


def test_topic_with_a_retention_is_refused(tmp_path, path):
    deltalake.write_deltalake(path, rows(0, 10))
    with (
        tierdex.Index.open(tmp_path / "data", **SMALL, topic_retention={"orders": 60}) as index,
        pytest.raises(InvalidRequestError, match="leave with the table's snapshots"),
    ):
        index_once(index, f"delta:{path}", "orders", "id")
