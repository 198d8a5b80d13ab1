"""Which entries of a query belong to the requested page, and where the next page begins.

::

    walk, newest first:   new since then | pages before ......... C | this page ......... | the next
                                                            `cursor`^

A page is taken in one of two ways.

**By a jump**, nearly always: C is looked for where it lay in its file, whose form is the same as then.
Files before are not asked, items before are not walked: a page costs its entries. What lies behind C
is owed, unless it repeats what was returned. The cursor's `Floors` rule that out for all but replayed
entries and those out of order.

**By a walk**, where C is not there (its file was compacted or merged), or the floors do not rule out
that an entry was returned. From the newest file on everything is passed over up to C. Most of it was
returned by the pages before, and is not returned again where it is repeated. What was put meanwhile
was not: an entry of it that is repeated behind C is still owed. The cursor's sum tells the two apart:
what was returned lies next to C, and adds up to it. Where no such stretch does (another node published
in between), nothing counts as returned: rather an entry twice than one never.

Entries may move over C. A merge moves them where files of other nodes lie in between. Compaction and
merge keep the newest of an entry's repeats: one that was put again behind C's back, into C's file,
takes the older one there with it. Such a cursor has expired.

Depends on cursor, plan, repeats and lifecycle.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CursorExpiredError
from tierdex.index_service.query.plan import find_covering
from tierdex.index_service.requests.cursor import MERGES_BYTES, NO_PLACE, SUM_MODULUS, Cursor
from tierdex.index_service.requests.repeats import Floors, fingerprints_of, first_of_each
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import parse_file_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.answer import Identity
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList

CHAINED_FORM: Final = bytes(16)
_MOST_PASSED: Final = 4096  # items that a jump passes over in search of its entry: some pages' rows


class WalkNeededError(Exception):
    """A jump does not tell this page: take it by a walk."""


class Page:
    """One page of one walk. One thread."""

    def __init__(
        self, cursor: Cursor | None, files: FileList, key_hash: int, *, may_jump: bool
    ) -> None:
        """`files` are all of the snapshot. Raises CursorExpiredError when they cannot bridge."""
        self._before = self._cursor = cursor
        self._file = None if cursor is None else CursorMaker(files).file_of(cursor, key_hash)
        self._floors = Floors() if cursor is None else cursor.floors
        self._jumps = may_jump and self._may_jump()
        self._passed: list[np.ndarray] = []  # fingerprints, hidden ones left out
        self._passed_here: list[np.ndarray] = []  # in the cursor's file
        self._passed_count = 0
        self._returned: set[tuple[int, int]] = set()

    def _may_jump(self) -> bool:
        cursor, file = self._cursor, self._file
        if cursor is None or file is None or cursor.place == NO_PLACE:
            return False
        return _form_of(file) == cursor.form

    @property
    def newest(self) -> tuple[int, str] | None:
        """Return the key of the newest file that this page is in; None: any."""
        return self._file.key if self._jumps and self._file is not None else None

    def place_in(self, handle: FileHandle) -> int | None:
        """Return the place where the search of a file begins; None: at its newest item."""
        if self._jumps and self._cursor is not None and handle is self._file:
            return self._cursor.place
        return None

    @property
    def is_begun(self) -> bool:
        """Return whether the cursor's entry was met, or there is none."""
        return self._cursor is None

    def pass_over(self, handle: FileHandle, found: np.ndarray, hidden: np.ndarray) -> int:
        """Take note of the walk's next entries up to the cursor's; return how many do not count.

        `found` are fingerprints (u8[n, 2]), `hidden` b1[n]. Raises CursorExpiredError and
        WalkNeededError.
        """
        assert self._cursor is not None
        end = len(found)
        if handle is self._file:
            wanted = np.frombuffer(self._cursor.fingerprint, np.uint64)
            met = np.flatnonzero((found == wanted).all(1))
            if len(met):
                self._note(found[: met[0] + 1], hidden[: met[0] + 1], is_here=True)
                self._begin(handle, self._cursor)
                return int(met[0]) + 1
        self._note(found, hidden, is_here=handle is self._file)
        if self._jumps and self._passed_count > _MOST_PASSED:
            raise WalkNeededError
        return end

    def _note(self, found: np.ndarray, hidden: np.ndarray, *, is_here: bool) -> None:
        self._passed_count += len(found)
        if self._jumps:
            return
        shown = found[~hidden]
        self._passed.append(shown)
        if is_here:
            self._passed_here.append(shown)

    def _begin(self, handle: FileHandle, cursor: Cursor) -> None:
        """The cursor's entry is met: all that follow count."""
        self._cursor = None
        if self._jumps:
            return
        returned = _stretch(np.concatenate(self._passed), cursor.returned)
        if _form_of(handle) not in (CHAINED_FORM, cursor.form):
            # Its own fingerprint is the last: it was returned, even if it is hidden by now.
            here = np.concatenate(self._passed_here)
            own = np.frombuffer(cursor.fingerprint, np.uint64)[None]
            known = np.concatenate([returned, own])
            every = np.concatenate([known, here])
            if first_of_each([every[:, 1], every[:, 0]])[len(known) :].any():
                raise CursorExpiredError(
                    f"entries came into file {cursor.file_id} before it was compacted or merged; "
                    "query again without cursor",
                    field="cursor",
                )
        self._returned = set(map(tuple, returned.tolist()))
        self._passed, self._passed_here = [], []

    @property
    def owes_all(self) -> bool:
        """Return whether every entry behind the cursor is owed: no page came before."""
        return self._before is None

    def owes(self, identities: Sequence[Identity]) -> np.ndarray:
        """Return which entries behind the cursor (b1[n]) no page before has returned.

        Raises WalkNeededError.
        """
        unsure = np.array([not self._floors.clears(identity) for identity in identities], bool)
        if self._jumps and unsure.any():
            raise WalkNeededError
        owed = ~unsure
        for number in np.flatnonzero(unsure).tolist():
            found = fingerprints_of([identities[number]])[0]
            owed[number] = tuple(found.tolist()) not in self._returned
        return owed

    def begins_in(self, handle: FileHandle) -> bool:
        """Return whether the cursor's entry must be in this file, and was not met so far."""
        return self._cursor is not None and handle is self._file

    def trusts_place_in(self, handle: FileHandle) -> bool:
        """Return whether the search of a file follows a place that only the caller's cursor names.

        What it meets there may be no item at all, for all that is known: a walk tells damage from that.
        """
        return self._jumps and self.begins_in(handle)

    def check_begun(self, handle: FileHandle | None = None) -> None:
        """Raise CursorExpiredError if the entry was not met, in `handle` or (None) anywhere.

        WalkNeededError if it was only not met where it lay.
        """
        if self._cursor is not None and (handle is None or handle is self._file):
            if self._jumps:
                raise WalkNeededError
            raise CursorExpiredError(
                f"the entry that the cursor names is no longer in file {self._cursor.file_id}; "
                "query again without cursor",
                field="cursor",
            )


