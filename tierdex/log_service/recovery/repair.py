"""Repair after a failed sync: the journal is read back and written again, or the loss is reported.

The kernel may have dropped pages and call the next sync a success, so a suspect journal is never synced
again. It is recovered as after a crash: everything not known as durable is written once more. What was only
staged is dropped. When messages are gone, so are those of newer journals (nothing in them was acknowledged
at `disk`), end offsets step back before anything is appended, and the generation rises. A journal that turns
out to be damaged stays suspect: the next opening of the log quarantines it.

Depends on disk_errors, lifecycle, logfile and the rest of log_service.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.disk_errors import disk_error
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.files.log_file import GroupedLogFile, LiveFile, SealedFile
from tierdex.log_service.files.queue_table import queues_of_sealed, queues_of_tables
from tierdex.logfile.journal.file import Journal, recover_journal

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.files.log_file import LogFile
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.logfile.columns import QueueColumns
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)


class Mender:
    """Brings suspect journals back. `mend` needs both locks of the committer."""

    def __init__(
        self, seams: Seams, table: FileTable, queues: QueueTable, active: ActiveJournal,
        committer: Committer, gone: TrimRecord, stage_bytes: int,
    ) -> None:  # fmt: skip
        self._seams = seams
        self._table = table
        self._queues = queues
        self._active = active
        self._committer = committer
        self._gone = gone
        self._lossy: int | None = None  # the journal whose loss is not mended to its end
        self._stage_bytes = stage_bytes
        self.on_loss: Callable[[], None] = lambda: None

    def mend(self) -> None:
        """Recover every suspect journal; drop what follows a loss. UnavailableError, CorruptFileError."""
        try:
            self._mend()
        except OSError as error:
            raise disk_error(error) from error

    def _mend(self) -> None:
        unsealed = [
            handle
            for handle in self._table.version.files.local()  # oldest first
            if handle.state is FileState.UNSEALED
        ]
        kept: list[FileHandle] = []
        for place, handle in enumerate(unsealed):
            if isinstance(handle.reader, SealedFile) or not handle.reader.journal.suspect:
                kept.append(handle)
            else:
                kept.append(self._recover(handle))
            if handle.number == self._lossy:
                self._drop(unsealed[place + 1 :])
                break
        for handle in kept:
            note_ends(self._queues, handle.reader)
        if self._lossy is not None:  # before an offset is given anew
            self._active.generation += 1
            self._gone.raise_generation(self._active.generation)
            self.on_loss()
            self._lossy = None
        self._committer.is_suspect = False

    def _recover(self, handle: FileHandle) -> FileHandle:
        """Return the journal's new handle; note whether messages are gone."""
        old: Journal = handle.reader.journal
        assert handle.path is not None
        journal = recover_journal(
            self._seams.filesystem, handle.path, stage_bytes=self._stage_bytes
        )
        if journal.message_count < old.message_count:
            self._lossy = handle.number
        self._take_back(old)
        is_active = self._active.handle is not None and self._active.handle.key == handle.key
        reader = LiveFile(journal) if isinstance(journal, Journal) else SealedFile(journal)
        self._active.unsynced = [each for each in self._active.unsynced if each is not old]
        if is_active:
            self._active.abandon(journal.end_of_batches)
        logger.warning(
            "read back after a failed sync",
            extra={"file_id": handle.file_id, "lost": old.message_count - journal.message_count},
        )
        return self._table.update(handle, reader=reader)

    def _drop(self, handles: list[FileHandle]) -> None:
        """Remove journals that follow a loss, the newest first, each durably."""
        for handle in reversed(handles):
            assert handle.path is not None
            journal = handle.reader.journal
            self._take_back(journal)
            self._active.unsynced = [each for each in self._active.unsynced if each is not journal]
            if self._active.handle is not None and self._active.handle.key == handle.key:
                self._active.abandon(journal.end_of_batches)
            self._table.remove(handle)
            self._seams.filesystem.unlink(handle.path)
            self._seams.filesystem.sync_folder(handle.path.parent)
            logger.warning("removed, as it follows lost batches", extra={"path": str(handle.path)})

    def _take_back(self, journal: Journal) -> None:
        """Reset queues of a journal to its begin: what is left of it is noted again."""
        columns, first, _ = queues_of_tables(journal.tables)
        self._queues.note_ends(columns, first)


def note_ends(queues: QueueTable, reader: LogFile) -> None:
    """Set the next offsets of a file's queues behind it. Raises CorruptFileError."""
    queues.note_ends(*ends_of(reader))


def ends_of(reader: LogFile) -> tuple[QueueColumns, np.ndarray]:
    """Return (queues, next offsets i8) of a file. Raises CorruptFileError."""
    if isinstance(reader, GroupedLogFile):
        return reader.ends()
    if isinstance(reader, SealedFile):
        return queues_of_sealed(reader.journal)
    columns, _, next_offsets = queues_of_tables(reader.journal.tables)
    return columns, next_offsets
