"""Micro-batches are published exactly once, in append mode only, and do not leave a swamp of files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import types as T

from tests.pipeline.conftest import read
from tests.pipeline.in_process import batch_of
from tierdex.lifecycle.manifests.row_codec import encode_row
from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import open_log, take_snapshot
from tierdex.pipeline.sink.writers import FilesMessage
from tierdex.storage_layer.open import open_store

BATCHES = 10


@pytest.fixture
def source(tmp_path):
    """A folder of Parquet files, each of which becomes one micro-batch."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(BATCHES):
        rows = batch_of([f"k{number}-{n}" for n in range(50)], first=1000 * number)
        pa.parquet.write_table(pa.Table.from_batches([rows]), folder / f"{number}.parquet")
    return folder


def start(spark, source, url, tmp_path, **options):
    frame = (
        spark.readStream.schema(
            T._parse_datatype_string(
                "topic string, key string, queue_id int, offset bigint, size bigint, timestamp bigint"
            )
        )
        .option("maxFilesPerTrigger", "1")
        .parquet(str(source))
    )
    query = (
        frame.writeStream.format("tierdex")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(url)
    )
    query.awaitTermination()
    return query


def test_batches_are_published_once_even_when_replayed(spark, source, store_url, tmp_path):
    query = start(spark, source, store_url, tmp_path)
    state = open_log(open_store(store_url), "spark").load()
    assert state.streams == {str(query.id): BATCHES - 1}
    assert read(spark, store_url).count() == 50 * BATCHES
    # Enough small files of one tier are merged by the sink itself.
    assert len(state.files) < BATCHES

    # The driver died between our commit and Spark's note of it: Spark replays the batch.
    (tmp_path / "checkpoint" / "commits" / str(BATCHES - 1)).unlink()
    (tmp_path / "checkpoint" / "commits" / f".{BATCHES - 1}.crc").unlink()
    again = start(spark, source, store_url, tmp_path)
    assert again.id == query.id
    assert again.lastProgress["batchId"] == BATCHES - 1
    assert open_log(open_store(store_url), "spark").load().streams == state.streams
    assert read(spark, store_url).count() == 50 * BATCHES


def test_batch_uploaded_but_not_committed_is_published_by_its_replay(spark, store_url):
    store = open_store(store_url)
    uploaded = uploaded_row(store, "lost")
    replayed = uploaded_row(store, "replayed")
    writer = stream_writer(store_url)
    # The first attempt's driver died before commit: its message is gone, its object an orphan.
    assert uploaded.object_key != replayed.object_key
    for _ in range(2):  # and Spark is not sure of the second either
        writer.commit([FilesMessage(0, (encode_row(replayed),), "query-1"), None], 7)
    snapshot = take_snapshot(store)
    assert [file.row.object_key for file in snapshot.files] == [replayed.object_key]
    assert JobNode(store, "spark").shared.refresh().streams == {"query-1": 7}


def test_last_batch_of_a_query_survives_merges(store_url):
    store = open_store(store_url)
    writer = stream_writer(store_url)
    for batch in range(8):
        row = uploaded_row(store, f"k{batch}")
        writer.commit([FilesMessage(0, (encode_row(row),), "query-1")], batch)
    state = open_log(store, "spark").load()
    assert len(state.files) == 1
    assert state.streams == {"query-1": 7}
    row = uploaded_row(store, "k3")
    writer.commit([FilesMessage(0, (encode_row(row),), "query-1")], 3)
    assert open_log(store, "spark").load().files == state.files


def test_small_files_stay_when_merging_is_off(store_url):
    store = open_store(store_url)
    writer = stream_writer(store_url, mergeSmall="false")
    for batch in range(8):
        row = uploaded_row(store, f"k{batch}")
        writer.commit([FilesMessage(0, (encode_row(row),), "query-1")], batch)
    assert len(open_log(store, "spark").load().files) == 8


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_other_output_modes_are_refused(spark, store_url, tmp_path, mode):
    frame = spark.readStream.format("rate").load()
    counted = frame.groupBy("value").count()
    with pytest.raises(Exception, match=r"(?i)append|not support|refused"):
        counted.writeStream.format("tierdex").outputMode(mode).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        ).start(store_url).awaitTermination(60)
    assert list(open_store(store_url).list("nodes/")) == []


def stream_writer(url, **options):
    schema = T._parse_datatype_string(
        "topic string, key string, queue_id int, offset bigint, size int, timestamp bigint"
    )
    return TierdexDataSource({"path": url, **options}).streamWriter(schema, False)


def uploaded_row(store, key):
    """Build and upload a file as a task does; no manifest lists it."""
    from tierdex.clock import SystemClock
    from tierdex.ids import SystemIds
    from tierdex.pipeline.sink.entry_form import EntryForm
    from tierdex.pipeline.sink.file_builder import BuildTask, FileBuilder
    from tierdex.settings import load_settings

    columns = {"topic": ["a"], "key": [key], "queue_id": [0], "offset": [0], "size": [1]}
    batch = pa.record_batch(
        {name: pa.array(v) for name, v in (columns | {"timestamp": [5]}).items()}
    )
    types = {"topic": "string", "key": "string"} | dict.fromkeys(
        ("queue_id", "offset", "size", "timestamp"), "bigint"
    )
    number = open_log(store, "spark").load().number
    builder = FileBuilder(
        BuildTask("spark", number, partition=0, target_entries=10, time_bucket_ms=0),
        EntryForm.of(types),
        store=store,
        settings=load_settings(),
        clock=SystemClock(),
        ids=SystemIds(),
    )
    (row,) = builder.add_all([batch])
    return row
