"""Forms of Delta's log that few writers make: read as deltalake reads them, or passed over, or refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.following.tables.answers import faults, index_once, keys_of
from tests.following.tables.delta_files import MAPPED, add, column, commit, head
from tests.following.tables.test_lake_suite import rows_at
from tierdex.errors import InvalidRequestError
from tierdex.files.folder import FileFolder
from tierdex.filesystem import LocalFileSystem
from tierdex.following.tables.delta_table import DeltaTable
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

deltalake = pytest.importorskip("deltalake")
IDS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def root(tmp_path):
    return tmp_path / "orders"


def agrees(index, root, column, topic="t"):
    """Index the table's newest version by a column; compare it with deltalake's."""
    index_once(index, f"delta:{root}", topic, column)
    rows = rows_at(root, deltalake.DeltaTable(root).version())
    assert faults(index, topic, keys_of(rows, column)) == {}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("integer", ["1", "-5", None, ""]),
        ("double", ["1.5", "NaN", "Infinity", "1.0E-5"]),
        ("boolean", ["true", "false", None]),
        ("string", ["a", "", "null", "a b/c", "é%", "__HIVE_DEFAULT_PARTITION__"]),
        ("date", ["1969-12-31", "0001-01-01"]),
        ("timestamp", ["1969-12-31 23:59:59.999999", "2021-09-08T11:11:11.5Z"]),
        ("decimal(38,18)", ["12345678901234567890.123456789012345678"]),
        ("binary", ["abc", "\u0001", "é"]),
    ],
)
def test_partition_values_of_a_type_are_keys_as_the_table_has_them(index, root, kind, values):
    files = [add(root, f"p{n}.parquet", IDS, {"p": value}) for n, value in enumerate(values)]
    commit(root, *head([column("id", "long"), column("p", kind)], ["p"]), *files)
    agrees(index, root, "p")
    agrees(index, root, "id", "by-id")


def test_time_of_a_partition_with_an_offset_is_that_time(index, root):
    file = add(root, "a.parquet", IDS, {"p": "2021-09-08T11:11:11.5+02:00"})
    commit(root, *head([column("id", "long"), column("p", "timestamp")], ["p"]), file)
    index_once(index, f"delta:{root}", "t", "p")
    assert len(index.query("t", key="2021-09-08 09:11:11.500000Z").entries) == 3


def test_paths_of_any_characters_are_those_of_their_files(index, root):
    names = ["p=a b/x y%z é#?&+.parquet", "p=%25/a%20b.parquet"]
    files = [add(root, name, IDS, {"p": name}) for name in names]
    commit(root, *head([column("id", "long"), column("p", "string")], ["p"]), *files)
    agrees(index, root, "p")
    (entry, *_) = index.query("t", key=names[0]).entries
    assert entry.location["file"] == names[0]


def test_address_of_a_file_is_the_same_in_every_spelling(index, root):
    commit(root, *head([column("id", "long")]))
    (action,) = [add(root, "a.parquet", IDS)]
    action["add"]["path"] = f"file://{root}/a.parquet"
    commit(root, action)
    agrees(index, root, "id")
    commit(root, {"remove": {"path": f"{root}/a.parquet", "dataChange": True}})
    index_once(index, f"delta:{root}", "t", "id")
    assert index.query("t", key="2").entries == []


def test_removal_with_another_vector_is_of_another_file(index, root):
    commit(root, *head([column("id", "long")]), add(root, "a.parquet", IDS))
    vector = {"storageType": "i", "pathOrInlineDv": "zz", "sizeInBytes": 1, "cardinality": 1}
    commit(root, {"remove": {"path": "a.parquet", "dataChange": True, "deletionVector": vector}})
    agrees(index, root, "id")
    assert len(index.query("t", key="2").entries) == 1


def test_column_mapping_counts_only_where_the_protocol_has_it(index, tmp_path):
    rows = pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([7, 8], pa.int64())})
    columns = [column("a", "long", 1, "b"), column("b", "long", 2, "a")]
    for name, protocol, found in (("off", None, "1"), ("on", MAPPED, "7")):
        root = tmp_path / name
        said = {"delta.columnMapping.mode": "name"}
        commit(root, *head(columns, protocol=protocol, **said), add(root, "a.parquet", rows))
        agrees(index, root, "a", name)
        assert len(index.query(name, key=found).entries) == 1


def test_table_without_a_file_or_a_row_is_an_answer(index, root):
    commit(root, *head([column("id", "long")]))
    agrees(index, root, "id")
    answer = index.query("t", key="1")
    assert (answer.entries, answer.complete, answer.table.version) == ([], True, 0)
    commit(root, add(root, "a.parquet", IDS.slice(0, 0)))
    agrees(index, root, "id")
    assert index.query("t", key="1").table.version == 1


def test_snapshots_whose_files_were_vacuumed_are_passed_over(index, root):
    deltalake.write_deltalake(root, IDS)
    index_once(index, f"delta:{root}", "t", "id")
    for number in (4, 5):
        deltalake.write_deltalake(root, pa.table({"id": [number]}), mode="overwrite")
    deltalake.DeltaTable(root).vacuum(0, dry_run=False, enforce_retention_duration=False)
    agrees(index, root, "id")
    assert index.query("t", key="4").entries == []
    kept = [each.snapshot for each in index.followed_tables.state_of("t").snapshots]
    newest = str(deltalake.DeltaTable(root).version())
    assert (kept[0], kept[-1], "1" in kept) == ("0", newest, False)


def test_feature_that_was_dropped_again_stops_nothing(index, root):
    commit(root, *head([column("id", "long")]), add(root, "a.parquet", IDS))
    index_once(index, f"delta:{root}", "t", "id")
    features = {"readerFeatures": ["timeCrystals"], "writerFeatures": ["timeCrystals"]}
    commit(root, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
    with pytest.raises(InvalidRequestError, match="timeCrystals"):
        index_once(index, f"delta:{root}", "t", "id")
    assert index.query("t", key="2").table.version == 0
    commit(root, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    index_once(index, f"delta:{root}", "t", "id")
    assert index.query("t", key="2").table.version == 2


def test_first_look_lists_the_log_once_and_a_later_one_not_more(root, monkeypatch):
    listings = []
    names = FileFolder.names

    def counted(folder, name):
        listings.append(name)
        return names(folder, name)

    monkeypatch.setattr(FileFolder, "names", counted)
    for number in range(3):
        deltalake.write_deltalake(root, pa.table({"id": [number]}), mode="append")
    table = DeltaTable(LocalFileSystem(), str(root))
    table.identity()
    assert table.behind(None) == 3
    assert [step.snapshot for step in table.steps(None, None)] == ["2"]
    assert len(listings) == 1
    assert table.behind("2") == 0
    deltalake.write_deltalake(root, pa.table({"id": [3]}), mode="append")
    assert table.behind("2") == 1
    assert [step.snapshot for step in table.steps("2", None)] == ["3"]
    assert len(listings) == 2


def test_way_that_the_log_lost_ends_at_the_newest_version(root):
    def append(count):
        for number in range(count):
            deltalake.write_deltalake(root, pa.table({"id": [number]}), mode="append")

    append(3)
    table = DeltaTable(LocalFileSystem(), str(root))
    assert [step.snapshot for step in table.steps(None, None)] == ["2"]
    append(4)
    deltalake.DeltaTable(root).create_checkpoint()
    for version in range(6):
        (root / "_delta_log" / f"{version:020}.json").unlink()
    assert table.behind("2") == 4
    assert [step.snapshot for step in table.steps("2", None)] == ["6"]
    (step,) = DeltaTable(LocalFileSystem(), str(root)).steps("1", "6")
    assert len(step.files) == 7
    assert json.loads(step.columns)["by"] == "name"


def test_partitions_that_are_asked_for_are_indexed_alone(index, root):
    days = {"2024-01-01": "DE", "2024-01-02": "FR", "2024-01-03": None}
    files = [
        add(root, f"{day}.parquet", pa.table({"id": [number]}), {"day": day, "at": place})
        for number, (day, place) in enumerate(days.items())
    ]
    columns = [column("id", "long"), column("day", "date"), column("at", "string")]
    commit(root, *head(columns, ["day", "at"]), *files)

    def found(topic, *partitions):
        index_once(index, f"delta:{root}", topic, "id", partitions=partitions)
        return [key for key in "012" if index.query(topic, key=key).entries]

    assert found("two", "day=2024-01-01", "day=2024-01-02") == ["0", "1"]
    assert found("both", "at=FR", "day=2024-01-02") == ["1"]
    assert found("none", "at=") == ["2"]
    with pytest.raises(InvalidRequestError, match="not NAME=VALUE"):
        found("wrong", "city=Bonn")
    with pytest.raises(InvalidRequestError, match="not partitioned by 'id'"):
        found("other", "id=1")
    with pytest.raises(InvalidRequestError, match="was indexed of at=FR, day=2024-01-02"):
        found("both", "at=FR")


def test_topic_that_has_entries_of_other_kinds_is_refused(index, root):
    index.put(topic="t", key="1", queue_id=0, offset=0, size=1, timestamp=1)
    commit(root, *head([column("id", "long")]), add(root, "a.parquet", IDS))
    with pytest.raises(InvalidRequestError, match="has entries"):
        index_once(index, f"delta:{root}", "t", "id")
    assert index.tables() == []


def test_wrong_key_leaves_nothing_behind_and_can_be_mended(index, root):
    commit(root, *head([column("id", "long")]), add(root, "a.parquet", IDS))
    with pytest.raises(InvalidRequestError, match="no column 'ident'"):
        index_once(index, f"delta:{root}", "t", "ident")
    assert index.tables() == []
    assert index.query("t", key="2").complete
    index_once(index, f"delta:{root}", "t", "id")
    assert len(index.query("t", key="2").entries) == 1


def test_key_of_values_that_are_none_can_be_mended_too(index, root):
    rows = pa.table({"id": [1], "place": [{"city": "Bonn"}]})
    city = {"type": "struct", "fields": [column("city", "string")]}
    columns = [column("id", "long"), column("place", city)]
    commit(root, *head(columns), add(root, "a.parquet", rows))
    with pytest.raises(InvalidRequestError):
        index_once(index, f"delta:{root}", "t", "place")
    index_once(index, f"delta:{root}", "t", "place.city")
    assert [e.location["file"] for e in index.query("t", key="Bonn").entries] == ["a.parquet"]


def test_explanation_counts_what_the_rows_took(index, root, tmp_path):
    commit(root, *head([column("id", "long")]), add(root, "a.parquet", IDS))
    index_once(index, f"delta:{root}", "t", "id")
    with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
        for requests in (3, 1):  # footer twice and the row group at first, then a page
            answer = index.query("t", key="2", explain=True)
            told = messages.with_messages(answer, key="2", message_id=None).explain
            assert told.message_requests == requests
            assert told.message_bytes > 0
