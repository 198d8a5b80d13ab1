"""The compacted form of an index file, for reading: a sidecar, and pages from a mapping or by ranges.

The sidecar is the file's tail (`Sidecar`). A file that lies here whole is mapped (`open_local`) and
answers by itself; one in a store is a sidecar (`from_sidecar`) that says which ranges to read and
searches what was read. Small parts are verified when the file is opened, directory blocks, filter
partitions and mapped pages when first used, fetched pages always: damage raises CorruptFileError and
is never an answer.

Depends on fileparts, check, page_batch, page_lookup, pages, sidecar, header, layout, lookup, schema and
work_limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import FOOTER, FOOTER_BYTES, Part
from tierdex.fileparts.memory import thread_buffer
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.check import find_damage
from tierdex.indexfile.compacted.kernels import page_batch as batch
from tierdex.indexfile.compacted.kernels import page_lookup as k
from tierdex.indexfile.compacted.pages import join_rows
from tierdex.indexfile.compacted.sidecar import PageSpan, Sidecar
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.layout import Form
from tierdex.indexfile.lookup import TIME_MAX, TIME_MIN, Lookup, without_long
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.work_limit import NO_LIMIT, WorkLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem, Mapping

__all__ = ["CompactedFile", "Lookup", "PageSpan", "RowMatches"]

MAX_GET_BYTES = 256 * 1024
_FIRST_ROWS = 16  # of the first chunk: most keys have fewer


class RowMatches(NamedTuple):
    """What many lookups found: lookup i has the rows `rows[offsets[i] : offsets[i + 1]]`.

    Newest first; rows are copies in the schema's item dtype.
    """

    offsets: np.ndarray
    rows: np.ndarray


class CompactedFile(Sidecar):
    """Answers lookups in one compacted index file.

    Borrows the sidecar's buffer, or owns the file's mapping; either stays alive with this object,
    so a reader that is closed while others still ask never crashes them. Immutable but for the maps
    of what was verified; safe to share between threads.
    """

    _mapping: Mapping | None = None

    @classmethod
    def from_sidecar(
        cls,
        sidecar: Buffer,
        read: Callable[[int, int], bytes] | None = None,
        *,
        position: int | None = None,
        name: object = "sidecar",
    ) -> CompactedFile:
        """Open a file by its tail alone. `read(position, length)` gives pages, where they are asked.

        `position` is where the tail begins in the file (None: believe the footer). Raises
        CorruptFileError, UnsupportedFormatError.
        """
        data = np.frombuffer(memoryview(sidecar), np.uint8)
        if position is None:
            if len(data) < FOOTER_BYTES:
                raise CorruptFileError(name, f"too short for a footer: {len(data)} bytes")
            footer = data[-FOOTER_BYTES:].view(FOOTER)[0]
            position = max(0, int(footer["file_bytes"]) - len(data))
        return cls(data, position=position, name=name, read=read)

    @classmethod
    def open_local(cls, filesystem: FileSystem, path: Path) -> CompactedFile:
        """Map a whole file. Raises OSError, CorruptFileError, UnsupportedFormatError."""
        file = filesystem.open(path)
        try:
            mapping = file.map(file.size(), writable=False)
        finally:
            file.close()
        opened = cls.from_bytes(np.asarray(mapping.array), name=path)
        opened._mapping = mapping
        return opened

    def mapped_bytes(self) -> np.ndarray:
        """Return all bytes (uint8) of a file that `open_local` mapped."""
        assert self._mapping is not None
        return np.asarray(self._mapping.array)

    @classmethod
    def from_bytes(cls, data: Buffer | np.ndarray, *, name: object = "bytes") -> CompactedFile:
        """Open a file all of whose bytes are in memory. Raises CorruptFileError."""
        whole = np.frombuffer(data, np.uint8)  # type: ignore[arg-type]

        def read_at(position: int, length: int) -> bytes:
            return bytes(whole[position : position + length])

        header = decode_header(read_at(0, layout.HEADER_BYTES), name, form=Form.COMPACTED)
        footer = read_footer(read_at, len(whole), name, uuid=header.uuid)
        position = footer.part(Part.HEADER_COPY, name).position
        opened = cls(whole[position:], position=position, name=name, pages=whole)
        if opened.header != header:
            raise CorruptFileError(name, "the header differs from its copy in the tail")
        return opened

    def close(self) -> None:
        """Let go of the file; memory goes with the last reference to this object."""
        if self._mapping is not None:
            self._mapping.close()

    # -- may it be here? ----------------------------------------------------------------------------

    def may_contain(self, key_hash: int) -> bool:
        """Return False only when no item has `key_hash`. Raises CorruptFileError."""
        return self.item_count > 0 and self.filter.may_contain(key_hash)

    def may_contain_many(self, hashes: np.ndarray) -> np.ndarray:
        """Return may_contain (b1[n]) for each of `hashes` (u8[n]). Raises CorruptFileError."""
        if not self.item_count:
            return np.zeros(len(hashes), bool)
        return self.filter.may_contain_many(hashes)

    # -- one key ------------------------------------------------------------------------------------

    def tag_of(self, topic: str | None, kind: int) -> int:
        """Return the tag that items must have; TAG_NONE when the topic is not in this file."""
        if topic is None:
            return layout.TAG_ANY_MESSAGE_ID if kind else layout.TAG_NONE
        index = self.dictionaries.index(TOPIC_DICTIONARY, topic)
        if index < 0:
            return layout.TAG_NONE
        return index | (layout.KIND_BIT if kind else 0)

    def tags_of(self, topics: Sequence[str | None], kind: int) -> np.ndarray:
        """Return the tag (u4[n]) of each topic, as `tag_of` does."""
        return np.array([self.tag_of(topic, kind) for topic in topics], np.uint32)

    def page_span(
        self, key_hash: int, begin: int, end: int, *, max_bytes: int = MAX_GET_BYTES
    ) -> list[PageSpan]:
        """Return the ranges that hold items of `key_hash` within [begin, end], newest end first.

        One range of at most two pages for an ordinary key; a long run is cut into ranges of at most
        `max_bytes`, which begin and end with pages whose times are not all outside. Does not ask the
        filter.
        """
        return list(self.page_spans(key_hash, begin, end, max_bytes=max_bytes))

    def page_spans(
        self,
        key_hash: int,
        begin: int,
        end: int,
        *,
        max_bytes: int = MAX_GET_BYTES,
        first_page: int | None = None,
    ) -> Iterator[PageSpan]:
        """Yield what `page_span` returns, from `first_page` on, as far as the caller goes on."""
        if not self.item_count:
            return
        first, last = self._page_range(key_hash)
        begun: PageSpan | None = None
        for page in range(first if first_page is None else max(first, first_page), last + 1):
            if not k.page_in_span(self.address, page, begin, end):
                continue
            position, length = self.page_place(page)
            if begun is not None:
                # Pages in between that are outside cost bytes, another range a whole request.
                joined = position + length - begun.position
                if joined <= max(max_bytes, 2 * layout.PAGE_BYTES_MAX):
                    pages = page + 1 - begun.first_page
                    begun = PageSpan(begun.position, joined, begun.first_page, pages)
                    continue
                yield begun
            begun = PageSpan(position, length, page)
        if begun is not None:
            yield begun

    def _page_range(self, key_hash: int) -> tuple[int, int]:
        """Return the first and the last page that may hold `key_hash`. Raises CorruptFileError."""
        first, last = k.page_range(self.address, np.uint64(key_hash))
        if first < 0:
            raise self.damage(k.DAMAGED_DIRECTORY, last * layout.DIRECTORY_ENTRY_BYTES // 4096)
        return first, last

    def find_in_span(
        self, span: PageSpan, data: Buffer, lookup: Lookup, begin: int, end: int
    ) -> np.ndarray:
        """Return the matching rows in the bytes of `span`, newest first. Raises CorruptFileError."""
        pages = range(span.first_page, span.first_page + span.page_count)
        found = [self.find_in_page(page, span, data, lookup, begin, end) for page in pages]
        return found[0] if len(found) == 1 else join_rows(found)

    def find_in_page(
        self, page: int, span: PageSpan, data: Buffer, lookup: Lookup, begin: int, end: int
    ) -> np.ndarray:
        """Return what `find_in_span` does, of one page of the span."""
        buffer = np.frombuffer(memoryview(data), np.uint8)
        if len(buffer) != span.length:
            raise CorruptFileError(
                self.path, f"{len(buffer)} bytes of pages, {span.length} were asked for"
            )
        position, length = self.page_place(page)
        rows = np.zeros(self.statistics.items_per_page + 1, self.schema.dtype)
        count = k.collect_from_page(
            buffer.ctypes.data + position - span.position,
            length,
            self.plan.address,
            page,
            np.uint64(lookup.key_hash),
            np.uint32(self.tag_of(lookup.topic, lookup.kind)),
            begin,
            end,
            rows.ctypes.data,
        )
        if count < 0:
            raise self.damage(k.DAMAGED_PAGE, page)
        return rows[:count]

    def find(
        self, lookup: Lookup, *, begin: int = TIME_MIN, end: int = TIME_MAX
    ) -> Iterator[np.ndarray]:
        """Yield arrays of matching rows, newest first; hash, kind, topic and time are compared.

        Reads only as far as the caller goes on. Raises CorruptFileError, and what `read` raises.
        """
        if self._pages is not None:
            return (rows for rows, _ in self.find_from(None, lookup, begin=begin, end=end))
        return self._find_fetched(lookup, begin, end)

    def _find_fetched(self, lookup: Lookup, begin: int, end: int) -> Iterator[np.ndarray]:
        if self.may_contain(lookup.key_hash):
            for span in self.page_span(lookup.key_hash, begin, end):
                rows = self.find_in_span(span, self.page_bytes(span), lookup, begin, end)
                if len(rows):
                    yield rows

    def find_from(
        self, first_page: int | None, lookup: Lookup, *, begin: int = TIME_MIN, end: int = TIME_MAX
    ) -> Iterator[tuple[np.ndarray, int]]:
        """Do as `find` in a mapped file from a page on (None: the first that may hold the key).

        Yields, with each array, the page in which its first row lies at the earliest.
        """
        if not self.item_count:
            return
        page, row, room = -1, -1, _FIRST_ROWS
        first, last = self._page_range(lookup.key_hash)
        if first_page is not None:
            if not first <= first_page <= last:
                return
            page = first = first_page
        key_hash, tag = lookup.key_hash, self.tag_of(lookup.topic, lookup.kind)
        if key_hash >> 63:
            key_hash -= 1 << 64
        dtype = self.schema.dtype
        while True:
            # Nothing of this thread's buffer is used after a yield: its next find may write there.
            buffer, place = thread_buffer(room * dtype.itemsize)
            count, page, row = k.find_rows(
                self.address, key_hash, tag, begin, end, page, row, place, room
            )
            if count < 0:
                raise self.damage(count, page)
            if count:
                yield np.frombuffer(buffer[: count * dtype.itemsize], dtype), first
            if page < 0:
                return
            first, room = page, self.statistics.items_per_page

    def find_few(self, lookup: Lookup, begin: int, end: int) -> list[tuple[int, ...]] | None:
        """Return what `find` yields as tuples, in one step; None when that may be too much for one.

        For a file that is mapped. Raises CorruptFileError.
        """
        tag = self.tag_of(lookup.topic, lookup.kind)
        if tag == layout.TAG_NONE or not self.item_count:
            return []
        key_hash, dtype = lookup.key_hash, self.schema.dtype
        buffer, place = thread_buffer(_FIRST_ROWS * dtype.itemsize)
        count, page, _ = k.find_rows(
            self.address,
            key_hash - (1 << 64) if key_hash >> 63 else key_hash,
            tag,
            begin,
            end,
            -1,
            -1,
            place,
            _FIRST_ROWS,
        )
        if count < 0:
            raise self.damage(count, page)
        if page >= 0:
            return None
        if not count:
            return []
        rows: list[tuple[int, ...]] = np.frombuffer(buffer, dtype, count).tolist()
        return rows

    # -- many keys ------------------------------------------------------------------------------------

    def find_many(
        self,
        hashes: np.ndarray,
        tags: np.ndarray,
        *,
        begin: np.ndarray | int = TIME_MIN,
        end: np.ndarray | int = TIME_MAX,
        limit: int,
        most: WorkLimit = NO_LIMIT,
    ) -> RowMatches:
        """Return up to `limit` newest rows of each lookup of a mapped file.

        `hashes` u8[n], `tags` u4[n] (see `tag_of`), `begin` and `end` i8[n] or one for all. Raises
        CorruptFileError, BudgetExceededError. Fastest when the hashes are sorted.
        """
        assert self._pages is not None, "fetched files are asked by plan_pages and find_in_span"
        count = len(hashes)
        offsets = np.zeros(count + 1, np.int64)
        if not self.item_count or not count:
            return RowMatches(offsets, np.zeros(0, self.schema.dtype))
        columns = (
            np.ascontiguousarray(hashes, np.uint64),
            np.ascontiguousarray(tags, np.uint32),
            np.ascontiguousarray(np.broadcast_to(np.asarray(begin, np.int64), count)),
            np.ascontiguousarray(np.broadcast_to(np.asarray(end, np.int64), count)),
        )
        words = np.zeros(batch.LOOKUP_WORDS, np.int64)
        words[: len(columns)] = [column.ctypes.data for column in columns]
        words[batch.COUNT], words[batch.ROWS_PER_LOOKUP] = count, limit
        words[batch.MOST_PAGES] = most.items // max(1, self.statistics.items_per_page)
        rows = np.zeros(count + count // 4 + 16, self.schema.dtype)
        done = 0
        while True:
            done, damage, number = batch.find_many(
                self.address,
                words.ctypes.data,
                done,
                offsets.ctypes.data,
                rows.ctypes.data,
                len(rows),
            )
            if damage:
                raise self.damage(damage, number)
            if done == batch.TOO_MUCH or offsets[done] > most.rows:
                raise most.refuse()
            if done == count:
                return RowMatches(offsets, rows[: offsets[-1]])
            if len(rows) > 2 * most.rows + count:
                raise most.refuse()
            rows = join_rows([rows, np.zeros(len(rows), rows.dtype)])

    def find_within_share(
        self,
        hashes: np.ndarray,
        tags: np.ndarray,
        *,
        begin: np.ndarray,
        end: np.ndarray,
        limit: int,
        share: WorkLimit,
    ) -> tuple[RowMatches, np.ndarray]:
        """Return what `find_many` does, and the lookups (i8) that need more than their share.

        Those have no rows. Raises CorruptFileError.
        """
        count, pages = len(hashes), self.plan_pages(hashes)
        most_pages = share.items // max(1, self.statistics.items_per_page) + 1
        short = pages[:, 1] - pages[:, 0] <= most_pages
        found = self.find_many(
            hashes[short],
            tags[short],
            begin=begin[short],
            end=end[short],
            limit=min(limit, share.rows + 1),
        )
        sizes = np.zeros(count, np.int64)
        sizes[short] = np.diff(found.offsets)
        keep, offsets, long = without_long(sizes, ~short, share.rows)
        return RowMatches(offsets, found.rows[keep]), long

    def plan_pages(
        self, hashes: np.ndarray, *, begin: int | None = None, end: int | None = None
    ) -> np.ndarray:
        """Return first and last page (i8[n, 2]) that each hash needs; last < first where none.

        Asks the filter first. Sorted hashes give sorted pages, so near pages can be read together.
        `begin` and `end` leave out lookups all of whose pages are outside. Raises CorruptFileError.
        """
        hashes = np.ascontiguousarray(hashes, np.uint64)
        ranges = np.zeros((len(hashes), 2), np.int64)
        ranges[:, 1] = -1
        wanted = np.flatnonzero(self.may_contain_many(hashes))
        some = hashes[wanted]
        found = np.zeros((len(some), 2), np.int64)
        if len(some) and k.page_ranges(
            self.address, some.ctypes.data, len(some), found.ctypes.data
        ):
            raise self.damage(k.DAMAGED_DIRECTORY, -1)
        if begin is not None and end is not None:
            entries = self.directory.entries
            single = found[:, 0] == found[:, 1]
            pages = np.clip(found[:, 0], 0, max(self.page_count - 1, 0))
            outside = (entries["min_time"][pages] > end) | (entries["max_time"][pages] < begin)
            found[single & outside] = (0, -1)
        ranges[wanted] = found
        return ranges

    # -- all rows -------------------------------------------------------------------------------------

    def rows_in_hash_order(self, chunk_items: int = 65_536) -> Iterator[np.ndarray]:
        """Yield all rows, sorted by hash, newest first among equals; every page is verified.

        Raises CorruptFileError, and what `read` raises.
        """
        pages = max(1, chunk_items // max(1, self.statistics.items_per_page))
        for first in range(0, self.page_count, pages):
            span = self.span(first, min(pages, self.page_count - first))
            yield self.decode_span(span, self.page_bytes(span))

    def check(self) -> list[str]:
        """Return every broken rule, in words, reading the whole file; empty means it is sound."""
        return find_damage(self)
