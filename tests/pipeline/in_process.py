"""The sink and a lookup's tasks as Spark runs them, without Spark: a store of entries, some keys, tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.hashing import key_hashes
from tierdex.pipeline.data_source import TierdexDataSource
from tierdex.pipeline.jobs.job_store import StoreLink
from tierdex.pipeline.jobs.snapshot import take_snapshot
from tierdex.pipeline.lookups.lookup_batch import ORDER, IdTime
from tierdex.pipeline.lookups.lookup_job import ENTRY_COLUMNS, _heads, borders
from tierdex.pipeline.lookups.lookup_task import LookupJob, LookupTask

SCHEMA = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("key", T.StringType()),
        T.StructField("queue_id", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("size", T.LongType()),
        T.StructField("timestamp", T.LongType()),
    ]
)


def batch_of(keys, first=0):
    """Return entries of these keys, offsets 10 apart."""
    count = len(keys)
    offsets = np.arange(first, first + count) * 10
    return pa.record_batch(
        {
            "topic": pa.repeat("orders", count),
            "key": pa.array(keys, pa.string()),
            "queue_id": pa.array(np.zeros(count, np.int32)),
            "offset": offsets,
            "size": np.full(count, 10),
            "timestamp": offsets,
        }
    )


def make_writer(url, **options):
    """Return the sink's writer as the driver makes it."""
    return TierdexDataSource({"path": url, **options}).writer(SCHEMA, overwrite=False)


class Notes:
    """Stands for the accumulator."""

    def __init__(self):
        self.value = {}

    def add(self, noted):
        self.value |= noted


def run_lookup(url, keys, *, tasks, batch_rows, max_count=None):
    """Look keys up by `tasks` tasks in batches of `batch_rows`; return {key: offsets, newest first}."""
    link = StoreLink.of(url)
    heads = _heads(link.open(), take_snapshot(link.open()).files, tasks, is_partial=False)
    asked = pa.table({"topic": pa.repeat("orders", len(keys)), "key": pa.array(keys)})
    column = StringColumn.from_values(asked["key"].combine_chunks())
    hashes = key_hashes(column, ["orders"], None)
    order = np.argsort(hashes)
    asked, hashes = asked.take(pa.array(order)), hashes[order]
    signed = pa.array((hashes ^ np.uint64(1 << 63)).view(np.int64))
    asked = asked.append_column(ORDER, signed)
    cuts = np.searchsorted(hashes, np.array(borders(tasks), np.uint64))
    found = {}
    for low, high in zip([0, *cuts], [*cuts, len(keys)], strict=True):
        job = LookupJob(
            link,
            tuple(heads),
            ENTRY_COLUMNS,
            "scan",
            Notes(),
            by_id=False,
            max_count=max_count,
            is_left=False,
            is_partial=False,
            id_time=IdTime("off", 0.0),
        )
        batches = asked.slice(low, high - low).combine_chunks().to_batches(batch_rows)
        for answer in LookupTask(job).answer_all(batches):
            for key, offset in zip(
                answer["key"].to_pylist(), answer["offset"].to_pylist(), strict=True
            ):
                found.setdefault(key, []).append(offset)
    return found
