"""The dispatcher: puts written messages into the log's index, group commit by group commit.

::

    journal  | batch 0 | batch 1 | batch 2 | ...        written (`os`); what is only staged is never read
                       ^ here: everything before is in the index, whose last batch says so

The log leads: an entry is put only once its message is written. An index batch covers whole group commits
(or says that its last one is not whole) and notes the last of them, so that a crash leaves two logs of which
one is a prefix of the other. Many small commits become one batch. What the index cannot take waits here and
pins nothing else: appends go on.

Depends on disk_errors, errors, key_walk, lifecycle and log_file.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from tierdex.disk_errors import disk_error
from tierdex.errors import TierdexError, UnavailableError
from tierdex.log_service.files.log_file import LiveFile
from tierdex.log_service.keys.key_walk import KeyWalk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.indexfile.columns import ItemColumns
    from tierdex.indexfile.source import Source
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList, FileTable
    from tierdex.log_service.keys.key_walk import KeyedPiece

    Put = Callable[[list[ItemColumns], Source], None]

logger = logging.getLogger(__name__)


class Dispatcher:
    """Walks the journals in order. Safe to share between threads."""

    def __init__(
        self, table: FileTable, node: str, put: Put, begin: Source | None, *, behind: int = -1
    ) -> None:
        """`put` takes items into the index of `node`, which holds everything up to `begin`.

        And so it holds all files up to the number `behind`, which may be published.
        """
        self._table = table
        self._node = node
        self._put = put
        self._begin = begin
        self._behind = behind
        self._lock = threading.Lock()
        self._walk: KeyWalk | None = None
        self._number = -1  # of the file that is walked
        self._waiting: KeyedPiece | None = None  # what the index did not take
        self._caught: _Caught | None = None  # once all was gone over

    @property
    def has_all(self) -> bool:
        """Return whether nothing was written since all was gone over."""
        caught = self._caught
        return (
            caught is not None
            and self._table.version.files is caught.files
            and caught.growing.journal.published == caught.end
        )

    def catch_up(self) -> None:
        """Put everything that is written now. Raises UnavailableError, CorruptFileError: some is not."""
        if self.has_all:
            return
        with self._lock:
            try:
                self._catch_up()
            except OSError as error:
                raise disk_error(error) from error

    def waiting_bytes(self) -> int:
        """Return how many bytes of journals are written and not in the index yet."""
        with self._table.snapshot() as snapshot:
            files = snapshot.file_list.local()
            walk, number = self._walk, self._number
            ahead = [handle for handle in files if handle.number >= number]
            total: int = sum(handle.reader.bytes_used for handle in ahead)
            is_walking = walk is not None and any(handle.number == number for handle in ahead)
            return max(0, total - (walk.position if walk is not None and is_walking else 0))

    def has_passed(self, handle: FileHandle) -> bool:
        """Return whether all of a file that takes no more appends is in the index."""
        with self._lock:
            if handle.number != self._number:
                return handle.number < self._number
            return self._waiting is None and self._walk is not None and self._walk.has_ended

    # -- private ------------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        self._caught, last, end = None, None, -1
        with self._table.snapshot() as snapshot:
            begin = (max(self._number, self._behind + 1), "")
            behind = snapshot.file_list.iterate(begin)  # oldest first, published ones as well
            files = [handle for handle in behind if handle.node == self._node]
            if not files:
                return
            if self._walk is None:
                self._enter(self._first(files), self._begin)
            for handle in files:
                if handle.number < self._number:
                    continue  # before the first that was entered
                if handle.number > self._number:
                    self._enter(handle, None)  # the one before is complete: a newer one was there
                last = handle.reader
                end = last.journal.published if isinstance(last, LiveFile) else -1
                self._take(handle)
            if isinstance(last, LiveFile):
                self._caught = _Caught(snapshot.file_list, last, end)

    def _first(self, files: list[FileHandle]) -> FileHandle:
        """Return the file where the index goes on: the one that it knows, or the oldest."""
        begin = self._begin
        known = (h for h in files if begin is not None and _part_of(h, begin.uuid) is not None)
        return next(known, files[0])

    def _enter(self, handle: FileHandle, begin: Source | None) -> None:
        is_whole = begin is not None and _ends_at(handle, begin)
        if begin is not None and begin.uuid != handle.uuid:
            begin = None
        walk = self._walk = KeyWalk(handle.uuid, begin)
        walk.has_ended, self._number = is_whole, handle.number

    def _take(self, handle: FileHandle) -> None:
        walk = self._walk
        assert walk is not None
        if walk.has_ended:  # it may have been merged since
            return
        if walk.uuid != handle.uuid:
            raise UnavailableError(f"{handle.file_id} is not the file that was indexed before")
        while not walk.has_ended:  # a compacted file would be walked once more, from its begin
            piece = self._waiting or walk.take(handle.reader)
            if piece is None:
                walk.has_ended = not handle.is_live
                return
            self._waiting = piece
            self._put(*piece)
            self._waiting = None


class _Caught(NamedTuple):
    """What was gone over: all files of a list, and of the one that grows all up to a byte."""

    files: FileList
    growing: LiveFile
    end: int


def _part_of(handle: FileHandle, uuid: bytes) -> Predecessor | None:
    """Return the journal of a uuid that a file is, or was merged of."""
    parts: Sequence[Predecessor] = handle.reader.parts
    return next((end for end in parts if end.uuid == uuid), None)


def _ends_at(handle: FileHandle, source: Source) -> bool:
    """Return whether a file that takes no appends is in the index as a whole, if all up to `source` is."""
    end: Predecessor = handle.reader.end_of_batches
    return not handle.is_live and not source.partial and source[:3] == end[:3]


class DispatcherTending:
    """The worker that dispatches soon after a commit, many commits at a time."""

    name = "log-dispatcher"
    _GATHER_S = 0.02
    _IDLE_S = 60.0
    _AFTER_ERROR_S = 1.0

    def __init__(self, catch_up: Callable[[], None]) -> None:
        self._catch_up = catch_up
        self._is_due = threading.Event()
        self._gathers = False  # it looks again soon, whether it is woken or not
        self.wake: Callable[[], None] = lambda: None

    def note_written(self) -> None:
        """Wake the dispatcher. Cheap: called by every commit."""
        if not self._is_due.is_set():
            self._is_due.set()
            if not self._gathers:  # looked at last: `step` looks whether it is due last
                self.wake()

    def step(self) -> float:
        """Dispatch what is there; return the seconds until the next look."""
        self._gathers = False
        if not self._is_due.is_set():
            return self._IDLE_S
        self._is_due.clear()
        try:
            self._catch_up()
        except (
            TierdexError
        ) as error:  # nothing is lost: it is in the log, and `get` says what is missing
            logger.warning("not indexed", extra={"error": str(error)})
            self._is_due.set()
            return self._AFTER_ERROR_S
        self._gathers = True
        return self._GATHER_S
