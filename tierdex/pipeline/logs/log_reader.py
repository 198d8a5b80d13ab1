"""`spark.read.format("tierdex-log")`: the published messages of the logs in a store, from the store alone.

::

    options -> files that the manifests list, without those that cannot match by topic, time or age
            -> one partition a file, or a range of its bytes when it is large
    a task: sidecar -> queues and pages that are wanted -> near pages by one request -> Arrow columns

A reader depends on its options alone and takes no filters of Spark, as that of entries. Damage fails the
task: what it gives has no gap. Depends on fileparts, log_options,
scan_report, snapshot, storage_layer, worker_process, log_file_scan, log_position and remote_log; the last
three are for tasks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.pipeline.jobs.scan_report import ScanReport, new_scan_name, note_plan, note_task
from tierdex.pipeline.jobs.snapshot import ListedFile, take_log_snapshot
from tierdex.pipeline.jobs.worker_process import worker_task
from tierdex.storage_layer.metered import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from tierdex.pipeline.logs.log_options import LogOptions, LogSelection
    from tierdex.pipeline.logs.log_position import StreamPiece
    from tierdex.storage_layer.metered import MeteredStore


@dataclass(frozen=True)
class LogPartition(InputPartition):
    """Range number `part` of `parts` ranges of a file's bytes."""

    number: int
    file: ListedFile
    part: int
    parts: int
    piece: StreamPiece | None = None  # of a stream's batch; its pages in place of the range's


class LogReader(DataSourceReader):
    """One scan. Made by the planner, pickled to every task."""

    def __init__(self, options: LogOptions, columns: tuple[str, ...], folder: str | None) -> None:
        self._options = options
        self._columns = columns
        self._folder = folder
        self._scan = new_scan_name()

    def partitions(self) -> list[InputPartition]:
        """Take a snapshot and return the partitions to read. Raises errors of reading manifests."""
        options = self._options
        files, states = take_log_snapshot(options.link.open(), options.nodes)
        report = ScanReport(
            store=options.link.url, manifest={state.node: state.number for state in states}
        )
        partitions: list[InputPartition] = []
        for file in files:
            report.files_considered += 1
            why = why_not(options.selection, file)
            report.files_pruned_by_time += why == "time"
            report.files_pruned_by_topic += why == "topic"
            report.files_pruned += why is not None
            if why is None:
                partitions += split(file, options.bytes_per_partition, len(partitions))
        report.partitions = len(partitions)
        note_plan(self._folder, self._scan, report)
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's messages. Raises what the store raises, CorruptFileError."""
        if not isinstance(partition, LogPartition):
            return  # Spark's placeholder for an empty scan
        report, counts = ScanReport(), RequestCounts()
        store = self._options.link.open().scoped(counts)
        try:
            with worker_task():
                yield from self._read(partition, store, report)
        finally:
            report.requests, report.bytes = counts.requests, counts.bytes_read
            note_task(self._folder, self._scan, partition.number, report)

    def _read(
        self, partition: LogPartition, store: MeteredStore, report: ScanReport
    ) -> Iterator[pa.RecordBatch]:
        from tierdex.pipeline.logs.log_file_scan import WantedMessages, page_range, read_messages
        from tierdex.pipeline.logs.log_position import keep_between
        from tierdex.pipeline.logs.remote_log import open_log_file

        listed = partition.file
        file = open_log_file(self._options.link, store, listed.row)
        wanted = WantedMessages(file, listed, self._options.selection)
        piece = partition.piece
        if piece is None:
            first, last = page_range(file, partition.part, partition.parts)
        else:
            first, last = piece.first_page, piece.end_page
            keep_between(wanted, listed, piece.after, piece.until)
        pages = wanted.pages(first, last)
        report.pages_pruned = last - first - len(pages)
        report.files_read += partition.part == 0 and len(pages) > 0

        def fetch(position: int, length: int) -> bytes:
            return store.get(listed.row.object_key, position, length)

        yield from read_messages(file, wanted, pages, listed, fetch, self._columns, report)


def why_not(selection: LogSelection, file: ListedFile) -> str | None:
    """Return `time` or `topic` when no message of the file can match; None otherwise."""
    if not file.row.item_count or file.is_faded:
        return "topic"
    if file.row.min_time > selection.end or file.row.max_time < selection.begin:
        return "time"
    topics = selection.topics
    return "topic" if topics is not None and not any(map(file.shows, topics)) else None


def split(file: ListedFile, bytes_per_partition: int, first: int) -> list[LogPartition]:
    """Return the partitions of a file, numbered from `first` on."""
    parts = max(1, -(-(file.row.sidecar_position - HEADER_BYTES) // bytes_per_partition))
    return [LogPartition(first + part, file, part, parts) for part in range(parts)]
