"""A task of `lookup`: one range of hashes, all files. Batches come sorted by hash.

For each batch the files are asked newest first, those lookups only that still want entries. An
entry that several files hold (a broker replayed it) is given once.

Depends on lookup_batch, lookup_file, lookup_matches, scan_report, worker_process, indexfile and
storage_layer.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from tierdex.errors import FILE_ERRORS
from tierdex.indexfile.lookup import NO_LIMIT
from tierdex.pipeline.jobs.scan_report import ScanReport
from tierdex.pipeline.jobs.worker_process import worker_task
from tierdex.pipeline.lookups.lookup_batch import ORDER, IdTime, lookups_of_batch
from tierdex.pipeline.lookups.lookup_file import READS_AT_ONCE, LookupFile
from tierdex.pipeline.lookups.lookup_matches import LookupMatches
from tierdex.storage_layer.metered import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.pipeline.jobs.job_store import StoreLink
    from tierdex.pipeline.lookups.lookup_file import FileHead

logger = logging.getLogger(__name__)

COMPLETE: Final = "complete"


@dataclass(frozen=True, slots=True)
class LookupJob:
    """Everything a task needs. `heads` newest file first; `notes` is an accumulator (TaskNotes)."""

    link: StoreLink
    heads: tuple[FileHead, ...]
    columns: tuple[str, ...]
    scan: str
    notes: Any
    is_left: bool
    max_count: int | None
    is_partial: bool
    by_id: bool
    id_time: IdTime
    is_too_old: bool = False  # for the caller: no row is complete


class LookupTask:
    """Answers the batches of one task. One thread, but for reads ahead."""

    def __init__(self, job: LookupJob) -> None:
        self._job = job
        self._counts = RequestCounts()
        self._report = ScanReport(kind="lookup")
        store = job.link.open().scoped(self._counts)
        self._files = [LookupFile(head, store, self._report) for head in job.heads]

    def answer_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers of all batches. Raises CorruptFileError and what the store raises."""
        context = TaskContext.get()
        try:
            with worker_task(), ThreadPoolExecutor(READS_AT_ONCE) as pool:
                for batch in batches:
                    if batch.num_rows:
                        yield self._answer(batch, pool)
        finally:
            report = self._report
            report.requests, report.bytes = self._counts.requests, self._counts.bytes_read
            report.files_read = sum(file.was_read for file in self._files)
            report.tasks_reported = 1
            task = 0 if context is None else context.partitionId()
            noted = asdict(report)
            logger.info("looked up", extra={"scan": self._job.scan, "task": task, **noted})
            self._job.notes.add({task: noted})

    def _answer(self, batch: pa.RecordBatch, pool: ThreadPoolExecutor) -> pa.RecordBatch:
        most = self._job.max_count or NO_LIMIT
        asked, is_valid = lookups_of_batch(
            batch, by_id=self._job.by_id, max_count=most, id_time=self._job.id_time
        )
        found = LookupMatches(asked)
        incomplete = np.full(asked.count, self._job.is_too_old)
        for file in self._files:
            wanted = file.wanted(asked, is_valid & found.still_want())
            if not len(wanted):
                continue
            try:
                file.ask(asked, wanted, found, pool)
            except FILE_ERRORS as error:
                if not self._job.is_partial:
                    raise
                logger.warning("file left out", extra={"file_id": file.file_id})
                note = f"{file.file_id}: {error}"
                self._report.missing += [] if note in self._report.missing else [note]
                incomplete[wanted] = True
        lookups, entries = found.table(self._job.columns)
        self._report.entries += len(lookups)
        return self._joined(batch, asked.count, lookups, entries, incomplete)

    def _joined(
        self,
        batch: pa.RecordBatch,
        count: int,
        lookups: np.ndarray,
        entries: pa.Table,
        incomplete: np.ndarray,
    ) -> pa.RecordBatch:
        """Return the batch's own columns with the entries beside them."""
        if self._job.is_left:
            has = np.zeros(count, bool)
            has[lookups] = True
            without = np.flatnonzero(~has)
            place = pa.array(
                np.concatenate([np.arange(len(lookups)), np.full(len(without), -1)]),
                mask=np.concatenate([np.zeros(len(lookups), bool), np.ones(len(without), bool)]),
            )
            lookups = np.concatenate([lookups, without])
            order = np.argsort(lookups, kind="stable")
            lookups, place = lookups[order], place.take(pa.array(order))
            entries = entries.take(place)
        own = batch.drop_columns([ORDER]).take(pa.array(lookups))
        arrays = [*own.columns, *(column.combine_chunks() for column in entries.columns)]
        names = [*own.schema.names, *entries.schema.names]
        if self._job.is_partial:
            arrays.append(pa.array(~incomplete[lookups]))
            names.append(COMPLETE)
        arrays = [
            pa.concat_arrays(one.chunks) if isinstance(one, pa.ChunkedArray) else one
            for one in arrays
        ]
        return pa.RecordBatch.from_arrays(arrays, names=names)
