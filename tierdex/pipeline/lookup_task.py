"""A task of `lookup`: one range of hashes, all files. Batches come sorted by hash.

For each batch the files are asked newest first, those lookups only that still want entries: filter,
directory, near pages by one request, one merge of two sorted columns. An entry that several files
hold (a broker replayed it) is given once. The last page of a batch stays for the next one.

Depends on remote_file, arrow_columns, reader's spans, index_service's repeats.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from tierdex.errors import CorruptFileError
from tierdex.index_service.repeats import first_of_each
from tierdex.indexfile.layout import KIND_BIT, TAG_NONE, TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.pipeline.arrow_columns import RowColumns
from tierdex.pipeline.options import MAX_TIME, MIN_TIME
from tierdex.pipeline.reader import FILE_ERRORS, NEAR_PAGES
from tierdex.pipeline.remote_file import RemoteFile
from tierdex.pipeline.scan_report import ScanReport
from tierdex.storage_layer.metered import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.pipeline.job_store import StoreLink
    from tierdex.pipeline.snapshot import ListedFile
    from tierdex.storage_layer.metered import MeteredStore

logger = logging.getLogger(__name__)

ORDER: Final = "__tierdex_order"
COMPLETE: Final = "complete"
_SIGN: Final = np.uint64(1 << 63)
_GROUP_PAGES: Final = 256
_READS_AT_ONCE: Final = 8
_IDENTITY: Final = (
    "topic", "queue_id", "offset", "size", "source", "row_group", "row", "timestamp",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileHead:
    """What the driver fetched of a file (None: it could not). `pages` are those on borders of ranges."""

    file: ListedFile
    head: tuple[bytes, bytes] | None
    pages: dict[int, bytes]


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


class LookupTask:
    """Answers the batches of one task. One thread, but for reads ahead."""

    def __init__(self, job: LookupJob) -> None:
        self._job = job
        self._counts = RequestCounts()
        self._report = ScanReport(kind="lookup")
        store = job.link.open().scoped(self._counts)
        self._files = [_AskedFile(head, store, self._report) for head in job.heads]

    def answer_all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers of all batches. Raises CorruptFileError and what the store raises."""
        context = TaskContext.get()
        try:
            with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
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
        asked = _Asked.of(batch, by_id=self._job.by_id)
        found = _Found(asked.count, self._job.max_count)
        incomplete = np.zeros(asked.count, bool)
        for file in self._files:
            wanted = file.wanted(asked, found.still_want(asked.is_valid))
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


@dataclass(frozen=True, slots=True)
class _Asked:
    """The lookups of a batch, sorted by hash. `topic` is an index into `topics`, -1 for an ID."""

    count: int
    hashes: np.ndarray
    topics: list[str]
    topic: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    is_valid: np.ndarray

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, by_id: bool) -> _Asked:
        count = batch.num_rows
        order = np.asarray(batch.column(ORDER))
        names = ("message_id",) if by_id else ("topic", "key")
        is_valid = np.ones(count, bool)
        for name in names:
            column = batch.column(name)
            if column.null_count:
                is_valid &= column.is_valid().to_numpy(zero_copy_only=False)
        topics: list[str] = []
        topic = np.full(count, -1, np.int64)
        if not by_id:
            encoded = pc.dictionary_encode(batch.column("topic"))
            topics = encoded.dictionary.to_pylist()
            topic = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
        return cls(
            count,
            order.view(np.uint64) ^ _SIGN,
            topics,
            topic,
            _times(batch, "begin", MIN_TIME),
            _times(batch, "end", MAX_TIME),
            is_valid,
        )


def _times(batch: pa.RecordBatch, name: str, default: int) -> np.ndarray:
    """Return a column of times in milliseconds; nulls and an absent column mean no bound."""
    if name not in batch.schema.names:
        return np.full(batch.num_rows, default)
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        # begin rounds up, end down: what lies within the bounds to the microsecond
        micros = column.cast(pa.int64())
        shifted = pc.add(micros, 999) if name == "begin" else micros
        values = np.asarray(shifted.fill_null(0)) // 1000
    else:
        values = np.asarray(column.fill_null(0)).astype(np.int64)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        values = np.where(nulls, default, values)
    return values


