"""`index_table` of a lake's table, and `live_rows`: the first build of a large table as a Spark job.

::

    driver   the table's newest snapshot --> numbers of its files       in the store, before any entry has one
    tasks    their files --> keys by position --> the sink               one commit of a shared node
    driver   deleted rows --> the step                                   in the store: visible, whole, at once

The state is that of a follower, which goes on from it: `tierdex follow` of the same topic, by the same keys,
into a data folder with this store adopts it. From then on jobs are refused: one program numbers a table's
files. A job that fails leaves numbers without a step; the next one gives the same files the same numbers.

Depends on errors, files, following, index_service, job_store, registration, seams and settings.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import functions as F

from tierdex.errors import InvalidRequestError, NotFoundError
from tierdex.files.table_columns import TableColumns
from tierdex.following.tables.follow_table import TableAsked, head_of, names_of, open_table
from tierdex.following.tables.table_rows import FileRows
from tierdex.following.tables.table_source import LiveFile, of_partitions
from tierdex.following.tables.table_steps import check_head, files_record, step_record
from tierdex.index_service.tables.live_entries import FILE, POSITION, address_of_file
from tierdex.index_service.tables.table_objects import TableObjects
from tierdex.index_service.tables.table_state import TableState
from tierdex.pipeline.registration import register
from tierdex.seams import Seams
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tierdex.following.tables.table_source import TableStep
    from tierdex.pipeline.jobs.job_store import StoreLink

_ENTRY: Any = (
    "topic string, key string, message_id string, timestamp bigint, "
    "table_file bigint, position bigint"
)
_TYPES: Any = pa.schema(
    [
        ("topic", pa.string()), ("key", pa.string()), ("message_id", pa.string()),
        ("timestamp", pa.int64()), (FILE, pa.int64()), (POSITION, pa.int64()),
    ]
)  # fmt: skip


class _Counts(AccumulatorParam[dict[int, int]]):
    """Rows by file: a task that ran twice tells the same."""

    def zero(self, value: dict[int, int]) -> dict[int, int]:
        return {}

    def addInPlace(self, value1: dict[int, int], value2: dict[int, int]) -> dict[int, int]:
        return {**value1, **value2}


def index_lake_table(
    spark: Any, source: str, link: StoreLink, asked: TableAsked, sink: Mapping[str, str]
) -> tuple[int, int]:
    """Index what is new of a table; return how many rows and files that is. `sink` are options of the sink.

    Raises InvalidRequestError for a table that is not read, or that a node follows.
    """
    register(spark)
    table = open_table(source, asked.options, Seams.of())
    objects = TableObjects(link.open())
    try:
        head = head_of(table, source, asked)
        known = _known(objects, head.topic)
        check_head(known, head, accept_other_log=False)
        state = known or TableState(head)
        newest = state.newest
        steps = list(table.steps(None if newest is None else newest.snapshot, asked.snapshot))
        if not steps:
            return 0, 0
        columns = TableColumns.decode(steps[-1].columns)
        step = of_partitions(steps[-1], columns, head.partitions)
        first = TableColumns.decode(state.first_columns) if state.first_columns else None
        FileRows(columns, first, names_of(asked), 1)  # a key that is not there is refused here
        if known is None:
            objects.begin(state)
        record = files_record(state, step)
        if record is not None:
            state = state.with_record(record)
            objects.replace(state)
        new = _unread(state, step)
        counts = _indexed(spark, source, asked, (step, columns, first), new, sink)
        topic = head.topic

        def write(number: int, parts: list[np.ndarray]) -> Any:
            return objects.write_deletes(topic, number, parts)

        objects.replace(state.with_record(step_record(state, step, counts, write)))
        return sum(counts.values()), len(new)
    finally:
        table.close()


def _known(objects: TableObjects, topic: str) -> TableState | None:
    """Return the state in the store. Raises InvalidRequestError where a node follows the table."""
    found = objects.published(topic)
    if found is None:
        return None
    state, node = found
    if node is not None:
        raise InvalidRequestError(
            f"node {node} follows the table of topic {topic!r}: its follower goes on by itself",
            field="topic",
        )
    return state


def _unread(state: TableState, step: TableStep) -> list[tuple[int, LiveFile]]:
    found = []
    for path, file in step.files.items():
        number = state.number_of(path)
        assert number is not None
        if state.files[number].rows is None:
            found.append((number, file))
    return found


def _indexed(
    spark: Any,
    source: str,
    asked: TableAsked,
    at: tuple[TableStep, TableColumns, TableColumns | None],
    new: Sequence[tuple[int, LiveFile]],
    sink: Mapping[str, str],
) -> dict[int, int]:
    """Put the entries of files; return the rows of each, by number."""
    step, columns, first = at
    counts = spark.sparkContext.accumulator({}, _Counts())
    topic, longest = str(asked.topic), load_settings().max_key_bytes
    time_ms = step.time_ms

    def entries(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = open_table(source, asked.options, Seams.of())
        rows = FileRows(columns, first, names_of(asked), longest)
        for batch in batches:
            for number, path, size, partition in zip(*batch.to_pydict().values(), strict=True):
                file = LiveFile(path, size, json.loads(partition))
                total = 0
                with table.opened(file) as opened:
                    for part in rows.read(opened, file, time_ms):
                        total = part.end
                        yield from (_batch(topic, number, *named) for named in part.names)
                counts.add({number: total})
        table.close()

    listed = [
        (number, file.path, file.size, json.dumps(dict(file.partition))) for number, file in new
    ]
    if not listed:
        return {}
    files = spark.createDataFrame(
        listed, "number bigint, path string, size bigint, partition string"
    )
    cores = spark.sparkContext.defaultParallelism
    spread = files.repartition(max(1, min(len(listed), 4 * cores)), F.col("number"))
    made = spread.mapInArrow(entries, _ENTRY)
    made.write.format("tierdex").mode("append").options(**sink).save()
    return dict(counts.value)


def _batch(topic: str, number: int, name: str, rows: Any) -> pa.RecordBatch:
    count = len(rows.positions)
    times = rows.times if isinstance(rows.times, np.ndarray) else np.full(count, rows.times)
    texts = rows.texts.cast(pa.string())
    key, message_id = (texts, pa.nulls(count, pa.string()))[:: 1 if name == "key" else -1]
    columns = [
        pa.repeat(topic, count), key, message_id, pa.array(times, pa.int64()),
        pa.array(np.full(count, number, np.int64)), pa.array(rows.positions.astype(np.int64)),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_TYPES)


def live_rows(
    spark: Any,
    store_url: str,
    found: Any,
    *,
    topic: str,
    snapshot: str | int | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return those rows of a lookup's answer that are live in a topic's table.

    They are live at its newest indexed snapshot, or an older one.
    `found` has a column `location`: ``lookup(…, columns=["location", …])``. Each row gets `source`, the path
    or URL of the data file, and `position`, the row in it: Spark's `_metadata.file_path` and
    `_metadata.row_index`. Entries without a place in a table are left out. Raises NotFoundError for a topic
    without a table or a snapshot that is not kept, InvalidRequestError, and what the store raises.
    """
    from tierdex.pipeline.jobs.job_store import StoreLink

    if "location" not in found.columns:
        raise InvalidRequestError(
            "is missing: ask the lookup for it by `columns`", field="location"
        )
    objects = TableObjects(StoreLink.of(store_url, options).open())
    published = objects.published(topic)
    if published is None or published[0].newest is None:
        raise NotFoundError(f"topic {topic!r} has no table of which a snapshot is indexed")
    state = published[0]
    step = state.snapshot_of(None if snapshot is None else str(snapshot)).step
    lives = [(file, file.life_at(step)) for file in state.files]
    live = [(file, life) for file, life in lives if life is not None]
    named = [(file.number, address_of_file(state, file)) for file, _ in live]
    files = spark.createDataFrame(named or [(-1, "")], "table_file bigint, source string")
    gone = [
        (file.number, int(row))
        for file, life in live
        if life.deletes is not None
        for row in objects.read_deletes(topic, life.deletes)
    ]
    deleted = spark.createDataFrame(gone or [(-1, -1)], "table_file bigint, position bigint")
    placed = found.withColumn("table_file", F.col("location")[FILE]).withColumn(
        "position", F.col("location")[POSITION]
    )
    kept = placed.join(F.broadcast(files), "table_file").join(
        F.broadcast(deleted), ["table_file", "position"], "left_anti"
    )
    return kept.select(*[f"`{name}`" for name in found.columns], "source", "position")
