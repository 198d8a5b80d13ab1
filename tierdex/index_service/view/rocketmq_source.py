"""RocketMQ's index files as files of the read view: found, searched, and named when unreadable.

They hold a 32-bit Java hash and no keys, so an entry from them is flagged (`hash_function`) and may
belong to another key of the topic. A message ID is indexed there as a key of its topic; without a
topic every topic of the metadata is tried. The times in their headers bound nothing, so each file
is searched for every time range.

Depends on freshness, answer, readers, requests, fileparts, indexfile, lifecycle and rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import UnavailableError
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.index_service.answer import Missing
from tierdex.index_service.readers.file_reader import FileRows
from tierdex.index_service.requests.cursor import NO_PLACE
from tierdex.index_service.view.freshness import tell_nobody
from tierdex.indexfile.lookup import DONE, START, Found
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY, join_rows
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.table.file_handle import FileHandle, Lease
from tierdex.rocketmq.folder import RocketmqFolder
from tierdex.rocketmq.layout import HASH_FUNCTION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.index_service.readers.file_reader import FileMeter, FileSearch
    from tierdex.index_service.requests.lookups import Lookups
    from tierdex.index_service.view.freshness import TellMissing
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.rocketmq.file import RocketmqIndexFile

ROCKETMQ_NODE: Final = "rocketmq"
_TIMES: Final = np.iinfo(np.int64)


class RocketmqReader:
    """Searches one RocketMQ file. Safe to share between threads."""

    is_local = True
    hash_function: str | None = HASH_FUNCTION

    def __init__(self, folder: RocketmqFolder, file: RocketmqIndexFile) -> None:
        self._folder = folder
        self._file = file

    def excludes(self, key_hash: int) -> bool:
        """Return False: there is no filter, and the hash is another one."""
        del key_hash
        return False

    def search(
        self, wanted: FileSearch, meter: FileMeter, executor: Executor | None = None
    ) -> FileRows:
        """Search the file by the lookups' own texts, one after the other.

        Rows have no places: pages of a query are taken by a walk. A search goes on behind the matches
        that it had returned, counted from the newest.
        """
        del meter, executor
        numbers = self._folder.topics()
        dictionaries = Dictionaries((TOPIC_DICTIONARY,))
        pieces = [Found.nothing(0, MESSAGE_SCHEMA.dtype)]
        for i, number in enumerate(wanted.wanted.tolist()):
            begin = START if wanted.places is None else int(wanted.places[i])
            rows = _Rows(max(0, begin), int(wanted.limits[i]))
            for block in self._matches(wanted.lookups, number, numbers, dictionaries):
                if rows.take(block):
                    break
            pieces.append(rows.found())
        return FileRows(MESSAGE_SCHEMA, dictionaries, wanted.wanted, Found.joined(pieces))

    def _matches(
        self, lookups: Lookups, number: int, numbers: dict[str, int], dictionaries: Dictionaries
    ) -> Iterator[np.ndarray]:
        """Yield the rows of one lookup, newest first, as rows of messages."""
        asked = lookups.topic_of(number)
        if asked is None and not numbers:
            raise UnavailableError(
                "a message ID is found by its topic here, and there is no metadata: give `topic`"
            )
        text, times = (
            lookups.text_of(number),
            (int(lookups.begin[number]), int(lookups.end[number])),
        )
        for topic in [asked] if asked is not None else sorted(numbers):
            others = np.array([n for name, n in numbers.items() if name != topic], np.int32)
            own = numbers.get(topic)
            (tag,) = dictionaries.stage(TOPIC_DICTIONARY, [topic])
            for block in self._file.find_blocks(topic, text, *times):
                is_other = np.isin(block["topic_id"], others)
                kept = block[~is_other if own is None else block["topic_id"] == own]
                rows = np.zeros(len(kept), MESSAGE_SCHEMA.dtype)
                rows["tag"] = tag
                for name in ("queue_id", "offset", "size", "timestamp"):
                    rows[name] = kept[name]
                yield rows

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics that the folder's metadata names."""
        return frozenset(self._folder.topics())

    def check(self) -> list[str]:
        """Return every broken invariant of the file, in words."""
        return self._file.check()

    def close(self) -> None:
        """Do nothing: the folder closes its files."""


class _Rows:
    """Up to `limit` rows of one lookup behind the first `skipped` ones."""

    def __init__(self, skipped: int, limit: int) -> None:
        self._skipped, self._limit = skipped, limit
        self._pieces = [np.empty(0, MESSAGE_SCHEMA.dtype)]
        self._count = self._passed = 0
        self._has_more = False

    def take(self, rows: np.ndarray) -> bool:
        """Take what belongs to them; say whether there is more behind."""
        begin = max(0, self._skipped - self._passed)
        self._passed += len(rows)
        piece = rows[begin:][: self._limit - self._count]
        self._has_more = len(rows) - begin > len(piece)
        self._pieces.append(piece)
        self._count += len(piece)
        return self._has_more

    def found(self) -> Found:
        following = self._skipped + self._count if self._has_more else DONE
        return Found(
            np.array([0, self._count]),
            join_rows(self._pieces),
            np.full(self._count, NO_PLACE),
            np.array([following]),
            self._passed,
        )


class RocketmqView:
    """Shows a RocketMQ folder's files in a table."""

    def __init__(self, filesystem: FileSystem, root: Path, table: FileTable) -> None:
        self._folder = RocketmqFolder(filesystem, root)
        self._table = table
        self.tell: TellMissing = tell_nobody
        self._missing: list[Missing] = []

    def refresh(self) -> None:
        """Show the folder's files as they are now."""
        files, unreadable = self._folder.files()
        with self._table.snapshot() as snapshot:
            gone = [handle for handle in snapshot.files if handle.node == ROCKETMQ_NODE]
        fresh: list[FileHandle] = []
        number = 0
        for file in reversed(files):  # oldest first: two of one begin get neighbouring numbers
            number = max(number + 1, file.begin_ms)
            fresh.append(_handle(self._folder, file, number))
        missing = [Missing(path, reason) for path, reason in unreadable]
        # A missing file is named before it leaves the table, and until it is back.
        self._name(list(dict.fromkeys(self._missing + missing)))
        self._table.change(remove=gone, add=fresh)
        self._name(missing)

    def _name(self, missing: list[Missing]) -> None:
        self._missing = missing
        self.tell(is_missing=bool(missing))

    def missing(self) -> list[Missing]:
        """Return the files that cannot be read."""
        return list(self._missing)


def _handle(folder: RocketmqFolder, file: RocketmqIndexFile, number: int) -> FileHandle:
    is_local = file.shape.form == "local"
    return FileHandle(
        number=number,
        node=ROCKETMQ_NODE,
        uuid=number.to_bytes(16, "big"),
        state=FileState.SEALED if is_local else FileState.UPLOADED,
        lease=Lease(RocketmqReader(folder, file)),
        path=file.path,
        slot_count=file.shape.slot_capacity or 0,
        begin_ms=file.begin_ms,
        fixed_item_count=max(1, file.item_count),
        fixed_min_time=int(_TIMES.min),
        fixed_max_time=int(_TIMES.max),
        fixed_bytes=0,
    )
