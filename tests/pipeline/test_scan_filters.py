"""What options select and conditions filter is what Spark answers on the same rows in Parquet."""

from __future__ import annotations

from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.pipeline.conftest import append, read
from tierdex.indexfile.hashing import key_hash, signed_bits
from tierdex.pipeline import entries, key_is, last_scan
from tierdex.pipeline.scan.arrow_columns import DEFAULT_COLUMNS

BASE = 1_700_000_000_000
ENTRIES = 12_000


@pytest.fixture(scope="module")
def rows_to_write(spark):
    """Entries of four topics over time, four files' worth; every tenth has a message ID only."""
    number = F.col("id")
    return spark.range(ENTRIES, numPartitions=4).select(
        F.element_at(
            F.array(*map(F.lit, ["a", "b", "é", "😀"])), (number % 4 + 1).cast("int")
        ).alias("topic"),
        F.when(number % 10 > 0, F.concat(F.lit("key-"), number % 500)).alias("key"),
        F.when(number % 10 == 0, F.concat(F.lit("id-"), number)).alias("message_id"),
        F.lit(1).alias("queue_id"),
        (number * 10).alias("offset"),
        F.lit(10).alias("size"),
        (F.lit(BASE) + number * 1000).alias("timestamp"),
    )


@pytest.fixture(scope="module")
def store(rows_to_write, tmp_path_factory):
    url = str(tmp_path_factory.mktemp("filters") / "store")
    append(rows_to_write, url, targetEntries="2000")
    return url


@pytest.fixture(scope="module")
def rows(spark, store):
    return read(spark, store).collect()


@pytest.fixture(scope="module")
def table(spark, store, tmp_path_factory):
    """The same rows where nothing of ours filters them."""
    path = str(tmp_path_factory.mktemp("filters") / "rows.parquet")
    read(spark, store).write.parquet(path)
    return spark.read.parquet(path).cache()


def stamp(row):
    return row.timestamp - BASE


# name: (arguments of `entries`, the same as a condition on a row)
SELECTIONS = {
    "topic": ({"topic": "a"}, lambda r: r.topic == "a"),
    "topics": ({"topic": ["a", "😀", "nobody"]}, lambda r: r.topic in "a😀"),
    "unknown topic": ({"topic": "nobody"}, lambda r: False),
    "begin": ({"begin": BASE + 11_900_000}, lambda r: stamp(r) >= 11_900_000),
    "end": ({"end": "2023-11-14T22:13:20.000Z"}, lambda r: stamp(r) <= 0),
    "one moment": (
        {"begin": BASE + 5_000_000, "end": BASE + 5_000_000},
        lambda r: stamp(r) == 5_000_000,
    ),
    "time range": (
        {"begin": BASE + 3_000_001, "end": BASE + 3_100_000},
        lambda r: 3_000_001 <= stamp(r) <= 3_100_000,
    ),
    "between all times": ({"begin": BASE + 500, "end": BASE + 999}, lambda r: False),
    "key": (
        {"topic": "a", "keys": "key-4"},
        lambda r: (r.topic, r.kind, r.key_hash) == ("a", "key", SOME_HASH),
    ),
    "key of another topic": ({"topic": "b", "keys": "key-4"}, lambda r: False),
    "key in a time range": (
        {"topic": ["a"], "keys": ["key-4", "no, body"], "end": BASE + 6_000_000},
        lambda r: r.key_hash == SOME_HASH and stamp(r) <= 6_000_000,
    ),
    "message IDs": (
        {"message_ids": ["id-10", "id-11990", "id-11"]},
        lambda r: r.kind == "message_id" and r.offset in {100, 119_900},
    ),
    "message ID of a topic": (
        {"topic": ["b", "😀"], "message_ids": ["id-10", "id-30"]},
        lambda r: r.kind == "message_id" and r.offset == 300 and r.topic == "😀",
    ),
    "node": ({"nodes": "spark"}, lambda r: True),
}
SOME_HASH = signed_bits(key_hash("a", "key-4"))


