"""What is wrong is refused with a message that says what: columns, values, modes, urls, nodes."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tests.pipeline.conftest import append, key_rows, read
from tierdex import Index
from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import (
    MESSAGE_SCHEMA,
    PARQUET_ROW_SCHEMA,
    SEQUENCE_SCHEMA,
    TEXT_LINE_SCHEMA,
)
from tierdex.pipeline import collect_garbage, key_is, lookup, merge, verify
from tierdex.pipeline.indexing.build_job import parse_bucket
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.options import ReadOptions, WriteOptions
from tierdex.pipeline.jobs.snapshot import take_snapshot
from tierdex.pipeline.registration import register
from tierdex.pipeline.sink.entry_form import EntryForm
from tierdex.pipeline.sink.entry_rows import name_row, rows_of
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store

TYPES = {
    "topic": "string",
    "key": "string",
    "queue_id": "int",
    "offset": "bigint",
    "size": "int",
    "timestamp": "bigint",
}


def test_location_columns_choose_the_schema():
    source = {"topic": "string", "key": "string", "timestamp": "timestamp", "source": "string"}
    assert EntryForm.of(TYPES).schema is MESSAGE_SCHEMA
    assert EntryForm.of(source | {"row": "bigint", "row_group": "int"}).schema is PARQUET_ROW_SCHEMA
    assert EntryForm.of(source | {"offset": "bigint", "size": "int"}).schema is TEXT_LINE_SCHEMA


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"topic": None}, "topic"),
        ({"timestamp": None}, "timestamp"),
        ({"offset": None}, "offset"),
        ({"key": None}, "key"),
        ({"key": "bigint"}, "key"),
        ({"offset": "double"}, "offset"),
        ({"timestamp": "string"}, "timestamp"),
        ({"colour": "string"}, "colour"),
        ({"keys": "array<string>"}, "keys"),
        ({"key": None, "keys": "array<int>"}, "keys"),
    ],
)
def test_wrong_columns_are_named(change, field):
    types = {name: kind for name, kind in (TYPES | change).items() if kind is not None}
    with pytest.raises(InvalidRequestError) as refused:
        EntryForm.of(types)
    assert refused.value.field == field


def batch_of(**changes):
    columns = {
        "topic": ["a", "a", "b"],
        "key": ["k1", "k2", "k3"],
        "queue_id": [0, 1, 2],
        "offset": [0, 10, 20],
        "size": [1, 2, 3],
        "timestamp": [1, 2, 3],
    }
    return pa.record_batch({name: pa.array(values) for name, values in (columns | changes).items()})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"offset": [0, -1, 2]}, "entries[1].offset"),
        ({"queue_id": [0, 1, None]}, "entries[2].queue_id"),
        ({"size": [1, 1 << 32, 3]}, "entries[1].size"),
        ({"topic": ["a", None, "b"]}, "entries[1].topic"),
        ({"topic": ["a", "b", "b\x07"]}, "entries[2].topic"),
        ({"key": ["k", "", "k"]}, "entries[1].key"),
        ({"key": ["k", "k", None]}, "entries[2].key"),
        ({"timestamp": [None, 1, 2]}, "entries[0].timestamp"),
    ],
)
def test_wrong_values_are_named_by_row(changes, field):
    form = EntryForm.of(TYPES)
    with pytest.raises(InvalidRequestError) as refused:
        list(rows_of(form, batch_of(**changes), dictionaries(), load_settings()))
    assert refused.value.field == field
    named = name_row(refused.value, 3, 1000)
    row = int(field[len("entries[") : field.index("]")])
    assert f"partition 3, row {1000 + row}" in str(named)
    assert named.field == field.partition(".")[2]


def dictionaries():
    return Dictionaries(MESSAGE_SCHEMA.dictionary_names)


def test_sink_takes_offsets_as_its_option_says(tmp_path):
    options = WriteOptions.parse({"path": f"file://{tmp_path}", "offsets": "sequence"})
    form = EntryForm.of(TYPES, options.offsets)
    assert form.schema is SEQUENCE_SCHEMA
    rows = list(rows_of(form, batch_of(), dictionaries(), load_settings()))
    queues = RowBounds.measure(form.schema, rows).queues
    assert sorted(queues["end"].tolist()) == [1, 11, 21]
    with pytest.raises(InvalidRequestError, match="bytes or sequence"):
        WriteOptions.parse({"path": f"file://{tmp_path}", "offsets": "numbers"})


def test_wrong_key_in_a_list_is_named_by_its_row():
    types = {name: kind for name, kind in TYPES.items() if name != "key"} | {
        "keys": "array<string>"
    }
    form = EntryForm.of(types | {"message_id": "string"})
    for keys, field in (
        ([["a", "b"], ["c"], [""]], "entries[2].keys[0]"),
        ([["a"], [], None], "entries[2].keys"),
    ):
        batch = batch_of(keys=keys, message_id=["x", "y", None])
        batch = batch.select([name for name in batch.schema.names if name != "key"])
        with pytest.raises(InvalidRequestError) as refused:
            list(rows_of(form, batch, dictionaries(), load_settings()))
        assert refused.value.field == field


@pytest.mark.parametrize(
    "url", ["memory://x", "folder/store", "", None, "ftp://x/y", "s3://u:p@b/"]
)
def test_urls_that_executors_cannot_share_are_refused(url):
    with pytest.raises(InvalidRequestError):
        StoreLink.of(url)


def test_hadoop_spelling_of_a_local_folder_is_taken(tmp_path):
    assert StoreLink.of(f"file:{tmp_path}").url == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"colour": "red"}, "colour"),
        ({"onError": "maybe"}, "onError"),
        ({"keys": "a,b"}, "keys"),
        ({"keys": "a", "topic": "x,y"}, "keys"),
        ({"keys": "a", "topic": "x", "messageIds": "m"}, "messageIds"),
        ({"messageIds": "[]"}, "messageIds"),
        ({"beginTime": "yesterday"}, "beginTime"),
        ({"beginTime": "2024-01-01T00:00:00"}, "beginTime"),
        ({"beginTime": "5", "endTime": "4"}, "beginTime"),
        ({"itemsPerPartition": "0"}, "itemsPerPartition"),
        ({"topic": ""}, "topic"),
        ({"topic": "[1]"}, "topic"),
        ({"awsAccessKeyId": "x"}, "awsAccessKeyId"),
    ],
)
def test_wrong_read_options_are_named(options, field):
    with pytest.raises(InvalidRequestError) as refused:
        ReadOptions.parse({"path": "/tmp/x", **options})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"node": "Not A Node"}, "node"),
        ({"targetEntries": "many"}, "targetEntries"),
        ({"filterBits": "7"}, "filterBits"),
        ({"mergeSmall": "perhaps"}, "mergeSmall"),
    ],
)
def test_wrong_write_options_are_named(options, field):
    with pytest.raises(InvalidRequestError) as refused:
        WriteOptions.parse({"path": "/tmp/x", **options})
    assert refused.value.field == field


def test_options_are_matched_without_regard_to_case():
    parsed = ReadOptions.parse({"path": "/tmp/x", "TOPIC": "a", "onerror": "partial"})
    assert (parsed.topics, parsed.is_partial) == (("a",), True)


def test_time_buckets_are_parsed():
    assert parse_bucket("1 hour") == parse_bucket("60 minutes") == parse_bucket(3_600_000)
    for wrong in ("hour", "0 days", -5, True, "99 days"):
        with pytest.raises(InvalidRequestError):
            parse_bucket(wrong)


def test_bad_row_fails_the_job_names_itself_and_publishes_nothing(spark, store_url):
    good = key_rows(spark, [f"k{n}" for n in range(100)], partitions=1)
    append(good, store_url)
    broken = good.withColumn(
        "offset", F.when(F.col("offset") == 7700, -1).otherwise(F.col("offset"))
    )
    with pytest.raises(Exception, match="offset: partition 0, row 177: must be between 0"):
        append(good.union(broken).coalesce(1).union(good), store_url)
    assert read(spark, store_url).count() == 100


def test_what_a_failed_job_uploaded_is_collected(spark, store_url, monkeypatch):
    good = key_rows(spark, ["a", "b", "c"])
    append(good, store_url)
    broken = key_rows(spark, [""])
    with pytest.raises(Exception, match="must be 1 to"):
        append(good.unionAll(broken).coalesce(1), store_url, targetEntries="3")
    store = open_store(store_url)
    assert count_objects(store) == 2
    assert collect_garbage(store_url) == 0  # it may be an upload in progress
    monkeypatch.setenv("TIERDEX_GRACE_TIME", "0")
    collect_garbage(store_url)  # commits the floor
    assert collect_garbage(store_url) == 1
    assert count_objects(store) == 1
    assert read(spark, store_url).count() == 3


def count_objects(store):
    return len(list(store.list("nodes/spark/files/")))


def test_overwrite_is_refused(spark, store_url):
    frame = key_rows(spark, ["a"])
    with pytest.raises(Exception, match="overwrite would drop"):
        frame.write.format("tierdex").mode("overwrite").save(store_url)


def test_owned_node_is_refused(spark, store_url, tmp_path):
    with Index.open(tmp_path / "data", store=store_url, node="broker", background=False) as index:
        index.put(topic="orders", keys=["a"], queue_id=0, offset=0, size=1, timestamp=1)
        index.roll()
        index.run_compaction()
        with pytest.raises(Exception, match="has an owner"):
            append(key_rows(spark, ["a"]), store_url, node="broker")
        with pytest.raises(Exception, match="has an owner"):
            merge(spark, store_url, node="broker")


def test_lookup_says_what_is_wrong(spark, store_url):
    append(key_rows(spark, ["a"]), store_url)
    keys = spark.createDataFrame([("orders", "a")], "topic string, key string")
    wrong = [
        ({"how": "outer"}, keys, "how"),
        ({"on_error": "maybe"}, keys, "on_error"),
        ({"max_count": 0}, keys, "max_count"),
        ({"columns": ["colour"]}, keys, "columns"),
        ({}, keys.drop("topic"), "topic"),
        ({}, keys.withColumn("offset", F.lit(1)), "offset"),
        ({}, keys.withColumn("begin", F.lit("now")), "begin"),
        ({}, keys.withColumn("key", F.lit(1)), "key"),
    ]
    for arguments, frame, field in wrong:
        with pytest.raises(InvalidRequestError) as refused:
            lookup(spark, store_url, frame, **arguments)
        assert refused.value.field == field


def test_key_is_checks_topic_and_keys():
    for arguments in (("orders",), ("", "k"), ("orders", "")):
        with pytest.raises(InvalidRequestError):
            key_is(*arguments)


def test_node_that_nobody_wrote_is_not_an_empty_one(tmp_path):
    with pytest.raises(NotFoundError, match="no node nobody"):
        take_snapshot(open_store(tmp_path), ["nobody"])


def test_store_without_a_manifest_is_not_an_empty_scan(spark, store_url):
    keys = spark.createDataFrame([("orders", "a")], "topic string, key string")
    for job in (
        lambda: read(spark, store_url).count(),
        lambda: verify(spark, store_url),
        lambda: lookup(spark, store_url, keys),
    ):
        with pytest.raises(Exception, match="holds no manifest"):
            job()


def test_store_without_files_is_an_empty_scan(spark, store_url, tmp_path):
    Index.open(tmp_path / "data", store=store_url, node="local", background=False).close()
    assert read(spark, store_url).count() == 0
    assert [row.file_id for row in verify(spark, store_url).collect()] == ["node:local"]
    keys = spark.createDataFrame([("orders", "a")], "topic string, key string")
    assert [row.offset for row in lookup(spark, store_url, keys).collect()] == [None]


def test_session_whose_workers_have_no_tierdex_is_refused_before_a_job(
    spark, monkeypatch, tmp_path
):
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with monkeypatch.context() as patch:
        patch.setattr(
            spark.sparkContext, "pythonExec", "python3"
        )  # as Spark chooses without the variable
        with pytest.raises(InvalidRequestError, match="set PYSPARK_PYTHON to"):
            register(spark)
    register(spark)
