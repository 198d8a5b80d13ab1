"""A published log file as reads see it: queues by its sidecar, messages by ranges of whole pages.

What the row says needs no request: generation, batches, times, counts. A page that arrives damaged is fetched
a second time before the file is called corrupt: the fault may lie in between.

Depends on errors, lifecycle, logfile, log_file and log_row.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.log_service.log_file import GroupedLogFile
from tierdex.log_service.log_row import LogRowMore
from tierdex.logfile.messages import MessageBatch

if TYPE_CHECKING:
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.log_service.levels import Level
    from tierdex.log_service.tier import LogTails
    from tierdex.logfile.grouped.file import GroupedFile, PageSpan, QueuePlace
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
        self._generation = more.generation
        self.end_of_batches = more.end
        self.parts = (more.end,)  # all that local files are asked for is not asked of it

    @property
    def file(self) -> GroupedFile:
        """The open sidecar, fetched when it is not here. Raises what the store raises."""
        return self._tails.get(self.row, self._node, partial(self._tails.fetch, self.row))

    @property
    def generation(self) -> int:
        return self._generation

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int,
        level: Level,
    ) -> MessageBatch:  # fmt: skip
        """Return messages from `offset` on. Raises CorruptFileError, and what the store raises."""
        file = self.file
        place = file.find(topic, queue_id)
        if place is None or not place.first_offset <= offset < place.next_offset:
            return MessageBatch(offset, 0, 0, 0)
        opened = {
            page.number: page for page in self._pages(file, place, offset, max_count, max_bytes)
        }

        def page(number: int) -> OpenPage:
            return opened.get(number) or self._fetch(file, file.span(number))[0]

        return file.read_pages(place, offset, max_count=max_count, max_bytes=max_bytes, pages=page)

    def _pages(
        self, file: GroupedFile, place: QueuePlace, offset: int, max_count: int, max_bytes: int
    ) -> list[OpenPage]:
        """Return the pages that the messages lie in, by one request: not far more than `max_bytes`."""
        span = file.plan(place, offset, max_count)
        while span.page_count > 1 and span.length > max_bytes:
            span = file.span(span.first_page, (span.page_count + 1) // 2)
        return self._fetch(file, span)

    def _fetch(self, file: GroupedFile, span: PageSpan) -> list[OpenPage]:
        try:
            return file.open_span(span, self._tails.fetch(self.row, span.position, span.length))
        except CorruptFileError as error:
            logger.warning(
                "pages fetched again", extra={"object": self.row.object_key, "error": error.reason}
            )
            return file.open_span(span, self._tails.fetch(self.row, span.position, span.length))

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
