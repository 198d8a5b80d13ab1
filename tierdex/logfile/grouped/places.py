"""Many places of a grouped file at once: its half of `kernels.places`.

Each page that any place needs is read once, neighbours in one go; the wanted messages become rows in memory
of their own. Depends on file, pages, messages, kernels, errors, fileparts and
logfile.kernels.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile.grouped.kernels import places as k
from tierdex.logfile.grouped.kernels.page_read import PAGE_WORDS
from tierdex.logfile.kernels.places import C_COUNT
from tierdex.logfile.messages import RowsOfPlaces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.grouped.pages import OpenPages

_PAGES_MOST: Final = 8  # of a place: a read of more is the pages' own time
_TOGETHER: Final = 64  # neighbours that are read in one go


class GroupedPlaces:
    """A grouped file's messages."""

    def __init__(self, file: GroupedFile) -> None:
        self._file = file
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
        kept = list(self._open(numbers, opened))
        known = self._words, self._blocks.words
        length = int(k.measure_rows(*known, walk, chosen, pages, numbers, opened))
        memory, rows = np.empty(length, np.uint8), np.empty(most, np.int64)
        k.store_rows(
            *known, chosen, pages, numbers, opened, address(memory), address(rows)
        )  # fmt: skip
        del kept  # alive until here: kernels were given addresses
        return RowsOfPlaces(rows, 0, memory)

    def _open(self, numbers: np.ndarray, opened: np.ndarray) -> Iterator[OpenPages]:
        """Open the pages, whose numbers rise, into the rows of `opened`, and yield them. Raises OSError.

        Nothing is written of those that are damaged: their places are answered alone, and say so.
        """
        at = 0
        for run in np.split(numbers, (np.diff(numbers) != 1).nonzero()[0] + 1):
            for begin in range(0, len(run), _TOGETHER):
                part = run[begin : begin + _TOGETHER]
                with suppress(CorruptFileError):
                    pages = self._file.open_neighbours(int(part[0]), len(part))
                    opened[at : at + len(part)] = pages.words
                    yield pages
                at += len(part)
