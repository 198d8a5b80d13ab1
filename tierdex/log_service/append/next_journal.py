"""The journal that takes over at the next roll: preallocated ahead of time, under the name `next.ready`.

A thread that makes it or takes it holds `lock`. Blocks are reserved here: once a journal takes appends, a
full disk cannot strike it. The best blocks are those of a journal that is not needed any more: they are
written already, and in memory, so that appends cost a third of what they cost in a new file (`reuse`)::

    journal no longer needed     durable before: what it held, elsewhere; its handle has left the table
    rename to `next.ready`       no name is left under which it is opened; recovery removes this one
    both folders synced          it cannot come back under its old name
    header overwritten, synced   the new uuid refuses every batch of its old life

A log's first journal is short, and the next of one that filled is twice as long, up to `journal_bytes`: a new
log takes disk as it grows.

The header goes only once no process has the file open or mapped: readers hold a
shared lock, which the mapping keeps. As long as one does, a new file is made. Blocks with what was forgotten
are taken over by none: their file is unlinked. Depends on disk_errors, index_service, lifecycle, logfile
and log_options.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.disk_errors import RETRY_AFTER_S, disk_error
from tierdex.errors import BacklogFullError, UnavailableError
from tierdex.index_service.ingest.disk_budget import DiskRoom
from tierdex.lifecycle.folders.transition import move_by_rename
from tierdex.lifecycle.paths import parse_number
from tierdex.logfile.journal.file import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.log_service.log_options import LogFolder

logger = logging.getLogger(__name__)
FIRST_BYTES: Final = 16 << 20  # of the first journal of a log
AHEAD: Final = 0.5  # how much of a journal is used when the next one is made


class _Wanted(NamedTuple):
    """What a new journal is to be, as `Journal.create` and `recycle` take it."""

    uuid: bytes
    capacity: int
    created_ms: int
    generation: int
    stage_bytes: int


class NextJournal:
    """Makes one empty journal and keeps it until the log takes it."""

    def __init__(self, folder: LogFolder) -> None:
        self._options, self._seams, self._paths, self._table, _ = folder
        self._capacity = min(
            self._options.settings.journal_bytes, max(FIRST_BYTES, 2 * self._options.stage_bytes)
        )
        self.lock = threading.Lock()
        self._journal: Journal | None = None
        self._has_old_blocks = False  # a journal of no use lies under the name
        self._forgets_through = -1  # journals up to this number are not taken over
        self.trouble: str | None = None  # why the last one could not be made

    @property
    def path(self) -> Path:
        return self._paths.ready

    @property
    def is_made(self) -> bool:
        return self._journal is not None

    def make_ahead(self, generation: int) -> None:
        """Make the journal unless it is there. Holding `lock`. Raises UnavailableError."""
        if self._journal is None:
            self._journal = self._make(generation)

    def come_after(self, journal: Journal) -> None:
        """Let the next one be as long as a journal, twice as long if that fills."""
        capacity = journal.header.capacity
        if journal.bytes_used >= AHEAD * capacity:
            capacity *= 2
        self._capacity = min(self._options.settings.journal_bytes, capacity)

    def take(self, generation: int) -> Journal:
        """Return the journal made ahead of time, or make one. Holding `lock`. Raises UnavailableError."""
        journal, self._journal = self._journal, None
        if journal is not None and journal.header.generation == generation:
            return journal
        if journal is not None:
            self.discard(journal)
        return self._make(generation)

    def discard(self, journal: Journal) -> None:
        """Close a journal that was taken and not used. Holding `lock`.

        Its file stays: under `next.ready` it is taken for the next one, under a number it is an empty
        journal, which the next recovery removes.
        """
        journal.close()
        self._has_old_blocks = journal.path == self.path

    def reuse(self, path: Path) -> None:
        """Give up a journal that no process will open again: its blocks are the next one's, or are freed.

        What it held is durable elsewhere, or of no worth, and its handle has left the table; reads of it
        may still be under way. Raises OSError; then the file lies there, or under `next.ready`.
        """
        filesystem = self._seams.filesystem
        with self.lock:
            is_forgotten = (parse_number(path.name) or 0) <= self._forgets_through
            if is_forgotten or self._journal is not None or self._has_old_blocks:
                filesystem.unlink(path)
                filesystem.sync_folder(path.parent)
                return
            move_by_rename(filesystem, path, self.path)
            self._has_old_blocks = True

    def take_over_none(self, through: int) -> None:
        """Take over no blocks of journals up to a number: they may hold what is forgotten. Raises OSError.

        What was made of such blocks goes; the next journal is a new file.
        """
        with self.lock:
            self._forgets_through = max(self._forgets_through, through)
            self._remove()
            self._seams.filesystem.sync_folder(self.path.parent)

    def room(self, held: int = 0) -> DiskRoom:
        """Return what waits, and what must be free for one more journal, of which `held` bytes are reserved.

        Raises OSError.
        """
        settings = self._options.settings
        with self._table.snapshot() as snapshot:
            waiting = sum(handle.bytes for handle in snapshot.file_list.local())
        free = self._seams.filesystem.free_bytes(self._paths.root)
        needed = max(0, self._capacity - held) + settings.disk_reserve_bytes
        return DiskRoom(waiting, settings.disk_budget_bytes, free, needed)

    def close(self) -> None:
        """Remove what was made ahead, or was to be."""
        with self.lock:
            self._remove()

    def _remove(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.close()
        if journal is not None or self._has_old_blocks:
            self._has_old_blocks = False
            self._seams.filesystem.unlink(self.path)

    def _make(self, generation: int) -> Journal:
        try:
            journal = self._make_file(generation)
        except UnavailableError as error:
            self.trouble = str(error)
            raise
        self.trouble = None
        return journal

    def _make_file(self, generation: int) -> Journal:
        filesystem = self._seams.filesystem
        wanted = _Wanted(
            self._seams.ids.uuid(), self._capacity, self._seams.clock.now_ms(),
            generation, self._options.stage_bytes,
        )  # fmt: skip
        try:
            if self._has_old_blocks:
                self._refuse_without_room(filesystem.file_size(self.path))
                self._has_old_blocks = False  # whatever happens: else they are tried for ever
                with suppress(BlockingIOError):  # a reader still has it
                    journal = Journal.recycle(filesystem, self.path, **wanted._asdict())
                    logger.info("recycle", extra={"bytes": wanted.capacity})
                    return journal
            filesystem.unlink(self.path)
            self._refuse_without_room(0)
            return Journal.create(filesystem, self.path, **wanted._asdict())
        except OSError as error:
            raise disk_error(error) from error

    def _refuse_without_room(self, held: int) -> None:
        """Raise BacklogFullError while local files pile up, or another journal would fill the disk.

        `held` bytes of it are reserved already.
        """
        room = self.room(held)
        if room.waiting_bytes > room.budget_bytes:
            raise BacklogFullError(
                f"{room.waiting_bytes} bytes of log files wait for the store, above `disk_budget_bytes` "
                f"({room.budget_bytes}); mend the store or raise the budget",
                retry_after_s=RETRY_AFTER_S,
            )
        if room.free_bytes < room.reserve_bytes:
            raise BacklogFullError(
                f"{room.free_bytes} bytes are free on the disk of {self._paths.root}, less than "
                f"a journal and `disk_reserve_bytes` together ({room.reserve_bytes}); free some space",
                retry_after_s=RETRY_AFTER_S,
            )
