"""The compacted form of an index file, for reading: a sidecar, and pages from a mapping or by ranges.

The *sidecar* is the file's tail: header copy, dictionaries, columns, statistics, directory, filter,
footer. It is self-sufficient. A file that lies here whole is mapped (`open_local`) and answers by
itself; one in a store is a sidecar (`from_sidecar`) that says which ranges to read and searches what
was read. Both share all of the code. Small parts are verified when the file is opened, directory
blocks, filter partitions and mapped pages when first used, fetched pages always: damage raises
CorruptFileError and is never an answer.

Depends on the other modules of the form, and on the page kernels.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.indexfile import layout
from tierdex.indexfile.chained_view import Lookup
from tierdex.indexfile.checksums import part_seed
from tierdex.indexfile.compacted_check import find_damage
from tierdex.indexfile.dictionary import Dictionaries
from tierdex.indexfile.directory import Directory
from tierdex.indexfile.filter import FuseFilter
from tierdex.indexfile.footer import Footer, read_footer, read_part
from tierdex.indexfile.header import FileHeader, decode_header
from tierdex.indexfile.kernels import page_batch as batch
from tierdex.indexfile.kernels import page_lookup as k
from tierdex.indexfile.layout import Form, Part
from tierdex.indexfile.pages import PagePlan
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.statistics import FileStatistics, RowBounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem, Mapping
    from tierdex.indexfile.schema import Schema

__all__ = ["CompactedFile", "Lookup", "PageSpan", "RowMatches"]

MAX_GET_BYTES = 256 * 1024
_U64 = (1 << 64) - 1
_MANY_PAGES = 64  # pages whose rows a later chunk of a long run may hold


class PageSpan(NamedTuple):
    """A contiguous range of whole pages that one request reads."""

    position: int
    length: int
    first_page: int
    page_count: int = 1


class RowMatches(NamedTuple):
    """What many lookups found: lookup i has the rows `rows[offsets[i] : offsets[i + 1]]`.

    Newest first; rows are copies in the schema's item dtype.
    """

    offsets: np.ndarray
    rows: np.ndarray


class CompactedFile:
    """Answers lookups in one compacted index file.

    Borrows the sidecar's buffer, or owns the file's mapping; either stays alive with this object,
    so a reader that is closed while others still ask never crashes them. Immutable but for the maps
    of what was verified; safe to share between threads.
    """

    def __init__(
        self,
        sidecar: np.ndarray,
        *,
        position: int,
        name: object,
        pages: np.ndarray | None = None,
        read: Callable[[int, int], bytes] | None = None,
    ) -> None:
        """Read the small parts of `sidecar` (u1[n], the file from byte `position` to its end).

        `pages` is the whole file when it is mapped. Raises CorruptFileError, UnsupportedFormatError.
        """
        self.path = name
        self.sidecar_position = position
        self.bytes = position + len(sidecar)
        self._sidecar = sidecar
        self._pages = pages
        self._read = read
        self._mapping: Mapping | None = None
        self.footer: Footer = read_footer(self._read_tail, self.bytes, name)
        if self.footer.form is not Form.COMPACTED or self.footer.table_position < position:
            raise CorruptFileError(name, "is not in compacted form")
        self.header: FileHeader = self._read_header()
        self.schema: Schema = self.header.schema
        self._open_parts()
        self._words = self._make_words()
        self._address = int(self._words.ctypes.data)

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
        data = np.frombuffer(sidecar, np.uint8)
        if position is None:
            if len(data) < layout.FOOTER_BYTES:
                raise CorruptFileError(name, f"too short for a footer: {len(data)} bytes")
            footer = data[-layout.FOOTER_BYTES :].view(layout.FOOTER)[0]
            position = max(0, int(footer["file_bytes"]) - len(data))
        return cls(data, position=position, name=name, read=read)

    @classmethod
    def open_local(cls, filesystem: FileSystem, path: Path) -> CompactedFile:
        """Map a whole file. Raises OSError, CorruptFileError, UnsupportedFormatError."""
        file = filesystem.open(path)
        try:
            size = file.size()
            header = decode_header(file.read_at(0, layout.HEADER_BYTES), path, form=Form.COMPACTED)
            footer = read_footer(file.read_at, size, path, uuid=header.uuid)
            mapping = file.map(size, writable=False)
        finally:
            file.close()
        position = footer.part(Part.HEADER_COPY, path).position
        data = np.asarray(mapping.array)
        opened = cls(data[position:], position=position, name=path, pages=data)
        opened._mapping = mapping
        if opened.header != header:
            raise CorruptFileError(path, "the header differs from its copy in the tail")
        return opened

    def close(self) -> None:
        """Let go of the file; memory goes with the last reference to this object."""
        if self._mapping is not None:
            self._mapping.close()

    # -- what the file says of itself ---------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        return self.header.uuid

    @property
    def slot_count(self) -> int:
        return self.header.slot_count

    @property
    def created_ms(self) -> int:
        return self.header.created_ms

    @property
    def item_count(self) -> int:
        return self.statistics.item_count

    @property
    def published(self) -> int:
        """As in the chained form: all items are visible."""
        return self.statistics.item_count

    @property
    def min_time(self) -> int:
        return self.statistics.min_time

    @property
    def max_time(self) -> int:
        return self.statistics.max_time

    @property
    def page_count(self) -> int:
        return self.statistics.page_count

    @property
    def footer_crc(self) -> int:
        return self.footer.crc

    @property
    def bytes_used(self) -> int:
        return self.bytes

    @property
    def topics(self) -> list[str]:
        """The topics that items of the file have, sorted."""
        names = self.dictionaries.strings(TOPIC_DICTIONARY)
        return sorted(names[i] for i in np.flatnonzero(self.topic_rows["item_count"]).tolist())

    @cached_property
    def extra(self) -> dict[str, Any]:
        """What the writer's caller added to the statistics."""
        try:
            extra = json.loads(read_part(self._read_tail, self.footer, Part.EXTRA, self.path))
        except ValueError as error:
            raise CorruptFileError(self.path, f"extra statistics: {error}") from error
        if not isinstance(extra, dict):
            raise CorruptFileError(self.path, "extra statistics are not an object")
        return extra

    def end_offsets(self) -> dict[tuple[str, int], int]:
        """Return the greatest offset + size of each (topic, queue)."""
        names = self.dictionaries.strings(TOPIC_DICTIONARY)
        rows = self.plan.queues[["topic", "queue_id", "end"]].tolist()
        return {(names[topic], queue): end for topic, queue, end in rows}

    def bounds(self) -> RowBounds:
        """Return bounds of all columns, for a writer that merges this file."""
        return self.plan.bounds() if self.item_count else RowBounds()

    def sidecar_bytes(self) -> np.ndarray:
        """Return the tail (u1): what `from_sidecar` takes."""
        return self._sidecar

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

    def tag(self, lookup: Lookup) -> int:
        """Return the tag that items must have; TAG_NONE when the topic is not in this file."""
        if lookup.topic is None:
            return layout.TAG_ANY_MESSAGE_ID if lookup.kind else layout.TAG_NONE
        index = self.dictionaries.index(TOPIC_DICTIONARY, lookup.topic)
        if index < 0:
            return layout.TAG_NONE
        return index | (layout.KIND_BIT if lookup.kind else 0)

    def page_span(
        self, key_hash: int, begin: int, end: int, *, max_bytes: int = MAX_GET_BYTES
    ) -> list[PageSpan]:
        """Return the ranges that hold items of `key_hash` within [begin, end], newest end first.

        One range of at most two pages for an ordinary key; a long run is cut into ranges of at most
        `max_bytes`, without the pages whose times are all outside. Does not ask the filter.
        """
        if not self.item_count:
            return []
        first, last = k.page_range(self._address, np.uint64(key_hash))
        if first < 0:
            raise self._damage(k.DAMAGED_DIRECTORY, last * layout.DIRECTORY_ENTRY_BYTES // 4096)
        spans: list[PageSpan] = []
        for page in range(first, last + 1):
            if not k.page_in_span(self._address, page, begin, end):
                continue
            position, length = self.page_place(page)
            if spans and spans[-1].position + spans[-1].length == position:
                joined = spans[-1].length + length
                if joined <= max(max_bytes, 2 * layout.PAGE_BYTES_MAX):
                    spans[-1] = PageSpan(
                        spans[-1].position, joined, spans[-1].first_page, spans[-1].page_count + 1
                    )
                    continue
            spans.append(PageSpan(position, length, page))
        return spans

    def find_in_span(
        self, span: PageSpan, data: Buffer, lookup: Lookup, begin: int, end: int
    ) -> np.ndarray:
        """Return the matching rows in the bytes of `span`, newest first. Raises CorruptFileError."""
        buffer = np.frombuffer(data, np.uint8)
        if len(buffer) != span.length:
            raise CorruptFileError(
                self.path, f"{len(buffer)} bytes of pages, {span.length} were asked for"
            )
        tag, found = self.tag(lookup), []
        for page in range(span.first_page, span.first_page + span.page_count):
            position, length = self.page_place(page)
            rows = np.zeros(self.statistics.items_per_page + 1, self.schema.dtype)
            count = k.collect_from_page(
                buffer.ctypes.data + position - span.position,
                length,
                self.plan.address,
                page,
                np.uint64(lookup.key_hash),
                np.uint32(tag),
                begin,
                end,
                rows.ctypes.data,
            )
            if count < 0:
                raise self._damage(k.DAMAGED_PAGE, page)
            found.append(rows[:count])
        return found[0] if len(found) == 1 else np.concatenate(found)

    def find(self, lookup: Lookup, *, begin: int, end: int) -> Iterator[np.ndarray]:
        """Yield arrays of matching rows, newest first; hash, kind, topic and time are compared.

        Reads only as far as the caller goes on. Raises CorruptFileError, and what `read` raises.
        """
        if self._pages is not None:
            yield from self._find_mapped(lookup, begin, end)
        elif self.may_contain(lookup.key_hash):
            for span in self.page_span(lookup.key_hash, begin, end):
                rows = self.find_in_span(span, self.page_bytes(span), lookup, begin, end)
                if len(rows):
                    yield rows

    def _find_mapped(self, lookup: Lookup, begin: int, end: int) -> Iterator[np.ndarray]:
        page, row, room = (-1 if self.item_count else -2), -1, self.statistics.items_per_page + 1
        key_hash, tag = np.uint64(lookup.key_hash), np.uint32(self.tag(lookup))
        while page >= -1:
            rows = np.zeros(room, self.schema.dtype)
            count, page, row = k.find_rows(
                self._address, key_hash, tag, begin, end, page, row, rows.ctypes.data, room
            )
            if count < 0:
                raise self._damage(count, page)
            if count:
                yield rows[:count]
            if page < 0:
                return
            room = _MANY_PAGES * self.statistics.items_per_page

    # -- many keys ------------------------------------------------------------------------------------

    def find_many(
        self,
        hashes: np.ndarray,
        tags: np.ndarray,
        *,
        begin: np.ndarray | int,
        end: np.ndarray | int,
        limit: int,
    ) -> RowMatches:
        """Return up to `limit` newest rows of each lookup of a mapped file.

        `hashes` u8[n], `tags` u4[n] (see `tag`), `begin` and `end` i8[n] or one for all. Raises
        CorruptFileError. Fastest when the hashes are sorted.
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
        rows = np.zeros(count + count // 4 + 16, self.schema.dtype)
        done = 0
        while True:
            done, damage, number = batch.find_many(
                self._address,
                words.ctypes.data,
                done,
                offsets.ctypes.data,
                rows.ctypes.data,
                len(rows),
            )
            if damage:
                raise self._damage(damage, number)
            if done == count:
                return RowMatches(offsets, rows[: offsets[-1]])
            rows = np.concatenate([rows, np.zeros(len(rows), rows.dtype)])

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
            self._address, some.ctypes.data, len(some), found.ctypes.data
        ):
            raise self._damage(k.DAMAGED_DIRECTORY, -1)
        if begin is not None and end is not None:
            entries = self.directory.entries
            single = found[:, 0] == found[:, 1]
            pages = np.clip(found[:, 0], 0, max(self.page_count - 1, 0))
            outside = (entries["min_time"][pages] > end) | (entries["max_time"][pages] < begin)
            found[single & outside] = (0, -1)
        ranges[wanted] = found
        return ranges

    def page_place(self, page: int) -> tuple[int, int]:
        """Return (position, length) of a page in the file. Raises CorruptFileError."""
        position, length = k.page_place(self._address, page)
        if not length:
            raise self._damage(k.DAMAGED_DIRECTORY, page * layout.DIRECTORY_ENTRY_BYTES // 4096)
        return position, length

    def span(self, first_page: int, page_count: int) -> PageSpan:
        """Return the range of `page_count` pages from `first_page` on. Raises CorruptFileError."""
        begin = self.page_place(first_page)[0]
        position, length = self.page_place(first_page + page_count - 1)
        return PageSpan(begin, position + length - begin, first_page, page_count)

    def decode_span(self, span: PageSpan, data: Buffer) -> np.ndarray:
        """Return all rows of the pages in `data`, the bytes of `span`. Raises CorruptFileError."""
        buffer = np.frombuffer(data, np.uint8)
        if len(buffer) != span.length:
            raise CorruptFileError(
                self.path, f"{len(buffer)} bytes of pages, {span.length} were asked for"
            )
        rows = np.zeros(span.page_count * self.statistics.items_per_page, self.schema.dtype)
        count, bad = k.decode_pages(
            self._address, span.first_page, span.page_count, buffer.ctypes.data, rows.ctypes.data
        )
        if bad >= 0:
            raise self._damage(k.DAMAGED_PAGE, bad)
        return rows[:count]

    # -- all rows -------------------------------------------------------------------------------------

    def rows_in_hash_order(self, chunk_items: int) -> Iterator[np.ndarray]:
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

    # -- opening ----------------------------------------------------------------------------------------

    def page_bytes(self, span: PageSpan) -> Buffer:
        """Return the bytes of pages, from the mapping or by one read."""
        if self._pages is not None:
            return self._pages[span.position : span.position + span.length]
        assert self._read is not None, "this sidecar was opened without a way to read pages"
        return self._read(span.position, span.length)

    def _read_tail(self, position: int, length: int) -> bytes:
        start = position - self.sidecar_position
        if start < 0 or length < 0:
            raise CorruptFileError(self.path, "a part lies before the tail")
        return self._sidecar[start : start + length].tobytes()

    def _view(self, kind: Part) -> np.ndarray:
        """Return a part's bytes without verifying them: its blocks are, when they are used."""
        entry = self.footer.part(kind, self.path)
        start = entry.position - self.sidecar_position
        if start < 0:
            raise CorruptFileError(self.path, "a part lies before the tail")
        return self._sidecar[start : start + entry.length]

    def _read_header(self) -> FileHeader:
        data = read_part(self._read_tail, self.footer, Part.HEADER_COPY, self.path)
        header = decode_header(
            data.ljust(layout.HEADER_BYTES, b"\0"), self.path, form=Form.COMPACTED
        )
        if header.uuid != self.footer.uuid:
            raise CorruptFileError(self.path, "the footer belongs to another file")
        return header

    def _open_parts(self) -> None:
        """Open the parts, small ones verified. Raises CorruptFileError."""

        def part(kind: Part) -> bytes:
            return read_part(self._read_tail, self.footer, kind, self.path)

        try:
            self.statistics = FileStatistics.decode(part(Part.STATISTICS))
            self.dictionaries = Dictionaries(self.schema.dictionary_names)
            self.dictionaries.load(part(Part.DICTIONARIES))
            self.plan = PagePlan(
                self.schema,
                np.frombuffer(part(Part.COLUMNS), layout.COLUMN),
                np.frombuffer(part(Part.QUEUES), layout.QUEUE),
                self.statistics.items_per_page,
                self.uuid,
            )
            self.topic_rows = np.frombuffer(part(Part.TOPICS), layout.TOPIC)
        except ValueError as error:
            raise CorruptFileError(self.path, str(error)) from error
        topic_count = len(self.dictionaries.strings(TOPIC_DICTIONARY))
        if self.footer.item_count != self.item_count or len(self.topic_rows) != topic_count:
            raise CorruptFileError(self.path, "footer, statistics and topics disagree")
        if len(self.plan.queues) and int(self.plan.queues["topic"].max()) >= topic_count:
            raise CorruptFileError(self.path, "a queue names a topic that is not in the dictionary")
        self.directory = Directory(
            self._view(Part.DIRECTORY),
            part(Part.CHECKSUMS),
            page_count=self.page_count,
            path=self.path,
        )
        self.filter = FuseFilter(
            part(Part.FILTER_PARTITIONS),
            self._view(Part.FILTER),
            bits=self.statistics.filter_bits,
            uuid=self.uuid,
            path=self.path,
        )

    def _make_words(self) -> np.ndarray:
        """Return what the kernels know of this file."""
        words = np.zeros(k.FILE_WORDS, np.int64)
        mapped = self._pages is not None
        self._pages_verified = np.zeros(self.page_count if mapped else 0, np.uint8)
        words[k.PLAN] = self.plan.address
        words[k.PAGES] = 0 if self._pages is None else self._pages.ctypes.data
        words[k.DIRECTORY] = self.directory.entries.ctypes.data
        words[k.PAGE_COUNT] = self.page_count
        words[k.CHECKSUMS] = self.directory.checksums.ctypes.data
        words[k.DIRECTORY_VERIFIED] = self.directory.verified.ctypes.data
        words[k.DIRECTORY_SEED] = part_seed(self.uuid, Part.DIRECTORY)
        words[k.FILTER] = self.filter.address
        words[k.PAGES_VERIFIED] = self._pages_verified.ctypes.data
        words[k.PAGES_END] = self.sidecar_position
        return words

    def _damage(self, what: int, number: int) -> CorruptFileError:
        """Return the error that a kernel's negative answer stands for."""
        if what == k.DAMAGED_PAGE:
            return CorruptFileError(self.path, f"checksum of page {number} differs")
        if what == k.DAMAGED_FILTER:
            return CorruptFileError(self.path, f"checksum of filter partition {number} differs")
        blocks: Sequence[int] = self.directory.damaged_blocks(self.uuid) or [number]
        return CorruptFileError(self.path, f"checksum of directory block {blocks[0]} differs")
