"""A peer's file that is not published, as a query sees it: the rows of its answer, in memory.

It answers the lookups that the peer was asked for, and no others: it lives as long as one query. What the
peer left out, since it was too much, is an error here and never an end.

Depends on messages, readers, indexfile, lifecycle, fileparts and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import UnavailableError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.index_service.readers.file_reader import FileRows
from tierdex.indexfile.layout import KIND_BIT, KIND_MESSAGE_ID
from tierdex.indexfile.lookup import DONE, START, Found
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.table.file_handle import FileHandle, Lease

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.index_service.peers.messages import PeerFile
    from tierdex.index_service.readers.file_reader import FileMeter, FileSearch
    from tierdex.index_service.requests.lookups import Lookups

_FIELDS: Final = ("queue_id", "offset", "size", "timestamp")


class FetchedFile:
    """Searches the rows that a peer answered for `lookups`."""

    is_local = True
    hash_function: str | None = None

    def __init__(self, file: PeerFile, lookups: Lookups) -> None:
        self._file = file
        self.item_count = max(1, len(file.lookups))
        self.min_time, self.max_time = file.min_time, file.max_time
        self.bytes_used = 0
        self._dictionaries = Dictionaries(MESSAGE_SCHEMA.dictionary_names)
        names = list(dict.fromkeys(file.topics))
        self._dictionaries.stage(TOPIC_DICTIONARY, names)
        self._dictionaries.keep()
        self._rows = np.zeros(len(file.lookups), MESSAGE_SCHEMA.dtype)
        for name in _FIELDS:
            self._rows[name] = file.columns[name]
        self._rows["key_hash"] = lookups.hashes[file.lookups]
        tags = np.array([names.index(topic) for topic in file.topics], np.uint32)
        is_id = lookups.kinds[file.lookups] == KIND_MESSAGE_ID
        self._rows["tag"] = np.where(is_id, tags | np.uint32(KIND_BIT), tags)

    def close(self) -> None:
        """Nothing is open."""

    def excludes(self, key_hash: int) -> bool:
        return False

    def search(
        self, wanted: FileSearch, meter: FileMeter, executor: Executor | None = None
    ) -> FileRows:
        """Return rows as any file does. Raises UnavailableError for what the peer left out."""
        del meter, executor
        taken, offsets, following = [], [0], []
        for position, number in enumerate(wanted.wanted.tolist()):
            first, last = np.searchsorted(self._file.lookups, (number, number + 1)).tolist()
            begin = first
            if wanted.places is not None and wanted.places[position] != START:
                at = np.flatnonzero(self._file.places[first:last] == wanted.places[position])
                begin = first + int(at[0]) if len(at) else last
            end = min(last, begin + int(wanted.limits[position]))
            taken.append(np.arange(begin, end))
            offsets.append(offsets[-1] + end - begin)
            if end < last:
                following.append(int(self._file.places[end]))
            elif number in self._file.cut and end - begin < wanted.limits[position]:
                raise UnavailableError("its node holds more of a key than it answers at once")
            else:
                following.append(DONE)
        rows = np.concatenate(taken) if taken else np.empty(0, np.int64)
        found = Found(
            np.array(offsets, np.int64), self._rows[rows], self._file.places[rows],
            np.array(following, np.int64), len(rows),
        )  # fmt: skip
        return FileRows(MESSAGE_SCHEMA, self._dictionaries, wanted.wanted, found)


def fetched_handle(node: str, file: PeerFile, lookups: Lookups) -> FileHandle:
    """Return the handle of a peer's file, for the list of files of one query."""
    return FileHandle(
        number=file.number,
        node=node,
        uuid=file.uuid,
        state=FileState(file.state),
        lease=Lease(FetchedFile(file, lookups)),
        fixed_item_count=max(1, len(file.lookups)),
        fixed_min_time=file.min_time,
        fixed_max_time=file.max_time,
    )
