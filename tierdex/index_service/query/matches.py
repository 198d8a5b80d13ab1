"""The matches of a batch of lookups so far, file by file: only rows that will be returned.

Rows come newest file first, and within a lookup newest arrival first: the order of the answers. Repeats of
an entry are left out as they come, so that `counts` says what each lookup still wants. Only lookups with
more than one row are looked at for that; most have one.

Depends on answer, indexfile, lookups, repeats and entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.index_service.answer import Missing
from tierdex.index_service.readers.entries import RowDecoder
from tierdex.index_service.requests.repeats import EntrySet
from tierdex.indexfile.schema import TABLE_ROW_SCHEMA

if TYPE_CHECKING:
    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.readers.file_reader import FileRows
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.table.file_handle import FileHandle


_UNKNOWN: Final = "has rows of a lake's table: which are live is known where the table is followed"


class FileMatches(NamedTuple):
    """Rows of one file: row i belongs to lookup `numbers[i]` and lies at `places[i]`."""

    handle: FileHandle
    hash_function: str | None
    schema: Schema
    dictionaries: Dictionaries
    numbers: np.ndarray  # i8
    rows: np.ndarray  # in the schema's item dtype
    places: np.ndarray  # i8

    @classmethod
    def of(cls, handle: FileHandle, hash_function: str | None, answer: FileRows) -> FileMatches:
        """Return what one file found for a batch."""
        found = answer.found
        sizes = found.offsets[1:] - found.offsets[:-1]
        is_one_each = len(found.rows) == len(sizes) and bool((sizes == 1).all())
        numbers = answer.wanted if is_one_each else np.repeat(answer.wanted, sizes)
        rows, places = found.rows, found.places
        return cls(handle, hash_function, answer.schema, answer.dictionaries, numbers, rows, places)

    def taken(self, which: np.ndarray | slice) -> FileMatches:
        """Return some of the rows, by number, mask or slice."""
        return self._replace(
            numbers=self.numbers[which], rows=self.rows[which], places=self.places[which]
        )

    def first(self, count: int) -> FileMatches:
        """Return the first rows, all of them if there are no more."""
        return self if len(self.rows) <= count else self.taken(slice(count))

    def decoder(self) -> RowDecoder:
        return RowDecoder(self.schema, self.dictionaries)


class FileMissing(NamedTuple):
    """A file that could not be asked, and the lookups (i8) that needed it."""

    missing: Missing
    lookups: np.ndarray


class Matches:
    """The rows of a batch, newest file first. One thread."""

    def __init__(self, lookups: Lookups) -> None:
        self.lookups = lookups
        self.files: list[FileMatches] = []
        self.missing: list[FileMissing] = []
        self.counts = np.zeros(lookups.count, np.int64)  # entries of each lookup
        self._entries = EntrySet()  # those of lookups with more than one row
        self._is_in_set = np.zeros(lookups.count, bool)

    def without_repeats(self, found: FileMatches) -> FileMatches:
        """Return the rows that no earlier row of the same lookup repeats."""
        counts = np.bincount(found.numbers, minlength=len(self.counts))
        has_several = (counts > 0) & (self.counts + counts > 1)
        if not has_several.any():
            return found
        self._keep_earlier(has_several & ~self._is_in_set & (self.counts > 0))
        self._is_in_set |= has_several
        which = np.flatnonzero(has_several[found.numbers])
        some = found.taken(which)
        is_new = self._entries.add(some.numbers, found.decoder().fingerprints(some.rows))
        return (
            found
            if is_new.all()
            else found.taken(np.delete(np.arange(len(found.rows)), which[~is_new]))
        )

    def add(self, found: FileMatches) -> None:
        """Add rows that `without_repeats` returned, all of them or some."""
        if len(found.rows):
            self.files.append(found)
            self.counts += np.bincount(found.numbers, minlength=len(self.counts))

    def hide_tables(self) -> bool:
        """Call rows of a lake's table missing: without the table's state a dead one looks live.

        Return whether there were any.
        """
        shown = []
        for file in self.files:
            if file.schema != TABLE_ROW_SCHEMA:
                shown.append(file)
                continue
            numbers = np.unique(file.numbers)
            self.counts -= np.bincount(file.numbers, minlength=len(self.counts))
            self.missing.append(FileMissing(Missing(file.handle.file_id, _UNKNOWN), numbers))
        has_any = len(shown) < len(self.files)
        self.files = shown
        return has_any

    def _keep_earlier(self, wanted: np.ndarray) -> None:
        """Note the entries of lookups (b1) that had one row so far."""
        if wanted.any():
            for file in self.files:
                some = file.taken(np.flatnonzero(wanted[file.numbers]))
                if len(some.rows):
                    self._entries.add(some.numbers, some.decoder().fingerprints(some.rows))
