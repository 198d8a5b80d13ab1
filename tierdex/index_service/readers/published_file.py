"""A published file as a query sees it: sidecar at hand, pages by range reads.

With the sidecar here a lookup costs no request when the filter says no, and one range GET when the
key is there (a run longer than `max_get_bytes` goes on as long as the query wants more). Without it
one request more: the whole sidecar, once, counted apart. A page that arrives damaged is fetched a
second time before the file is called corrupt: the fault may lie in between.

Depends on file_reader, local_file, compactor and indexfile.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from tierdex.compactor.merged_file import open_published
from tierdex.errors import CorruptFileError
from tierdex.index_service.readers.file_reader import FileRows
from tierdex.index_service.readers.local_file import in_hash_order
from tierdex.indexfile.compacted.page_groups import group_pages
from tierdex.indexfile.compacted.sidecar import read_topics
from tierdex.indexfile.layout import TAG_NONE
from tierdex.indexfile.lookup import Found
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from tierdex.index_service.readers.file_reader import FileMeter, FileSearch
    from tierdex.index_service.readers.page_cache import PageCache
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.indexfile.compacted.sidecar import PageSpan
    from tierdex.indexfile.lookup import Lookup, Search
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")
_RUN_BYTES: Final = 32 * 1024  # that one of many lookups reads of a long run at once


class PublishedFile:
    """Reads one object. Immutable: safe to share between threads."""

    is_local = False
    hash_function: str | None = None

    def __init__(
        self,
        row: FileRow,
        node: str,
        store: Store,
        sidecars: SidecarCache,
        pages: PageCache,
        max_get_bytes: int,
    ) -> None:
        self.row = row
        self._node = node
        self._store = store
        self._sidecars = sidecars
        self._pages = pages
        self._max_get_bytes = max_get_bytes

    def sidecar(self, meter: FileMeter | None = None) -> CompactedFile:
        """Return the open sidecar, fetching it when it is not here. Raises what the store raises."""

        def fetch(position: int, length: int) -> bytes:
            if meter is not None:
                meter.charge_sidecar(length)
            return self._store.get(self.row.object_key, position, length)

        return self._sidecars.get(self.row, self._node, fetch)

    def excludes(self, key_hash: int) -> bool:
        sidecar = self._sidecars.opened(self.row.uuid)
        try:
            return sidecar is not None and not sidecar.may_contain(key_hash)
        except CorruptFileError:
            return False  # the search fetches the sidecar anew

    def search(
        self, wanted: FileSearch, meter: FileMeter, executor: Executor | None = None
    ) -> FileRows:
        """Search the pages that the filter and the directory name; near ones come with one request.

        Without `executor` ranges are read one after the other. A place is a page and a row in it.
        """
        most_bytes = self._max_get_bytes
        if len(wanted.wanted) > 1:
            most_bytes = min(most_bytes, _RUN_BYTES)

        def plan(sidecar: CompactedFile) -> tuple[CompactedFile, np.ndarray, Search, np.ndarray]:
            maybe = sidecar.may_contain_many(wanted.lookups.hashes[wanted.wanted])
            meter.filtered = not maybe.any()
            tags = wanted.tags(sidecar.dictionaries)
            which = in_hash_order(wanted, np.flatnonzero(maybe & (tags != TAG_NONE)))
            search = wanted.columns(which, tags)
            return sidecar, which, search, sidecar.plan_pages(search, most_bytes)

        file, which, search, pages = self.with_sidecar(meter, plan)
        members = np.flatnonzero(pages[:, 1] >= pages[:, 0])
        if (np.diff(pages[members, 0]) < 0).any():  # lookups of one long run, in different times
            members = members[np.argsort(pages[members, 0], kind="stable")]
        found = self._search_pages(file, search.taken(members), pages[members], meter, executor)
        return FileRows(file.schema, file.dictionaries, wanted.wanted[which[members]], found)

    def _search_pages(
        self,
        file: CompactedFile,
        search: Search,
        pages: np.ndarray,
        meter: FileMeter,
        executor: Executor | None,
    ) -> Found:
        """Read the pages (i8[n, 2]) of the lookups, whose first ones rise, and search them."""
        groups = group_pages(pages)
        if not groups:
            return Found.nothing(0, file.schema.dtype)
        spans = [file.span(first, last - first + 1) for first, last, _, _ in groups]
        buffers = self._read_spans(spans, meter, executor)
        pieces = [
            self._search_span(file, span, data, search.taken(slice(low, high)), meter)
            for (_, _, low, high), span, data in zip(groups, spans, buffers, strict=True)
        ]
        return Found.joined(pieces)

    def _search_span(
        self, file: CompactedFile, span: PageSpan, data: bytes, search: Search, meter: FileMeter
    ) -> Found:
        try:
            return file.search_span(span, data, search)
        except CorruptFileError:
            self._pages.discard(self.row.object_key, span.position, span.length)
            (again,) = self._read_spans([span], meter, None)
            return file.search_span(span, again, search)

    def find_few(
        self, lookup: Lookup, begin: int, end: int
    ) -> tuple[list[str], list[tuple[int, ...]]] | None:
        """Return the topics of the file's dictionary, and the rows that `search` finds as tuples.

        None when memory alone does not tell: the sidecar is not open, the page is not in the cache, or
        more than one range would be read. For files of messages. Sends no request and opens no file.
        Raises CorruptFileError.
        """
        sidecar = self._sidecars.opened(self.row.uuid)
        if sidecar is None:
            return None
        if sidecar.schema != MESSAGE_SCHEMA:
            return None if sidecar.may_contain(lookup.key_hash) else ([], [])
        key = self.row.object_key
        rows = sidecar.find_few(
            lookup,
            begin,
            end,
            lambda span: self._pages.get(key, span.position, span.length),
            self._max_get_bytes,
        )
        if rows is None:
            return None
        return sidecar.dictionaries.strings(TOPIC_DICTIONARY), rows

    def with_sidecar(self, meter: FileMeter, use: Callable[[CompactedFile], T]) -> T:
        """Return `use(sidecar)`; a sidecar that turns out to be damaged is fetched anew, once."""
        try:
            return use(self.sidecar(meter))
        except CorruptFileError as error:
            logger.warning("sidecar fetched again", extra={"error": str(error)})
            self._sidecars.forget(self.row.uuid)
            return use(self.sidecar(meter))

    def _read_spans(
        self, spans: Sequence[PageSpan], meter: FileMeter, executor: Executor | None
    ) -> list[bytes]:
        """Return ranges of pages; those that are not in memory are read by a request each."""
        key = self.row.object_key
        data = [self._pages.get(key, span.position, span.length) for span in spans]
        absent = [number for number, found in enumerate(data) if found is None]
        for number in absent:
            meter.charge_request(spans[number].length)

        def fetch(number: int) -> bytes:
            return self._store.get(key, spans[number].position, spans[number].length)

        each = map if executor is None or len(absent) == 1 else executor.map
        for number, found in zip(absent, each(fetch, absent), strict=True):
            self._pages.put(key, spans[number].position, found)
            data[number] = found
        return [found for found in data if found is not None]

    @property
    def topics(self) -> list[str]:
        """The topics of the file: by two small requests unless its sidecar is here.

        Raises what the store raises, and CorruptFileError when the object is not the row's.
        """
        kept, row = self.kept_topics(), self.row
        if kept is not None:
            return kept
        return read_topics(
            partial(self._store.get, row.object_key),
            position=row.sidecar_position,
            file_bytes=row.bytes,
            crc=row.tail_crc,
            name=row.object_key,
        )

    def kept_topics(self) -> list[str] | None:
        """Return the file's topics when its sidecar is here; sends no request."""
        kept = self._sidecars.kept(self.row)
        return None if kept is None else kept.topics

    def whole(self) -> CompactedFile:
        """Open the object for reading it from end to end. Raises as `open_published`."""
        return open_published(self._store, self.row)

    def close(self) -> None:
        """Nothing is held open here: sidecars belong to their cache."""
