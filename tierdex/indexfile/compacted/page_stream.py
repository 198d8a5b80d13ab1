"""All rows of a compacted file in a store, in hash order, with little of the file in memory at a time.

A merge of many files needs neither their filters nor, at once, their directories::

    small parts, checksums ....... read at the opening, and kept          two reads
    directory .................... 512 entries at a time, verified        16 KiB a read
    pages ........................ packed, eight chunks of rows at a time one read each
    filter ....................... never

Depends on errors, fileparts, layout, directory, file, page_range and small_parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import read_part
from tierdex.fileparts.layout import Part
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.directory import directory_checksums
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.page_range import file_numbers
from tierdex.indexfile.compacted.small_parts import read_small_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.row_bounds import RowBounds
    from tierdex.indexfile.schema import Schema

WINDOW_PAGES: Final = 512  # whose directory entries are read together
READ_CHUNKS: Final = 8  # packed rows take less than half the memory: one read for so many chunks
_BLOCK_ENTRIES: Final = layout.DIRECTORY_BLOCK_BYTES // layout.DIRECTORY_ENTRY_BYTES


class PageStream:
    """One file's rows, read in order. A `RowSource`. One thread."""

    def __init__(
        self,
        read_at: Callable[[int, int], bytes],
        *,
        position: int,
        file_bytes: int,
        crc: int,
        name: object,
    ) -> None:
        """Read the small parts of the file whose tail begins at `position`, by two reads.

        `crc` is the footer's, by which the file is known. Raises CorruptFileError, and what `read_at` raises.
        """
        self._read = read_at
        self._footer, small = read_small_parts(
            read_at, position=position, file_bytes=file_bytes, crc=crc, name=name
        )
        checksums = read_part(small, self._footer, Part.CHECKSUMS, name)
        head_end = self._footer.part(Part.CHECKSUMS, name).position
        head = np.frombuffer(small(position, head_end - position), np.uint8)
        self._head = CompactedFile(head, position=position, name=name, footer=self._footer)
        entries = (self._head.page_count + 1) * layout.DIRECTORY_ENTRY_BYTES
        directory = self._footer.part(Part.DIRECTORY, name)
        blocks = -(-entries // layout.DIRECTORY_BLOCK_BYTES)
        if directory.length != entries or len(checksums) != 4 * blocks:
            raise CorruptFileError(name, f"directory does not fit {self._head.page_count} pages")
        self._checksums = np.frombuffer(checksums, "<u4")
        self._directory_position = directory.position

    @property
    def uuid(self) -> bytes:
        return self._head.uuid

    @property
    def schema(self) -> Schema:
        return self._head.schema

    @property
    def item_count(self) -> int:
        return self._head.item_count

    @property
    def dictionaries(self) -> Dictionaries:
        return self._head.dictionaries

    def row_bounds(self) -> RowBounds:
        return self._head.row_bounds()

    def rows_in_hash_order(self, chunk_items: int) -> Iterator[np.ndarray]:
        """Yield all rows, sorted by hash, newest first among equals; every page is verified.

        Raises CorruptFileError, and what `read_at` raises.
        """
        pages = max(1, chunk_items // max(1, self._head.statistics.items_per_page))
        together = pages * READ_CHUNKS
        window: _DirectoryWindow | None = None
        for first in range(0, self._head.page_count, together):
            end = min(self._head.page_count, first + together)
            if window is None or end > window.end_page:
                window = self._read_window(first, max(end - first, WINDOW_PAGES))
            file = self._head.through_entries(window.numbers)
            whole = file.span(first, end - first)
            data = memoryview(self._read(whole.position, whole.length))
            for number in range(first, end, pages):
                span = file.span(number, min(pages, end - number))
                begin = span.position - whole.position
                yield file.decode_span(span, data[begin : begin + span.length])

    def _read_window(self, first_page: int, page_count: int) -> _DirectoryWindow:
        """Read the entries of so many pages, and more: whole blocks, each of which is verified."""
        name, total = self._head.path, self._head.page_count + 1
        first = first_page - first_page % _BLOCK_ENTRIES
        end = min(total, -(-(first_page + page_count + 1) // _BLOCK_ENTRIES) * _BLOCK_ENTRIES)
        size, entry_bytes = (
            (end - first) * layout.DIRECTORY_ENTRY_BYTES,
            layout.DIRECTORY_ENTRY_BYTES,
        )
        data = self._read(self._directory_position + first * entry_bytes, size)
        if len(data) != size:
            raise CorruptFileError(
                name, f"{len(data)} bytes of the directory, {size} were asked for"
            )
        entries = np.frombuffer(data, layout.DIRECTORY_ENTRY)
        block = first // _BLOCK_ENTRIES
        found = directory_checksums(entries, self.uuid, first_block=block)
        wrong = np.flatnonzero(found != self._checksums[block : block + len(found)])
        if len(wrong):
            raise CorruptFileError(name, f"checksum of directory block {block + wrong[0]} differs")
        return _DirectoryWindow(entries, first, self._head.sidecar_position)


class _DirectoryWindow:
    """Verified directory entries of the pages from `first_page` up to `end_page`."""

    def __init__(self, entries: np.ndarray, first_page: int, pages_end: int) -> None:
        self._entries = entries
        self.end_page = first_page + len(entries) - 1  # the last entry ends the page before
        self.numbers, self._verified = file_numbers(entries, first_page, len(entries), pages_end)
