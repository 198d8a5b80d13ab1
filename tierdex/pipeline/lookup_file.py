"""One file in a task of `lookup`: which lookups it may answer, its pages, the rows that match.

Filter, directory, near pages by one request, and the search that every reader of compacted files has. The
last page of a batch stays for the next one. Depends on remote_file, arrow_columns and indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.indexfile.compacted.page_groups import group_pages
from tierdex.indexfile.layout import TAG_NONE, TOPIC_MASK
from tierdex.indexfile.lookup import NO_LIMIT, Search
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.pipeline.arrow_columns import RowColumns
from tierdex.pipeline.remote_file import RemoteFile

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from tierdex.indexfile.lookup import Found
    from tierdex.pipeline.lookup_batch import LookupBatch
    from tierdex.pipeline.lookup_matches import LookupMatches
    from tierdex.pipeline.scan_report import ScanReport
    from tierdex.pipeline.snapshot import ListedFile
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
        self._store = store
        self._report = report
        self._remote: RemoteFile | None = None
        self._kept: dict[int, bytes] = {}  # the last lookup's pages, for the next batch
        self.file_id = head.file.file_id
        self.was_read = False

    def wanted(self, asked: LookupBatch, still: np.ndarray) -> np.ndarray:
        """Return the lookups (i8) that this file's times and topics may answer."""
        file = self._head.file
        row = file.row
        mask = still & (asked.begin <= row.max_time) & (asked.end >= row.min_time)
        if row.hash_range is not None:  # a piece of a run
            first, last = (np.uint64(each) for each in row.hash_range)
            mask &= (asked.hashes >= first) & (asked.hashes <= last)
        if asked.topics:
            mask &= np.array([file.shows(topic) for topic in asked.topics])[asked.topic]
        return np.flatnonzero(mask)

    def ask(
        self, asked: LookupBatch, wanted: np.ndarray, found: LookupMatches, pool: ThreadPoolExecutor
    ) -> None:
        """Note what this file has for the lookups `wanted`."""
        if self._remote is None:
            self._remote = RemoteFile(self._store, self._head.file.row, self._head.head)
            self._columns = RowColumns(self._remote.compacted, self.file_id, self._head.file.node)
        file = self._remote.compacted
        tags = self._tags(asked)[asked.topic]
        wanted = wanted[tags[wanted] != TAG_NONE]
        self._remote.need_filter(asked.hashes[wanted])
        wanted = wanted[file.may_contain_many(asked.hashes[wanted])]
        search = Search.of(
            asked.hashes[wanted], tags[wanted], begin=asked.begin[wanted], end=asked.end[wanted]
        )
        pages = file.plan_pages(search, NO_LIMIT)
        has = np.flatnonzero(pages[:, 1] >= pages[:, 0])
        has = has[np.argsort(pages[has, 0], kind="stable")]
        wanted, pages, search = wanted[has], pages[has], search.taken(has)
        groups = group_pages(pages)
        self.was_read |= bool(groups)
        ahead: list[Any] = []
        waiting = iter(groups)
        for first, last, low, high in groups:
            while len(ahead) < READS_AT_ONCE and (group := next(waiting, None)) is not None:
                ahead.append(self._begin_read(group[0], group[1], pool))
            rows, data = self._search(first, last, ahead.pop(0), search.taken(slice(low, high)))
            if high == len(wanted):
                self._keep(max(first, int(pages[-1, 0])), last, first, data)
            lookups = np.repeat(wanted[low:high], np.diff(rows.offsets))
            self._add(lookups, rows.rows, found)

    def _add(self, lookups: np.ndarray, rows: np.ndarray, found: LookupMatches) -> None:
        assert self._remote is not None
        kept = self._head.file.remembered(self._remote.compacted, rows)
        if kept is not None:
            lookups, rows = lookups[kept], rows[kept]
        if self._head.file.is_fading and len(rows):
            lookups, rows = self._visible(lookups, rows)
        if len(rows):
            found.add(lookups, rows, self._columns)

    def _tags(self, asked: LookupBatch) -> np.ndarray:
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

    def _search(self, first: int, last: int, read: Any, search: Search) -> tuple[Found, bytes]:
        """Return what lookups find in pages [first, last], and their bytes. Raises CorruptFileError."""
        assert self._remote is not None
        file = self._remote.compacted
        before, middle, after = read
        data = b"".join([*before, bytes(middle.result()) if middle else b"", *after])
        span = file.span(first, last - first + 1)
        try:
            found = file.search_span(span, data, search)
        except CorruptFileError:
            # The fault may lie on the way here: once more, whole.
            data = bytes(file.page_bytes(span))
            found = file.search_span(span, data, search)
        self._report.items_read += found.items
        return found, data

    def _visible(self, lookups: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert self._remote is not None
        names = self._remote.compacted.dictionaries.strings(TOPIC_DICTIONARY)
        shown = np.array([self._head.file.shows(name) for name in names])
        kept = shown[rows["tag"] & np.uint32(TOPIC_MASK)]
        return lookups[kept], rows[kept]
