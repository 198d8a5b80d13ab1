"""A lake's table is indexed by a job, asked by Spark and by readers, and followed on from there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.pipeline import index_table, live_rows, lookup

deltalake = pytest.importorskip("deltalake")


def rows(begin, end):
    numbers = range(begin, end)
    return pa.table({"id": list(numbers), "name": [f"n{n % 7}" for n in numbers]})


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "orders"
    for begin in (0, 50, 100):
        deltalake.write_deltalake(made, rows(begin, begin + 50), mode="append")
    return made


def indexed(spark, path, store_url, **wanted):
    wanted = {"key": ["id", "{name}!"], "topic": "orders", **wanted}
    return index_table(spark, f"delta:{path}", store_url, **wanted)


def right(index, path):
    now = deltalake.DeltaTable(path).to_pyarrow_table()
    expected = keys_of(now, "id")
    for name, count in keys_of(now, "name").items():
        expected[f"{name}!"] = count
    assert faults(index, "orders", expected, map(str, range(250))) == {}


def test_job_builds_the_state_that_readers_answer_by_and_a_follower_goes_on_from(
    spark, path, store_url, tmp_path
):
    report = indexed(spark, path, store_url)
    assert (report.rows, report.files) == (150, 3)
    assert indexed(spark, path, store_url).files == 0
    deltalake.DeltaTable(path).delete("id = 7")
    assert indexed(spark, path, store_url).rows == 49  # of the file that was written anew
    with tierdex.Index.open(None, store=store_url, background=False) as reader:
        right(reader, path)
        assert len(reader.query("orders", key="7", snapshot=2).entries) == 1
    keys = spark.createDataFrame(
        [("orders", key) for key in ("7", "8", "n1!")], "topic string, key string"
    )
    found = lookup(spark, store_url, keys, columns=["location"], how="inner")
    live = live_rows(spark, store_url, found, topic="orders")
    counts = {row["key"]: row["count"] for row in live.groupBy("key").count().collect()}
    assert counts == {"8": 1, "n1!": 22}
    (at,) = live.where(F.col("key") == "8").select("source", "position").collect()
    table = pa.parquet.read_table(at.source)
    assert table.column("id")[at.position].as_py() == 8
    before = live_rows(spark, store_url, found, topic="orders", snapshot=2)
    assert before.where(F.col("key") == "7").count() == 1
    with pytest.raises(NotFoundError):
        live_rows(spark, store_url, found, topic="others")
    deltalake.write_deltalake(path, rows(200, 210), mode="append")
    with tierdex.Index.open(tmp_path / "data", store=store_url, **SMALL) as index:
        with pytest.raises(InvalidRequestError, match="was indexed by"):
            index_once(index, f"delta:{path}", "orders", "id")
        status = tierdex.follow(
            index, f"delta:{path}", keys=["id", "{name}!"], topic="orders", once=True
        ).run()
        assert status.messages == 10
        right(index, path)
        index.roll()
        index.run_compaction()
    with pytest.raises(InvalidRequestError, match="node here follows"):
        indexed(spark, path, store_url)
    with (
        tierdex.Index.open(tmp_path / "lost", store=store_url, **SMALL | {"node": "new"}) as index,
        pytest.raises(InvalidRequestError, match="node here follows"),
    ):
        tierdex.follow(
            index, f"delta:{path}", keys=["id", "{name}!"], topic="orders", once=True
        ).run()


def test_job_of_a_table_that_is_not_read_leaves_nothing(spark, path, store_url):
    with pytest.raises(InvalidRequestError, match="no column 'none'"):
        indexed(spark, path, store_url, key="none")
    with pytest.raises(InvalidRequestError, match="timestamp"):
        index_table(spark, str(path), store_url, key="id", topic="orders")
    with pytest.raises(NotFoundError, match="holds no manifest"):
        tierdex.Index.open(None, store=store_url, background=False)
    assert indexed(spark, path, store_url, key="id").rows == 150


def test_job_of_an_iceberg_table_indexes_its_rows(spark, store_url, tmp_path):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    options = {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake",
    }  # fmt: skip
    catalog = catalogs.SqlCatalog("prod", **options)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", schema=rows(0, 1).schema)
    for begin in (0, 50):
        table.append(rows(begin, begin + 50))
    table.delete("id = 7")
    source = "iceberg://prod/shop.orders"
    report = index_table(spark, source, store_url, key="id", topic="orders", read_options=options)
    assert (report.rows, report.files) == (99, 2)
    with tierdex.Index.open(None, store=store_url, background=False) as reader:
        expected = keys_of(table.scan().to_arrow(), "id")
        assert faults(reader, "orders", expected, map(str, range(110))) == {}
