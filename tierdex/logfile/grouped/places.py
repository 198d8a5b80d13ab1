"""Many places of a grouped file at once: its half of `kernels.places`.

Each page that any place needs is read once, neighbours in one go, unless it is kept in memory; the wanted
messages become rows in memory of their own. Depends on file, pages, messages, kernels, errors, fileparts and
logfile.kernels.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile.grouped.kernels import places as k
from tierdex.logfile.grouped.kernels.page_read import PAGE_WORDS
from tierdex.logfile.kernels.places import C_COUNT
from tierdex.logfile.messages import RowsOfPlaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import Buffer

    from tierdex.logfile.grouped.file import GroupedFile, PageSpan
    from tierdex.logfile.grouped.pages import OpenPage, OpenPages


class KeptPages(Protocol):
    """Pages of the file in memory."""

    def get(self, number: int) -> OpenPage | None: ...
    def put(self, page: OpenPage) -> None: ...


_PAGES_MOST: Final = 8  # of a place: a read of more is the pages' own time
_TOGETHER: Final = 64  # neighbours that are read in one go


class GroupedPlaces:
    """A grouped file's messages."""

    def __init__(
        self, file: GroupedFile, kept: KeptPages, read: Callable[[PageSpan], Buffer] | None = None
    ) -> None:
        """`read` brings the bytes of pages; without it the file does."""
        self._file = file
        self._kept = kept
        self._read = read or file.read_span
        self._words, self._blocks = file.directory_words, file.blocks

    def find(self, asked: np.ndarray, found: np.ndarray) -> None:
        """Write what the file has of each place (i8, F_* a row)."""
        k.find_grouped(self._words, self._blocks.words, self._file.topics.at, asked, found)

    def rows(self, walk: np.ndarray, chosen: np.ndarray, most: int) -> RowsOfPlaces:
        """Return the addresses of all chosen messages as rows, `most` of them at most. Raises OSError."""
        pages = np.zeros((len(chosen), 2), np.int64)
        k.plan_pages(self._words, self._blocks.words, walk, chosen, pages, _PAGES_MOST)
        first, last = pages[chosen[:, C_COUNT] > 0].T
        spread = first[:, None] + np.arange(_PAGES_MOST)
        numbers = np.unique(spread[spread <= last[:, None]])
        opened = np.zeros((len(numbers), PAGE_WORDS), np.int64)
        kept = [*self._take_kept(numbers, opened), *self._open(numbers, opened)]
        known = self._words, self._blocks.words
        length = int(k.measure_rows(*known, walk, chosen, pages, numbers, opened))
        memory, rows = np.empty(length, np.uint8), np.empty(most, np.int64)
        k.store_rows(
            *known, chosen, pages, numbers, opened, address(memory), address(rows)
        )  # fmt: skip
        del kept  # alive until here: kernels were given addresses
        return RowsOfPlaces(rows, 0, memory)

    def _take_kept(self, numbers: np.ndarray, opened: np.ndarray) -> Iterator[OpenPage]:
        """Write the rows of pages that are in memory, and yield these."""
        for at, number in enumerate(numbers.tolist()):
            page = self._kept.get(number)
            if page is not None:
                opened[at] = page.words
                yield page

    def _open(self, numbers: np.ndarray, opened: np.ndarray) -> Iterator[OpenPages]:
        """Open the other pages, whose numbers rise, into the rows of `opened`, and yield them.

        Nothing is written of those that are damaged: their places are answered alone, and say so. Raises
        what bringing them raises.
        """
        lacking = np.flatnonzero(~opened.any(axis=1))
        for run in np.split(lacking, (np.diff(numbers[lacking]) != 1).nonzero()[0] + 1):
            for begin in range(0, len(run), _TOGETHER):
                rows = run[begin : begin + _TOGETHER]
                with suppress(CorruptFileError):
                    span = self._file.span(int(numbers[rows[0]]), len(rows))
                    pages = self._file.open_fetched(span, self._read(span))
                    opened[rows] = pages.words
                    for page in pages.pages():
                        self._kept.put(page)
                    yield pages
