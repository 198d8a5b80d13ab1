"""One lookup in the newest files, newest first, as far as memory can answer it.

::

    local files        the filters of all compacted ones in one call, then those that may hold the key
    published ones     by a sidecar that is open, and pages in the page cache

It sends no request and opens no file. Where memory does not tell, `Begun` says what was found and where the
search stopped: the general path takes the rows and goes on there.

Depends on matches, freshness, paging, readers, lifecycle, indexfile, fileparts, answer and errors.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import TierdexError
from tierdex.fileparts.filter import FilterGroup
from tierdex.index_service.answer import Entry, without_repeats
from tierdex.index_service.query.matches import FileMatches
from tierdex.index_service.query.paging import CursorMaker
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.layout import KIND_KEY, TAG_NONE, TOPIC_MASK
from tierdex.indexfile.lookup import (
    DONE,
    NOT_SEARCHED,
    NOTHING,
    START,
    TIME_MAX,
    TIME_MIN,
    Few,
    Lookup,
)
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.fileparts.filter import FuseFilter
    from tierdex.index_service.view.freshness import Freshness
    from tierdex.indexfile.chained.message_finder import FoundRows
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList

FILES_MAX: Final = 64  # files that are searched one after the other, on the caller's thread
_new_tuple: Any = tuple.__new__


class Begun(NamedTuple):
    """A lookup that memory answered in part: the rows of its newest files, and where the search goes on."""

    key_hash: int
    files: FileList  # of the version whose files were searched
    freshness: Freshness  # before they were
    found: list[FileMatches]
    where: tuple[FileHandle, int] | None  # the file and the place in it; None: no file is left


class MemoryFiles:
    """The files of one version of the table, and the filters of those that lie here whole."""

    __slots__ = ("filters", "is_many", "sources", "version")

    def __init__(self, version: Any, files: Sequence[FileHandle]) -> None:
        """`files` are the newest of them, one more than are asked here if there are so many."""
        self.version = version
        self.is_many = len(files) > FILES_MAX
        filters: list[FuseFilter] = []
        self.sources = tuple(MemoryFile(handle, filters) for handle in files[:FILES_MAX])
        self.filters = FilterGroup(filters) if filters else None


class MemoryFile:
    """One file, with everything that a lookup needs of it at hand."""

    __slots__ = ("_published", "_surroundings", "file", "filter", "handle", "place")

    def __init__(self, handle: FileHandle, filters: list[FuseFilter]) -> None:
        """Take the file's filter into `filters`, if it lies here whole and has one."""
        reader = handle.reader
        is_local = isinstance(reader, ChainedFile | CompactedFile)
        self.file: Any = reader if is_local and reader.schema.is_message else None
        self.filter = -1  # its number among the filters
        if isinstance(reader, CompactedFile) and reader.item_count:
            self.filter = len(filters)
            filters.append(reader.filter)
        self._published = reader if isinstance(reader, PublishedFile) else None
        self.handle = handle
        self.place = (handle.file_id, handle.state.value, handle.node)
        self._surroundings: tuple[bytes, bytes] | None = None

    def surroundings(self, files: FileList, key_hash: int) -> tuple[bytes, bytes]:
        """Return `merges` and `form` of a cursor in this file; `files` are those of its version."""
        known = self._surroundings
        if known is None:
            maker = CursorMaker(files)
            known = maker.surroundings(self.handle.file_id, key_hash)
            if not maker.lies_in_runs(self.handle.file_id):
                self._surroundings = known
        return known

    @property
    def may_learn(self) -> bool:
        """Return whether it is a file that takes finders, and new topics."""
        return isinstance(self.file, ChainedFile)

    def knows(self, topic: str | None) -> bool:
        """Return whether the file has a tag for the topic's keys; for message IDs without one, always."""
        if topic is None or self.file is None:
            return topic is None
        return bool(self.file.tag_of(topic, KIND_KEY) != TAG_NONE)

    @property
    def names(self) -> Sequence[str]:
        """Return the topics of a chained file, by the number in an item's tag."""
        names: Sequence[str] = self.file.dictionaries.strings(TOPIC_DICTIONARY)
        return names

    def search(self, lookup: Lookup, begin: int, end: int) -> tuple[Any, Few]:
        """Return what memory has of the file's rows, and the file that decodes them."""
        if self.file is not None:
            return self.file, self.file.find_few(lookup, begin, end)
        if self._published is None:
            return None, NOT_SEARCHED
        if lookup.topic is not None and not may_hold(self.handle.topics, lookup.topic):
            return None, NOTHING
        if (begin > TIME_MIN or end < TIME_MAX) and not self.handle.overlaps(begin, end):
            return None, NOTHING
        return self._published.find_few(lookup, begin, end)


