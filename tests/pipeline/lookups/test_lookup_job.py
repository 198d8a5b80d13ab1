"""Bulk lookups answer as a join does, and cost what the pages that they touch cost."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from tests.index_service.requests.test_id_time import uuidv7
from tests.pipeline.conftest import append, key_rows, read
from tierdex.errors import InvalidRequestError
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline import last_scan, lookup
from tierdex.pipeline.jobs.snapshot import take_snapshot
from tierdex.pipeline.lookups.lookup_job import borders
from tierdex.storage_layer.open import open_store

BASE = 1_700_000_000_000
V7 = 0x7123_8123_4567_89AB_CDE0  # of an ID, behind its time


@pytest.fixture(scope="module")
def store(spark, tmp_path_factory):
    """Two jobs of 20,000 and 5,000 entries, ten an hour apart a key, three files each."""
    url = str(tmp_path_factory.mktemp("lookup") / "store")
    for first, count in ((0, 20_000), (20_000, 5000)):
        number = F.col("id")
        frame = spark.range(first, first + count, numPartitions=3).select(
            F.lit("orders").alias("topic"),
            F.concat(F.lit("key-"), number % 2500).alias("key"),
            F.concat(F.lit("id-"), number).alias("message_id"),
            F.lit(1).alias("queue_id"),
            (number * 10).alias("offset"),
            F.lit(10).alias("size"),
            (F.lit(BASE) + number * 1000).alias("timestamp"),
        )
        append(frame, url)
    return url


@pytest.fixture(scope="module")
def keys(spark):
    """2,000 keys that are there, 1,000 that are not, one twice, some null."""
    number = F.col("id")
    some = spark.range(3000).select(
        F.lit("orders").alias("topic"),
        F.concat(F.when(number % 3 == 0, "none-").otherwise("key-"), number % 2500).alias("key"),
        number.alias("mine"),
    )
    odd = spark.createDataFrame(
        [
            ("orders", None, -1),
            (None, "key-1", -2),
            ("other", "key-1", -3),
            ("orders", "key-1", -4),
        ],
        "topic string, key string, mine bigint",
    )
    return some.union(odd)


def pairs(frame):
    return sorted((row.mine, -1 if row.offset is None else row.offset) for row in frame.collect())


def joined(spark, store, keys, how):
    """Return what a plain join of the keys with all entries gives."""
    entries = read(spark, store, columns="topic,kind,key_hash,offset,timestamp").where(
        "kind = 'key'"
    )
    hashed = keys.withColumn(
        "h",
        F.when(F.col("topic").isNotNull() & F.col("key").isNotNull(), F.xxhash64("topic", "key")),
    )
    entries = entries.drop("topic")
    return hashed.join(entries, hashed.h == entries.key_hash, how)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_lookup_answers_as_a_join(spark, store, keys, how):
    found = lookup(spark, store, keys, how=how)
    assert found.columns == [
        "topic",
        "key",
        "mine",
        "queue_id",
        "offset",
        "size",
        "timestamp",
        "file_id",
        "node",
    ]
    assert pairs(found) == pairs(joined(spark, store, keys, how))


def test_max_count_gives_the_newest_of_each_row(spark, store, keys):
    everything = {}
    for mine, offset in pairs(joined(spark, store, keys, "inner")):
        everything.setdefault(mine, []).append(offset)
    found = lookup(spark, store, keys, how="inner", max_count=3)
    newest = {}
    for row in found.collect():
        newest.setdefault(row.mine, []).append(row.offset)
    assert newest == {mine: sorted(all_)[:-4:-1] for mine, all_ in everything.items()}


def test_begin_and_end_bound_each_row(spark, store, keys):
    bounded = keys.withColumn("begin", F.lit(BASE) + F.col("mine") * 1000)
    bounded = bounded.withColumn("end", F.when(F.col("mine") % 2 == 0, F.lit(BASE + 9_000_000)))
    found = lookup(spark, store, bounded, how="inner")
    everything = joined(spark, store, bounded, "inner")
    within = everything.where("timestamp >= begin and (end is null or timestamp <= end)")
    assert pairs(found) == pairs(within)
    as_times = bounded.withColumn("begin", F.timestamp_millis("begin")).withColumn(
        "end", F.timestamp_millis("end")
    )
    assert pairs(lookup(spark, store, as_times, how="inner")) == pairs(within)


def test_message_ids_are_found_without_their_topic(spark, store):
    ids = spark.range(0, 30_000, 7).select(F.concat(F.lit("id-"), "id").alias("message_id"), "id")
    found = lookup(spark, store, ids)
    assert found.columns[2] == "topic"
    assert (
        found.where("offset = id * 10 and topic = 'orders'").count()
        == found.where("id < 25000").count()
    )
    assert found.where("offset is null").count() == found.where("id >= 25000").count() > 0


def test_message_ids_with_their_time_inside_are_looked_for_in_files_of_that_time(
    spark, store_url, monkeypatch
):
    for hour in range(2):  # a file each, of one entry whose ID was made in the first hour
        row = ("orders", uuidv7(BASE, V7 + hour), 1, hour, 10, BASE + hour * 3_600_000)
        names = "topic string, message_id string, queue_id int, offset bigint, size bigint, timestamp bigint"
        append(spark.createDataFrame([row], names), store_url)
    ids = [(uuidv7(BASE, V7 + hour),) for hour in range(2)]
    ids = spark.createDataFrame([*ids, (None,), ("no UUID",)], "message_id string")

    def found(**options):
        rows = lookup(spark, store_url, ids, how="inner", **options).collect()
        return sorted(row.offset for row in rows)

    assert found() == [0, 1]
    assert found(id_time="uuidv7") == [0]
    assert last_scan().files_read == 1
    monkeypatch.setenv("TIERDEX_ID_TIME", "uuidv7")
    assert found() == [0]
    monkeypatch.setenv("TIERDEX_ID_TIME_SLACK", "3600")
    assert found() == [0, 1]
    with pytest.raises(InvalidRequestError, match="uuidv7"):
        found(id_time="uuidv4")


def test_every_page_is_fetched_at_most_once(spark, store, keys):
    store_pages = {}
    for count in (1, 2, 7):
        lookup(spark, store, keys, partitions=count).count()
        report = last_scan()
        all_pages = pages_of(store, store_pages)
        assert 0 < report.pages_read <= all_pages, count
        assert report.tasks_reported == min(count, report.partitions)


def pages_of(url, cache):
    if not cache:
        from tierdex.compactor.merged_file import open_published

        store = open_store(url)
        for file in take_snapshot(store).files:
            cache[file.file_id] = open_published(store, file.row).page_count
    return sum(cache.values())


def test_cost_grows_with_the_pages_touched_not_with_keys_times_files(spark, store):
    few = spark.createDataFrame([("orders", "key-77")], "topic string, key string")
    many = spark.range(5000).select(
        F.lit("orders").alias("topic"), F.concat(F.lit("absent-"), "id").alias("key")
    )
    lookup(spark, store, few).count()
    one = last_scan()
    lookup(spark, store, many).count()
    none = last_scan()
    assert one.files_considered == none.files_considered == 6
    assert one.pages_read - border_pages(one) <= 2 * 6
    # Filters keep strangers from the pages: of 5,000 x 6 questions one in 65,536 is let through by chance,
    # five of them once in 100,000 runs.
    assert none.pages_read - border_pages(none) <= 5


def border_pages(report):
    return report.files_considered * (report.partitions - 1)


def test_one_location_in_several_files_comes_once(spark, store_url):
    rows = key_rows(spark, ["a", "b", "c"])
    append(rows, store_url)
    append(rows, store_url)
    append(key_rows(spark, ["a"], first=50), store_url)
    keys = rows.select("topic", "key")
    found = sorted((row.key, row.offset) for row in lookup(spark, store_url, keys).collect())
    assert found == [("a", 0), ("a", 5000), ("b", 100), ("c", 200)]
    limited = lookup(spark, store_url, keys, max_count=2).collect()
    assert sorted((row.key, row.offset) for row in limited) == found


def test_missing_object_fails_or_is_named(spark, store_url):
    append(key_rows(spark, ["a", "b"]), store_url)
    append(key_rows(spark, ["a"], first=50), store_url)
    store = open_store(store_url)
    newest = take_snapshot(store).files[0]
    store.delete(newest.row.object_key)
    keys = spark.createDataFrame([("orders", "a"), ("orders", "x")], "topic string, key string")
    with pytest.raises(Exception, match="nodes/spark/files"):
        lookup(spark, store_url, keys).collect()
    with pytest.raises(Exception, match="nodes/spark/files"):
        read(spark, store_url).count()
    partial = read(spark, store_url, onError="partial")
    assert partial.count() == 2
    assert [one.split(":")[0] for one in last_scan().missing] == [newest.file_id]
    found = lookup(spark, store_url, keys, on_error="partial").collect()
    assert sorted((row.key, row.offset, row.complete) for row in found if row.key == "a") == [
        ("a", 0, False)
    ]
    assert [one.split(":")[0] for one in last_scan().missing] == [newest.file_id]


def test_borders_cut_the_hashes_as_the_jvm_does():
    for count in (1, 2, 3, 7, 16, 1000):
        cuts = [0, *borders(count), 1 << 64]
        assert cuts == sorted(cuts)
        for upper in (0, 1, 77, 32_767, 32_768, 65_535):
            number = upper * count >> 16
            assert cuts[number] <= upper << 48 < cuts[number + 1]


def test_result_paths_belong_to_the_node(store):
    paths = StorePaths("spark")
    assert all(
        paths.parse_object(file.row.object_key) for file in take_snapshot(open_store(store)).files
    )
