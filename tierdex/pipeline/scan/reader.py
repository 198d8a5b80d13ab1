"""`spark.read.format("tierdex")`: plans partitions from a snapshot, reads pages into Arrow batches.

::

    options -> Predicate -> files of the snapshot that may match
                         -> one partition a file, or a range of its pages
    a task: head of the sidecar -> pages that may match -> near ones by one request -> rows -> columns

A reader depends on its options alone. Spark makes it for the first plan over a relation, keeps its
partitions and its pickled form with the relation, and reads every later plan by them. So it has no
`pushFilters`: a filter of one plan would apply to all plans. Spark evaluates all conditions.

The option `keys` fills a column `key`, `messageIds` a column `message_id`: a row's hash identifies
the key, since few are asked for.

Depends on predicate, remote_file, arrow_columns, snapshot, scan_report, worker_process, indexfile and
storage_layer. Modules that only tasks need are imported in tasks, since Spark plans in a process of
its own.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from tierdex.errors import FILE_ERRORS, CorruptFileError
from tierdex.indexfile.compacted.page_groups import NEAR_PAGES
from tierdex.pipeline.jobs.scan_report import ScanReport, new_scan_name, note_plan, note_task
from tierdex.pipeline.jobs.snapshot import ListedFile, take_snapshot
from tierdex.pipeline.jobs.worker_process import worker_task
from tierdex.pipeline.scan.arrow_columns import RowColumns
from tierdex.pipeline.scan.predicate import Predicate
from tierdex.storage_layer.metered import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.pipeline.jobs.options import ReadOptions
    from tierdex.pipeline.jobs.snapshot import Snapshot
    from tierdex.pipeline.scan.remote_file import RemoteFile
    from tierdex.storage_layer.metered import MeteredStore

logger = logging.getLogger(__name__)

_SPAN_PAGES: Final = 512  # of at most 4 KiB each: the pages of one request and one batch
_LOOK_AHEAD: Final = 2


@dataclass(frozen=True)
class PageRangePartition(InputPartition):
    """Range number `part` of `parts` ranges of a file's pages."""

    number: int
    file: ListedFile
    part: int
    parts: int


class TierdexReader(DataSourceReader):
    """One scan. Made by the planner, pickled to every task."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...], folder: str | None) -> None:
        self._options = options
        self._columns = columns
        self._folder = folder
        self._scan = new_scan_name()
        self._asked = _AskedColumn.of(options)
        self._predicate = Predicate(
            topics=None if options.topics is None else frozenset(options.topics),
            by_id=None if self._asked is None else self._asked.by_id,
            hashes=None if self._asked is None else np.unique(self._asked.hashes),
            begin=options.begin,
            end=options.end,
        )

    def partitions(self) -> list[InputPartition]:
        """Take a snapshot and return the partitions to read.

        Raises errors of reading manifests, IncompleteAnswerError.
        """
        options = self._options
        snapshot = take_snapshot(options.link.open(), options.nodes)
        report = ScanReport(
            store=options.link.url, manifest=dict(snapshot.numbers),
            as_of=snapshot.ages.as_of(), unasked=[*snapshot.ages.unasked()],
            missing=snapshot.too_old(options.fresh_within, is_partial=options.is_partial),
        )  # fmt: skip
        partitions: list[InputPartition] = []
        for file in self._wanted(snapshot, report):
            parts = -(-file.row.item_count // options.items_per_partition)
            partitions += [
                PageRangePartition(len(partitions) + part, file, part, parts)
                for part in range(parts)
            ]
        report.partitions = len(partitions)
        note_plan(self._folder, self._scan, report)
        return partitions

    def _wanted(self, snapshot: Snapshot, report: ScanReport) -> list[ListedFile]:
        wanted = []
        for file in snapshot.files:
            report.files_considered += 1
            why = self._predicate.why_not(file)
            report.files_pruned_by_time += why == "time"
            report.files_pruned_by_topic += why == "topic"
            report.files_pruned += why is not None
            if why is None:
                wanted.append(file)
        return wanted

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the partition's rows. Raises what the store raises, CorruptFileError."""
        if not isinstance(partition, PageRangePartition):
            return  # Spark's placeholder for an empty scan
        report, counts = ScanReport(), RequestCounts()
        store = self._options.link.open().scoped(counts)
        try:
            with worker_task():
                yield from self._read(partition, store, report)
        except FILE_ERRORS as error:
            if not self._options.is_partial:
                raise
            logger.warning(
                "file left out", extra={"file_id": partition.file.file_id, "error": str(error)}
            )
            report.missing.append(f"{partition.file.file_id}: {error}")
        finally:
            report.requests, report.bytes = counts.requests, counts.bytes_read
            note_task(self._folder, self._scan, partition.number, report)

    def _read(
        self, partition: PageRangePartition, store: MeteredStore, report: ScanReport
    ) -> Iterator[pa.RecordBatch]:
        from tierdex.pipeline.scan.remote_file import open_remote

        listed, predicate = partition.file, self._predicate
        remote = open_remote(self._options.link, store, listed.row)
        file = remote.compacted
        if predicate.hashes is not None:
            remote.need_filter(predicate.hashes)
        first = file.page_count * partition.part // partition.parts
        last = file.page_count * (partition.part + 1) // partition.parts
        pages = predicate.pages(file, first, last)
        report.pages_pruned = last - first - len(pages)
        if not len(pages):
            report.files_pruned_by_filter += predicate.hashes is not None
            return
        report.files_read += partition.part == 0 or partition.parts == 1
        columns = RowColumns(file, listed.file_id, listed.node)
        for span_pages, rows in read_pages(remote, pages):
            report.pages_read += span_pages
            report.items_read += len(rows)
            mask = predicate.rows(rows, file, listed)
            rows = rows if mask is None else rows[mask]
            if len(rows):
                batch = self._batch(columns, rows)
                report.entries += batch.num_rows
                yield batch

    def _batch(self, columns: RowColumns, rows: np.ndarray) -> pa.RecordBatch:
        asked, texts = self._asked, None
        if asked is not None:
            rows, texts = asked.fill(rows)
        arrays = [
            texts if asked is not None and name == asked.name else columns.columns(rows, [name])[0]
            for name in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(self._columns))


