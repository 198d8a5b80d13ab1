"""Pages of grouped files, decoded, in memory up to a budget: for all readers of a log.

::

    local   pages of files that lie here: what readers near the tail use
    tier    pages of published files
    goes    the least recently used of the tier, as long as it has more than a quarter; else of the local ones

So a replay of the past pushes its own pages out, not those of readers near the tail. Pages are verified and
never change; their file's uuid and their number name them, wherever the file lies by now.

Depends on logfile.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from tierdex.log_service.page_reads import PageSource
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.grouped.pages import OpenPage

_TIER_SHARE: Final = 4  # the tier keeps a quarter
_LARGEST_SHARE: Final = 16  # of the budget: a larger page is not kept, nor more pages of one read

PageName = tuple[bytes, int]  # uuid of the file, number


class PageArena:
    """Safe to share between threads."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._local: OrderedDict[PageName, OpenPage] = OrderedDict()  # least recently used first
        self._tier: OrderedDict[PageName, OpenPage] = OrderedDict()
        self._local_bytes = self._tier_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of all pages, with what Python takes for each."""
        return self._local_bytes + self._tier_bytes

    def get(self, uuid: bytes, number: int) -> OpenPage | None:
        with self._lock:
            return self._find((uuid, number))

    def _find(self, name: PageName) -> OpenPage | None:
        for pages in (self._local, self._tier):
            page = pages.get(name)
            if page is not None:
                pages.move_to_end(name)
                return page
        return None

    def get_many(self, uuid: bytes, numbers: Iterable[int]) -> list[OpenPage]:
        """Return those of a file's pages that are here, in order."""
        with self._lock:
            if not self._local and not self._tier:
                return []
            return [page for number in numbers if (page := self._find((uuid, number)))]

    def takes(self, length: int) -> bool:
        """Say whether so many bytes of pages, read in one go, are kept."""
        return length * _LARGEST_SHARE <= self._budget

    def put(self, uuid: bytes, pages: Iterable[OpenPage], *, is_local: bool) -> None:
        """Keep pages of a file. The payload of each must be its own, not a part of a larger one."""
        with self._lock:
            for page in pages:
                self._put(uuid, page, is_local=is_local)

    def _put(self, uuid: bytes, page: OpenPage, *, is_local: bool) -> None:
        size, name = page.bytes, (uuid, page.number)
        if size * _LARGEST_SHARE > self._budget or name in self._local or name in self._tier:
            return
        if is_local:
            self._local[name] = page
            self._local_bytes += size
        else:
            self._tier[name] = page
            self._tier_bytes += size
        while self.held_bytes > self._budget:
            if not self._local or self._tier_bytes * _TIER_SHARE > self._budget:
                self._tier_bytes -= self._tier.popitem(last=False)[1].bytes
            else:
                self._local_bytes -= self._local.popitem(last=False)[1].bytes

    def clear(self) -> None:
        """Let all pages go."""
        with self._lock:
            self._local.clear()
            self._tier.clear()
            self._local_bytes = self._tier_bytes = 0


class ArenaOfMany:
    """The pages of one file as a read of many places has them (`logfile.grouped.places.KeptPages`)."""

    def __init__(self, arena: PageArena, source: PageSource, file: GroupedFile) -> None:
        self._arena = arena
        self._source = source
        self._file = file

    def get(self, numbers: np.ndarray) -> list[OpenPage]:
        """Return those of the pages that are here, in order."""
        found = self._arena.get_many(self._file.uuid, numbers.tolist())
        for page in found:
            self._source.note_kept(self._file.span(page.number))
        return found

    def takes(self, count: int) -> bool:
        """Say whether so many pages are kept: more would push out what is used again, and each other."""
        return self._arena.takes(count * self._file.header.page_bytes)

    def put(self, pages: Sequence[OpenPage]) -> None:
        self._arena.put(self._file.uuid, pages, is_local=self._source.is_local)
