"""A published log file as reads see it: queues by its sidecar, messages by ranges of whole pages.

What the row says needs no request: generation, batches, times, counts. A page that arrives damaged is fetched
a second time before the file is called corrupt: the fault may lie in between.

Depends on errors, lifecycle, logfile, fetched_ranges, log_file, log_row, read_ahead and whole_object.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError, NotFoundError
from tierdex.log_service.fetched_ranges import ObjectRange
from tierdex.log_service.log_file import GroupedLogFile
from tierdex.log_service.log_row import LogRowMore
from tierdex.log_service.read_ahead import WINDOW_MOST
from tierdex.log_service.whole_object import ReadsInOrder, check_object
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.messages import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from tierdex.lifecycle.manifest import FileRow
    from tierdex.log_service.levels import Level
    from tierdex.log_service.log_row import FileSizes
    from tierdex.log_service.read_ahead import Window
    from tierdex.log_service.reading import Reading
    from tierdex.log_service.tier import LogTails
    from tierdex.logfile.grouped.file import PageSpan, QueuePlace
    from tierdex.logfile.grouped.pages import OpenPage

logger = logging.getLogger(__name__)


class PublishedLogFile(GroupedLogFile):
    """Reads one object. Immutable: safe to share between threads."""

    def __init__(self, row: FileRow, node: str, tails: LogTails) -> None:
        """Raises CorruptFileError when the row is no log file's."""
        self.row = row
        self._node = node
        self._tails = tails
        more = LogRowMore.of(row)
        self._more = more
        self.end_of_batches = more.end
        self.parts = (more.end,)  # all that local files are asked for is not asked of it

    @property
    def file(self) -> GroupedFile:
        """The open sidecar, fetched when it is not here. Raises what the store raises."""
        return self._tails.get(self.row, self._node, partial(self._tails.fetch, self.row))

    @property
    def generation(self) -> int:
        return self._more.generation

    @property
    def sizes(self) -> FileSizes:
        return self._more.sizes or super().sizes

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int,
        level: Level, reading: Reading | None = None,
    ) -> MessageBatch:  # fmt: skip
        """Return messages from `offset` on. Raises CorruptFileError, and what the store raises."""
        file = self.file
        place = file.find(topic, queue_id)
        if place is None or max_count <= 0 or not place.first_offset <= offset < place.next_offset:
            return MessageBatch(offset, 0, 0, 0)
        pages = _Pages(self, file, file.plan(place, offset, max_count), max_bytes)
        if reading is not None:
            pages.window = reading.window
            pages.ahead = partial(self._ahead, topic, queue_id, place, reading)
        return file.read_pages(place, offset, max_count=max_count, max_bytes=max_bytes, pages=pages)

    def fetch(
        self, span: PageSpan, ahead: Callable[[], Sequence[ObjectRange]] = tuple,
        window: Window | None = None,
    ) -> Buffer:  # fmt: skip
        """Return the bytes of some pages; with `ahead` as `FetchedRanges.read`."""
        return self._tails.fetched.read(self._range(span), ahead, window)

    def fetch_again(self, span: PageSpan) -> Buffer:
        """Return the bytes of a page that arrived damaged."""
        self._tails.fetched.discard(self._range(span))
        return self._tails.fetched.read(self._range(span))

    def _range(self, span: PageSpan) -> ObjectRange:
        return ObjectRange(self.row, span.position, span.position + span.length)

    def _ahead(
        self, topic: bytes, queue_id: int, place: QueuePlace, reading: Reading, span: PageSpan
    ) -> list[ObjectRange]:
        """Return what comes behind `span` in the queue, here and in the files that follow."""
        left = reading.bytes_ahead() - span.length
        begin = span.position + span.length
        rest = self._extent(self.file, place, place.first_offset)._replace(begin=begin)
        found = []
        following = iter(reading.following)
        while left > 0:
            if rest.length > 0:
                found.append(rest._replace(end=min(rest.end, rest.begin + left)))
                left -= rest.length
            file = next(following, None)
            if not isinstance(file, PublishedLogFile):
                break
            tail = self._tails.opened(file.row.uuid)
            if tail is None:
                break
            with suppress(CorruptFileError):  # who reads there is told
                other = tail.find(topic, queue_id)
                if other is not None:
                    rest = file._extent(tail, other, other.first_offset)
        return found

    def _extent(self, file: GroupedFile, place: QueuePlace, offset: int) -> ObjectRange:
        """Return the pages that hold a queue from `offset` on."""
        return self._range(file.plan(place, offset, place.next_offset - offset))

    def in_order(self, window_bytes: int) -> GroupedFile:
        """Return the file to read all of it, page after page, for one thread. Raises as `file`.

        An object that is gone is a CorruptFileError, which names it.
        """
        position = self.row.sidecar_position

        def fetch(begin: int, length: int) -> bytes:
            try:
                return self._tails.fetch(self.row, begin, length)
            except NotFoundError as error:
                raise CorruptFileError(self.row.object_key, str(error)) from error

        pages = ReadsInOrder(fetch, position, window_bytes)
        tail = self.file.sidecar_bytes().data
        return GroupedFile(tail, pages, position=position, name=self.row.object_key)

    def check(self) -> list[str]:
        """Return every broken rule of the object in the store, in words. Raises what the store raises."""
        return check_object(self._tails.reached_store(), self.row)

    @property
    def item_count(self) -> int:
        return self.row.item_count

    @property
    def min_time(self) -> int:
        return self.row.min_time

    @property
    def max_time(self) -> int:
        return self.row.max_time

    @property
    def bytes_used(self) -> int:
        return self.row.bytes

    def close(self) -> None:
        """Do nothing: the sidecar is the cache's."""


class _Pages:
    """The pages of one read, fetched as they are needed: as many at once as its limits may take."""

    def __init__(
        self, source: PublishedLogFile, file: GroupedFile, plan: PageSpan, max_bytes: int
    ) -> None:
        self._source = source
        self._file = file
        self._end = plan.first_page + plan.page_count
        self._most = min(max_bytes, WINDOW_MOST)
        self._span = plan._replace(page_count=0)  # that is here
        self._data = np.zeros(0, np.uint8)
        self.window: Window | None = None
        self.ahead: Callable[[PageSpan], Sequence[ObjectRange]] = lambda span: ()

    def __call__(self, number: int) -> OpenPage:
        """Return a page. Raises CorruptFileError, and what the store raises."""
        file, held = self._file, self._span
        if not held.first_page <= number < held.first_page + held.page_count:
            held = self._fetch(number)
        one = file.span(number)
        begin = one.position - held.position
        try:
            return file.open_page(self._data[begin : begin + one.length], number)
        except CorruptFileError as error:
            extra = {"object": self._source.row.object_key, "error": error.reason}
            logger.warning("page fetched again", extra=extra)
        return file.open_page(_bytes_of(self._source.fetch_again(one)), number)

    def _fetch(self, number: int) -> PageSpan:
        """Bring a page and those behind it, not far more than the read's bytes."""
        span = self._file.span(number, max(1, self._end - number))
        while span.page_count > 1 and span.length > self._most:
            span = self._file.span(number, (span.page_count + 1) // 2)
        data = self._source.fetch(span, partial(self.ahead, span), self.window)
        self._data, self._span = _bytes_of(data), span
        return span


def _bytes_of(data: Buffer) -> np.ndarray:
    return np.frombuffer(memoryview(data), np.uint8)
