"""The journal that takes appends: its identity, its age, and the roll to the next one.

A roll is one rename: the journal made ahead of time gets its number. What is durable before a message of
the new journal may be acknowledged at `disk`: the older journal's batches, then the new one's name (the
committer sees to both). Until then the new journal's predecessor record tells where the older one ended, so
that recovery finds a gap that a power cut left.

Every method needs both locks of the committer. Depends on disk_errors, fileparts, lifecycle and the
rest of log_service.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.disk_errors import disk_error
from tierdex.fileparts.predecessor import NO_PREDECESSOR
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.table.file_handle import live_handle
from tierdex.log_service.files.log_file import LiveFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.append.next_journal import NextJournal
    from tierdex.log_service.log_options import LogFolder
    from tierdex.logfile.journal.file import Journal

logger = logging.getLogger(__name__)


class ActiveJournal:
    """The journal that takes the next message, if there is one."""

    def __init__(
        self,
        folder: LogFolder,
        next_journal: NextJournal,
        *,
        generation: int,
        on_rolled: Callable[[], None],
    ) -> None:
        """`generation` is for journals made from here on; `on_rolled` lets the compactor know of work."""
        self._options, self._seams, self._paths, self._table, self._numbers = folder
        self._next_journal = next_journal
        self._on_rolled = on_rolled
        self.generation = generation
        self.turn = 0  # counts the journals of this process: `kernels.offsets`
        self.handle: FileHandle | None = None
        self.journal: Journal | None = None
        self.unsynced: list[Journal] = []  # rolled, and not known to be durable, oldest first
        self._last_end: Predecessor = NO_PREDECESSOR
        self._opened_at = 0.0
        self._has_durable_name = False

    def resume(self, handle: FileHandle) -> None:
        """Continue a journal that recovery found."""
        age_s = max(0, self._seams.clock.now_ms() - handle.begin_ms) / 1000
        self._has_durable_name = True
        self._adopt(handle, handle.reader.journal, min(age_s, self._options.settings.roll_after))

    @property
    def is_old(self) -> bool:
        """Return whether it is older than `roll_after`."""
        return self.age_share >= 1

    @property
    def age_share(self) -> float:
        """How much of `roll_after` has gone by since it was opened."""
        age_s = self._seams.clock.monotonic() - self._opened_at
        return age_s / self._options.settings.roll_after

    def retire(self, reason: str) -> None:
        """Give up the journal; the compactor may seal it. Everything in it is written."""
        if self.journal is None:
            return
        assert self.handle is not None
        journal, handle = self.journal, self.handle
        self._last_end = journal.end_of_batches
        self._next_journal.come_after(journal)
        self.unsynced.append(journal)
        self.journal = self.handle = None
        logger.info("roll", extra={"file_id": handle.file_id, "reason": reason})
        self._on_rolled()

    def abandon(self, end: Predecessor) -> None:
        """Give up the journal: what was staged in it is dropped. `end` is where its batches end now."""
        self._last_end = end
        self.journal = self.handle = None
        self._on_rolled()

    def open_next(self) -> Journal:
        """Direct the appends to a new journal. Raises UnavailableError."""
        assert self.journal is None, "retire the one before"
        with self._next_journal.lock:
            journal = self._next_journal.take(self.generation)
            try:
                return self._open(journal)
            except OSError as error:
                self._next_journal.discard(journal)
                raise disk_error(error) from error

    def make_name_durable(self) -> None:
        """Sync the folder's entry of the journal. Raises OSError."""
        if not self._has_durable_name:
            self._seams.filesystem.sync_folder(self._paths.folder(FileState.UNSEALED))
            self._has_durable_name = True

    def _open(self, journal: Journal) -> Journal:
        number = self._numbers.take()
        path = self._paths.path_of(FileState.UNSEALED, number)
        # Durable before: its header, and the name of the journal before. Visible after: an empty journal
        # that says where the one before it ended.
        journal.follow(self._last_end)
        self.make_name_durable()
        self._seams.filesystem.rename(self._next_journal.path, path)
        journal.path = path
        handle = live_handle(
            number=number,
            node=self._options.settings.node,
            uuid=journal.uuid,
            path=path,
            reader=LiveFile(journal),
            slot_count=0,
            begin_ms=journal.header.created_ms,
        )
        self._has_durable_name = False
        self._adopt(handle, journal)  # before it is seen: the compactor seals what is not active
        self._table.insert(handle)
        return journal

    def _adopt(self, handle: FileHandle, journal: Journal, age_s: float = 0.0) -> None:
        self.handle, self.journal = handle, journal
        self.turn += 1
        self._opened_at = self._seams.clock.monotonic() - age_s
