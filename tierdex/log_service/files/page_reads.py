"""The pages of one read of one grouped file: from memory, else as many in one go as the read may need.

Depends on errors, logfile, page_arena and read_ahead.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.log_service.files.read_ahead import WINDOW_MOST

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tierdex.log_service.files.page_arena import PageArena, PageSource
    from tierdex.logfile.grouped.file import GroupedFile, PageSpan
    from tierdex.logfile.grouped.pages import OpenPage

logger = logging.getLogger(__name__)


class PageReads:
    """Gives pages by number. For one thread."""

    def __init__(
        self,
        file: GroupedFile,
        source: PageSource,
        arena: PageArena,
        plan: PageSpan,
        max_bytes: int,
    ) -> None:
        """`plan` are the pages that the read's count may need; `max_bytes` limits what is brought at once."""
        self._file = file
        self._source = source
        self._arena = arena
        self._end = plan.first_page + plan.page_count
        self._most = min(max_bytes, WINDOW_MOST)
        self._held = plan._replace(page_count=0)
        self._data = np.zeros(0, np.uint8)
        self._is_stored = False

    def __call__(self, number: int) -> OpenPage:
        """Return a page. Raises CorruptFileError, and what the source raises."""
        file = self._file
        one = file.span(number)
        page = self._arena.get(file.uuid, number, self._source)
        if page is not None:
            self._source.note_kept(one)
            return page
        held = self._held
        if not held.first_page <= number < held.first_page + held.page_count:
            held = self._bring(number)
        begin, is_stored = one.position - held.position, self._is_stored
        try:  # a copy: the page may be kept for longer than what was brought
            page = file.open_page(self._data[begin : begin + one.length].copy(), number)
        except CorruptFileError as error:
            again = self._source.bring_again(one)
            if again is None:
                raise
            logger.warning("page read again", extra={"file": str(file.path), "error": error.reason})
            page = file.open_page(_bytes_of(again).copy(), number)
            is_stored = self._source.is_stored
        self._arena.put(file.uuid, [page], is_local=self._source.is_local, is_stored=is_stored)
        return page

    def _bring(self, number: int) -> PageSpan:
        """Bring a page and those behind it, not far more than the read's bytes."""
        span = self._file.span(number, max(1, self._end - number))
        while span.page_count > 1 and span.length > self._most:
            span = self._file.span(number, (span.page_count + 1) // 2)
        self._data, self._held = _bytes_of(self._source.bring(span)), span
        self._is_stored = self._source.is_stored
        return span


def _bytes_of(data: Buffer) -> np.ndarray:
    return np.frombuffer(memoryview(data), np.uint8)
