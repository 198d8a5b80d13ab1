"""Forgotten entries: what manifests say of them, and which rows of a file they are. Pure.

::

    asked: (topic, kind, hash) --look in every file--> entries: (hash, fingerprint), in files <= bounds

A file of rows can be forgotten whole (`sources`): then every row that names it, in files that hold nothing
which was put later, and no list of entries is needed.

An entry is forgotten by what it is: its key's hash, its location and its time, and by the files that
may hold it: those of a node up to the number in `bounds`. The hash alone never hides anything. So an
entry that was put later shows, though its key, or a key with the same hash, was forgotten before; and
the caller decides which of the entries under a hash are meant (decision
0038).

The records lie in the manifest of one shared node, `FORGOTTEN_NODE`, that every reader reads, before
all others: a record goes when no listed file holds its entries any more.

Depends on indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.indexfile.row_identity import row_fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.manifests.file_row import FilePlace, FileRef

FORGOTTEN_NODE: Final = "forgotten"
SOURCE_FIELD: Final = "source"  # of schemas whose entries name a file of rows
ENTRY: Final = np.dtype([("key_hash", "<u8"), ("low", "<u8"), ("high", "<u8")])


class AskedHash(NamedTuple):
    """What is to be forgotten, as index files know it; a message ID may be of any topic (None)."""

    topic: str | None
    kind: int  # 0: a key, 1: a message ID
    key_hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """One request to forget, and how far it has come.

    `entries` are rows of `ENTRY`, as bytes; `files` those that held them when they were looked for.
    `only` are the (queue, offset) that are meant; None: every entry under the hashes is.
    `bounds` are the last file of each node that may hold what was acknowledged before `time_ms`; nodes
    in `waits` may hold more: their owners have not published, or rolled, all of that yet. `number` is
    that of the manifest of `FORGOTTEN_NODE` which says so, `begun` that of the first one; 0: none yet.
    """

    uuid: bytes
    number: int = 0
    begun: int = 0
    time_ms: int
    asked: tuple[AskedHash, ...]
    waits: tuple[str, ...] = ()
    only: tuple[tuple[int, int], ...] | None = None
    only_node: str | None = None  # whose entries are meant alone; None: all nodes'
    sources: tuple[
        str, ...
    ] = ()  # files of rows of which every entry is meant; `asked` is empty then
    rewrites: bool = False  # owners write the files anew at once, not when they are merged next
    entries: bytes = b""
    bounds: Mapping[str, int] = field(default_factory=dict)  # node -> file number
    files: tuple[FileRef, ...] = ()

    @property
    def is_open(self) -> bool:
        return bool(self.waits)

    def may_be_in(self, place: FilePlace) -> bool:
        """Return whether the file existed when the entries were looked for, or was made of one that did.

        What was merged without knowing of this record, at another node or under a number above the
        bound, holds what its parts held. All of that was put before the record was committed.
        """
        return self._was_there(place) or self._is_made_of(place, self.number)

    def may_find_in(self, place: FilePlace) -> bool:
        """Return whether all that the file holds was put before the record was committed first.

        What is found there may be taken into the record while it is open. A merge that knew of it
        may hold what was put since, beside what is of before.
        """
        return self._was_there(place) or self._is_made_of(place, self.begun)

    def is_left_out_of(self, place: FilePlace) -> bool:
        """Return whether a file was written, or written anew, by who knew all of the record."""
        row = place.row
        through = None if row is None else row.forgets_through
        return self.number > 0 and through is not None and through >= self.number

    def _was_there(self, place: FilePlace) -> bool:
        return place.number <= self.bounds.get(place.node, -1)

    def _is_made_of(self, place: FilePlace, known: int) -> bool:
        """Return whether a merge without knowledge of the manifest `known` has parts within the bounds."""
        row = place.row
        if row is None or row.forgets_through is None or row.forgets_through >= known:
            return False
        return any(part.number <= self.bounds.get(part.node, -1) for part in row.parts)


class ForgottenEntries:
    """All forgotten entries of a store, as of one reading. Immutable, safe to share."""

    def __init__(self, records: Iterable[Forgetting] = (), number: int = 0) -> None:
        """`number` is that of the manifest of `FORGOTTEN_NODE` that was read; 0: there is none."""
        self.records = tuple(records)
        self.number = number
        self._holders: dict[tuple[int, int, int], list[Forgetting]] = {}
        for record in self.records:
            for entry in np.frombuffer(record.entries, ENTRY).tolist():
                self._holders.setdefault(entry, []).append(record)
        self.hashes = frozenset(entry[0] for entry in self._holders)
        self.sources: dict[str, list[Forgetting]] = {}
        for record in self.records:
            for source in record.sources:
                self.sources.setdefault(source, []).append(record)
        self._sorted = np.array(sorted(self.hashes), np.uint64)

    def __bool__(self) -> bool:
        return bool(self._holders or self.sources)

    @property
    def open_records(self) -> list[Forgetting]:
        """Return the requests that owners have not all acknowledged."""
        return [record for record in self.records if record.is_open]

    @property
    def waiting_nodes(self) -> frozenset[str]:
        """Return the nodes whose owners have not acknowledged some request."""
        return frozenset(node for record in self.records for node in record.waits)

    def may_be_in(self, place: FilePlace) -> bool:
        """Return whether any forgotten entry may be in a file."""
        return any(record.may_be_in(place) for record in self.records)

    def are_asked(self, hashes: np.ndarray) -> np.ndarray:
        """Return which hashes (b1[n] of u8[n]) some forgotten entry has."""
        if not len(self._sorted):
            return np.zeros(len(hashes), bool)
        places = np.searchsorted(self._sorted, hashes)
        found: np.ndarray = self._sorted[np.minimum(places, len(self._sorted) - 1)] == hashes
        return found

    def hidden(
        self, place: FilePlace, schema: Schema, dictionaries: Dictionaries, rows: np.ndarray
    ) -> np.ndarray | None:
        """Return which rows (b1[n]) of a file are forgotten; None: none."""
        if not self or not len(rows):
            return None
        gone = self._of_sources(place, dictionaries, rows)
        named = self._of_names(place, schema, dictionaries, rows)
        if gone is None or named is None:
            return named if gone is None else gone
        either: np.ndarray = gone | named
        return either

    def _of_sources(
        self, place: FilePlace, dictionaries: Dictionaries, rows: np.ndarray
    ) -> np.ndarray | None:
        """Return which rows are of files that are forgotten whole; None: none."""
        if not self.sources or SOURCE_FIELD not in dictionaries.names:
            return None
        mask = np.zeros(len(rows), bool)
        for source, records in self.sources.items():
            index = dictionaries.index(SOURCE_FIELD, source)
            if index >= 0 and any(record.may_find_in(place) for record in records):
                mask |= rows[SOURCE_FIELD] == index
        return mask if mask.any() else None

    def _of_names(
        self, place: FilePlace, schema: Schema, dictionaries: Dictionaries, rows: np.ndarray
    ) -> np.ndarray | None:
        """Return which rows are entries that are listed; None: none."""
        some = np.flatnonzero(self.are_asked(rows["key_hash"]))
        if not len(some) or not self.may_be_in(place):
            return None
        prints = row_fingerprints(schema, dictionaries, rows[some])
        entries = zip(rows["key_hash"][some].tolist(), *prints.T.tolist(), strict=True)
        mask = np.zeros(len(rows), bool)
        mask[some] = [
            any(record.may_be_in(place) for record in self._holders.get(entry, ()))
            for entry in entries
        ]
        return mask if mask.any() else None


NOTHING_FORGOTTEN: Final = ForgottenEntries()


def entries_of_rows(schema: Schema, dictionaries: Dictionaries, rows: np.ndarray) -> np.ndarray:
    """Return which entry (`ENTRY`) each row of a file is."""
    prints = row_fingerprints(schema, dictionaries, rows)
    entries = np.empty(len(rows), ENTRY)
    entries["key_hash"], entries["low"], entries["high"] = rows["key_hash"], *prints.T
    return entries
