"""One file in a task of `lookup`: which lookups it may answer, its pages, the rows that match.

Filter, directory and near pages by one request are planned as the index service plans them; the search is
that of every reader of compacted files. The last pages of a batch stay for the next one. Depends on
remote_file, arrow_columns, query, readers, lifecycle, indexfile and errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.index_service.query.matches import FileMatches
from tierdex.index_service.readers.file_reader import FileSearch
from tierdex.index_service.readers.planned_pages import PlannedPages
from tierdex.indexfile.layout import TAG_NONE, TOPIC_MASK
from tierdex.indexfile.lookup import NO_LIMIT
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.lifecycle.table.file_handle import FileHandle
from tierdex.pipeline.scan.arrow_columns import RowColumns
from tierdex.pipeline.scan.remote_file import RemoteFile

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.indexfile.compacted.page_range import PageSpan
    from tierdex.indexfile.lookup import Found, Search
    from tierdex.pipeline.jobs.scan_report import ScanReport
    from tierdex.pipeline.jobs.snapshot import ListedFile
    from tierdex.pipeline.lookups.lookup_matches import LookupMatches
    from tierdex.storage_layer.metered import MeteredStore

READS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class FileHead:
    """What the driver fetched of a file (None: it could not). `pages` are those on borders of ranges."""

    file: ListedFile
    head: tuple[bytes, bytes] | None
    pages: dict[int, bytes]


class LookupFile:
    """One file, opened when a lookup first needs it."""

    def __init__(self, head: FileHead, store: MeteredStore, report: ScanReport) -> None:
        self._head = head
        self._handle = FileHandle.of_row(head.file.row, head.file.node)
        self._store = store
        self._report = report
        self._remote: RemoteFile | None = None
        self._kept: dict[int, bytes] = {}  # the last lookup's pages, for the next batch
        self.file_id = head.file.file_id
        self.was_read = False

    def wanted(self, lookups: Lookups, still: np.ndarray) -> np.ndarray:
        """Return the lookups (i8) of `still` (b1) that this file's times and topics may answer."""
        file = self._head.file
        row = file.row
        mask = still & (lookups.begin <= row.max_time) & (lookups.end >= row.min_time)
        if row.hash_range is not None:  # a piece of a run
            first, last = (np.uint64(each) for each in row.hash_range)
            mask &= (lookups.hashes >= first) & (lookups.hashes <= last)
        if lookups.topics:
            mask &= np.array([file.shows(topic) for topic in lookups.topics])[lookups.topic_index]
        return np.flatnonzero(mask)

    def ask(
        self, lookups: Lookups, wanted: np.ndarray, found: LookupMatches, pool: ThreadPoolExecutor
    ) -> None:
        """Note what this file has for the lookups `wanted`."""
        if self._remote is None:
            self._remote = RemoteFile(self._store, self._head.file.row, self._head.head)
            self._columns = RowColumns(self._remote.compacted, self.file_id, self._head.file.node)
        file = self._remote.compacted
        limits = np.full(len(wanted), NO_LIMIT, np.int64)
        search = FileSearch(lookups, wanted, limits, None, NO_LIMIT)
        tags, hashes = search.tags(file.dictionaries), lookups.hashes[wanted]
        which = np.flatnonzero(tags != TAG_NONE)
        self._remote.need_filter(hashes[which])
        which = which[file.may_contain_many(hashes[which])]
        planned = PlannedPages.of(file, search, which, NO_LIMIT)
        self.was_read |= bool(planned.spans)
        ahead: list[Any] = []
        waiting = iter(planned.spans)
        for span, (low, high) in zip(planned.spans, planned.members, strict=True):
            while len(ahead) < READS_AT_ONCE and (later := next(waiting, None)) is not None:
                ahead.append(self._begin_read(later, pool))
            which = planned.which[low:high]
            rows, data = self._search(span, ahead.pop(0), search.columns(which, tags))
            if high == len(planned.which):
                self._keep(max(span.first_page, planned.last_page), span, data)
            self._add(np.repeat(wanted[which], np.diff(rows.offsets)), rows, found)

    def _add(self, numbers: np.ndarray, rows: Found, found: LookupMatches) -> None:
        assert self._remote is not None
        file, listed = self._remote.compacted, self._head.file
        matches = FileMatches(
            self._handle,
            None, file.schema, file.dictionaries, numbers, rows.rows, rows.places,
        )  # fmt: skip
        kept = listed.remembered(file, matches.rows)
        if kept is not None:
            matches = matches.taken(kept)
        if listed.is_fading and len(matches.rows):
            matches = matches.taken(self._visible(matches.rows))
        if len(matches.rows):
            found.add(matches, self._columns)

    def _begin_read(self, span: PageSpan, pool: ThreadPoolExecutor) -> Any:
        """Start fetching the pages of a span but those at either end that are here already."""
        assert self._remote is not None
        file = self._remote.compacted
        first, last = span.first_page, span.first_page + span.page_count - 1
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
            absent = file.span(first, last - first + 1)
            self._report.pages_read += absent.page_count
            middle = pool.submit(file.page_bytes, absent)
        return before, middle, after

    def _keep(self, first: int, span: PageSpan, data: bytes) -> None:
        """Keep the pages of a span, whose bytes are `data`, from page `first` on."""
        assert self._remote is not None
        file = self._remote.compacted
        pages = range(first, span.first_page + span.page_count)
        places = ((page, *file.page_place(page)) for page in pages)
        self._kept = {
            page: data[position - span.position : position - span.position + length]
            for page, position, length in places
        }

    def _search(self, span: PageSpan, read: Any, search: Search) -> tuple[Found, bytes]:
        """Return what lookups find in the pages of a span, and their bytes. Raises CorruptFileError."""
        assert self._remote is not None
        file = self._remote.compacted
        before, middle, after = read
        data = b"".join([*before, bytes(middle.result()) if middle else b"", *after])
        try:
            found = file.search_span(span, data, search)
        except CorruptFileError:
            # The fault may lie on the way here: once more, whole.
            data = bytes(file.page_bytes(span))
            found = file.search_span(span, data, search)
        self._report.items_read += found.items
        return found, data

    def _visible(self, rows: np.ndarray) -> np.ndarray:
        """Return which rows (b1) retention shows."""
        assert self._remote is not None
        names = self._remote.compacted.dictionaries.strings(TOPIC_DICTIONARY)
        shown = np.array([self._head.file.shows(name) for name in names])
        visible: np.ndarray = shown[rows["tag"] & np.uint32(TOPIC_MASK)]
        return visible
