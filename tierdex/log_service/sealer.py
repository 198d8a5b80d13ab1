"""Background work on journals: seals rolled ones, makes the next one ahead of time, rolls old ones.

::

    rolled      sync           everything in it is durable (`committer`)
                seal           dense index, parts, footer: durable
                rename         visible as sealed, folders synced
                open, swap     reads go over to the sealed form

A crash between two steps leaves what recovery finishes. Depends on disk_errors, lifecycle, logfile and the
other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tierdex.disk_errors import disk_error
from tierdex.errors import UnavailableError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.transition import move_by_rename
from tierdex.log_service.log_recovery import open_sealed, seal_notes
from tierdex.logfile.journal.file import Journal

if TYPE_CHECKING:
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.log_service.active_journal import ActiveJournal
    from tierdex.log_service.appender import Appender
    from tierdex.log_service.committer import Committer
    from tierdex.log_service.next_journal import NextJournal
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)

_INTERVAL_S = 0.5
_AHEAD = 0.5  # of a journal, or of its time


class Sealer:
    """Seals, one journal at a time. The worker of one thread, or called by `run_compaction`."""

    name = "log-sealer"

    def __init__(
        self, seams: Seams, paths: DataPaths, table: FileTable, active: ActiveJournal,
        appender: Appender, committer: Committer, next_journal: NextJournal,
    ) -> None:  # fmt: skip
        self._seams = seams
        self._paths = paths
        self._table = table
        self._active = active
        self._appender = appender
        self._committer = committer
        self._next_journal = next_journal
        self._sealing = threading.Lock()  # before the committer's locks

    def step(self) -> float:
        """Do what is due; return the seconds until the next look."""
        self._roll_when_old()
        self._make_ahead()
        self.seal_rolled()
        return _INTERVAL_S

    def seal_rolled(self) -> int:
        """Seal every journal that was rolled; return how many were. Raises UnavailableError."""
        with self._sealing:
            rolled = self._rolled()
            for handle in rolled:
                try:
                    self._seal(handle)
                except OSError as error:
                    raise disk_error(error) from error
            return len(rolled)

    def _rolled(self) -> list[FileHandle]:
        """Return the unsealed journals that take no more appends, oldest first."""
        with self._committer.append_lock:
            active = self._active.handle
            return [
                handle
                for handle in self._table.version.files.local()
                if handle.state is FileState.UNSEALED
                and (active is None or handle.key != active.key)
            ]

    def _seal(self, handle: FileHandle) -> None:
        with self._committer.commit_lock:
            if self._committer.is_suspect:
                raise UnavailableError("a journal is suspect: it is read back first")
            self._committer.sync_rolled()
        assert handle.path is not None
        journal = handle.reader.journal
        node, number = handle.node, handle.number
        if not journal.message_count:  # nothing was ever in it
            self._table.remove(handle)
            self._next_journal.reuse(handle.path)
            return
        if isinstance(journal, Journal):  # else its seal was found finished after an error
            try:
                journal.seal(seal_notes(journal, self._seams.clock))
            except OSError:
                if journal.suspect:
                    self._committer.is_suspect = True
                raise
        target = self._paths.path_of(FileState.SEALED, number)
        move_by_rename(self._seams.filesystem, handle.path, target)
        if isinstance(journal, Journal):
            journal.path = target
        opened = open_sealed(self._seams.filesystem, node, number, target)
        assert opened.lease is not None
        self._table.move(
            handle,
            FileState.SEALED,
            reader=opened.lease.reader,
            path=target,
            sealed_at_ms=opened.sealed_at_ms,
            fixed_bytes=opened.fixed_bytes,
        )
        logger.info("seal", extra={"file_id": handle.file_id})

    def _roll_when_old(self) -> None:
        with self._committer.commit_lock, self._committer.append_lock:
            journal = self._active.journal
            if journal is not None and self._active.is_old and journal.message_count:
                self._appender.roll("old")

    def _make_ahead(self) -> None:
        journal = self._active.journal
        if journal is None or self._next_journal.is_made:
            return
        is_due = journal.bytes_used >= _AHEAD * journal.header.capacity
        if is_due or self._active.age_share >= _AHEAD:
            with self._next_journal.lock:
                self._next_journal.make_ahead(self._active.generation)
