"""Which entries of a query's walk belong to the page that is asked for, and where the next one begins.

::

    walk, newest first:   new since then | pages before ......... C | this page ......... | the next
                          `passed`: the last occurrence of each     `cursor`

Up to the cursor's entry C everything is passed over. Most of it was returned by the pages before, and
is not returned again where it is repeated. What was put meanwhile was not: an entry of it that is
repeated behind C is still owed. The cursor's sum tells the two apart: what was returned
lies next to C, and adds up to it. Where no such stretch does (another node published in between),
nothing counts as returned: rather an entry twice than one never.

Entries may move over C. A merge moves them where files of other nodes lie in between. Compaction and
merge keep the newest of an entry's repeats: one that was put again behind C's back, into C's file,
takes the older one there with it. Such a cursor has expired. Depends on cursor, plan and lifecycle.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from tierdex.errors import CursorExpiredError
from tierdex.index_service.cursor import (
    MERGES_BYTES,
    SUM_MODULUS,
    Cursor,
    fingerprint_identity,
    weigh,
)
from tierdex.index_service.plan import find_covering
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import parse_file_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tierdex.index_service.repeats import Identity
    from tierdex.lifecycle.file_handle import FileHandle


class Page:
    """One page of one walk. One thread."""

    def __init__(self, cursor: Cursor | None, files: Sequence[FileHandle]) -> None:
        """`files` are all of the snapshot. Raises CursorExpiredError when they cannot bridge."""
        self._before = self._cursor = cursor
        self._cursors = CursorMaker(files)
        self._file = None if cursor is None else self._cursors.file_of(cursor)
        self._passed: dict[Identity, None] = {}
        self._passed_here: list[Identity] = []  # in the cursor's file
        self._returned: set[Identity] = set()
        self._entries: dict[Identity, None] = {}

    def takes(self, handle: FileHandle, identity: Identity, *, is_hidden: bool) -> bool:
        """Say whether the walk's next entry is one of this page; it is then counted as returned."""
        if self._cursor is not None:
            self._pass(self._cursor, handle, identity, is_hidden=is_hidden)
            return False
        if is_hidden or identity in self._entries or identity in self._returned:
            return False
        self._entries[identity] = None
        return True

    def _pass(
        self, cursor: Cursor, handle: FileHandle, identity: Identity, *, is_hidden: bool
    ) -> None:
        if not is_hidden:
            self._passed.pop(identity, None)  # to the end: its last occurrence counts
            self._passed[identity] = None
        if handle is not self._file:
            return
        if fingerprint_identity(identity) == cursor.fingerprint:
            self._returned = _stretch(reversed(self._passed), cursor.returned)
            if _form_of(handle) not in (_CHAINED, cursor.form):
                self._check_none_moved(cursor)
            self._cursor = None
            self._passed, self._passed_here = {}, []
        elif not is_hidden:
            self._passed_here.append(identity)

    def _check_none_moved(self, cursor: Cursor) -> None:
        """Refuse a cursor whose file took entries that were not returned, and was compacted then."""
        if not self._returned.issuperset(self._passed_here):
            raise CursorExpiredError(
                f"entries came into file {cursor.file_id} before it was compacted or merged; query "
                "again without cursor",
                field="cursor",
            )

    def begins_in(self, handle: FileHandle) -> bool:
        """Say whether the cursor's entry must be in this file, and was not met so far."""
        return self._cursor is not None and handle is self._file

    def check_begun(self, handle: FileHandle | None = None) -> None:
        """Raise CursorExpiredError if the entry was not met, in `handle` or (None) anywhere."""
        if self._cursor is not None and (handle is None or handle is self._file):
            raise CursorExpiredError(
                f"the entry that the cursor names is no longer in file {self._cursor.file_id}; "
                "query again without cursor",
                field="cursor",
            )

    def next_cursor(self, digest: bytes, file_id: str) -> str:
        """Return where the page after this one begins: behind its last entry, in `file_id`."""
        returned = 0 if self._before is None else self._before.returned
        return self._cursors.after(digest, file_id, self._entries, returned)


_CHAINED: Final = bytes(16)


def _form_of(handle: FileHandle) -> bytes:
    """Return what changes when a file is compacted or merged, and at no other time."""
    is_chained = handle.state in (FileState.UNSEALED, FileState.SEALED)
    return _CHAINED if is_chained else handle.uuid


class CursorMaker:
    """Makes and places cursors over the files of one snapshot. One thread."""

    def __init__(self, files: Sequence[FileHandle]) -> None:
        self._files = files
        self._places: dict[str, tuple[bytes, bytes]] = {}

    def after(
        self, digest: bytes, file_id: str, page: Iterable[Identity], returned: int = 0
    ) -> str:
        """Return the cursor behind the last location of `page`, which is in file `file_id`.

        `returned` is the sum of the pages before.
        """
        fingerprints = list(map(fingerprint_identity, page))
        total = (returned + sum(map(weigh, fingerprints))) % SUM_MODULUS
        place = self._places.get(file_id)
        if place is None:
            file = find_covering(self._files, file_id)
            form = _CHAINED if file is None else _form_of(file)
            place = self._places[file_id] = (self._merges_across(file_id), form)
        return Cursor(digest, fingerprints[-1], total, *place, file_id).encode()

    def file_of(self, cursor: Cursor) -> FileHandle:
        """Return the file that holds the cursor's entry now. Raises CursorExpiredError."""
        file_id = cursor.file_id
        found = find_covering(self._files, file_id)
        if found is None:
            raise CursorExpiredError(
                f"the file {file_id} was expired or merged away; query again without cursor",
                field="cursor",
            )
        low, high = sorted((parse_file_id(file_id), found.key))
        # What lies between changed sides: it was before the cursor, and is behind its file now.
        changed_sides = any(low < handle.key < high for handle in self._files)
        if changed_sides or self._merges_across(file_id) != cursor.merges:
            raise CursorExpiredError(
                f"files on both sides of {file_id} were merged; query again without cursor",
                field="cursor",
            )
        return found

    def _merges_across(self, file_id: str) -> bytes:
        """Return what stands for the merged files with parts on both sides of a file's place."""
        place = parse_file_id(file_id)
        digest = None
        for handle in self._files:
            parts = () if handle.row is None else handle.row.parts
            if not parts or handle.number < place[0]:
                continue  # a merged file has the number of its newest part
            places = {handle.key, *((part.number, part.node) for part in parts)}
            if place not in places and min(places) < place < max(places):
                digest = digest or hashlib.blake2b(digest_size=MERGES_BYTES)
                digest.update(handle.uuid)
        return bytes(MERGES_BYTES) if digest is None else digest.digest()


def _stretch(backwards: Iterator[Identity], total: int) -> set[Identity]:
    """Return the locations, going back from the cursor, that add up to `total`; none if none do."""
    found: set[Identity] = set()
    reached = 0
    for identity in backwards:
        found.add(identity)
        reached = (reached + weigh(fingerprint_identity(identity))) % SUM_MODULUS
        if reached == total:
            return found
    return set()
