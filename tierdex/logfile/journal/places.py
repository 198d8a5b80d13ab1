"""Many places of a journal at once: its half of `kernels.places`, unsealed or sealed.

Each class holds what its kernels were given the addresses of: keep it until the rows were copied.

Depends on reader, sealed, messages, kernels and fileparts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.logfile.journal.kernels import places as k
from tierdex.logfile.journal.kernels.state import W_BASE_TIME
from tierdex.logfile.kernels.topics import TopicsAt
from tierdex.logfile.messages import RowsOfPlaces

if TYPE_CHECKING:
    from tierdex.logfile.journal.reader import JournalReader
    from tierdex.logfile.journal.sealed import SealedJournal


class GrowingPlaces:
    """An unsealed journal's messages below byte `limit`, all of them published."""

    def __init__(self, journal: JournalReader, mapping: np.ndarray, limit: int) -> None:
        self._stage, self._mapping, self._limit = journal.stage_words, mapping, limit
        self._tables = journal.tables.snapshot

    def find(self, asked: np.ndarray, found: np.ndarray) -> None:
        """Write what the journal has of each place (i8, F_* a row)."""
        k.find_growing(self._tables.words, asked, self._limit, found)

    def rows(self, walk: np.ndarray, chosen: np.ndarray, most: int) -> RowsOfPlaces:
        """Return the addresses of all chosen rows, `most` of them at most."""
        rows = np.empty(most, np.int64)
        words = self._tables.words
        k.gather_growing(words, self._stage, walk, chosen, address(rows))
        return RowsOfPlaces(rows, int(words[W_BASE_TIME]), None)


class DensePlaces:
    """A sealed journal's messages."""

    def __init__(self, journal: SealedJournal) -> None:
        """Raises ClosedError."""
        self._index = journal.dense_index
        self._topics, self._base = journal.topics, journal.base_time

    def find(self, asked: np.ndarray, found: np.ndarray) -> None:
        """Write what the journal has of each place (i8, F_* a row)."""
        topics = TopicsAt(*self._topics.at)
        k.find_dense(self._index.words, self._index.blocks.words, topics, asked, found)

    def rows(self, walk: np.ndarray, chosen: np.ndarray, most: int) -> RowsOfPlaces:
        """Return the addresses of all chosen rows, `most` of them at most, verified."""
        rows = np.empty(most, np.int64)
        k.gather_dense(self._index.words, self._index.blocks.words, walk, chosen, address(rows))
        return RowsOfPlaces(rows, self._base, None)
