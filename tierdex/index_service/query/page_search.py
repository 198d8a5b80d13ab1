"""One page of a lookup out of memory: where it begins, what belongs to it, and the cursor behind it.

::

    cursor's place --> rows of the chained files, by their finder --> entries of other files (MemorySearch)
                       one more than a page has tells whether there is a next one

A page behind a cursor is taken here when its entry lies where the cursor says, in a chained file, and its
floors rule out that an entry was returned before. Every other one is the general path's (paging.py).

Depends on memory_page, memory_search, paging, freshness, requests, answer, indexfile and errors.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer import identity_of
from tierdex.index_service.query.memory_page import (
    MessageColumns,
    PendingCursor,
    entries_of_rows,
)
from tierdex.index_service.query.memory_search import Begun, MemorySearch
from tierdex.index_service.query.paging import CHAINED_FORM
from tierdex.index_service.requests.cursor import decode_cursor, digest_query
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID, TOPIC_MASK
from tierdex.indexfile.lookup import START, Lookup
from tierdex.indexfile.row_identity import message_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.answer import Entry
    from tierdex.index_service.query.memory_plan import MemoryPlan
    from tierdex.index_service.query.memory_search import MemoryFile
    from tierdex.index_service.requests.cursor import Cursor
    from tierdex.index_service.view.freshness import Freshness
    from tierdex.indexfile.chained.message_finder import FoundRows

_MOST_ROWS: Final = 1026  # of a page with one entry more, and the cursor's own


class Page(NamedTuple):
    """The entries of a page, and what its cursor is made of; None: nothing is left."""

    entries: list[Entry]
    next_cursor: PendingCursor | None


class PageSearch(NamedTuple):
    """What is asked of one version of the files."""

    plan: MemoryPlan
    name: str
    times: tuple[int, int]
    max_count: int
    cursor_text: object

    def run(self, freshness: Freshness) -> Page | Begun | None:
        """Return the page, or what memory has of it; None: the general path is to take it from its begin."""
        cursor, first, row = None, 0, START
        if self.cursor_text is not None:
            cursor = self._cursor()
            number = None if cursor is None else self.plan.number_of(cursor.file_id)
            if cursor is None or number is None:
                return None
            first, row = number, cursor.place
        if self.plan.finder is None:
            return self.go_on(None, freshness)
        limit = min(self.max_count + 1 + (cursor is not None), _MOST_ROWS)
        found = self.plan.finder.find(self.name, limit, *self.times, file=first, row=row)
        if found is None or (cursor is not None and not self._begins_behind(cursor, first, found)):
            return None
        topic, skipped = self.plan.topic, int(cursor is not None)
        is_full = len(found) - skipped > self.max_count
        is_all = found.next_file is None and not self.plan.asks_others
        if topic is None or not (is_full or is_all):
            return self.go_on(found, freshness, cursor)
        end = min(len(found), skipped + self.max_count)
        entries = entries_of_rows(found, skipped, end, self.plan.sources, topic)
        if cursor is not None and entries:
            is_clear = cursor.floors.lie_above(max(found.timestamp[skipped:end]))
            columns = None if is_clear else MessageColumns.of_rows(found, skipped, end, topic)
            if columns is not None and not columns.are_cleared_by(cursor.floors):
                return None
        if not is_full:
            return Page(entries, None)
        source, place = self.plan.sources[found.file[end - 1]], found.row[end - 1]
        made = partial(MessageColumns.of_rows, found, skipped, end, topic)
        return Page(entries, self._behind(made, source, place, found.key_hash, cursor))

    def go_on(
        self, found: FoundRows | None, freshness: Freshness, cursor: Cursor | None = None
    ) -> Page | Begun | None:
        """Look in the files that have no finder; of those that have one, `found` is known."""
        key_hash = self.plan.hash_of(self.name) if found is None else found.key_hash
        if key_hash is None:
            return None
        lookup = Lookup(key_hash, self._kind, self.plan.topic)
        search = MemorySearch(self.plan.files, lookup, self.times)
        if found is not None:
            search.take_rows(found)
        skipped = int(cursor is not None)
        if search.where is None:
            search.run(self.plan.others, self.max_count + skipped)
        entries = search.entries()
        first: dict[object, int] = {}
        for number, entry in enumerate(entries):
            first.setdefault(identity_of(entry), number)
        numbers = list(first.values())[skipped:]
        is_full = len(numbers) > self.max_count or (
            search.where is not None and len(numbers) == self.max_count
        )
        if search.where is not None and not is_full:
            return None if cursor is not None else search.begun(freshness)
        numbers = numbers[: self.max_count]
        shown = [entries[number] for number in numbers]
        if not shown or (not is_full and cursor is None):
            return Page(shown, None)
        columns = MessageColumns.of(shown)
        if cursor is not None and not columns.are_cleared_by(cursor.floors):
            return None
        if not is_full:
            return Page(shown, None)
        source, place = search.place_of(numbers[-1])
        return Page(shown, self._behind(lambda: columns, source, place, key_hash, cursor))

    @property
    def _kind(self) -> int:
        return KIND_MESSAGE_ID if self.plan.topic is None else KIND_KEY

    @property
    def _asked(self) -> tuple[object, ...]:
        return (self.plan.topic, self._kind, self.name, *self.times)

    def _cursor(self) -> Cursor | None:
        """Return the cursor, if its entry lay in a chained file."""
        if type(self.cursor_text) is not str or type(self.name) is not str:
            return None
        try:
            cursor = decode_cursor(self.cursor_text, digest_query(*self._asked))
        except InvalidRequestError:
            return None
        return cursor if cursor.place > 0 and cursor.form == CHAINED_FORM else None

    def _begins_behind(self, cursor: Cursor, first: int, found: FoundRows) -> bool:
        """Return whether the first row is the cursor's entry, and the files around are as they were."""
        if not found.row or found.file[0] != first or found.row[0] != cursor.place:
            return False
        topic = self.plan.topic
        if topic is None:
            topic = self.plan.sources[first].names[found.tag[0] & TOPIC_MASK]
        columns = (found.offset, found.size, found.queue_id, found.timestamp)
        if message_fingerprint(topic, *(column[0] for column in columns)) != cursor.fingerprint:
            return False
        files = self.plan.files.version.files
        merges, _ = self.plan.sources[first].surroundings(files, found.key_hash)
        return bool(merges == cursor.merges)

    def _behind(
        self,
        columns: Callable[[], MessageColumns],
        source: MemoryFile,
        place: int,
        key_hash: int,
        before: Cursor | None,
    ) -> PendingCursor:
        around = source.surroundings(self.plan.files.version.files, key_hash)
        file_id = source.handle.file_id
        return PendingCursor(self._asked, columns, around, place, file_id, before)
