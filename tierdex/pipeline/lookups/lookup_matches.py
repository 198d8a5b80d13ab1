"""The matches of one batch of lookups as columns: the rows that index_service's `Matches` keeps.

Depends on arrow_columns and query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tierdex.index_service.query.matches import Matches
from tierdex.pipeline.scan.arrow_columns import arrow_type

if TYPE_CHECKING:
    from tierdex.index_service.query.matches import FileMatches
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.pipeline.scan.arrow_columns import RowColumns


class LookupMatches:
    """The matches of a batch, newest file first, each entry once, at most `max_count` a lookup."""

    def __init__(self, lookups: Lookups) -> None:
        self._matches = Matches(lookups)
        self._columns: list[RowColumns] = []  # of each of the matches' files

    def still_want(self) -> np.ndarray:
        """Return which lookups (b1) want more entries."""
        return self._matches.counts < self._matches.lookups.max_count

    def add(self, found: FileMatches, columns: RowColumns) -> None:
        """Add rows of one file; those of one lookup are neighbours, newest first."""
        found = self._matches.without_repeats(found)
        ranks = self._matches.counts[found.numbers] + _ranks(found.numbers)
        found = found.taken(ranks < self._matches.lookups.max_count[found.numbers])
        if len(found.rows):
            self._matches.add(found)
            self._columns.append(columns)

    def table(self, names: tuple[str, ...]) -> tuple[np.ndarray, pa.Table]:
        """Return (lookup i8[n], entries), by lookup, newest first."""
        if not self._columns:
            return np.empty(0, np.int64), _empty(names)
        tables = [
            pa.Table.from_arrays(columns.columns(found.rows, names), names=list(names))
            for found, columns in zip(self._matches.files, self._columns, strict=True)
        ]
        lookups = np.concatenate([found.numbers for found in self._matches.files])
        order = np.argsort(lookups, kind="stable")
        return lookups[order], pa.concat_tables(tables).take(pa.array(order))


def _ranks(lookups: np.ndarray) -> np.ndarray:
    """Return each element's number among equal neighbours, from 0; equal lookups are neighbours."""
    if not len(lookups):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], lookups[1:] != lookups[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(lookups)]]))
    return np.arange(len(lookups)) - np.repeat(starts, sizes)


def _empty(names: tuple[str, ...]) -> pa.Table:
    return pa.table({name: pa.array([], arrow_type(name)) for name in names})