@pytest.fixture(scope="module")
def selected(spark, store):
    """The rows of every selection by its name, of one job: each scan of it is planned for itself."""
    frames = [
        entries(spark, store, columns=DEFAULT_COLUMNS, **arguments)
        .select(F.lit(name).alias("name"), *DEFAULT_COLUMNS)
        for name, (arguments, _) in SELECTIONS.items()
    ]  # fmt: skip
    found = {name: [] for name in SELECTIONS}
    for name, *row in reduce(DataFrame.union, frames).collect():
        found[name].append(tuple(row))
    return found


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection_answers_as_a_look_at_every_row(selected, rows, name):
    _, condition = SELECTIONS[name]
    assert sorted(selected[name]) == sorted(tuple(row) for row in rows if condition(row))


CONDITIONS = {
    "all together": lambda: (
        key_is("a", "key-4") & (F.col("timestamp") < BASE + 6_000_000) & (F.col("offset") > 40)
    ),
    "hash that Spark computes": lambda: F.col("key_hash") == F.xxhash64(F.lit("a"), F.lit("key-4")),
    "in and between": lambda: (
        F.col("topic").isin("a", "é") & F.col("key_hash").between(-(1 << 61), 1 << 61)
    ),
    "or": lambda: (F.col("topic") == "a") | (F.col("offset") < 500),
}


def test_where_answers_as_on_the_same_rows_in_parquet(spark, store, table):
    summary = [F.count("*"), F.sum("offset"), F.min("timestamp"), F.max("key_hash")]

    def answers(frame):
        frames = [
            frame.where(condition()).agg(F.lit(name), *summary)
            for name, condition in CONDITIONS.items()
        ]
        return {name: tuple(row) for name, *row in reduce(DataFrame.union, frames).collect()}

    found = answers(read(spark, store))
    assert found == answers(table)
    assert min(count for count, *_ in found.values()) > 0


def test_a_key_costs_one_page_of_the_files_that_have_it(spark, store):
    assert entries(spark, store, topic="a", keys="key-4").count() == 24
    report = last_scan()
    assert report.files_considered == 8
    assert report.files_read + report.files_pruned_by_filter == 8
    assert report.pages_read <= 2 * report.files_read
    assert report.pages_pruned > 0
    assert report.requests <= 4 * report.files_considered


def test_a_view_of_one_key_costs_no_more(spark, store):
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW one_key USING tierdex "
        f"OPTIONS (path '{store}', topic 'a', keys 'key-4', beginTime '{BASE + 11_000_000}')"
    )
    assert spark.sql("SELECT count(*) FROM one_key WHERE key = 'key-4'").first()[0] == 2
    report = last_scan()
    assert report.files_pruned_by_time == 7
    assert (report.files_read, report.pages_read) == (1, 1)
    assert report.requests <= 4
    spark.catalog.dropTempView("one_key")


def test_a_key_that_is_nowhere_costs_no_page(spark, store):
    assert entries(spark, store, topic="a", keys="nobody").count() == 0
    assert last_scan().pages_read == 0


def test_time_range_prunes_files_and_pages(spark, store):
    assert entries(spark, store, begin=BASE, end=BASE + 50_000).count() == 51
    report = last_scan()
    assert report.files_pruned_by_time == 7
    assert report.partitions == 1


def test_keys_and_ids_fill_a_column(spark, store):
    found = entries(
        spark, store, topic="a", keys=["key-4", "key-8", "nobody"], columns=["offset", "key"]
    )
    rows = found.collect()
    assert {row.key for row in rows} == {"key-4", "key-8"}
    assert all(row.offset // 10 % 500 == int(row.key.removeprefix("key-")) for row in rows)
    assert found.where(F.col("key") == "key-8").count() == len(rows) // 2
    ids = read(spark, store, messageIds="id-10,id-20", columns="message_id,offset").collect()
    assert {tuple(row) for row in ids} == {("id-10", 100), ("id-20", 200)}


def test_large_files_are_split_into_page_ranges(spark, store, table):
    found = read(spark, store, itemsPerPartition="700", columns="topic,offset,key_hash")
    assert found.rdd.getNumPartitions() == 20
    assert found.agg(F.sum("offset")).first() == table.agg(F.sum("offset")).first()


def test_join_on_the_hash_is_right(spark, store, table):
    keys = spark.createDataFrame([("a", "key-4"), ("b", "key-9")], "topic string, key string")
    keys = keys.select(F.col("topic").alias("t"), F.xxhash64("topic", "key").alias("h"))
    joined = read(spark, store).join(keys, (F.col("key_hash") == F.col("h")))
    assert joined.count() == table.join(keys, F.col("key_hash") == F.col("h")).count() == 48
