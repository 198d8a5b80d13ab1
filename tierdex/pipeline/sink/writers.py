"""The sinks: tasks build and upload files, the driver publishes them by one commit.

The uploads of a failed, repeated or speculative task are in no commit message that Spark accepts,
so no reader sees them. A streaming batch is committed under (query id, batch id): Spark replays a
batch whose commit it is not sure of, and the manifest has the last batch of each query.

Spark makes and commits a writer in processes of their own. Modules that only tasks need are
imported in tasks, since loading the kernels takes longer than a commit.

Depends on file_builder, plain_refusals, publishing, merge_task, lifecycle and snapshot.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from tierdex.clock import SystemClock
from tierdex.errors import OwnershipError, StoreRefusedError
from tierdex.ids import SystemIds
from tierdex.lifecycle.manifests.manifest import NodeKind
from tierdex.lifecycle.manifests.row_codec import decode_row, encode_row
from tierdex.pipeline.jobs.plain_refusals import refusing_plainly
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import open_log
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.pipeline.jobs.options import WriteOptions
    from tierdex.pipeline.sink.entry_form import EntryForm

logger = logging.getLogger(__name__)

QUERY_ID_PROPERTY = "sql.streaming.queryId"


@dataclass(frozen=True)
class FilesMessage(WriterCommitMessage):
    """The files of a task: their manifest rows, encoded, in the order of arrival."""

    partition: int
    rows: tuple[bytes, ...]
    query_id: str | None = None


class _Sink:
    """The common part of both sinks."""

    def __init__(self, options: WriteOptions, form: EntryForm) -> None:
        """Read the node's manifest once. Raises OwnershipError for an owned node."""
        state = open_log(options.link.open(), options.node).load()
        if state.kind is NodeKind.OWNED:
            raise OwnershipError(
                f"node {options.node} has an owner: choose another with the option node"
            )
        self._options = options
        self._form = form
        # Objects bear this number: a commit refuses those below the floor of garbage collection.
        self._read_number = state.number

    @refusing_plainly
    def _build(self, batches: Iterator[pa.RecordBatch]) -> tuple[int, tuple[bytes, ...]]:
        from tierdex.pipeline.sink.file_builder import BuildTask, FileBuilder

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        task = BuildTask(
            self._options.node,
            self._read_number,
            partition,
            self._options.target_entries,
            self._options.time_bucket_ms,
        )
        builder = FileBuilder(
            task,
            self._form,
            store=self._options.link.open(),
            settings=load_settings(filter_bits=self._options.filter_bits),
            clock=SystemClock(),
            ids=SystemIds(),
        )
        return partition, tuple(encode_row(row) for row in builder.add_all(batches))


class BatchWriter(_Sink, DataSourceArrowWriter):
    """`df.write.format("tierdex")`. `write` runs in tasks, `commit` or `abort` once on the driver."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        """Build files of one partition. Raises InvalidRequestError naming column and row."""
        return FilesMessage(*self._build(iterator))

    def commit(self, messages: Sequence[Any]) -> None:
        """Publish all files at once; those of a table that another job published meanwhile never."""
        rows = _rows_of(messages)
        node = JobNode(self._options.link.open(), self._options.node)
        table = self._options.table
        state = node.publish(rows) if table is None else node.publish_batch(table, 0, rows)
        logger.info("published", extra={"node": node.name, "files": len(rows)})
        node.collect_now_and_then(state)

    def abort(self, messages: Sequence[Any]) -> None:
        """Publish nothing: the tasks' uploads are collected after the grace time."""
        logger.warning("job failed, nothing published", extra={"files": len(_rows_of(messages))})


class StreamWriter(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("tierdex")`, exactly once by query id and batch id."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> FilesMessage:
        """Build files of one partition of a micro-batch."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(QUERY_ID_PROPERTY)
        if not query_id:
            raise StoreRefusedError("Spark gave the task no query id: exactly-once is not possible")
        return FilesMessage(*self._build(iterator), query_id)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Publish a micro-batch unless it was published before; then merge when files are many."""
        query_ids = {message.query_id for message in messages if message is not None}
        if not query_ids:
            return  # a batch without tasks: nothing to publish and nothing to replay
        (query_id,) = query_ids
        store = self._options.link.open()
        node = JobNode(store, self._options.node)
        state = node.publish_batch(query_id, batchId, _rows_of(messages))
        if self._options.merge_small:
            from tierdex.pipeline.merging.merge_task import merge_small_files

            merge_small_files(store, node)
        node.collect_now_and_then(state)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """Publish nothing; Spark runs the batch again."""
        logger.warning("batch failed, nothing published", extra={"batch": batchId})


def _rows_of(messages: Sequence[Any]) -> list[FileRow]:
    """Return the rows of all tasks in the order of partitions: later ones are newer."""
    found = [message for message in messages if message is not None]
    found.sort(key=lambda message: message.partition)
    return [decode_row(row) for message in found for row in message.rows]
