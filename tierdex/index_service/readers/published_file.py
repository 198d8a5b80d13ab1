"""A published file as a query sees it: sidecar at hand, pages by range reads.

With the sidecar here a lookup costs no request when the filter says no, and one range GET when the
key is there (a run longer than 256 KiB goes on as long as the query wants more). Without it
a request comes before: the hash group of the key (`indexfile.compacted.hash_group`), and the first time
that a key is there the head, beside the page. The sidecar is fetched whole where a file has no groups, and
where many of them are wanted. Its requests are counted apart. A page that arrives damaged is fetched a
second time before the file is called corrupt: the fault may lie in between.

Depends on file_reader, local_file, planned_pages, read_threads, compactor, fileparts, indexfile and
topic_set.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from tierdex.compactor.merged_file import open_published
from tierdex.errors import CorruptFileError
from tierdex.fileparts.filter import partitions_of
from tierdex.index_service.readers.file_reader import FileRows
from tierdex.index_service.readers.local_file import in_hash_order
from tierdex.index_service.readers.planned_pages import PlannedPages
from tierdex.index_service.readers.read_threads import side_by_side
from tierdex.indexfile.compacted.hash_group import HashGroup
from tierdex.indexfile.compacted.small_parts import read_dictionaries, read_extra, read_topics
from tierdex.indexfile.layout import TAG_NONE
from tierdex.indexfile.lookup import NOT_SEARCHED, NOTHING, Found
from tierdex.lifecycle.topic_set import TOPICS_LISTED_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.readers.file_reader import FileMeter, FileSearch
    from tierdex.index_service.readers.page_cache import PageCache
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.indexfile.compacted.page_range import PageSpan
    from tierdex.indexfile.compacted.small_parts import TopicRow
    from tierdex.indexfile.lookup import Few, Lookup, Search
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

T = TypeVar("T")
_RUN_BYTES: Final = 32 * 1024  # that one of many lookups reads of a long run at once
_GET_BYTES_MAX: Final = 256 * 1024  # of one range
_GROUPS_AT_ONCE: Final = 8  # that one search fetches of one file; more: the whole sidecar
_SHARE: Final = 4  # of a file's groups one in so many may be here; more: the whole sidecar


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
    ) -> None:
        self.row = row
        self._node = node
        self._store = store
        self._sidecars = sidecars
        self._parts = sidecars.parts
        self._pages = pages
        self._listed_topics: list[TopicRow] | None = None  # as read, while they are few

    def sidecar(self, meter: FileMeter | None = None) -> CompactedFile:
        """Return the open sidecar, fetching it when it is not here. Raises what the store raises."""
        return self._sidecars.get(self.row, self._node, partial(self._fetch_part, meter))

    def excludes(self, key_hash: int) -> bool:
        if not self._may_hold(key_hash):
            return True
        sidecar = self._sidecars.opened(self.row.uuid)
        if sidecar is None:
            group = self._kept_group(key_hash)
            return group is not None and not group.may_contain(key_hash)
        try:
            return not sidecar.may_contain(key_hash)
        except CorruptFileError:
            return False  # the search fetches the sidecar anew

    def _may_hold(self, key_hash: int) -> bool:
        """Return False when the file is a piece of a run that holds other hashes."""
        hashes = self.row.hash_range
        return hashes is None or hashes.holds(key_hash)

    def search(
        self, wanted: FileSearch, meter: FileMeter, executor: Executor | None = None
    ) -> FileRows:
        """Search the pages that the filter and the directory name; near ones come with one request.

        Ranges are read side by side with `executor`. A place is a page and a row in it.
        """
        if self.row.hash_range is not None:
            wanted = wanted.within(*self.row.hash_range)
            if not len(wanted.wanted):
                meter.filtered = True
                return FileRows.nothing()
        most_bytes = _GET_BYTES_MAX
        if len(wanted.wanted) > 1:
            most_bytes = min(most_bytes, _RUN_BYTES)
        numbers = self._groups_for(wanted.lookups.hashes[wanted.wanted])
        if numbers is not None:
            return self._search_groups(wanted, numbers, most_bytes, meter, executor)

        def plan(sidecar: CompactedFile) -> tuple[CompactedFile, PlannedPages]:
            maybe = sidecar.may_contain_many(wanted.lookups.hashes[wanted.wanted])
            meter.filtered = not maybe.any()
            tags = wanted.tags(sidecar.dictionaries)
            which = in_hash_order(wanted, np.flatnonzero(maybe & (tags != TAG_NONE)))
            return sidecar, PlannedPages.of(sidecar, wanted, which, most_bytes)

        file, piece = self.with_sidecar(meter, plan)
        buffers = self._read_spans(piece.spans, meter, executor)
        return self._search_pieces(file, wanted, [piece], buffers, meter)

    def needs_fetch(self, hashes: np.ndarray) -> bool:
        """Return whether the filter of some of `hashes` (u8) is not here, as far as is known."""
        hashes = self._held(hashes)
        if not len(hashes):
            return False
        numbers = self._groups_for(hashes)
        if numbers is None:
            return not self._sidecars.is_here(self.row)
        return not self._parts.numbers(self.row.uuid).issuperset(numbers.tolist())

    def fetch_filter(self, hashes: np.ndarray, meter: FileMeter) -> None:
        """Fetch what a search of `hashes` (u8) needs to ask the filter. Raises what the store raises."""
        hashes = self._held(hashes)
        numbers = self._groups_for(hashes)
        if numbers is None:
            self.sidecar(meter)
            return
        for number in np.unique(numbers).tolist():
            self._parts.group(self.row, number, partial(self._read_part, meter))

    def _held(self, hashes: np.ndarray) -> np.ndarray:
        """Return those of `hashes` (u8) that the file may hold, by its range."""
        if self.row.hash_range is None:
            return hashes
        first, last = (np.uint64(each) for each in self.row.hash_range)
        return hashes[(hashes >= first) & (hashes <= last)]

    # -- by hash groups -----------------------------------------------------------------------------

    def _groups_for(self, hashes: np.ndarray) -> np.ndarray | None:
        """Return the group (i8) of each hash (u8); None when the sidecar is to be had whole.

        So it is when it is here, when many groups are wanted at once, and when many were: one request
        for all of them is then cheaper than one each.
        """
        places = self.row.groups
        if places is None or self._sidecars.is_here(self.row):
            return None
        numbers = partitions_of(hashes, places.group_count)
        here = self._parts.numbers(self.row.uuid)
        absent = len(set(numbers.tolist()) - here)
        if absent > _GROUPS_AT_ONCE or (
            absent and len(here) + absent > max(1, places.group_count // _SHARE)
        ):
            return None
        return numbers

    def _kept_group(self, key_hash: int) -> HashGroup | None:
        """Return the group of a hash if it is here."""
        places = self.row.groups
        if places is None:
            return None
        return self._parts.kept_group(self.row.uuid, (key_hash * places.group_count) >> 64)

    def _search_groups(
        self,
        wanted: FileSearch,
        numbers: np.ndarray,
        most_bytes: int,
        meter: FileMeter,
        executor: Executor | None,
    ) -> FileRows:
        """Search with the groups of the wanted hashes instead of the whole sidecar.

        Groups come side by side, then pages and the head: no more rounds than with the sidecar here.
        """
        fetch = partial(self._read_part, meter)
        groups = side_by_side(
            executor,
            [
                partial(self._parts.group, self.row, number, fetch)
                for number in np.unique(numbers).tolist()
            ],
        )
        pieces = []
        for group in groups:
            members = np.flatnonzero(numbers == group.number)
            members = members[group.may_contain_many(wanted.lookups.hashes[wanted.wanted[members]])]
            if len(members):
                planned = self._parts.with_entries(self.row, group, fetch)
                which = in_hash_order(wanted, members)
                pieces.append(PlannedPages.of(planned, wanted, which, most_bytes))
        meter.filtered = not pieces
        spans = [span for piece in pieces for span in piece.spans]
        if not spans:
            return FileRows.nothing()
        reads: list[Callable[[], Any]] = [
            partial(self._parts.head, self.row, groups[0], fetch),
            partial(self._read_spans, spans, meter, executor),
        ]
        head, buffers = side_by_side(executor, reads)
        return self._search_pieces(head, wanted, pieces, buffers, meter)

    def _read_part(self, meter: FileMeter, position: int, length: int) -> bytes | memoryview:
        return self._sidecars.read(self.row, position, length, partial(self._fetch_part, meter))

    def _fetch_part(self, meter: FileMeter | None, position: int, length: int) -> bytes:
        if meter is not None:
            meter.charge_sidecar(length)
        return self._store.get(self.row.object_key, position, length)

    # -- pages --------------------------------------------------------------------------------------

    def _search_pieces(
        self,
        file: CompactedFile,
        wanted: FileSearch,
        pieces: Sequence[PlannedPages],
        buffers: Sequence[bytes],
        meter: FileMeter,
    ) -> FileRows:
        """Search the pages of all pieces, whose bytes are `buffers`, in order."""
        tags = wanted.tags(file.dictionaries)
        data = iter(buffers)
        found = []
        for piece in pieces:
            view = file.through(piece.pages_of) if isinstance(piece.pages_of, HashGroup) else file
            for span, (low, high) in zip(piece.spans, piece.members, strict=True):
                search = wanted.columns(piece.which[low:high], tags)
                found.append(self._search_span(view, span, next(data), search, meter))
        if not found:
            return FileRows.nothing()
        which = np.concatenate([piece.which for piece in pieces])
        return FileRows(file.schema, file.dictionaries, wanted.wanted[which], Found.joined(found))

    def _search_span(
        self, file: CompactedFile, span: PageSpan, data: bytes, search: Search, meter: FileMeter
    ) -> Found:
        try:
            return file.search_span(span, data, search)
        except CorruptFileError:
            self._pages.discard(self.row.object_key, span.position, span.length)
            (again,) = self._read_spans([span], meter, None)
            return file.search_span(span, again, search)

    def find_few(self, lookup: Lookup, begin: int, end: int) -> tuple[CompactedFile | None, Few]:
        """Return the open sidecar, and what memory alone has of what `search` finds.

        That is nothing when neither sidecar nor hash group is here, or the page not in the cache. For files
        of messages. Sends no request and opens no file. Raises CorruptFileError.
        """
        if not self._may_hold(lookup.key_hash):
            return None, NOTHING
        sidecar = self._sidecars.opened(self.row.uuid)
        if sidecar is None:
            group = self._kept_group(lookup.key_hash)
            if group is None:
                return None, NOT_SEARCHED
            if not group.may_contain(lookup.key_hash):
                return None, NOTHING
            head = self._parts.kept_head(self.row.uuid)
            if head is None or not group.has_entries:
                return None, NOT_SEARCHED
            sidecar = head.through(group)
        if not sidecar.schema.is_message:
            return sidecar, NOT_SEARCHED if sidecar.may_contain(lookup.key_hash) else NOTHING
        key = self.row.object_key
        few = sidecar.find_few(
            lookup,
            begin,
            end,
            lambda span: self._pages.get(key, span.position, span.length),
            _GET_BYTES_MAX,
        )
        return sidecar, few

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

        read = side_by_side(executor, [partial(fetch, number) for number in absent])
        for number, found in zip(absent, read, strict=True):
            self._pages.put(key, spans[number].position, found)
            data[number] = found
        return [found for found in data if found is not None]

    @property
    def topics(self) -> list[str]:
        """The topics of the file; as `listed_topics`."""
        return [row.topic for row in self.listed_topics]

    @property
    def listed_topics(self) -> list[TopicRow]:
        """What the file says of its topics: by two small requests, once, unless its sidecar is here.

        Raises what the store raises, and CorruptFileError when the object is not the row's.
        """
        kept = self.kept_topics()
        if kept is None:
            kept = self._read_tail(read_topics)
            if len(kept) <= TOPICS_LISTED_MAX:
                self._listed_topics = kept
        return kept

    @property
    def dictionaries(self) -> Dictionaries:
        """The dictionaries of the file: by two small requests, unless its sidecar is here."""
        kept = self._sidecars.kept(self.row) or self._parts.kept_head(self.row.uuid)
        return self._read_tail(read_dictionaries) if kept is None else kept.dictionaries

    @property
    def extra(self) -> dict[str, Any]:
        """What its writer added to the statistics: by two small requests, unless its sidecar is here."""
        kept = self._sidecars.kept(self.row)
        return self._read_tail(read_extra) if kept is None else kept.extra

    def _read_tail(self, read: Callable[..., T]) -> T:
        row = self.row
        return read(
            partial(self._store.get, row.object_key),
            position=row.sidecar_position,
            file_bytes=row.bytes,
            crc=row.tail_crc,
            name=row.object_key,
        )

    def kept_topics(self) -> list[TopicRow] | None:
        """Return what the file says of its topics when that is here; sends no request."""
        if self._listed_topics is not None:
            return self._listed_topics
        kept = self._sidecars.kept(self.row) or self._parts.kept_head(self.row.uuid)
        return None if kept is None else kept.listed_topics

    def whole(self) -> CompactedFile:
        """Open the object for reading it from end to end. Raises as `open_published`."""
        return open_published(self._store, self.row)

    def close(self) -> None:
        """Nothing is held open here: sidecars belong to their cache."""
