"""`spark.readStream.format("tierdex-log")`: what logs publish, once each, batch after batch.

::

    latest offset   manifests -> files that were not read, oldest first, until the most messages of a batch;
                    the last one may be cut: its sidecar says where
    partitions      the files between two offsets, and which of their messages; merged or not meanwhile
    tasks           as those of a scan

An offset is a place in each node's list of files (`log_position`), so a batch that Spark plans again has the
same messages, from whichever file they now come. Files that expired before they were read are told: the query
fails, or, with ``failOnDataLoss=false``, goes on behind them.

Depends on errors, log_options, log_position, log_reader, log_file_scan, remote_log and snapshot.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tierdex.errors import NotFoundError
from tierdex.pipeline.jobs.snapshot import take_log_snapshot
from tierdex.pipeline.logs.log_position import (
    FileOrder,
    LogPosition,
    StreamPiece,
    keep_between,
    left_out_unread,
    missed,
    of_json,
    to_json,
)
from tierdex.pipeline.logs.log_reader import LogPartition, LogReader, split, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.pipeline.jobs.snapshot import ListedFile
    from tierdex.pipeline.logs.log_file_scan import WantedMessages
    from tierdex.pipeline.logs.log_options import LogOptions

logger = logging.getLogger(__name__)

Positions = dict[str, LogPosition]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's source. Plans on the driver; pickled to every task."""

    def __init__(self, options: LogOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._scan = LogReader(options, columns, None)
        self._until: Positions | None = None  # of a query that reads what is there now

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        return to_json(self._newest() if self._options.starts_at_end else {})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the most messages of a batch."""
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is published now."""
        self._until = self._newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends. Raises what the store raises, NotFoundError for lost messages."""
        ends = of_json(start)
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        for file, goal in self._ahead(ends):
            at = ends.get(file.node)
            count = 0 if why_not(self._options.selection, file) else file.row.item_count
            if left is not None and count > left:
                wanted = self._between(file, at, goal)
                count = wanted.count
                if count > left:
                    ends[file.node] = FileOrder(wanted, file).cut(left)
                    break
            ends[file.node] = goal
            left = None if left is None else left - count
        return to_json(ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. Raises as `latestOffset`."""
        begins, ends = of_json(start), of_json(end)
        found: list[LogPartition] = []
        for file, _ in self._ahead(begins, ends):
            at, until = begins.get(file.node), ends[file.node]
            if why_not(self._options.selection, file) is not None:
                continue
            is_cut = not until.passed(file) or (at is not None and at.touches(file))
            if is_cut:
                found += self._parts_of(file, at, until, len(found))
            else:
                found += split(file, self._options.bytes_per_partition, len(found))
        return list(found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's messages. Raises what the store raises, CorruptFileError."""
        return self._scan.read(partition)

    # -- private -----------------------------------------------------------------------------------------

    def _newest(self) -> Positions:
        files, _ = take_log_snapshot(self._options.link.open(), self._options.nodes)
        return {file.node: LogPosition.behind(file) for file in files}  # oldest first, in a node

    def _ahead(
        self, begins: Positions, ends: Mapping[str, LogPosition] | None = None
    ) -> Iterator[tuple[ListedFile, LogPosition]]:
        """Yield the files that were not read up to `ends`, and how far to read each.

        By the time of their sealing: within a node that is their order. Raises NotFoundError for lost ones.
        """
        files, _ = take_log_snapshot(self._options.link.open(), self._options.nodes)
        until = ends if ends is not None else self._until
        last = dict(begins)
        for file in sorted(files, key=lambda f: (f.row.sealed_at_ms, f.node, f.row.number)):
            at = last.get(file.node)
            if at is not None and at.passed(file):
                continue
            goal = LogPosition.behind(file)
            if until is not None:
                limit = until.get(file.node)
                if limit is None or not limit.touches(file):
                    continue
                goal = goal if limit.passed(file) else limit
            if goal == at:
                continue
            self._tell_lost(at, file)
            last[file.node] = LogPosition.behind(file)
            yield file, goal

    def _tell_lost(self, at: LogPosition | None, file: ListedFile) -> None:
        if at is None:  # it begins with what is there
            return
        topics = self._options.selection.topics
        why = missed(at, file, topics)
        if why is None and file.row.parts and file.rules.has_limits:
            why = left_out_unread(at, self._open(file), topics)
        if why is None:
            return
        told = f"node {file.node}: {why}: messages were not read"
        if self._options.fails_on_data_loss:
            raise NotFoundError(f"{told}; with failOnDataLoss=false the query goes on behind them")
        logger.warning("messages lost", extra={"node": file.node, "reason": why})

    def _between(
        self, file: ListedFile, at: LogPosition | None, until: LogPosition
    ) -> WantedMessages:
        from tierdex.pipeline.logs.log_file_scan import WantedMessages

        wanted = WantedMessages(self._open(file), file, self._options.selection)
        keep_between(wanted, file, at, until)
        return wanted

    def _open(self, file: ListedFile) -> GroupedFile:
        from tierdex.pipeline.logs.remote_log import open_log_file

        return open_log_file(self._options.link, self._options.link.open(), file.row)

    def _parts_of(
        self, file: ListedFile, at: LogPosition | None, until: LogPosition, first: int
    ) -> Iterator[LogPartition]:
        """Yield the tasks of a file of which only a part is read: ranges of the pages that have it."""
        wanted = self._between(file, at, until)
        pages = wanted.pages(0, wanted.file.page_count)
        if not len(pages):
            return
        begins = wanted.file.directory()["position"].astype(int)
        size = int(begins[pages[-1] + 1] - begins[pages[0]])
        parts = -(-size // self._options.bytes_per_partition)
        edges = [pages[0] + (pages[-1] + 1 - pages[0]) * part // parts for part in range(parts + 1)]
        for part in range(parts):
            piece = StreamPiece(int(edges[part]), int(edges[part + 1]), at, until)
            yield LogPartition(first + part, file, part, parts, piece)