class _AskedFile:
    """One file, opened when a lookup first needs it."""

    def __init__(self, head: FileHead, store: MeteredStore, report: ScanReport) -> None:
        self._head = head
        self._store = store
        self._report = report
        self._remote: RemoteFile | None = None
        self._kept: dict[int, bytes] = {}  # the last lookup's pages, for the next batch
        self.file_id = head.file.file_id
        self.was_read = False

    def wanted(self, asked: _Asked, still: np.ndarray) -> np.ndarray:
        """Return the lookups (i8) that this file's times and topics may answer."""
        row, hidden = self._head.file.row, self._head.file.hidden
        mask = still & (asked.begin <= row.max_time) & (asked.end >= row.min_time)
        if asked.topics:
            known = [
                topic not in hidden and (row.topics is None or topic in row.topics)
                for topic in asked.topics
            ]
            mask &= np.array(known)[asked.topic]
        return np.flatnonzero(mask)

    def ask(
        self, asked: _Asked, wanted: np.ndarray, found: _Found, pool: ThreadPoolExecutor
    ) -> None:
        """Note what this file has for the lookups `wanted`."""
        if self._remote is None:
            self._remote = RemoteFile(self._store, self._head.file.row, self._head.head)
            self._columns = RowColumns(self._remote.compacted, self.file_id, self._head.file.node)
        file = self._remote.compacted
        tags = self._tags(asked)[asked.topic]
        wanted = wanted[tags[wanted] != TAG_NONE]
        hashes = asked.hashes[wanted]
        self._remote.need_filter(hashes)
        pages = file.plan_pages(hashes)
        has = np.flatnonzero(pages[:, 1] >= pages[:, 0])
        wanted, pages = wanted[has], pages[has]
        groups = _groups(pages)
        self.was_read |= bool(groups)
        ahead: list[Any] = []
        waiting = iter(groups)
        for first, last, low, high in groups:
            while len(ahead) < _READS_AT_ONCE and (group := next(waiting, None)) is not None:
                ahead.append(self._begin_read(group[0], group[1], pool))
            rows, data = self._rows(first, last, ahead.pop(0))
            if high == len(wanted):
                self._keep(max(first, int(pages[-1, 0])), last, first, data)
            members = wanted[low:high]
            lookups, rows = _match(rows, asked, members, tags[members])
            if self._head.file.hidden and len(rows):
                lookups, rows = self._visible(lookups, rows)
            if len(rows):
                found.add(lookups, rows, self._columns)

    def _tags(self, asked: _Asked) -> np.ndarray:
        """Return the tag (u4) of each topic's keys; the last one stands for message IDs (-1)."""
        assert self._remote is not None
        compacted = self._remote.compacted
        any_id = compacted.tag_of(None, 1)
        return np.array([*compacted.tags_of(asked.topics, 0).tolist(), any_id], np.uint32)

    def _begin_read(self, first: int, last: int, pool: ThreadPoolExecutor) -> Any:
        """Start fetching pages [first, last] but those at either end that are here already."""
        assert self._remote is not None
        file = self._remote.compacted
        here = self._head.pages | self._kept
        before: list[bytes] = []
        after: list[bytes] = []
        while first <= last and first in here:
            before.append(here[first])
            first += 1
        while last >= first and last in here:
            after.insert(0, here[last])
            last -= 1
        middle = None
        if first <= last:
            span = file.span(first, last - first + 1)
            self._report.pages_read += span.page_count
            middle = pool.submit(file.page_bytes, span)
        return before, middle, after

    def _keep(self, first: int, last: int, begin: int, data: bytes) -> None:
        """Keep pages [first, last]; `data` begins with page `begin`."""
        assert self._remote is not None
        file = self._remote.compacted
        base = file.page_place(begin)[0]
        places = ((page, *file.page_place(page)) for page in range(first, last + 1))
        self._kept = {
            page: data[position - base : position - base + length]
            for page, position, length in places
        }

    def _rows(self, first: int, last: int, read: Any) -> tuple[np.ndarray, bytes]:
        """Return the rows of pages [first, last] and their bytes. Raises CorruptFileError."""
        assert self._remote is not None
        file = self._remote.compacted
        before, middle, after = read
        data = b"".join([*before, bytes(middle.result()) if middle else b"", *after])
        span = file.span(first, last - first + 1)
        try:
            rows = file.decode_span(span, data)
        except CorruptFileError:
            # The fault may lie on the way here: once more, whole.
            data = bytes(file.page_bytes(span))
            rows = file.decode_span(span, data)
        self._report.items_read += len(rows)
        return rows, data

    def _visible(self, lookups: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self._remote is not None
        names = self._remote.compacted.dictionaries.strings(TOPIC_DICTIONARY)
        shown = np.array([name not in self._head.file.hidden for name in names])
        kept = shown[rows["tag"] & np.uint32(TOPIC_MASK)]
        return lookups[kept], rows[kept]


def _groups(pages: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Return (first page, last page, first lookup, end lookup) of runs of near pages.

    `pages` i8[n, 2] rises with n, since hashes do. A long run is cut where a lookup begins a new page.
    """
    if not len(pages):
        return []
    reach = np.maximum.accumulate(pages[:, 1])
    apart = pages[1:, 0] > reach[:-1] + NEAR_PAGES
    fresh = pages[1:, 0] > reach[:-1]
    # Cut at every page-disjoint place where the number of the piece changes.
    piece = (pages[:, 0] - pages[0, 0]) // _GROUP_PAGES
    cuts = np.flatnonzero(apart | (fresh & (piece[1:] != piece[:-1]))) + 1
    return [
        (int(pages[low, 0]), int(reach[high - 1]), low, high)
        for low, high in pairwise([0, *cuts.tolist(), len(pages)])
    ]


def _match(
    rows: np.ndarray, asked: _Asked, members: np.ndarray, tags: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (lookup i8, row) of every match; `rows` and the hashes of `members` are sorted."""
    hashes = asked.hashes[members]
    stored = np.ascontiguousarray(rows["key_hash"])
    low = np.searchsorted(stored, hashes, side="left")
    sizes = np.searchsorted(stored, hashes, side="right") - low
    member = np.repeat(np.arange(len(members)), sizes)
    ends = np.cumsum(sizes)
    number = np.arange(len(member)) - np.repeat(ends - sizes, sizes) + np.repeat(low, sizes)
    tag, time = rows["tag"][number], rows["timestamp"][number]
    lookups = members[member]
    by_id = asked.topic[lookups] < 0
    fits = np.where(by_id, tag >= KIND_BIT, tag == tags[member])
    fits &= (time >= asked.begin[lookups]) & (time <= asked.end[lookups])
    return lookups[fits], rows[number[fits]]


class _Found:
    """The matches of a batch, newest file first."""

    def __init__(self, count: int, max_count: int | None) -> None:
        self._max_count = max_count
        self._counts = np.zeros(count, np.int64)
        self._repeats = np.zeros(count, bool)  # several files had rows for it, not counted anew yet
        self._has_several = False
        self._parts: list[tuple[np.ndarray, np.ndarray, RowColumns]] = []

    def still_want(self, is_valid: np.ndarray) -> np.ndarray:
        """Return which lookups want more entries; repeats do not count as entries."""
        if self._max_count is None:
            return is_valid
        if self._repeats.any():
            # Count anew, without repeats: rare, so it may cost.
            lookups, _ = self._distinct(("file_id",))
            self._counts = np.bincount(lookups, minlength=len(self._counts))
            self._repeats[:] = False
        return is_valid & (self._counts < self._max_count)

    def add(self, lookups: np.ndarray, rows: np.ndarray, columns: RowColumns) -> None:
        if self._max_count is not None:
            # A lookup without matches so far needs no more than this; one with some may need any.
            rank = _ranks(lookups)
            kept = (rank < self._max_count) | (self._counts[lookups] > 0)
            lookups, rows = lookups[kept], rows[kept]
        again = lookups[self._counts[lookups] > 0]
        self._repeats[again] = True
        self._has_several |= bool(len(again))
        self._counts += np.bincount(lookups, minlength=len(self._counts))
        self._parts.append((lookups, rows, columns))

    def table(self, names: tuple[str, ...]) -> tuple[np.ndarray, pa.Table]:
        """Return (lookup i8[n], entries), by lookup, newest first, at most `max_count` each."""
        lookups, table = self._distinct(names)
        if self._max_count is not None:
            kept = np.flatnonzero(_ranks(lookups) < self._max_count)
            if len(kept) < len(lookups):
                lookups, table = lookups[kept], table.take(pa.array(kept))
        return lookups, table

    def _distinct(self, names: tuple[str, ...]) -> tuple[np.ndarray, pa.Table]:
        """Return all matches by lookup, repeats left out."""
        several = self._has_several
        wanted = (*names, *(name for name in _IDENTITY if name not in names and several))
        tables = [
            pa.Table.from_arrays(columns.columns(rows, wanted), names=list(wanted))
            for _, rows, columns in self._parts
        ]
        if not tables:
            return np.empty(0, np.int64), _empty(wanted)
        lookups = np.concatenate([part for part, _, _ in self._parts])
        order = np.argsort(lookups, kind="stable")
        lookups, table = lookups[order], pa.concat_tables(tables).take(pa.array(order))
        if several:
            kept = first_of_each([*_numbers_of(table.select(list(_IDENTITY))), lookups])
            lookups, table = lookups[kept], table.filter(pa.array(kept))
        return lookups, table.select(list(names))


def _numbers_of(table: pa.Table) -> list[np.ndarray]:
    """Return each column as numbers (i4[n]) that are equal where its values are; so are nulls."""
    encoded = [column.combine_chunks().dictionary_encode() for column in table.columns]
    return [np.asarray(column.indices.fill_null(-1)) for column in encoded]


def _ranks(lookups: np.ndarray) -> np.ndarray:
    """Return each element's number among equal neighbours, from 0; equal lookups are neighbours."""
    if not len(lookups):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], lookups[1:] != lookups[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(lookups)]]))
    return np.arange(len(lookups)) - np.repeat(starts, sizes)


def _empty(names: tuple[str, ...]) -> pa.Table:
    from tierdex.pipeline.arrow_columns import arrow_type

    return pa.table({name: pa.array([], arrow_type(name)) for name in names})
