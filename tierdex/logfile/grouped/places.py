"""Many places of a grouped file at once: its half of `kernels.places`.

Each page that any place needs is read once, unless it is kept in memory; those that lie near each other in
one go, with what is in between: a request costs more than some bytes. The wanted messages become rows in
memory of their own. Depends on file, pages, sidecar, messages, kernels, errors, fileparts and
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
from tierdex.logfile.grouped.sidecar import PageSpan
from tierdex.logfile.kernels.places import C_COUNT
from tierdex.logfile.messages import RowsOfPlaces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.grouped.pages import OpenPage, OpenPages


class KeptPages(Protocol):
    """Pages of the file in memory."""

    def get(self, number: int) -> OpenPage | None: ...
    def put(self, pages: Sequence[OpenPage]) -> None: ...


class ReadPages(Protocol):
    """What brings the bytes of neighbouring pages; `then` are those that will be asked for next."""

    def __call__(self, span: PageSpan, then: Sequence[PageSpan] = ()) -> Buffer: ...


_PAGES_MOST: Final = 8  # of a place: a read of more is the pages' own time
# A request of a store takes as long as some hundred KiB of a larger one, and 100 us of CPU.
_GAP_BYTES: Final = 256 << 10
_RUN_BYTES: Final = 4 << 20  # one request brings so much
_THEN: Final = 3  # runs that are announced


class GroupedPlaces:
    """A grouped file's messages."""

    def __init__(self, file: GroupedFile, kept: KeptPages, read: ReadPages) -> None:
        self._file = file
        self._kept = kept
        self._read = read
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
        places = self._file.page_places(numbers[lacking])
        known = places[:, 1] > 0
        lacking, places = lacking[known], places[known]
        runs = list(_runs(places.tolist()))
        spans = []
        for begin, end in runs:
            first, last = (int(numbers[lacking[at]]) for at in (begin, end - 1))
            position = int(places[begin, 0])
            length = int(places[end - 1, 1]) - position
            spans.append(PageSpan(position, length, first, last - first + 1))
        for at, ((begin, end), span) in enumerate(zip(runs, spans, strict=True)):
            rows = lacking[begin:end]
            with suppress(CorruptFileError):
                data = self._read(span, spans[at + 1 : at + 1 + _THEN])
                pages = self._file.open_fetched(span, data, numbers[rows])
                opened[rows] = pages.words
                self._kept.put(pages.pages())
                yield pages


def _runs(places: list[list[int]]) -> Iterator[tuple[int, int]]:
    """Yield the (first, end) of pages that are read in one go, of all in their order: (begin, end) each."""
    first = 0
    for at in range(1, len(places) + 1):
        is_last = at == len(places)
        if (
            is_last
            or places[at][0] - places[at - 1][1] > _GAP_BYTES
            or places[at][1] - places[first][0] > _RUN_BYTES
        ):
            yield first, at
            first = at