class MemorySearch:
    """One lookup in files of one version of the table, newest first. One thread."""

    __slots__ = ("_files", "_found", "_lookup", "_times", "where")

    def __init__(self, files: MemoryFiles, lookup: Lookup, times: tuple[int, int]) -> None:
        self._lookup = lookup
        self._files = files
        self._times = times
        self._found: list[tuple[MemoryFile, Any, Few]] = []  # with the file that decodes the rows
        self.where: tuple[FileHandle, int] | None = None  # where memory does not tell

    def take_rows(self, found: FoundRows) -> None:
        """Take what a finder found in the newest files, and where it stopped."""
        for number, source in enumerate(self._files.sources[: 1 + max(found.file, default=-1)]):
            begin, end = bisect_left(found.file, number), bisect_right(found.file, number)
            columns = (found.tag, found.timestamp, found.offset, found.size, found.queue_id)
            rows = [
                (found.key_hash, 0, *row)
                for row in zip(*(column[begin:end] for column in columns), strict=True)
            ]
            if rows:
                places = b"".join(row.to_bytes(8, sys.byteorder) for row in found.row[begin:end])
                self._found.append((source, source.file, Few(rows, places, DONE)))
        if found.next_file is not None:
            self.where = self._files.sources[found.next_file].handle, found.next_row

    def run(self, sources: Sequence[MemoryFile], max_count: int) -> None:
        """Search files until there are more than `max_count` entries, or one that memory does not tell."""
        files, lookup, times = self._files, self._lookup, self._times
        count = sum(len(few.rows) for *_, few in self._found)
        maybe: bytes | None = None
        for source in sources:
            self.where = source.handle, START
            if count > max_count:
                count = len(without_repeats(self.entries()))
            if files.is_many or count > max_count:
                return
            try:
                if maybe is None:
                    filters = files.filters
                    maybe = b"" if filters is None else filters.may_contain(lookup.key_hash)
                if source.filter >= 0 and not maybe[source.filter]:
                    continue
                file, few = source.search(lookup, *times)
            except TierdexError:
                return  # closed, damaged: the general path meets it again and says so
            if few.following != DONE and count + len(few.rows) < max_count:
                return  # the general path finds these few rows again faster than it takes them over
            if few.rows:
                self._found.append((source, file, few))
                count += len(few.rows)
            if few.following != DONE:
                self.where = source.handle, few.following
                return
        self.where = None

    def entries(self) -> list[Entry]:
        """Return the entries found so far, newest first."""
        entries = []
        for source, file, few in self._found:
            names = file.dictionaries.strings(TOPIC_DICTIONARY)
            rest = (*source.place, None, None, None, None)
            entries += [
                _new_tuple(
                    Entry, (names[tag & TOPIC_MASK], queue_id, offset, size, timestamp, *rest)
                )
                for _, _, tag, timestamp, offset, size, queue_id in few.rows
            ]
        return entries

    def place_of(self, number: int) -> tuple[MemoryFile, int]:
        """Return the file of entry `number` of `entries`, and its place in it."""
        for source, _, few in self._found:
            if number < len(few.rows):
                places = few.places[8 * number : 8 * number + 8]
                return source, int.from_bytes(places, sys.byteorder, signed=True)
            number -= len(few.rows)
        raise AssertionError("an entry that was not found")

    def begun(self, freshness: Freshness) -> Begun:
        """Return what the general path goes on with."""
        found = [
            FileMatches(
                source.handle,
                None,
                file.schema,
                file.dictionaries,
                np.zeros(len(few.rows), np.int64),
                np.array(few.rows, file.schema.dtype),
                np.frombuffer(few.places, np.int64),
            )
            for source, file, few in self._found
        ]
        return Begun(self._lookup.key_hash, self._files.version.files, freshness, found, self.where)
