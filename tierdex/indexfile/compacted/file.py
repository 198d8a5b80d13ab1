"""The compacted form of an index file, for reading: a sidecar, and pages from a mapping or by ranges.

The sidecar is the file's tail (`Sidecar`). A file that lies here whole is mapped (`open_local`) and
answers by itself; one in a store is a sidecar (`from_sidecar`) that says which ranges to read and
searches what was read. Small parts are verified when the file is opened, directory blocks, filter
partitions and mapped pages when first used, fetched pages always: damage raises CorruptFileError and
is never an answer.

Depends on fileparts, check, page_batch, page_lookup, page_range, sidecar, header, layout, lookup, schema
and searched_file.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import Footer, read_footer
from tierdex.fileparts.layout import FOOTER, FOOTER_BYTES, Part
from tierdex.fileparts.memory import address, thread_buffer
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.check import find_damage
from tierdex.indexfile.compacted.kernels import page_batch as batch
from tierdex.indexfile.compacted.kernels import page_lookup as k
from tierdex.indexfile.compacted.page_range import MAX_GET_BYTES, PageSpan, search_arguments
from tierdex.indexfile.compacted.sidecar import Sidecar
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.layout import Form
from tierdex.indexfile.lookup import DONE, NOT_SEARCHED, NOTHING, Few, Found
from tierdex.indexfile.schema import TOPIC_DICTIONARY, join_rows
from tierdex.indexfile.searched_file import SearchedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem, Mapping
    from tierdex.indexfile.compacted.hash_group import HashGroup
    from tierdex.indexfile.lookup import Lookup, Search

_FEW_ROWS = 16  # that a lookup in one step returns at most


class CompactedFile(Sidecar):
    """Answers lookups in one compacted index file.

    Borrows the sidecar's buffer, or owns the file's mapping; either stays alive with this object,
    so a reader that is closed while others still ask never crashes them. Immutable but for the maps
    of what was verified; safe to share between threads.
    """

    _mapping: Mapping | None = None
    _group: HashGroup | None = None  # of a file of which no other group is here

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
    def from_head(
        cls,
        head: Buffer,
        group: HashGroup,
        *,
        position: int,
        file_bytes: int,
        item_count: int,
        name: object,
    ) -> CompactedFile:
        """Open a file by the parts that decode pages, which lie from `position` on.

        Any group of the file tells where each of them is. The file answers `through` its groups only.
        Raises CorruptFileError, UnsupportedFormatError.
        """
        data = np.frombuffer(memoryview(head), np.uint8)
        footer = Footer(
            form=Form.COMPACTED,
            uuid=group.uuid,
            item_count=item_count,
            file_bytes=file_bytes,
            table_position=file_bytes,
            crc=0,
            parts=group.parts,
        )
        return cls(data, position=position, name=name, footer=footer)

    def through(self, group: HashGroup) -> CompactedFile:
        """Return this file as it answers for the hashes of `group`, from fetched pages."""
        if group.numbers[k.HIGH_PAGE] > self.page_count:
            raise group.damage(k.DAMAGED_DIRECTORY, group.number)
        file = self.through_entries(group.numbers)
        file.filter = group.filter
        file._group = group
        return file

    def through_entries(self, numbers: np.ndarray) -> CompactedFile:
        """Return this file, of which the head is here, as it reads pages by some directory entries.

        `numbers` are what `file_numbers` makes of them: the caller keeps the entries.
        """
        file = copy.copy(self)
        file._numbers = numbers.copy()
        file._numbers[k.PLAN] = self.plan.address
        file._numbers[k.PAGE_COUNT] = self.page_count
        file.address = int(file._numbers.ctypes.data)
        return file

    def damage(self, what: int, number: int) -> CorruptFileError:
        if self._group is not None and what != k.DAMAGED_PAGE:
            return self._group.damage(what, number)
        return super().damage(what, number)

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
        """Release the file; its memory is freed with the last reference to this object."""
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

    def searched(
        self,
        tags: np.ndarray,
        *,
        hidden: np.ndarray | None = None,
        topics: np.ndarray | None = None,
    ) -> SearchedFile:
        """Return what a `ColumnSearch` knows of this file, whose pages are mapped."""
        assert self._pages is not None
        told = self.statistics
        return SearchedFile(
            self, self.damage, 0, self.address, told.items_per_page, 0, told.min_time, told.max_time,
            tags, hidden, topics,
        )  # fmt: skip

    def find_few(
        self,
        lookup: Lookup,
        begin: int,
        end: int,
        read: Callable[[PageSpan], Buffer | None],
        most_bytes: int = MAX_GET_BYTES,
    ) -> Few:
        """Return what one lookup finds in one step, and where its search goes on.

        In the pages that `read` has (None: it has not), of a range of `most_bytes`. Raises CorruptFileError.
        """
        tag = self.tag_of(lookup.topic, lookup.kind)
        if tag == layout.TAG_NONE or not self.item_count:
            return NOTHING
        key_hash = lookup.key_hash
        signed = key_hash - (1 << 64) if key_hash >> 63 else key_hash
        pages_of_key, find_few_rows = k.load_few()
        first, last, position, length = pages_of_key(self.address, signed, begin, end, most_bytes)
        if first < 0:
            raise self.damage(first, last)
        if last < first:
            return NOTHING
        span = PageSpan(position, length, first, last - first + 1)
        data = read(span)
        if data is None:
            return NOT_SEARCHED
        dtype = self.schema.dtype
        places_at = _FEW_ROWS * dtype.itemsize
        rows_bytes = places_at + 8 * _FEW_ROWS
        buffer, place = thread_buffer(rows_bytes + _span_bytes(span))
        file = place + rows_bytes
        self._take_span(span, data, file)
        count, following = find_few_rows(file, signed, tag, begin, end, place, _FEW_ROWS)
        if count < 0:
            raise self.damage(count, following)
        if not count:
            return NOTHING if following == DONE else Few([], b"", following)
        rows: list[tuple[int, ...]] = np.frombuffer(buffer, dtype, count).tolist()
        return Few(rows, bytes(buffer[places_at : places_at + 8 * count]), following)

    # -- many keys ------------------------------------------------------------------------------------

    def search(self, wanted: Search) -> Found:
        """Return the newest matching rows of each lookup of a mapped file.

        Hash, kind, topic and times are compared. A place is a page and a row in it. Raises
        CorruptFileError. Fastest when the hashes are sorted.
        """
        assert self._pages is not None, "a file in a store is searched span by span"
        return self._search(self.address, wanted)

    def search_span(self, span: PageSpan, data: Buffer, wanted: Search) -> Found:
        """Return what `search` does from the bytes of a span; lookups go on where it ends.

        `plan_pages` led each lookup there. Raises CorruptFileError.
        """
        numbers = np.empty(_span_bytes(span), np.uint8)
        self._take_span(span, data, address(numbers))
        return self._search(address(numbers), wanted)

    def _take_span(self, span: PageSpan, data: Buffer, target: int) -> None:
        """Write to address `target` what kernels know of this file with these pages in memory.

        Kernels read `data` and `target` by address: the caller keeps both.
        """
        pages = np.frombuffer(data, np.uint8)  # type: ignore[call-overload]
        if len(pages) != span.length:
            raise CorruptFileError(
                self.path, f"{len(pages)} bytes of pages, {span.length} were asked for"
            )
        k.take_span(self.address, target, pages, span.position, span.first_page, span.page_count)

    def _search(self, file: int, wanted: Search) -> Found:
        count, dtype = len(wanted.hashes), self.schema.dtype
        if not self.item_count or not count:
            return Found.nothing(count, dtype)
        offsets, following = np.zeros(count + 1, np.int64), np.empty(count, np.int64)
        per_page = max(1, self.statistics.items_per_page)
        search = search_arguments(wanted, following, wanted.most_items // per_page)
        rows = np.zeros(wanted.room, dtype)
        places = np.empty(len(rows), np.int64)
        done, items = 0, 0
        while True:
            done, damage, number, walked = batch.search_pages(
                file,
                address(search),
                done,
                address(offsets),
                address(rows),
                address(places),
                len(rows),
            )
            if damage:
                raise self.damage(damage, number)
            items += walked
            if done == count:
                break
            rows = join_rows([rows, np.zeros(len(rows), dtype)])
            places = np.concatenate([places, np.empty(len(places), np.int64)])
        total = offsets[-1]
        return Found(offsets, rows[:total], places[:total], following, items)

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


def _span_bytes(span: PageSpan) -> int:
    """Return the room that `take_span` needs."""
    return 8 * k.FILE_LENGTH + span.page_count
