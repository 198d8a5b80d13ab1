"""What a batch of lookups has found so far, file by file. Depends on lookup_batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.answer import Missing
    from tierdex.index_service.batch.lookups import LookupBatch
    from tierdex.index_service.readers.file_reader import Budget
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileList


class FileMatches(NamedTuple):
    """What one file answered: lookup `wanted[i]` has the rows `rows[offsets[i] : offsets[i + 1]]`."""

    handle: FileHandle
    schema: Schema
    dictionaries: Dictionaries
    wanted: np.ndarray  # i8
    offsets: np.ndarray  # i8, one more than wanted
    rows: np.ndarray  # structured, newest arrival first

    def lookups(self) -> np.ndarray:
        """Return the lookup (i8) of each row."""
        return np.repeat(self.wanted, np.diff(self.offsets))

    @property
    def is_one_each(self) -> bool:
        """Say whether lookup i, of all that this file was asked for, has row i."""
        return bool((np.diff(self.offsets) == 1).all() and (np.diff(self.wanted) > 0).all())


class FileMissing(NamedTuple):
    """A file that could not be asked, and the lookups (i8) that needed it."""

    missing: Missing
    lookups: np.ndarray


class Collected:
    """Matches newest file first. One thread."""

    def __init__(self, batch: LookupBatch, budget: Budget, files: FileList) -> None:
        """`files` are those of the snapshot, whether asked or not."""
        self.batch = batch
        self.budget = budget
        self.files = files
        self.matches: list[FileMatches] = []
        self.missing: list[FileMissing] = []
        self.counts = np.zeros(batch.count, np.int64)  # rows found, repeated locations included
        self._cut = np.zeros(batch.count, bool)  # a file may hold more rows than it was asked for
        self.deferred = np.zeros(
            batch.count, bool
        )  # answered one by one, no file is asked any more

    def add(self, found: FileMatches, limit: int) -> None:
        sizes = np.diff(found.offsets)
        self.matches.append(found)
        self.counts[found.wanted] += sizes
        self._cut[found.wanted[sizes >= limit]] = True

    def defer(self, lookups: np.ndarray) -> None:
        """Leave lookups to the single query, which does more work for each."""
        self.deferred[lookups] = True

    @property
    def is_certain(self) -> bool:
        """Say whether no lookup can be doubtful."""
        wanted = self.batch.max_count
        return not (self.deferred | self._cut | (self.counts >= wanted)).any()

    def doubtful(self, found: np.ndarray) -> np.ndarray:
        """Return the lookups (i8) whose rows here need not be the whole answer.

        `found` (i8) is how many entries each lookup's rows came to. Doubtful are deferred ones; and
        those that have fewer entries than they want though their rows were cut, in a file or
        because there seemed to be enough: some were the same location, or hidden by retention, so
        more may lie behind the cut.
        """
        wanted = self.batch.max_count
        return np.flatnonzero(
            self.deferred | ((found < wanted) & (self._cut | (self.counts >= wanted)))
        )
