"""A published file as a query sees it: sidecar at hand, pages by range reads.

With the sidecar here a lookup costs no request when the filter says no, and one range GET when the
key is there (a run longer than `max_get_bytes` goes on as long as the query wants more). Without it
one request more: the whole sidecar, once, counted apart. A page that arrives damaged is fetched a
second time before the file is called corrupt: the fault may lie in between.

Depends on compactor (how a published file is opened), indexfile, lifecycle rows, the store, the two
caches.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from tierdex.compactor.merged_file import open_published
from tierdex.errors import CorruptFileError
from tierdex.index_service.readers.entries import RowDecoder
from tierdex.index_service.readers.file_reader import Chunk
from tierdex.indexfile.compacted.sidecar import read_topics
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from tierdex.index_service.readers.file_reader import Candidate, FileMeter
    from tierdex.index_service.readers.page_cache import PageCache
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.indexfile.compacted.file import CompactedFile, Lookup
    from tierdex.indexfile.compacted.sidecar import PageSpan
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")
_FEW_ROWS = 16  # most keys have fewer; what has more is decoded by columns


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
        self._decoder: RowDecoder | None = None

    def sidecar(self, meter: FileMeter | None = None) -> CompactedFile:
        """Return the open sidecar, fetching it when it is not here. Raises what the store raises."""

        def fetch(position: int, length: int) -> bytes:
            if meter is not None:
                meter.charge_sidecar(length)
            return self._store.get(self.row.object_key, position, length)

        return self._sidecars.get(self.row, self._node, fetch)

    def chunks(
        self, request: QueryRequest, meter: FileMeter, place: int | None = None
    ) -> Iterator[Chunk]:
        """Places are pages."""

        def spans_in(
            sidecar: CompactedFile,
        ) -> tuple[CompactedFile, PageSpan | None, Iterator[PageSpan]]:
            if not sidecar.may_contain(request.key_hash):
                meter.filtered = True
                return sidecar, None, iter(())
            spans = sidecar.page_spans(
                request.key_hash,
                request.begin,
                request.end,
                max_bytes=self._max_get_bytes,
                first_page=place,
            )
            return sidecar, next(spans, None), spans  # the first one here: it verifies the sidecar

        compacted, span, spans = self.with_sidecar(meter, spans_in)
        self._decoder = self._decoder or RowDecoder(compacted.schema, compacted.dictionaries)
        asked = request.lookup(), request.begin, request.end
        while span is not None:
            data = self.read(span.position, span.length, meter)
            for page in range(span.first_page, span.first_page + span.page_count):
                try:
                    rows = compacted.find_in_page(page, span, data, *asked)
                except CorruptFileError:
                    self.discard(span.position, span.length)
                    data = self.read(span.position, span.length, meter)
                    rows = compacted.find_in_page(page, span, data, *asked)
                meter.charge_items(len(rows))
                if len(rows):
                    yield Chunk(rows, np.full(len(rows), page))
            span = next(spans, None)

    def find_few(
        self, lookup: Lookup, begin: int, end: int
    ) -> tuple[list[str], list[tuple[int, ...]]] | None:
        """Return the topics of the file's dictionary, and the rows that `chunks` yields as tuples.

        None when memory alone does not tell: the sidecar is not open, the page is not in the cache, or
        more than one range would be read. For files of messages. Sends no request and opens no file.
        Raises CorruptFileError.
        """
        sidecar = self._sidecars.opened(self.row.uuid)
        if sidecar is None:
            return None
        if not sidecar.may_contain(lookup.key_hash):
            return [], []  # nearly always: nothing else is made before
        names = sidecar.dictionaries.strings(TOPIC_DICTIONARY)
        if sidecar.schema != MESSAGE_SCHEMA:
            return None
        spans = sidecar.page_spans(lookup.key_hash, begin, end, max_bytes=self._max_get_bytes)
        span = next(spans, None)
        if span is None:
            return names, []
        data = self._pages.get(self.row.object_key, span.position, span.length)
        if data is None or next(spans, None) is not None:
            return None
        rows = sidecar.find_in_span(span, data, lookup, begin, end)
        return (names, rows.tolist()) if len(rows) <= _FEW_ROWS else None

    def with_sidecar(self, meter: FileMeter, use: Callable[[CompactedFile], T]) -> T:
        """Return `use(sidecar)`; a sidecar that turns out to be damaged is fetched anew, once."""
        try:
            return use(self.sidecar(meter))
        except CorruptFileError as error:
            logger.warning("sidecar fetched again", extra={"error": str(error)})
            self._sidecars.forget(self.row.uuid)
            return use(self.sidecar(meter))

    def read_many(
        self, ranges: list[tuple[int, int]], meter: FileMeter, executor: Executor
    ) -> list[bytes]:
        """Return ranges of pages, those that are not in memory read side by side."""
        key = self.row.object_key
        data = [self._pages.get(key, *place) for place in ranges]
        absent = [number for number, found in enumerate(data) if found is None]
        for number in absent:
            meter.charge_request(ranges[number][1])
        fetched = executor.map(lambda n: self._store.get(key, *ranges[n]), absent)
        for number, found in zip(absent, fetched, strict=True):
            self._pages.put(key, ranges[number][0], found)
            data[number] = found
        return [found for found in data if found is not None]

    def discard(self, position: int, length: int) -> None:
        """Forget a range that turned out to be damaged on its way here."""
        self._pages.discard(self.row.object_key, position, length)

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

    def read(self, position: int, length: int, meter: FileMeter) -> bytes:
        """Return a range of pages, from memory or with one request."""
        key = self.row.object_key
        data = self._pages.get(key, position, length)
        if data is None:
            meter.charge_request(length)
            data = self._store.get(key, position, length)
            self._pages.put(key, position, data)
        return data

    def location_names(self) -> tuple[str, ...]:
        assert self._decoder is not None, "rows come before their names"
        return self._decoder.names

    def candidates(self, rows: np.ndarray) -> list[Candidate]:
        assert self._decoder is not None, "rows come before their decoding"
        return self._decoder.decode(rows)

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        assert self._decoder is not None, "rows come before their decoding"
        return self._decoder.fingerprints(rows)

    def close(self) -> None:
        """Nothing is held open here: sidecars belong to their cache."""
