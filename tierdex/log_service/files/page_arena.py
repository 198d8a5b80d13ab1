"""Pages of grouped files, decoded, in memory up to a budget: for all readers of a log.

::

    local   pages of files that lie here: what readers near the tail use
    tier    pages of published files
    goes    the least recently used of the tier, as long as it has more than a quarter; else of the local ones

So a replay of the past pushes its own pages out, not those of readers near the tail. Pages are verified and
never change; their file's uuid and their number name them, wherever the file lies by now. Each knows whether
its bytes came from the store: a read policy may want these alone, or the others (`PageSource.takes`).

Depends on logfile.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from typing_extensions import Buffer

    from tierdex.logfile.grouped.file import GroupedFile, PageSpan
    from tierdex.logfile.grouped.pages import OpenPage

_TIER_SHARE: Final = 4  # the tier keeps a quarter
_LARGEST_SHARE: Final = 16  # of the budget: a larger page is not kept, nor more pages of one read

PageName = tuple[bytes, int]  # uuid of the file, number


class PageSource(Protocol):
    """Where the bytes of a file's pages come from."""

    is_local: bool
    is_stored: bool  # whether the bytes that were brought last are the store's

    def takes(self, *, is_stored: bool) -> bool:
        """Return whether a page in memory serves, whose bytes came from the store or from here."""
        ...

    def bring(self, span: PageSpan, then: Sequence[PageSpan] = ()) -> Buffer:
        """Return the bytes of neighbouring pages; `then` is asked for next. Raises what reading raises."""
        ...

    def bring_again(self, span: PageSpan) -> Buffer | None:
        """Return the bytes of a page that came damaged, from elsewhere; None when there is no elsewhere."""
        ...

    def note_kept(self, span: PageSpan) -> None:
        """Record that a page was in the arena."""
        ...


class PageArena:
    """Safe to share between threads."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._local: OrderedDict[PageName, OpenPage] = OrderedDict()  # least recently used first
        self._tier: OrderedDict[PageName, OpenPage] = OrderedDict()
        self._local_bytes = self._tier_bytes = 0
        self._stored: set[PageName] = set()  # whose bytes came from the store

    @property
    def held_bytes(self) -> int:
        """Bytes of all pages, with what Python takes for each."""
        return self._local_bytes + self._tier_bytes

    def get(self, uuid: bytes, number: int, source: PageSource) -> OpenPage | None:
        with self._lock:
            return self._find((uuid, number), source)

    def _find(self, name: PageName, source: PageSource) -> OpenPage | None:
        if not source.takes(is_stored=name in self._stored):
            return None
        for pages in (self._local, self._tier):
            page = pages.get(name)
            if page is not None:
                pages.move_to_end(name)
                return page
        return None

    def get_many(self, uuid: bytes, numbers: Iterable[int], source: PageSource) -> list[OpenPage]:
        """Return those of a file's pages that are here, in order."""
        with self._lock:
            if not self._local and not self._tier:
                return []
            return [page for number in numbers if (page := self._find((uuid, number), source))]

    def takes(self, length: int) -> bool:
        """Return whether so many bytes of pages, read in one go, are kept."""
        return length * _LARGEST_SHARE <= self._budget

    def put(
        self, uuid: bytes, pages: Iterable[OpenPage], *, is_local: bool, is_stored: bool
    ) -> None:
        """Keep pages of a file, with bytes of the store if `is_stored`.

        The payload of each must be its own, not a part of a larger one.
        """
        with self._lock:
            for page in pages:
                self._put(uuid, page, is_local=is_local, is_stored=is_stored)

    def _put(self, uuid: bytes, page: OpenPage, *, is_local: bool, is_stored: bool) -> None:
        size, name = page.bytes, (uuid, page.number)
        if size * _LARGEST_SHARE > self._budget or name in self._local or name in self._tier:
            return
        if is_local:
            self._local[name] = page
            self._local_bytes += size
        else:
            self._tier[name] = page
            self._tier_bytes += size
        if is_stored:
            self._stored.add(name)
        while self.held_bytes > self._budget:
            if not self._local or self._tier_bytes * _TIER_SHARE > self._budget:
                gone, page = self._tier.popitem(last=False)
                self._tier_bytes -= page.bytes
            else:
                gone, page = self._local.popitem(last=False)
                self._local_bytes -= page.bytes
            self._stored.discard(gone)

    def clear(self) -> None:
        """Drop all pages."""
        with self._lock:
            self._local.clear()
            self._tier.clear()
            self._stored.clear()
            self._local_bytes = self._tier_bytes = 0


class ArenaOfMany:
    """The pages of one file as a read of many places has them (`logfile.grouped.places.KeptPages`)."""

    def __init__(self, arena: PageArena, source: PageSource, file: GroupedFile) -> None:
        self._arena = arena
        self._source = source
        self._file = file

    def get(self, numbers: np.ndarray) -> list[OpenPage]:
        """Return those of the pages that are here, in order."""
        found = self._arena.get_many(self._file.uuid, numbers.tolist(), self._source)
        for page in found:
            self._source.note_kept(self._file.span(page.number))
        return found

    def takes(self, count: int) -> bool:
        """Return whether so many pages are kept: more would push out what is used again, and each other."""
        return self._arena.takes(count * self._file.header.page_bytes)

    def put(self, pages: Sequence[OpenPage]) -> None:
        source = self._source
        self._arena.put(
            self._file.uuid, pages, is_local=source.is_local, is_stored=source.is_stored
        )
