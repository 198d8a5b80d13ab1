"""The grouped form of a log file, for reading: a sidecar, and pages by ranges.

One that lies here whole is `open_local`: its tail is mapped, its pages are read by pread, and leave the page
cache again if they came from the device: a read of the past pushes nothing out. One in a store is
its sidecar and whatever reads ranges (`from_sidecar`), or a plan of the pages that a read needs, which the
caller fetches in one request. Pages are verified always: damage raises CorruptFileError and is never an
answer.

Depends on check, kernels.page_read, pages, sidecar, fileparts, filesystem, header, layout and messages.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import FOOTER, FOOTER_BYTES, HEADER_BYTES, Part
from tierdex.fileparts.memory import address
from tierdex.filesystem import read_aside
from tierdex.logfile.grouped.check import find_damage
from tierdex.logfile.grouped.kernels.page_read import PLACE_WORDS, Z_ADDRESS, Z_LENGTH, Z_NUMBER
from tierdex.logfile.grouped.pages import OpenPage, OpenPages
from tierdex.logfile.grouped.sidecar import GroupedSidecar, PageSpan, QueuePlace
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.layout import Form
from tierdex.logfile.messages import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem, Mapping, OpenFile
    from tierdex.logfile.grouped.pages import Scratch

__all__ = ["GroupedFile", "PageSpan", "QueuePlace"]


class GroupedFile(GroupedSidecar):
    """Reads messages of one grouped file. Safe to share between threads."""

    _file: OpenFile | None = None
    _mapping: Mapping | None = None

    def __init__(
        self, sidecar: Buffer, read: Callable[[int, int], Buffer], *, position: int, name: object
    ) -> None:
        """Open a file by its tail; `read(position, length)` gives the pages."""
        super().__init__(sidecar, position=position, name=name)
        self._read = read

    @classmethod
    def from_sidecar(
        cls, sidecar: Buffer, read: Callable[[int, int], Buffer], *, name: object = "sidecar"
    ) -> GroupedFile:
        """Open a file by its tail, which says itself where it begins. Raises CorruptFileError."""
        data = np.frombuffer(memoryview(sidecar), np.uint8)
        if len(data) < FOOTER_BYTES:
            raise CorruptFileError(name, f"too short for a footer: {len(data)} bytes")
        footer = data[-FOOTER_BYTES:].view(FOOTER)[0]
        position = max(0, int(footer["file_bytes"]) - len(data))
        return cls(data.data, read, position=position, name=name)

    @classmethod
    def open_local(cls, filesystem: FileSystem, path: Path) -> GroupedFile:
        """Open a whole file. Raises OSError, CorruptFileError, UnsupportedFormatError."""
        file = filesystem.open(path)
        try:
            header = decode_log_header(file.read_at(0, HEADER_BYTES), path, form=Form.GROUPED)
            size = file.size()
            footer = read_footer(file.read_at, size, path, uuid=header.uuid)
            position = footer.part(Part.HEADER_COPY, path).position
            mapping = file.map(size, writable=False)
            data = mapping.array.view(np.ndarray)
            read = partial(read_aside, file)
            opened = cls(data[position:].data, read, position=position, name=path)
            if opened.header != header:
                raise CorruptFileError(path, "header and its copy differ")
        except BaseException:
            file.close()
            raise
        opened._file, opened._mapping = file, mapping
        return opened

    # -- messages ------------------------------------------------------------------------------------

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int
    ) -> MessageBatch:
        """Return messages from `offset` on: at most `max_count` and, after the first, `max_bytes`.

        Empty when the queue has no message there. Raises CorruptFileError, and what `read` raises.
        """
        place = self.find(topic, queue_id)
        if place is None or max_count <= 0:
            return MessageBatch(offset, 0, 0, 0)
        if not place.first_offset <= offset < place.next_offset:
            return MessageBatch(offset, 0, 0, 0)
        return self.read_pages(place, offset, max_count=max_count, max_bytes=max_bytes)

    def read_pages(
        self,
        place: QueuePlace,
        offset: int,
        *,
        max_count: int,
        max_bytes: int,
        pages: Callable[[int], OpenPage] | None = None,
    ) -> MessageBatch:
        """Do as `read` for a queue that was found; `pages` gives open ones (a cache's, say)."""
        get_page = pages or self.page
        wanted = min(max_count, place.next_offset - offset)
        batches: list[MessageBatch] = []
        at, left = offset, max_bytes
        number = self.page_of(place.queue, offset - place.first_offset)
        while wanted > 0:
            batch = self.take(
                get_page(number), place, at, max_count=wanted, max_bytes=left, is_first=at == offset
            )
            batches.append(batch)
            at, wanted = batch.next_offset, wanted - len(batch)
            left -= batch.content_bytes
            number += 1
            if self.page_first(number) != (place.queue, at - place.first_offset):
                break  # the budget is used up, or the page lacks a message: the next read meets it
        if not len(batches[0]):
            raise CorruptFileError(
                self.path, f"page {number - 1} lacks offset {offset} of its queue"
            )
        return MessageBatch.join(batches, offset)

    def take(
        self, page: OpenPage, place: QueuePlace, offset: int, *, max_count: int, max_bytes: int,
        is_first: bool = True,
    ) -> MessageBatch:  # fmt: skip
        """Return the messages of a queue from `offset` on that one page holds."""
        first_queue, first_ordinal = self.page_first(page.number)
        above = place.queue - first_queue
        if above < 0:
            return MessageBatch(offset, 0, 0, 0)
        skip = offset - place.first_offset - (first_ordinal if not above else 0)
        if skip < 0:
            raise CorruptFileError(self.path, f"page {page.number} begins behind offset {offset}")
        return page.messages(
            above, skip, max_count=max_count, max_bytes=max_bytes, first_offset=offset, is_first=is_first,
        )  # fmt: skip

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset of a queue before which no message here has a time >= `timestamp`.

        The directory has the times of each page. Raises CorruptFileError.
        """
        place = self.find(topic, queue_id)
        if place is None:
            return 0
        count = place.next_offset - place.first_offset
        first, last = self.page_of(place.queue, 0), self.page_of(place.queue, count - 1)
        late = self.directory()["max_time"][first : last + 1] >= timestamp
        if not late.any():
            return place.next_offset
        page = first + int(late.argmax())
        return place.first_offset + (self.page_first(page)[1] if page > first else 0)

    def plan(self, place: QueuePlace, offset: int, count: int) -> PageSpan:
        """Return the pages that hold `count` messages of a queue from `offset` on, as one range."""
        last = min(offset + count, place.next_offset) - 1
        first_page = self.page_of(place.queue, offset - place.first_offset)
        last_page = self.page_of(place.queue, last - place.first_offset)
        return self.span(first_page, last_page - first_page + 1)

    def page(self, number: int) -> OpenPage:
        """Read, verify and open a page. Raises CorruptFileError, and what `read` raises."""
        data = self.read_span(self.span(number))
        return self.open_page(np.frombuffer(memoryview(data), np.uint8), number)

    def read_span(self, span: PageSpan) -> Buffer:
        """Return the bytes of neighbouring pages. Raises what `read` raises."""
        return self._read(span.position, span.length)

    def open_page(self, data: np.ndarray, number: int) -> OpenPage:
        """Verify and open a page whose bytes (u1) were brought. Raises CorruptFileError."""
        return OpenPage(data, number=number, seed=self._page_seed, path=self.path)

    def open_span(self, span: PageSpan, data: Buffer) -> list[OpenPage]:
        """Verify and open all pages of a range that was fetched. Raises CorruptFileError."""
        fetched = np.frombuffer(memoryview(data), np.uint8)
        if len(fetched) != span.length:
            raise CorruptFileError(
                self.path, f"{len(fetched)} bytes of pages, {span.length} were asked for"
            )
        opened = []
        for number in range(span.first_page, span.first_page + span.page_count):
            one = self.span(number)
            begin = one.position - span.position
            opened.append(self.open_page(fetched[begin : begin + one.length], number))
        return opened

    def open_fetched(
        self, span: PageSpan, fetched: Buffer, numbers: np.ndarray | None = None,
        scratch: Scratch | None = None,
    ) -> OpenPages:  # fmt: skip
        """Open pages of a range that was fetched; those that are damaged have no message.

        `numbers` (i8) are those to open, all without it; they are good until `scratch` is used again.
        Raises CorruptFileError.
        """
        if numbers is None:
            numbers = np.arange(span.first_page, span.first_page + span.page_count)
        data = np.frombuffer(memoryview(fetched), np.uint8)
        if len(data) != span.length:
            raise CorruptFileError(self.path, f"{len(data)} bytes of {span.page_count} pages")
        begins, ends = self.page_places(numbers).T
        begins = begins - span.position
        is_here = (begins >= 0) & (ends - span.position <= span.length)
        places = np.empty((len(numbers), PLACE_WORDS), np.int64)
        places[:, Z_ADDRESS] = np.where(is_here, address(data) + begins, 0)
        places[:, Z_LENGTH] = np.where(is_here, ends - span.position - begins, 0)
        places[:, Z_NUMBER] = numbers
        return OpenPages(places, data=data, seed=self._page_seed, scratch=scratch)

    def mapped_bytes(self) -> np.ndarray:
        """Return all bytes of a file that lies here whole (u1)."""
        assert self._mapping is not None, "only its tail is here"
        return self._mapping.array.view(np.ndarray)

    def check(self) -> list[str]:
        """Return every broken rule, in words; empty means the file is sound. Reads it whole."""
        return find_damage(
            self,
            lambda span, scratch: self.open_fetched(span, self.read_span(span), scratch=scratch),
            self.page,
        )

    def close(self) -> None:
        """Give descriptor and mapping back. What was read are copies and stays. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            self._mapping = None  # its views are alive as long as a reader has them
            file.close()
