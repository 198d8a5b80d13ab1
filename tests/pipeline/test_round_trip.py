"""What is written by the sink is what scans, lookups and `Index` find: all flights, nothing else."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from tests.pipeline.conftest import append, read
from tierdex import Index
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.hashing import key_hashes, message_id_hashes
from tierdex.pipeline import entries, last_scan, lookup, verify

COLUMNS = ["topic", "kind", "key_hash", "queue_id", "offset", "size", "timestamp"]


def expected_items(flights):
    """Return the items that the flights make, as a sorted table."""
    parents = pc.list_parent_indices(flights["keys"])
    by_key = flights.take(parents)
    keys = pc.list_flatten(flights["keys"]).combine_chunks()
    topics = by_key["topic"].combine_chunks().dictionary_encode()
    hashes = key_hashes(
        StringColumn.from_values(keys),
        topics.dictionary.to_pylist(),
        topics.indices.to_numpy(),
    )
    ids = message_id_hashes(StringColumn.from_values(flights["message_id"].combine_chunks()))
    parts = []
    for table, kind, found in ((by_key, "key", hashes), (flights, "message_id", ids)):
        table = table.select(["topic", "queue_id", "offset", "size", "timestamp"])
        table = table.append_column("kind", pa.array([kind] * table.num_rows))
        parts.append(table.append_column("key_hash", pa.array(found.view(np.int64))))
    return sorted_table(pa.concat_tables(parts))


def sorted_table(table):
    order = [("key_hash", "ascending"), ("offset", "ascending")]
    return table.select(COLUMNS).sort_by(order).combine_chunks()


def test_scan_returns_exactly_what_was_written(spark, flights, flights_store):
    found = read(spark, flights_store, columns=",".join(COLUMNS)).toArrow()
    assert sorted_table(found).equals(expected_items(flights).cast(found.schema))
    report = last_scan()
    assert report.entries == found.num_rows
    assert report.partitions == report.files_read == report.files_considered >= 7


def test_every_file_is_sound_and_at_most_as_large_as_asked(spark, flights, flights_store):
    rows = verify(spark, flights_store).where("object_key is not null").collect()
    assert all(row.is_sound for row in rows), rows
    assert max(row.item_count for row in rows) <= 3 * 50_000
    assert sum(row.item_count for row in rows) == expected_items(flights).num_rows


def test_index_answers_from_a_spark_store_as_from_its_own(flights, flights_store, tmp_path):
    parents = pc.list_parent_indices(flights["keys"])
    by_key = flights.take(parents)
    with Index.open(tmp_path / "own", node="own", background=False) as own:
        own.put_batch(
            topic=by_key["topic"],
            keys=pc.list_flatten(flights["keys"]),
            **{name: by_key[name] for name in ("queue_id", "offset", "size", "timestamp")},
        )
        with Index.open(None, store=flights_store) as index:
            for row in range(0, flights.num_rows, 16_001):
                topic, keys = flights["topic"][row].as_py(), flights["keys"][row].as_py()
                for key in keys:
                    mine = own.query(topic, key=key, max_count=5000)
                    theirs = index.query(topic, key=key, max_count=5000)
                    assert theirs.complete
                    assert locations(theirs) == locations(mine)
                by_id = index.query(message_id=flights["message_id"][row].as_py()).entries
                assert [entry.offset for entry in by_id] == [row * 100]
            assert index.query("UA", key="nobody").entries == []


def locations(answer):
    return sorted((e.offset, e.queue_id, e.size, e.timestamp) for e in answer.entries)


def test_lookup_of_every_message_id_finds_its_flight(spark, flights_df, flights_store):
    ids = flights_df.select("message_id", F.col("offset").alias("want"))
    found = lookup(spark, flights_store, ids)
    hits = found.agg(F.count("*"), F.count_if(F.col("offset") == F.col("want"))).first()
    assert tuple(hits) == (ids.count(), ids.count())


def test_lookup_of_every_key_at_its_time_finds_its_flight(spark, flights_df, flights_store):
    times = F.col("timestamp").alias("begin"), F.col("timestamp").alias("end")
    key = F.col("keys")[0].alias("key")
    keys = flights_df.select("topic", key, F.col("offset").alias("want"), *times)
    found = lookup(spark, flights_store, keys, how="inner")
    assert found.where("offset = want").count() == keys.count()
    assert found.where("timestamp != begin").count() == 0


def test_entries_of_one_tail_number_in_one_week(spark, flights, flights_store):
    week = {"begin": 1_357_344_000_000, "end": 1_357_948_800_000 - 1}
    frame = entries(spark, flights_store, topic="UA", keys="N14228", **week)
    mine = pc.and_(
        pc.equal(flights["topic"], "UA"),
        pc.and_(
            pc.equal(pc.list_element(flights["keys"], 0), "N14228"),
            pc.and_(
                pc.greater_equal(flights["timestamp"], 1_357_344_000_000),
                pc.less(flights["timestamp"], 1_357_948_800_000),
            ),
        ),
    )
    expected = flights.filter(mine)["offset"].to_pylist()
    assert len(expected) > 1
    assert sorted(row.offset for row in frame.collect()) == expected


def test_written_rows_keep_their_order_newest_last(spark, store_url):
    rows = [("orders", "same", 0, n, 1, 1000 + n % 3) for n in range(20)]
    ddl = "topic string, key string, queue_id int, offset bigint, size int, timestamp bigint"
    append(spark.createDataFrame(rows, ddl).coalesce(1), store_url)
    with Index.open(None, store=store_url) as index:
        offsets = [entry.offset for entry in index.query("orders", key="same").entries]
    assert offsets == list(range(19, -1, -1))