def read_pages(remote: RemoteFile, pages: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (pages read, their rows) for ascending `pages`: near ones together, with read-ahead.

    Pages that arrive damaged are fetched once more. Raises CorruptFileError, what the store raises.
    """
    file = remote.compacted
    spans = [file.span(first, last - first + 1) for first, last in spans_of(pages)]
    with ThreadPoolExecutor(_LOOK_AHEAD) as pool:
        waiting = [pool.submit(file.page_bytes, span) for span in spans[:_LOOK_AHEAD]]
        for number, span in enumerate(spans):
            data = waiting.pop(0).result()
            if number + _LOOK_AHEAD < len(spans):
                waiting.append(pool.submit(file.page_bytes, spans[number + _LOOK_AHEAD]))
            try:
                rows = file.decode_span(span, data)
            except CorruptFileError:
                rows = file.decode_span(span, file.page_bytes(span))
            yield span.page_count, rows


def spans_of(pages: np.ndarray) -> list[tuple[int, int]]:
    """Return (first, last) of the runs of ascending `pages`; a run may include gaps of a few pages."""
    if not len(pages):
        return []
    cuts = np.flatnonzero(np.diff(pages) > NEAR_PAGES) + 1
    spans = []
    for low, high in pairwise([0, *cuts.tolist(), len(pages)]):
        first, last = int(pages[low]), int(pages[high - 1])
        spans += [
            (start, min(start + _SPAN_PAGES - 1, last))
            for start in range(first, last + 1, _SPAN_PAGES)
        ]
    return spans


class _AskedColumn:
    """The keys of the option `keys`, or the IDs of `messageIds`, by hash: they fill a column."""

    def __init__(self, texts: tuple[str, ...], hashes: list[int], *, by_id: bool) -> None:
        found = np.array(hashes, np.uint64)
        order = np.argsort(found, kind="stable")
        self.hashes = found[order]
        self.by_id = by_id
        self.name = "message_id" if by_id else "key"
        self._texts = [texts[place] for place in order.tolist()]

    @classmethod
    def of(cls, options: ReadOptions) -> _AskedColumn | None:
        from tierdex.indexfile.hashing import key_hash, message_id_hash

        if options.message_ids is not None:
            ids = options.message_ids
            return cls(ids, [message_id_hash(one) for one in ids], by_id=True)
        if options.keys is None:
            return None
        assert options.topics is not None
        (topic,) = options.topics
        return cls(options.keys, [key_hash(topic, key) for key in options.keys], by_id=False)

    def fill(self, rows: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return rows and their texts; a row whose hash several texts share is repeated for each."""
        low = np.searchsorted(self.hashes, rows["key_hash"], side="left")
        sizes = np.searchsorted(self.hashes, rows["key_hash"], side="right") - low
        repeats = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(repeats)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        texts = pa.array(self._texts, pa.string())
        return rows[repeats], texts.take(pa.array(low[repeats] + within))
