"""RocketMQ's index files as files of the read view: found, searched, and named when unreadable.

They hold a 32-bit Java hash and no keys, so an entry from them is flagged (`hash_function`) and may
belong to another key of the topic. A message ID is indexed there as a key of its topic; without a
topic every topic of the metadata is tried. The times in their headers bound nothing, so each file
is searched for every time range.

Depends on manifest_follower, answer, readers, requests, lifecycle and rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import UnavailableError
from tierdex.index_service.answer import Missing
from tierdex.index_service.readers.file_reader import Candidate, Chunk
from tierdex.index_service.requests.cursor import NO_PLACE
from tierdex.index_service.requests.repeats import fingerprints_of
from tierdex.index_service.view.manifest_follower import tell_nobody
from tierdex.lifecycle.file_handle import FileHandle, Lease
from tierdex.lifecycle.file_state import FileState
from tierdex.rocketmq.folder import RocketmqFolder
from tierdex.rocketmq.layout import HASH_FUNCTION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.index_service.readers.file_reader import FileMeter
    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.index_service.view.manifest_follower import TellMissing
    from tierdex.lifecycle.file_table import FileTable
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

    def chunks(
        self, request: QueryRequest, meter: FileMeter, place: int | None = None
    ) -> Iterator[Chunk]:
        """There are no places: pages are taken by a walk."""
        assert place is None, place
        numbers = self._folder.topics()
        if request.topic is None and not numbers:
            raise UnavailableError(
                "a message ID is found by its topic here, and there is no metadata: give `topic`"
            )
        for topic in [request.topic] if request.topic is not None else sorted(numbers):
            others = np.array([n for name, n in numbers.items() if name != topic], np.int32)
            blocks = self._file.find_blocks(topic, request.text, request.begin, request.end)
            for rows in blocks:
                meter.charge_items(len(rows))
                wanted = numbers.get(topic)
                keep = (
                    ~np.isin(rows["topic_id"], others)
                    if wanted is None
                    else rows["topic_id"] == wanted
                )
                found = [
                    Candidate((topic, offset, size, queue_id), timestamp)
                    for _, _, queue_id, offset, size, timestamp in rows[keep].tolist()
                ]
                yield Chunk(found, [NO_PLACE] * len(found))

    @property
    def topics(self) -> frozenset[str]:
        """Return the topics that the folder's metadata names."""
        return frozenset(self._folder.topics())

    def check(self) -> list[str]:
        """Return every broken invariant of the file, in words."""
        return self._file.check()

    def candidates(self, rows: list[Candidate]) -> list[Candidate]:
        return rows

    def fingerprints(self, rows: list[Candidate]) -> np.ndarray:
        return fingerprints_of(rows)

    def location_names(self) -> tuple[str, ...]:
        return ("offset", "size", "queue_id")

    def close(self) -> None:
        """Do nothing: the folder closes its files."""


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
