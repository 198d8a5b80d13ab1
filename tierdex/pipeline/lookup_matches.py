"""The matches of one batch of lookups, newest file first, each entry once.

Depends on arrow_columns and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from tierdex.index_service.requests.repeats import first_of_each
from tierdex.pipeline.arrow_columns import arrow_type

if TYPE_CHECKING:
    from tierdex.pipeline.arrow_columns import RowColumns

_IDENTITY: Final = (
    "topic", "queue_id", "offset", "size", "source", "row_group", "row", "timestamp",
)  # fmt: skip


class LookupMatches:
    """The matches of a batch, newest file first."""

    def __init__(self, count: int, max_count: int | None) -> None:
        self._max_count = max_count
        self._counts = np.zeros(count, np.int64)
        self._repeats = np.zeros(count, bool)  # several files had rows for it, not counted anew yet
        self._has_several = False
        self._components: list[tuple[np.ndarray, np.ndarray, RowColumns]] = []

    def still_want(self, is_valid: np.ndarray) -> np.ndarray:
        """Return which lookups want more entries; repeats do not count as entries."""
        if self._max_count is None:
            return is_valid
        if self._repeats.any():
            # Count anew, without repeats: rare, so it may cost.
            lookups, _ = self._distinct(("file_id",))
            self._counts = np.bincount(lookups, minlength=len(self._counts))
            self._repeats[:] = False
        return is_valid & (self._counts < self._max_count)

    def add(self, lookups: np.ndarray, rows: np.ndarray, columns: RowColumns) -> None:
        if self._max_count is not None:
            # A lookup without matches so far needs no more than this; one with some may need any.
            rank = _ranks(lookups)
            kept = (rank < self._max_count) | (self._counts[lookups] > 0)
            lookups, rows = lookups[kept], rows[kept]
        again = lookups[self._counts[lookups] > 0]
        self._repeats[again] = True
        self._has_several |= bool(len(again))
        self._counts += np.bincount(lookups, minlength=len(self._counts))
        self._components.append((lookups, rows, columns))

    def table(self, names: tuple[str, ...]) -> tuple[np.ndarray, pa.Table]:
        """Return (lookup i8[n], entries), by lookup, newest first, at most `max_count` each."""
        lookups, table = self._distinct(names)
        if self._max_count is not None:
            kept = np.flatnonzero(_ranks(lookups) < self._max_count)
            if len(kept) < len(lookups):
                lookups, table = lookups[kept], table.take(pa.array(kept))
        return lookups, table

    def _distinct(self, names: tuple[str, ...]) -> tuple[np.ndarray, pa.Table]:
        """Return all matches by lookup, repeats left out."""
        several = self._has_several
        wanted = (*names, *(name for name in _IDENTITY if name not in names and several))
        tables = [
            pa.Table.from_arrays(columns.columns(rows, wanted), names=list(wanted))
            for _, rows, columns in self._components
        ]
        if not tables:
            return np.empty(0, np.int64), _empty(wanted)
        lookups = np.concatenate([part for part, _, _ in self._components])
        order = np.argsort(lookups, kind="stable")
        lookups, table = lookups[order], pa.concat_tables(tables).take(pa.array(order))
        if several:
            kept = first_of_each([*_numbers_of(table.select(list(_IDENTITY))), lookups])
            lookups, table = lookups[kept], table.filter(pa.array(kept))
        return lookups, table.select(list(names))


def _numbers_of(table: pa.Table) -> list[np.ndarray]:
    """Return each column as numbers (i4[n]) that are equal where its values are; so are nulls."""
    encoded = [column.combine_chunks().dictionary_encode() for column in table.columns]
    return [np.asarray(column.indices.fill_null(-1)) for column in encoded]


def _ranks(lookups: np.ndarray) -> np.ndarray:
    """Return each element's number among equal neighbours, from 0; equal lookups are neighbours."""
    if not len(lookups):
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.concatenate([[True], lookups[1:] != lookups[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(lookups)]]))
    return np.arange(len(lookups)) - np.repeat(starts, sizes)


def _empty(names: tuple[str, ...]) -> pa.Table:
    return pa.table({name: pa.array([], arrow_type(name)) for name in names})
