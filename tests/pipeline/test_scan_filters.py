"""Every filter that is pushed down answers as Spark does on the same rows in Parquet."""

from __future__ import annotations

import pytest
from pyspark.sql import datasource as source
from pyspark.sql import functions as F

from tests.pipeline.conftest import append, read
from tierdex.indexfile.hashing import key_hash
from tierdex.pipeline import last_scan
from tierdex.pipeline.arrow_columns import DEFAULT_COLUMNS
from tierdex.pipeline.options import ReadOptions
from tierdex.pipeline.reader import TierdexReader

BASE = 1_700_000_000_000
ENTRIES = 12_000


@pytest.fixture(scope="module")
def entries(spark):
    """Entries of three topics over time, four files' worth; every tenth has a message ID only."""
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
def store(entries, tmp_path_factory):
    url = str(tmp_path_factory.mktemp("filters") / "store")
    append(entries, url, targetEntries="2000")
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


def hash_of(topic, key):
    number = key_hash(topic, key)
    return number - (1 << 64) if number >> 63 else number


SOME_HASH = hash_of("a", "key-4")
TOPIC, KIND, HASH, TIME = ("topic",), ("kind",), ("key_hash",), ("timestamp",)
Not, In, Eq, Safe = source.Not, source.In, source.EqualTo, source.EqualNullSafe
More, Least, Less, Most = (
    source.GreaterThan,
    source.GreaterThanOrEqual,
    source.LessThan,
    source.LessThanOrEqual,
)
# name: (filters that Spark pushes, the same as a condition on a row)
FILTERS = {
    "topic equal": ([Eq(TOPIC, "a")], lambda r: r.topic == "a"),
    "topic is null": ([source.IsNull(TOPIC)], lambda r: False),
    "topic equals null": ([Eq(TOPIC, None)], lambda r: False),
    "topic not null": ([source.IsNotNull(TOPIC)], lambda r: True),
    "topic in": ([In(TOPIC, ("a", "é", None))], lambda r: r.topic in "aé"),
    "topic not": ([Not(Eq(TOPIC, "a"))], lambda r: r.topic != "a"),
    "topic not in": ([Not(In(TOPIC, ("a", "b")))], lambda r: r.topic not in "ab"),
    "topic not in null": ([Not(In(TOPIC, ("a", None)))], lambda r: False),
    "topic not null-safe": ([Not(Safe(TOPIC, None))], lambda r: True),
    "topic range": ([More(TOPIC, "a"), Most(TOPIC, "é")], lambda r: "a" < r.topic <= "é"),
    "topic below": ([Less(TOPIC, "b")], lambda r: r.topic < "b"),
    "topic from": ([Least(TOPIC, "b")], lambda r: r.topic >= "b"),
    "topic text": (
        [
            source.StringStartsWith(TOPIC, "😀"),
            source.StringEndsWith(TOPIC, ""),
            source.StringContains(TOPIC, "😀"),
        ],
        lambda r: r.topic == "😀",
    ),
    "kind": ([Eq(KIND, "message_id")], lambda r: r.kind == "message_id"),
    "kind null-safe": ([Safe(KIND, "key")], lambda r: r.kind == "key"),
    "kind of neither": ([Eq(KIND, "x")], lambda r: False),
    "hash equal": ([Eq(HASH, SOME_HASH)], lambda r: r.key_hash == SOME_HASH),
    "hash twice": ([Eq(HASH, SOME_HASH), Eq(HASH, 5)], lambda r: False),
    "hash in": ([In(HASH, (SOME_HASH, 0, -1, None))], lambda r: r.key_hash == SOME_HASH),
    "hash both signs": (
        [Least(HASH, -(1 << 61)), Most(HASH, 1 << 61)],
        lambda r: -(1 << 61) <= r.key_hash <= 1 << 61,
    ),
    "hash below": ([Less(HASH, -(1 << 62))], lambda r: r.key_hash < -(1 << 62)),
    "hash above": ([More(HASH, 1 << 62)], lambda r: r.key_hash > 1 << 62),
    "hash nowhere": ([More(HASH, 5), Less(HASH, 5)], lambda r: False),
    "hash exactly a bound": (
        [Least(HASH, SOME_HASH), Most(HASH, SOME_HASH)],
        lambda r: r.key_hash == SOME_HASH,
    ),
    "time equal": ([Eq(TIME, BASE + 5_000_000)], lambda r: r.timestamp == BASE + 5_000_000),
    "time range": (
        [More(TIME, BASE + 3_000_000), Most(TIME, BASE + 3_100_000)],
        lambda r: BASE + 3_000_000 < r.timestamp <= BASE + 3_100_000,
    ),
    "time open": ([Least(TIME, BASE + 11_900_000)], lambda r: r.timestamp >= BASE + 11_900_000),
    "time null": ([source.IsNull(TIME)], lambda r: False),
    "all together": (
        [Eq(TOPIC, "a"), Eq(KIND, "key"), Eq(HASH, SOME_HASH), Less(TIME, BASE + 6_000_000)],
        lambda r: (
            (r.topic, r.kind, r.key_hash) == ("a", "key", SOME_HASH)
            and r.timestamp < BASE + 6_000_000
        ),
    ),
    "node": ([Eq(("node",), "spark")], lambda r: True),
    "other node": ([Eq(("node",), "other")], lambda r: False),
}


