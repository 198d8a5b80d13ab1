"""The newest files of one version of the table, with what a lookup out of memory needs of each at hand.

Depends on paging, readers, lifecycle and indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tierdex.index_service.query.paging import CursorMaker
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.lookup import NOT_SEARCHED, NOTHING, TIME_MAX, TIME_MIN, Few, Lookup
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList

FILES_MAX: Final = 64  # that memory is asked for, on the caller's thread


class MemoryFiles:
    """The newest files of one version of the table."""

    __slots__ = ("beyond", "sources", "version")

    def __init__(self, version: Any, files: Sequence[FileHandle]) -> None:
        """`files` are the newest of them, one more than are asked here if there are so many."""
        self.version = version
        self.sources = tuple(MemoryFile(handle) for handle in files[:FILES_MAX])
        self.beyond = files[FILES_MAX] if len(files) > FILES_MAX else None


class MemoryFile:
    """One file, with everything that a lookup needs of it at hand."""

    __slots__ = ("handle", "known_surroundings", "local", "published", "tail")

    def __init__(self, handle: FileHandle) -> None:
        reader = handle.reader
        is_local = isinstance(reader, ChainedFile | CompactedFile)
        self.handle = handle
        self.local: Any = reader if is_local and reader.schema.is_message else None
        self.published = reader if isinstance(reader, PublishedFile) else None
        self.tail = (handle.file_id, handle.state.value, handle.node, None, None, None, None)
        self.known_surroundings: tuple[bytes, bytes] | None = None  # of any hash

    def surroundings(self, files: FileList, key_hash: int) -> tuple[bytes, bytes]:
        """Return `merges` and `form` of a cursor in this file; `files` are those of its version."""
        known = self.known_surroundings
        if known is None:
            maker = CursorMaker(files)
            known = maker.surroundings(self.handle.file_id, key_hash)
            if not maker.lies_in_runs(self.handle.file_id):
                self.known_surroundings = known
        return known

    @property
    def may_learn(self) -> bool:
        """Say whether it is a file that may take new topics."""
        return isinstance(self.local, ChainedFile)

    def search(self, lookup: Lookup, begin: int, end: int) -> tuple[Any, Few]:
        """Return what memory has of a published file's rows, and the file that decodes them."""
        if self.published is None:
            return None, NOT_SEARCHED
        if lookup.topic is not None and not may_hold(self.handle.topics, lookup.topic):
            return None, NOTHING
        if (begin > TIME_MIN or end < TIME_MAX) and not self.handle.overlaps(begin, end):
            return None, NOTHING
        return self.published.find_few(lookup, begin, end)
