"""A local file as a query sees it: the chained form (unsealed, sealed) or the compacted one.

`query_reader` is the one place that knows which reader a handle may have. Depends on file_reader,
indexfile and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.index_service.readers.file_reader import FileRows
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.layout import TAG_NONE

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.index_service.readers.file_reader import FileMeter, FileSearch, QueryReader


class LocalReader:
    """Searches a file that lies here, up to the item count that was published when the query came."""

    is_local = True
    hash_function: str | None = None

    __slots__ = ("_file",)

    def __init__(self, file: ChainedFile | CompactedFile) -> None:
        self._file = file

    def excludes(self, key_hash: int) -> bool:
        file = self._file
        try:
            return isinstance(file, CompactedFile) and not file.may_contain(key_hash)
        except CorruptFileError:
            return False  # the search meets it again, where it is the error of this file alone

    def search(
        self, wanted: FileSearch, meter: FileMeter, executor: Executor | None = None
    ) -> FileRows:
        del meter, executor  # no request is sent
        file = self._file
        tags = wanted.tags(file.dictionaries)
        has_topic = tags != TAG_NONE
        which: Any = slice(None) if has_topic.all() else np.flatnonzero(has_topic)
        if isinstance(file, CompactedFile):
            which = in_hash_order(wanted, which)
            found = file.search(wanted.columns(which, tags))
        else:
            found = search_file(file, wanted.columns(which, tags))
        return FileRows(file.schema, file.dictionaries, wanted.wanted[which], found)


def in_hash_order(wanted: FileSearch, which: Any) -> Any:
    """Return `which` sorted by hash: neighbours then share directory blocks, pages and cache lines."""
    hashes = wanted.lookups.hashes[wanted.wanted[which]]
    if len(hashes) < 2:
        return which
    order = np.argsort(hashes, kind="stable")
    return order if isinstance(which, slice) else which[order]


def query_reader(reader: Any) -> QueryReader:
    """Return `reader` as queries ask it."""
    if isinstance(reader, ChainedFile | CompactedFile):
        return LocalReader(reader)
    query: QueryReader = reader
    return query
