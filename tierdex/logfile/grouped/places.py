"""Many places of a grouped file at once: its half of `kernels.places`.

Each page that any place needs is read once, unless it is kept in memory; those that lie near each other in
one go, with what is in between: a request costs more than some bytes. What came in one go is unpacked into
the same memory as what came before it; the wanted messages become rows in memory of their own.

Pages of such a call are kept in memory only while they are a sixteenth of its budget: more would push out
what others use. A GET goes on over gaps of 256 KiB, up to 4 MiB: at 15 ms and 90 MiB/s a GET costs as long as
1.4 MiB.

Depends on file, pages, sidecar, messages, kernels, errors, fileparts and logfile.kernels.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile.grouped.kernels import places as k
from tierdex.logfile.grouped.pages import Scratch
from tierdex.logfile.grouped.sidecar import PageSpan
from tierdex.logfile.kernels.places import C_COUNT
from tierdex.logfile.kernels.topics import TopicsAt
from tierdex.logfile.messages import RowsOfPlaces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typing_extensions import Buffer

    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.grouped.pages import OpenPage


class KeptPages(Protocol):
    """Pages of the file in memory."""

    def get(self, numbers: np.ndarray) -> list[OpenPage]: ...
    def takes(self, count: int) -> bool: ...
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
        topics = TopicsAt(*self._file.topics.at)
        k.find_grouped(self._words, self._blocks.words, topics, asked, found)

    def rows(self, walk: np.ndarray, chosen: np.ndarray, most: int) -> RowsOfPlaces:
        """Return the addresses of all chosen messages as rows, `most` of them at most. Raises OSError."""
        pages = np.zeros((len(chosen), 2), np.int64)
        k.plan_pages(self._words, self._blocks.words, walk, chosen, pages, _PAGES_MOST)
        counts = chosen[:, C_COUNT]
        starts = np.cumsum(counts) - counts
        wanted = counts.nonzero()[0]
        order = wanted[np.argsort(pages[wanted, 0], kind="stable")]
        firsts, lasts = pages[order].T
        spread = firsts[:, None] + np.arange(_PAGES_MOST)
        numbers = np.unique(spread[spread <= lasts[:, None]])
        known = self._words, self._blocks.words, chosen, pages
        rows, memory = np.zeros(most, np.int64), []
        for part, opened in self._opened(numbers):
            begin, end = np.searchsorted(firsts, [part[0] - _PAGES_MOST + 1, part[-1] + 1])
            mine = order[begin:end]
            block = np.empty(int(k.measure_rows(*known, mine, part, opened)), np.uint8)
            k.store_rows(*known, mine, part, opened, starts, address(block), rows)
            memory.append(block)
        left = int(k.leave_incomplete(walk, chosen, rows[: int(counts.sum())]))
        return RowsOfPlaces(rows[:left], 0, memory)

    def _opened(self, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rising numbers of pages that are open, and their words, which are good until the next ones.

        Damaged pages have none: their places are answered alone, and say so. Raises what bringing them
        raises.
        """
        kept = self._kept.get(numbers)
        if kept:
            at = np.searchsorted(numbers, [page.number for page in kept])
            yield numbers[at], np.stack([page.words for page in kept])
            numbers = np.delete(numbers, at)
        places = self._file.page_places(numbers)
        is_known = places[:, 1] > 0
        numbers, places = numbers[is_known], places[is_known]
        runs = list(_runs(places.tolist()))
        spans = []
        for begin, end in runs:
            first, last = int(numbers[begin]), int(numbers[end - 1])
            position = int(places[begin, 0])
            length = int(places[end - 1, 1]) - position
            spans.append(PageSpan(position, length, first, last - first + 1))
        is_kept, scratch = self._kept.takes(len(numbers)), Scratch()
        for number, ((begin, end), span) in enumerate(zip(runs, spans, strict=True)):
            with suppress(CorruptFileError):
                data = self._read(span, spans[number + 1 : number + 1 + _THEN])
                pages = self._file.open_fetched(span, data, numbers[begin:end], scratch)
                yield numbers[begin:end], pages.words
                if is_kept:
                    self._kept.put(pages.pages())


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
