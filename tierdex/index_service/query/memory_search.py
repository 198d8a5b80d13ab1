"""One lookup in the newest files, newest first, as far as memory can answer it: a page, or what it began.

::

    a run of local files    one call of its finder, for all of them
    published ones          by a sidecar that is open, and pages in the page cache

It sends no request and opens no file. Where memory does not tell, `PartialLookup` says what was found and
where the search stopped: the general path takes the rows and goes on there.

A page behind a cursor is taken here when its entry lies where the cursor says, in a local file, and its
floors rule out that an entry was returned before. Every other one is the general path's (paging.py).

Depends on matches, memory_page, memory_plan, freshness, requests, indexfile, answer and errors.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import InvalidRequestError, TierdexError
from tierdex.index_service.answer import Entry, identity_of
from tierdex.index_service.query.matches import FileMatches
from tierdex.index_service.query.memory_page import MessageColumns, PendingCursor
from tierdex.index_service.query.memory_plan import Run
from tierdex.index_service.requests.cursor import NO_PLACE, decode_cursor, digest_query
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID, TOPIC_MASK
from tierdex.indexfile.lookup import DONE, NOTHING, START, Lookup
from tierdex.indexfile.message_finder import NOT_ASKED, NOT_IN_FILTER, NOT_IN_TIME, Told
from tierdex.indexfile.row_identity import message_fingerprint
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.answer import Identity
    from tierdex.index_service.query.memory_files import MemoryFile
    from tierdex.index_service.query.memory_plan import MemoryPlan
    from tierdex.index_service.query.trace import Trace
    from tierdex.index_service.requests.cursor import Cursor
    from tierdex.index_service.view.freshness import Freshness
    from tierdex.indexfile.lookup import Few
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList

_new_tuple: Any = tuple.__new__
_OUTCOMES: Final = {NOT_IN_TIME: "pruned_by_time", NOT_IN_FILTER: "pruned_by_filter"}


class Page(NamedTuple):
    """The entries of a page, and what its cursor is made of; None: nothing is left."""

    entries: list[Entry]
    next_cursor: PendingCursor | None


class PartialLookup(NamedTuple):
    """A lookup that memory answered in part: the rows of its newest files, and where the search goes on."""

    key_hash: int
    files: FileList  # of the version whose files were searched
    freshness: Freshness  # before they were
    found: list[FileMatches]
    where: tuple[FileHandle, int] | None  # the file and the place in it; None: no file is left
    trace: Trace | None = None  # of an explained one


class _Piece(NamedTuple):
    """Entries of one step, and where each lies: a file of `sources`, by number, and the place in it."""

    entries: list[Entry]
    sources: Sequence[MemoryFile]
    readers: Sequence[Any]  # what decodes the rows of each
    files: Sequence[int]
    places: Sequence[int]

    def taken(self, which: list[int]) -> _Piece:
        """Return some of the entries, by number."""
        return self._replace(
            entries=[self.entries[number] for number in which],
            files=[self.files[number] for number in which],
            places=[self.places[number] for number in which],
        )


class MemorySearch:
    """One lookup in files of one version of the table. One thread."""

    __slots__ = (
        "_cursor", "_entries", "_hash", "_latest", "_max_count", "_name",
        "_pieces", "_plan", "_times", "_trace", "_where",
    )  # fmt: skip

    def __init__(
        self,
        plan: MemoryPlan,
        name: Any,
        times: tuple[int, int],
        max_count: int,
        trace: Trace | None = None,
    ) -> None:
        """Look `name` up; `trace` hears of each file."""
        self._trace = trace
        self._plan = plan
        self._name = name
        self._times = times
        self._max_count = max_count
        self._cursor: Cursor | None = None
        self._hash: int | None = None  # of the name, once it is asked for
        self._entries: list[Entry] = []
        self._pieces: list[_Piece] = []
        self._latest: int | None = None  # greatest time of the entries, if it is known
        self._where: tuple[FileHandle, int] | None = None  # where memory does not tell

    def page(self, cursor_text: object, freshness: Freshness) -> Page | PartialLookup | None:
        """Return the page behind a cursor (None: the first); None: the general path takes it."""
        step, first, start = 0, 0, START
        if cursor_text is not None:
            self._cursor = self._decoded(cursor_text)
            known = None if self._cursor is None else self._plan.places.get(self._cursor.file_id)
            if self._cursor is None or known is None:
                return None
            (step, first), start = known, self._cursor.place
        run = self._plan.steps[step]
        assert isinstance(run, Run)
        entries: list[Any] = []
        begun = self._begin_step()
        count, file, place, _, _ = run.finder.find(
            self._name, entries, *self._times, self._max_count, first, start, 1
        )
        if count < 0:
            return None
        told = Told.of(entries.pop(), len(entries))
        if self._trace is not None:
            self._note(run, told, file if count <= self._max_count else -1, begun)
        if self._cursor is not None and not self._begins_behind(
            self._cursor, run.sources[first], entries.pop(0)
        ):
            return None
        self._take(run, entries, told)
        self._latest = told.latest
        if count > self._max_count:
            return self._page(is_full=True)
        return self._go_on(step, file, place, freshness)

    def go_on(
        self, entries: list[Any], file: int, place: int, freshness: Freshness
    ) -> Page | PartialLookup | None:
        """Go on behind what the first run found, which did not end the search."""
        data = entries.pop()
        if entries:
            self._take(self._plan.first, entries, Told.of(data, len(entries)))
        return self._go_on(0, file, place, freshness)

    def _take(self, run: Run, entries: list[Entry], told: Told) -> None:
        """Add what a finder found."""
        begin = len(told.files) - len(entries)  # behind the cursor's own
        self._add(
            _Piece(entries, run.sources, run.readers, told.files[begin:], told.places[begin:])
        )

    def _go_on(
        self, step: int, file: int, place: int, freshness: Freshness
    ) -> Page | PartialLookup | None:
        """Look in the steps behind one that ended in file `file` of its run, at `place`."""
        steps, most = self._plan.steps, self._max_count
        run = steps[step]
        assert isinstance(run, Run)
        if file < run.finder.count:
            self._where = run.sources[file].handle, place
        else:
            self._search(steps[step + 1 :])
            if step + 1 < len(steps):
                self._latest = None
        self._drop_repeats()
        count = len(self._entries)
        is_full = count > most or (self._where is not None and count == most)
        if self._where is not None and not is_full:
            return None if self._cursor is not None else self._begun(freshness)
        return self._page(is_full=is_full)

    def _page(self, *, is_full: bool) -> Page | None:
        """Return the page of what was found; None where a page before may have returned some of it."""
        entries = self._entries
        if len(entries) > self._max_count:
            entries = entries[: self._max_count]
        if entries and self._cursor is not None and not self._is_owed(entries, self._cursor):
            return None
        behind = None
        if is_full:
            source, place = self._place_of(len(entries) - 1)
            behind = pending_cursor(
                self._plan, self._asked, entries, source, place, self._cursor, self._hash
            )
        return Page(entries, behind)

    def _search(self, steps: Sequence[Run | MemoryFile]) -> None:
        """Search until there are more entries than wanted, or one that memory does not tell."""
        lookup: Lookup | None = None
        times, trace = self._times, self._trace
        for step in steps:
            if len(self._entries) > self._max_count:
                self._drop_repeats()
                if len(self._entries) > self._max_count:
                    return
            if isinstance(step, Run):
                if not self._search_run(step):
                    return
                continue
            if lookup is None:
                lookup = self._lookup
            begun = 0.0 if trace is None else self._begin_step()
            self._where = step.handle, START
            try:
                reader, few = step.search(lookup, *times)
            except TierdexError:
                return  # closed, damaged: the general path meets it again and says so
            # The files that were not asked for their times or topic are noted last, with their reasons.
            is_told = few is NOTHING and (trace is None or reader is None)
            if not is_told and not self._take_published(step, reader, few, begun):
                return
        beyond = self._plan.files.beyond
        self._where = None if beyond is None else (beyond, START)

    def _search_run(self, run: Run) -> bool:
        """Search a run of local files; say whether memory told everything of it."""
        if not run.sources:
            return True
        entries: list[Any] = []
        begun = self._begin_step()
        count, file, place, _, _ = run.finder.find(
            self._name, entries, *self._times, self._max_count, 0, START, 1
        )
        if count < 0:
            self._where = run.sources[0].handle, START
            return False
        told = Told.of(entries.pop(), len(entries))
        if self._trace is not None:
            self._note(run, told, file if count <= self._max_count else -1, begun)
        self._take(run, entries, told)
        if file < run.finder.count:
            self._where = run.sources[file].handle, place
        return file == run.finder.count

    def _take_published(self, source: MemoryFile, reader: Any, few: Few, begun: float) -> bool:
        """Take what memory has of a published file; say whether that is everything."""
        trace = self._trace
        is_done = few.following == DONE
        if not is_done and len(self._entries) + len(few.rows) < self._max_count:
            return (
                False  # the general path finds these few rows again faster than it takes them over
            )
        if trace is not None and is_done:
            outcome = "read" if few.rows else "pruned_by_filter"
            trace.note_memory(source.handle, outcome, len(few.rows), len(few.rows), begun)
            trace.stages.enter("plan")
        if few.rows:
            names = reader.dictionaries.strings(TOPIC_DICTIONARY)
            entries = [
                _new_tuple(
                    Entry,
                    (names[tag & TOPIC_MASK], queue_id, offset, size, time, *source.tail),
                )
                for _, _, tag, time, offset, size, queue_id in few.rows
            ]
            places = memoryview(few.places).cast("q")
            self._add(_Piece(entries, (source,), (reader,), bytes(len(places)), places))
        self._where = None if is_done else (source.handle, few.following)
        return is_done

    def _begin_step(self) -> float:
        """Return the time, where the steps are noted."""
        if self._trace is None:
            return 0.0
        self._trace.stages.enter("local")
        return self._trace.now()

    def _note(self, run: Run, told: Told, stopped: int, begun: float) -> None:
        """Note the files of a run that were asked, but the one where memory stopped."""
        assert self._trace is not None
        for number, items in enumerate(told.items):
            if number == stopped or items == NOT_ASKED:
                continue
            outcome = _OUTCOMES.get(items, "read")
            entries = told.files.tolist().count(number) if items > 0 else 0
            source = run.sources[number]
            self._trace.note_memory(source.handle, outcome, max(items, 0), entries, begun)
        self._trace.stages.enter("plan")

    def note_others(self) -> None:
        """Note the files that were not asked, once the page is made."""
        assert self._trace is not None
        lookup = Lookup(0, self._kind, self._plan.topic)
        self._trace.note_all_others(self._plan.files.version.files, lookup, *self._times)

    def _add(self, piece: _Piece) -> None:
        """Add a piece; what repeats an entry of another one goes with `_drop_repeats`."""
        if not piece.entries:
            return
        self._entries = self._entries + piece.entries if self._pieces else piece.entries
        self._pieces.append(piece)

    def _drop_repeats(self) -> None:
        """Leave out what an entry of an earlier piece repeats; in one piece there are none."""
        if len(self._pieces) < 2:
            return
        if len({(entry.timestamp, entry.offset) for entry in self._entries}) == len(self._entries):
            return
        known: set[Identity] = set()
        pieces = []
        for piece in self._pieces:
            which = []
            for number, entry in enumerate(piece.entries):
                identity = identity_of(entry)
                if identity not in known:
                    known.add(identity)
                    which.append(number)
            pieces.append(piece.taken(which))
        self._pieces = [piece for piece in pieces if piece.entries]
        self._entries = [entry for piece in self._pieces for entry in piece.entries]

    def _place_of(self, number: int) -> tuple[MemoryFile, int]:
        """Return the file of an entry, and its place in it."""
        for piece in self._pieces:
            if number < len(piece.entries):
                return piece.sources[piece.files[number]], piece.places[number]
            number -= len(piece.entries)
        raise AssertionError("an entry that was not found")

    @property
    def _key_hash(self) -> int:
        if self._hash is None:
            self._hash = self._plan.hash_of(self._name)
        return self._hash

    @property
    def _lookup(self) -> Lookup:
        return Lookup(self._key_hash, self._kind, self._plan.topic)

    @property
    def _kind(self) -> int:
        return KIND_MESSAGE_ID if self._plan.topic is None else KIND_KEY

    @property
    def _asked(self) -> tuple[object, ...]:
        return (self._plan.topic, self._kind, str.__str__(self._name), *self._times)

    def _begun(self, freshness: Freshness) -> PartialLookup:
        """Return what the general path goes on with."""
        key_hash = self._key_hash
        found = []
        for entries, sources, readers, files, places in self._pieces:
            begin = 0
            for file, group in groupby(files):
                end = begin + len(list(group))
                reader = readers[file]
                rows = [
                    (
                        key_hash, 0, reader.tag_of(entry.topic, self._kind), entry.timestamp, entry.offset,
                        entry.size, entry.queue_id,
                    )
                    for entry in entries[begin:end]
                ]  # fmt: skip
                found.append(
                    FileMatches(
                        sources[file].handle,
                        None,
                        reader.schema,
                        reader.dictionaries,
                        np.zeros(len(rows), np.int64),
                        np.array(rows, reader.schema.dtype),
                        np.array(places[begin:end], np.int64),
                    )
                )
                begin = end
        return PartialLookup(
            key_hash, self._plan.files.version.files, freshness, found, self._where, self._trace
        )

    # -- pages ------------------------------------------------------------------------------------------

    def _decoded(self, text: object) -> Cursor | None:
        """Return a cursor whose entry lay at a place; None when it is wrong."""
        if not isinstance(text, str) or not isinstance(self._name, str):
            return None
        try:
            cursor = decode_cursor(text, digest_query(*self._asked))
        except InvalidRequestError:
            return None
        return None if cursor.place == NO_PLACE else cursor

    def _begins_behind(self, cursor: Cursor, source: MemoryFile, entry: Entry) -> bool:
        """Say whether an entry is the cursor's, and the files around are as they were."""
        topic, queue_id, offset, size, timestamp, *_ = entry
        if message_fingerprint(topic, offset, size, queue_id, timestamp) != cursor.fingerprint:
            return False
        files = self._plan.files.version.files
        around = source.surroundings(files, self._key_hash)
        return around == (cursor.merges, cursor.form)

    def _is_owed(self, entries: list[Entry], cursor: Cursor) -> bool:
        """Say whether no page before returned one of the entries, as far as that is quickly told."""
        if self._latest is not None and cursor.floors.lie_above(self._latest):
            return True
        return MessageColumns.of(entries).are_cleared_by(cursor.floors)


def pending_cursor(
    plan: MemoryPlan,
    asked: tuple[object, ...],
    entries: list[Entry],
    source: MemoryFile,
    place: int,
    before: Cursor | None = None,
    key_hash: int | None = None,
) -> PendingCursor:
    """Return the cursor behind a page, of which the last entry is in file `source` at `place`.

    `before` is the one that the page began with, `key_hash` the hash of the name if it is known.
    """
    around = source.known_surroundings
    if around is None:
        known = plan.hash_of(asked[2]) if key_hash is None else key_hash
        around = source.surroundings(plan.files.version.files, known)
    return PendingCursor(asked, tuple(entries), around, place, source.handle.file_id, before)
