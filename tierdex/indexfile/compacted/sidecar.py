"""The tail of a compacted file: what it says of itself, and where its pages lie.

The *sidecar* is one contiguous range at the file's end: header copy, statistics, dictionaries,
columns, queues, topics, directory, filter, footer. It is self-sufficient: with it alone a file is
known, and any page that is brought can be verified and read. Small parts are verified when it is
opened; directory blocks and filter partitions when first used.

Depends on fileparts, directory, hash_group, page_lookup, page_range, pages, header, layout, schema,
source, row_bounds, small_parts and statistics.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.fileparts.filter import FuseFilter
from tierdex.fileparts.footer import Footer, read_footer, read_part
from tierdex.fileparts.layout import Part
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.directory import Directory
from tierdex.indexfile.compacted.hash_group import GroupPlaces
from tierdex.indexfile.compacted.kernels import page_lookup as k
from tierdex.indexfile.compacted.page_range import PageRanges, PageSpan
from tierdex.indexfile.compacted.pages import PagePlan
from tierdex.indexfile.compacted.small_parts import TopicRow, extra_of, topics_used
from tierdex.indexfile.compacted.statistics import FileStatistics
from tierdex.indexfile.header import FileHeader, decode_header
from tierdex.indexfile.layout import Form
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.indexfile.source import COVERS_NAME, EXTRA_NAME, source_of_extra

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

    from tierdex.indexfile.schema import Schema
    from tierdex.indexfile.source import Source


class Sidecar(PageRanges):
    """The open tail of one compacted file, and the pages where they can be reached.

    Borrows the buffers. Immutable but for the maps of what was verified; safe to share.
    """

    def __init__(
        self,
        sidecar: np.ndarray,
        *,
        position: int,
        name: object,
        pages: np.ndarray | None = None,
        read: Callable[[int, int], bytes] | None = None,
        footer: Footer | None = None,
    ) -> None:
        """Read the small parts of `sidecar` (u1[n], the file from byte `position` to its end).

        `pages` is the whole file when it is mapped. With `footer`, which a hash group told, `sidecar` is
        the head alone: there is neither filter nor directory. Raises CorruptFileError,
        UnsupportedFormatError.
        """
        self.path = name
        self.sidecar_position = position
        self.bytes = position + len(sidecar) if footer is None else footer.file_bytes
        self._sidecar = sidecar
        self._pages = pages
        self._read = read
        self._is_head = footer is not None
        self.footer: Footer = footer or read_footer(self._read_tail, self.bytes, name)
        if self.footer.form != Form.COMPACTED or self.footer.table_position < position:
            raise CorruptFileError(name, "is not in compacted form")
        self.header: FileHeader = self._read_header()
        self.schema: Schema = self.header.schema
        self._open_parts()
        if not self._is_head:
            self._open_large_parts()
        self._numbers = self._make_numbers()
        self.address = int(self._numbers.ctypes.data)

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
        """The topics that items of the file have, in the dictionary's order."""
        return [row.topic for row in self.listed_topics]

    @property
    def listed_topics(self) -> list[TopicRow]:
        """What the file says of each topic, in the dictionary's order."""
        return topics_used(self.dictionaries, self.topic_rows)

    @cached_property
    def extra(self) -> dict[str, Any]:
        """What the writer and its caller added to the statistics."""
        return extra_of(read_part(self._read_tail, self.footer, Part.EXTRA, self.path), self.path)

    @property
    def source(self) -> Source | None:
        """Up to where a log has what is indexed, None in an index of no log. Raises CorruptFileError."""
        return self._position(EXTRA_NAME)

    @property
    def covers(self) -> Source | None:
        """The position that the last entries come from. Raises CorruptFileError."""
        return self._position(COVERS_NAME) or self.source

    def _position(self, name: str) -> Source | None:
        try:
            return source_of_extra(self.extra, name)
        except ValueError as error:
            raise CorruptFileError(self.path, str(error)) from error

    def end_offsets(self) -> dict[tuple[str, int], int]:
        """Return the greatest offset + size of each (topic, queue)."""
        names = self.dictionaries.strings(TOPIC_DICTIONARY)
        rows = self.plan.queues[["topic", "queue_id", "end"]].tolist()
        return {(names[topic], queue): end for topic, queue, end in rows}

    def end_of(self, topic: str, queue_id: int) -> int | None:
        """Return the greatest offset + size of one queue, None when the file has nothing of it."""
        number = int(self.dictionaries.indexes(TOPIC_DICTIONARY, [topic])[0])
        if number < 0:
            return None
        queues = self.plan.queues
        first, last = np.searchsorted(queues["topic"], [number, number + 1])
        place = first + np.searchsorted(queues["queue_id"][first:last], queue_id)
        if place == last or queues["queue_id"][place] != queue_id:
            return None
        return int(queues["end"][place])

    def row_bounds(self) -> RowBounds:
        """Return bounds of all columns, for a writer that merges this file."""
        return self.plan.bounds() if self.item_count else RowBounds()

    @property
    def groups(self) -> GroupPlaces | None:
        """Where the hash groups lie; None in a file without them."""
        return GroupPlaces.of(self.footer.parts)

    def sidecar_bytes(self) -> np.ndarray:
        """Return the tail (u1): what `from_sidecar` takes."""
        return self._sidecar

    # -- pages ----------------------------------------------------------------------------------------

    def decode_span(self, span: PageSpan, data: Buffer) -> np.ndarray:
        """Return all rows of the pages in `data`, the bytes of `span`. Raises CorruptFileError."""
        import pyarrow as pa

        # An address costs numpy a microsecond; the whole page takes two.
        pages, dtype = pa.py_buffer(data), self.schema.dtype
        if pages.size != span.length:
            raise CorruptFileError(
                self.path, f"{pages.size} bytes of pages, {span.length} were asked for"
            )
        most = span.page_count * self.statistics.items_per_page
        rows = pa.allocate_buffer(most * dtype.itemsize)
        count, bad = k.decode_pages(
            self.address, span.first_page, span.page_count, pages.address, rows.address
        )
        if bad >= 0:
            raise self.damage(k.DAMAGED_PAGE, bad)
        return np.frombuffer(rows, dtype, count)

    # -- opening ----------------------------------------------------------------------------------------

    def page_bytes(self, span: PageSpan) -> Buffer:
        """Return the bytes of pages, from the mapping or by one read."""
        if self._pages is not None:
            return self._pages[span.position : span.position + span.length].data
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

    def _open_large_parts(self) -> None:
        """Open directory and filter, whose blocks are verified when first used."""

        def part(kind: Part) -> bytes:
            return read_part(self._read_tail, self.footer, kind, self.path)

        self.directory = Directory(
            self._view(Part.DIRECTORY).data,
            part(Part.CHECKSUMS),
            page_count=self.page_count,
            path=self.path,
        )
        self.filter = FuseFilter(
            part(Part.FILTER_PARTITIONS),
            self._view(Part.FILTER).data,
            bits=self.statistics.filter_bits,
            uuid=self.uuid,
            path=self.path,
        )

    def _make_numbers(self) -> np.ndarray:
        """Return what the kernels know of this file."""
        numbers = np.zeros(k.FILE_LENGTH, np.int64)
        mapped = self._pages is not None
        self._pages_verified = np.zeros(self.page_count if mapped else 0, np.uint8)
        numbers[k.PLAN] = self.plan.address
        numbers[k.PAGES_END] = self.sidecar_position
        if self._is_head:
            return numbers  # the rest comes with a hash group
        numbers[k.PAGES] = 0 if self._pages is None else self._pages.ctypes.data
        numbers[k.DIRECTORY] = self.directory.entries.ctypes.data
        numbers[k.PAGE_COUNT] = numbers[k.HIGH_PAGE] = self.page_count
        numbers[k.CHECKSUMS] = self.directory.checksums.ctypes.data
        numbers[k.DIRECTORY_VERIFIED] = self.directory.verified.ctypes.data
        numbers[k.DIRECTORY_SEED] = part_seed(self.uuid, Part.DIRECTORY)
        numbers[k.FILTER] = self.filter.address
        numbers[k.PAGES_VERIFIED] = self._pages_verified.ctypes.data
        numbers[k.END_PAGE] = self.page_count if mapped else 0
        return numbers

    def damage(self, what: int, number: int) -> CorruptFileError:
        """Return the error that a kernel's negative answer stands for."""
        if what == k.DAMAGED_PAGE:
            return CorruptFileError(
                self.path, f"checksum of page {number} differs, or its hashes are not in order"
            )
        if what == k.DAMAGED_FILTER:
            return CorruptFileError(self.path, f"checksum of filter partition {number} differs")
        if self._is_head:
            return CorruptFileError(self.path, f"directory block {number} names impossible pages")
        blocks = self.directory.damaged_blocks(self.uuid) or [number]
        return CorruptFileError(self.path, f"checksum of directory block {blocks[0]} differs")
