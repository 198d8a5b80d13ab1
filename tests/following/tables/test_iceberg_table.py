"""Iceberg tables that pyiceberg writes, and delete files written by hand: answered as the table is."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pyarrow as pa
import pytest

from tests.following.tables.answers import faults, index_once, keys_of
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

pytest.importorskip("pyiceberg")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())])


def rows(begin, end):
    numbers = range(begin, end)
    names = [None if n % 9 == 8 else f"name-{n % 5}" for n in numbers]
    return pa.table(
        [list(numbers), names, [date(2024, 1, 1 + n % 3) for n in numbers]], schema=SCHEMA
    )


@pytest.fixture
def catalog(tmp_path):
    return {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake",
    }  # fmt: skip


@pytest.fixture
def table(catalog):
    from pyiceberg.catalog.sql import SqlCatalog

    opened = SqlCatalog("prod", **catalog)
    opened.create_namespace("shop")
    return opened.create_table("shop.orders", schema=SCHEMA)


def checked(index, table, catalog):
    source = "iceberg://prod/shop.orders"
    index_once(index, source, "by-id", "id", options=catalog)
    index_once(index, source, "by-name", "name", options=catalog)
    now = table.scan().to_arrow()
    ever = [str(number) for number in range(120)]
    assert faults(index, "by-id", keys_of(now, "id"), ever) == {}
    assert faults(index, "by-name", keys_of(now, "name")) == {}


def test_every_change_of_a_table_is_answered_as_the_table_is(index, table, catalog):
    checked(index, table, catalog)  # it has no snapshot yet, which is an answer
    table.append(rows(0, 40))
    checked(index, table, catalog)
    first = table.current_snapshot().snapshot_id
    table.append(rows(30, 70))
    checked(index, table, catalog)
    table.delete("id = 35")
    checked(index, table, catalog)
    table.overwrite(rows(80, 90))
    checked(index, table, catalog)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    checked(index, table, catalog)
    table.append(rows(90, 95))
    checked(index, table, catalog)


def test_renamed_key_column_is_followed_by_its_field(index, table, catalog):
    table.append(rows(0, 10))
    index_once(index, "iceberg://prod/shop.orders", "orders", "name", options=catalog)
    with table.update_schema() as update:
        update.rename_column("name", "title")
    new = rows(10, 20).rename_columns(["id", "title", "day"])
    table.append(new)
    index_once(index, "iceberg://prod/shop.orders", "orders", "name", options=catalog)
    now = table.scan().to_arrow()
    assert faults(index, "orders", keys_of(now, "title")) == {}


def test_dropped_key_column_stops_the_follower_and_is_named(index, table, catalog):
    table.append(rows(0, 10))
    index_once(index, "iceberg://prod/shop.orders", "orders", "name", options=catalog)
    with table.update_schema() as update:
        update.delete_column("name")
    table.append(rows(10, 20).select(["id", "day"]))
    with pytest.raises(InvalidRequestError, match="'name' was dropped"):
        index_once(index, "iceberg://prod/shop.orders", "orders", "name", options=catalog)
    (told,) = index.tables()
    assert "'name' was dropped" in told.trouble
    assert len(index.query("orders", key="name-2").entries) == 2  # as of the snapshot before


def data_files(table):
    return [task.file.file_path for task in table.scan().plan_files()]


def test_position_deletes_and_vectors_and_equality_deletes_are_not_found(
    index, table, catalog, tmp_path
):
    from tests.following.tables import iceberg_files as written

    table.append(rows(0, 40))
    (file,) = data_files(table)
    path = written.with_deletes(
        table,
        [
            written.position_deletes(tmp_path, [(file, 3), (file, 4)]),
            written.deletion_vector(tmp_path, file, [10, 11, 12]),
            written.equality_deletes(tmp_path, pa.table({"id": pa.array([20, 77])}), [1]),
            written.equality_deletes(
                tmp_path,
                pa.table({"name": pa.array([None, "name-1"]), "day": [date(2024, 1, 3)] * 2}),
                [2, 3],
            ),
        ],
        tmp_path,
    )
    gone = {3, 4, 10, 11, 12, 20}
    live = [
        number
        for number in range(40)
        if number not in gone and not (number % 3 == 2 and (number % 9 == 8 or number % 5 == 1))
    ]
    index_once(index, f"iceberg:{path}", "orders", "id")
    expected = Counter(map(str, live))
    assert faults(index, "orders", expected, [str(number) for number in range(40)]) == {}


def test_equality_delete_leaves_rows_of_later_snapshots(index, table, catalog, tmp_path):
    from pyiceberg.table import StaticTable

    from tests.following.tables import iceberg_files as written

    table.append(rows(0, 10))
    deleted = written.equality_deletes(tmp_path, pa.table({"id": pa.array([5])}), [1])
    path = written.with_deletes(table, [deleted], tmp_path)
    index_once(index, f"iceberg:{path}", "orders", "id")
    assert index.query("orders", key="5").entries == []
    # A file of the same sequence number as the delete, or a later one, is not concerned.
    table.append(rows(5, 6))
    assert StaticTable.from_metadata(path).current_snapshot() is not None
    entry_files = data_files(table)
    assert len(entry_files) == 2
    index_once(index, "iceberg://prod/shop.orders", "later", "id", options=catalog)
    assert len(index.query("later", key="5").entries) == 2


def test_damaged_vector_stops_the_follower_and_deletes_nothing(index, table, catalog, tmp_path):
    from tests.following.tables import iceberg_files as written
    from tierdex.errors import CorruptFileError

    table.append(rows(0, 40))
    (file,) = data_files(table)
    vector = written.deletion_vector(tmp_path, file, [10, 11, 12])
    damaged = bytearray((tmp_path / "vector-3.puffin").read_bytes())
    damaged[30] ^= 1
    (tmp_path / "vector-3.puffin").write_bytes(damaged)
    path = written.with_deletes(table, [vector], tmp_path)
    with pytest.raises(CorruptFileError):
        index_once(index, f"iceberg:{path}", "new", "id")
    assert "new" not in [each.topic for each in index.tables()]
    index_once(index, "iceberg://prod/shop.orders", "orders", "id", options=catalog)
    with pytest.raises(CorruptFileError):
        index_once(index, f"iceberg:{path}", "orders", "id")
    assert len(index.query("orders", key="10").entries) == 1  # as of the snapshot before
    (told,) = index.tables()
    assert "is damaged" in told.trouble


def test_row_is_shown_with_the_columns_of_its_snapshot(index, table, catalog, tmp_path):
    table.append(rows(0, 10))
    with table.update_schema() as update:
        update.rename_column("name", "title")
    table.append(rows(10, 11).rename_columns(["id", "title", "day"]))
    index_once(index, "iceberg://prod/shop.orders", "orders", "id", options=catalog)
    answer = index.query("orders", key="7")
    with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
        shown = messages.with_messages(answer, key="7", message_id=None)
    message = shown.entries[0].message
    assert message.outcome == "shown", message
    assert '"title": "name-2"' in message.text
    assert '"day": "2024-01-02"' in message.text


def test_table_that_is_not_there_is_named(index, table, catalog):
    with pytest.raises(NotFoundError, match=r"shop\.nothing"):
        index_once(index, "iceberg://prod/shop.nothing", "orders", "id", options=catalog)


def test_files_without_field_ids_are_read_by_the_tables_name_mapping(
    index, table, catalog, tmp_path
):
    import pyarrow.parquet as pq

    path = str(tmp_path / "lake" / "plain.parquet")
    pq.write_table(rows(0, 20), path)
    table.add_files([path])
    with table.update_schema() as update:
        update.rename_column("name", "title")
    source = "iceberg://prod/shop.orders"
    with pytest.raises(InvalidRequestError, match="does not lie below"):
        index_once(index, source, "titles", "title", options=catalog)
    catalog["prefixes"] = f"{tmp_path}/lake,/elsewhere"
    index_once(index, source, "titles", "title", options=catalog)
    now = table.scan().to_arrow()
    assert faults(index, "titles", keys_of(now, "title")) == {}
    with MessageFetcher(tmp_path / "data", ShowSettings()) as messages:
        answer = index.query("titles", key="name-2")
        shown = messages.with_messages(answer, key="name-2", message_id=None).entries[0].message
    assert shown.outcome == "shown", shown
    assert '"title": "name-2"' in shown.text
    with table.transaction() as transaction:
        transaction.remove_properties("schema.name-mapping.default")
    with pytest.raises(InvalidRequestError, match="has no field IDs"):
        index_once(index, source, "others", "title", options=catalog)