@pytest.mark.parametrize("name", FILTERS)
def test_pushed_filter_answers_as_a_look_at_every_row(store, rows, name):
    filters, condition = FILTERS[name]
    reader = TierdexReader(ReadOptions.parse({"path": store}), DEFAULT_COLUMNS, None)
    assert list(reader.pushFilters(filters)) == []
    found = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]
    assert sorted(found) == sorted(tuple(row) for row in rows if condition(row))


@pytest.mark.parametrize(
    "one",
    [
        Eq(("offset",), 5),
        Not(Eq(HASH, 5)),
        Not(Eq(TIME, 5)),
        Eq(("key",), "k"),
        source.IsNull(("queue_id",)),
        source.StringContains(("source",), "x"),
    ],
)
def test_filter_that_cannot_be_answered_stays_with_spark(store, one):
    reader = TierdexReader(ReadOptions.parse({"path": store}), DEFAULT_COLUMNS, None)
    assert list(reader.pushFilters([one])) == [one]


CONDITIONS = {
    "all together": lambda: (
        (F.col("topic") == "a")
        & (F.col("kind") == "key")
        & (F.col("key_hash") == F.xxhash64(F.lit("a"), F.lit("key-4")))
        & (F.col("timestamp") < BASE + 6_000_000)
    ),
    "in and between": lambda: (
        F.col("topic").isin("a", "é") & F.col("key_hash").between(-(1 << 61), 1 << 61)
    ),
    "or is left to Spark": lambda: (F.col("topic") == "a") | (F.col("offset") < 500),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_where_answers_as_on_the_same_rows_in_parquet(spark, store, table, name):
    summary = [F.count("*"), F.sum("offset"), F.min("timestamp"), F.max("key_hash")]
    found = read(spark, store).where(CONDITIONS[name]()).agg(*summary).first()
    assert tuple(found) == tuple(table.where(CONDITIONS[name]()).agg(*summary).first())
    assert ("left to Spark" in name) == (not last_scan().pushed)


def test_equality_on_a_hash_reads_one_page_of_the_files_that_have_it(spark, store):
    assert read(spark, store).where(F.col("key_hash") == F.lit(SOME_HASH)).count() == 24
    report = last_scan()
    assert report.files_considered == 8
    assert report.files_read + report.files_pruned_by_filter == 8
    assert report.pages_read <= 2 * report.files_read
    assert report.pages_pruned > 0


def test_time_range_prunes_files_and_pages(spark, store):
    frame = read(spark, store).where(F.col("timestamp").between(BASE, BASE + 50_000))
    assert frame.count() == 51
    report = last_scan()
    assert report.files_pruned_by_time == 7
    assert report.partitions == 1


def test_options_select_like_filters(spark, store, table):
    options = {
        "topic": "a,b",
        "beginTime": str(BASE + 1_000_000),
        "endTime": "2023-11-14T22:46:40Z",
    }
    found = read(spark, store, **options)
    wanted = table.where(
        F.col("topic").isin("a", "b")
        & F.col("timestamp").between(BASE + 1_000_000, BASE + 2_000_000)
    )
    assert found.count() == wanted.count() > 0


def test_option_keys_fills_a_key_column(spark, store):
    found = read(spark, store, topic="a", keys='["key-4", "key-8", "nobody"]', columns="offset,key")
    rows = found.collect()
    assert {row.key for row in rows} == {"key-4", "key-8"}
    assert all(row.offset // 10 % 500 == int(row.key.removeprefix("key-")) for row in rows)
    assert found.where(F.col("key") == "key-8").count() == len(rows) // 2


def test_large_files_are_split_into_page_ranges(spark, store, table):
    found = read(spark, store, itemsPerPartition="700", columns="topic,offset,key_hash")
    assert found.rdd.getNumPartitions() == 20
    assert found.agg(F.sum("offset")).first() == table.agg(F.sum("offset")).first()


def test_join_on_the_hash_is_right(spark, store, table):
    keys = spark.createDataFrame([("a", "key-4"), ("b", "key-9")], "topic string, key string")
    keys = keys.select(F.col("topic").alias("t"), F.xxhash64("topic", "key").alias("h"))
    joined = read(spark, store).join(keys, (F.col("key_hash") == F.col("h")))
    assert joined.count() == table.join(keys, F.col("key_hash") == F.col("h")).count() == 48