def _form_of(handle: FileHandle) -> bytes:
    """Return what changes when a file is compacted or merged, and at no other time."""
    is_chained = handle.state in (FileState.UNSEALED, FileState.SEALED)
    return CHAINED_FORM if is_chained else handle.uuid


class CursorMaker:
    """Makes and places cursors over the files of one snapshot. One thread."""

    def __init__(self, files: FileList) -> None:
        self._files = files
        self._places: dict[tuple[str, int | None], tuple[bytes, bytes]] = {}
        self._has_runs: dict[str, bool] = {}

    def after(
        self,
        digest: bytes,
        file_id: str,
        key_hash: int,
        identities: Sequence[Identity],
        place: int,
        before: Cursor | None,
    ) -> str:
        """Return the cursor behind the last of a page's entries, which is in file `file_id` at `place`.

        `before` is the cursor that the page began with.
        """
        found = fingerprints_of(identities)
        floors, total = Floors(), sum(found[:, 0].tolist())
        if before is not None:
            floors, total = before.floors, total + before.returned
        known = self.surroundings(file_id, key_hash)
        return Cursor(
            digest,
            found[-1].tobytes(),
            total % SUM_MODULUS,
            *known,
            place,
            file_id,
            floors.lowered(identities),
        ).encode()

    def surroundings(self, file_id: str, key_hash: int) -> tuple[bytes, bytes]:
        """Return a cursor's `merges` and `form` for an entry of file `file_id` with this hash."""
        place_of = file_id, key_hash if self.lies_in_runs(file_id) else None
        known = self._places.get(place_of)
        if known is None:
            file = find_covering(self._files, file_id, key_hash)
            form = CHAINED_FORM if file is None else _form_of(file)
            known = self._places[place_of] = (self._merges_across(file_id, key_hash), form)
        return known

    def lies_in_runs(self, file_id: str) -> bool:
        """Return whether pieces of runs lie across a file's place: then its answer goes by the hash."""
        known = self._has_runs.get(file_id)
        if known is None:
            rows = (handle.row for handle in self._files.across(*parse_file_id(file_id)))
            known = any(row is not None and row.hash_range is not None for row in rows)
            self._has_runs[file_id] = known
        return known

    def file_of(self, cursor: Cursor, key_hash: int) -> FileHandle:
        """Return the file that holds the cursor's entry now. Raises CursorExpiredError."""
        file_id = cursor.file_id
        found = find_covering(self._files, file_id, key_hash)
        if found is None:
            raise CursorExpiredError(
                f"the file {file_id} was expired or merged away; query again without cursor",
                field="cursor",
            )
        low, high = sorted((parse_file_id(file_id), found.key))
        # What lies between changed sides: it was before the cursor, and is behind its file now.
        between = self._files.iterate(low, high)
        changed_sides = any(
            low < handle.key < high and handle.may_hold_hash(key_hash) for handle in between
        )
        if changed_sides or self._merges_across(file_id, key_hash) != cursor.merges:
            raise CursorExpiredError(
                f"files on both sides of {file_id} were merged; query again without cursor",
                field="cursor",
            )
        return found

    def _merges_across(self, file_id: str, key_hash: int) -> bytes:
        """Return what stands for the merged files with parts on both sides of a file's place.

        Of a run it is the piece that may hold the hash.
        """
        place = parse_file_id(file_id)
        digest = None
        for handle in self._files.across(*place):  # a merged file has the number of its newest part
            if not handle.may_hold_hash(key_hash):
                continue
            parts = () if handle.row is None else handle.row.parts
            places = {handle.key, *((part.number, part.node) for part in parts)}
            if place not in places and min(places) < place < max(places):
                digest = digest or hashlib.blake2b(digest_size=MERGES_BYTES)
                digest.update(handle.uuid)
        return bytes(MERGES_BYTES) if digest is None else digest.digest()


def _stretch(passed: np.ndarray, total: int) -> np.ndarray:
    """Return the fingerprints (u8[n, 2]), going back from the cursor, that add up to `total`.

    Of one that comes several times the last counts. None when none do.
    """
    backwards = passed[::-1]
    distinct = backwards[first_of_each([backwards[:, 1], backwards[:, 0]])]
    ends = np.flatnonzero(np.cumsum(distinct[:, 0], dtype=np.uint64) == np.uint64(total))
    count = int(ends[0]) + 1 if len(ends) else 0
    stretch: np.ndarray = distinct[:count]
    return stretch
