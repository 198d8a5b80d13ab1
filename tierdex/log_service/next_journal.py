"""The journal that takes over at the next roll: preallocated ahead of time, under the name `next.ready`.

Whoever makes it or takes it holds `lock`. Blocks are reserved here: once a journal takes appends, a full
disk cannot strike it. Depends on disk_errors, lifecycle, logfile and log_options.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.disk_errors import RETRY_AFTER_S, disk_error
from tierdex.errors import BacklogFullError
from tierdex.logfile.journal.file import Journal

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.log_service.log_options import LogOptions
    from tierdex.seams import Seams


class NextJournal:
    """Makes one empty journal and keeps it until somebody takes it."""

    def __init__(
        self, options: LogOptions, seams: Seams, paths: DataPaths, table: FileTable
    ) -> None:
        self._options = options
        self._seams = seams
        self._paths = paths
        self._table = table
        self.lock = threading.Lock()
        self._journal: Journal | None = None

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

    def take(self, generation: int) -> Journal:
        """Return the journal made ahead of time, or make one. Holding `lock`. Raises UnavailableError."""
        journal, self._journal = self._journal, None
        if journal is not None and journal.header.generation == generation:
            return journal
        if journal is not None:
            journal.close()
        return self._make(generation)

    def discard(self, journal: Journal) -> None:
        """Close a journal that was taken and not used. Holding `lock`.

        Its file stays: under `next.ready` it is removed before the next one is made, under a number it is
        an empty journal, which the next recovery removes.
        """
        journal.close()

    def close(self) -> None:
        """Remove what was made ahead."""
        with self.lock:
            journal, self._journal = self._journal, None
            if journal is not None:
                journal.close()
                self._seams.filesystem.unlink(self._paths.ready)

    def _make(self, generation: int) -> Journal:
        filesystem, settings = self._seams.filesystem, self._options.settings
        try:
            filesystem.unlink(self._paths.ready)
            self._refuse_without_room()
            return Journal.create(
                filesystem,
                self._paths.ready,
                uuid=self._seams.ids.uuid(),
                capacity=settings.journal_bytes,
                created_ms=self._seams.clock.now_ms(),
                generation=generation,
                stage_bytes=self._options.stage_bytes,
            )
        except OSError as error:
            raise disk_error(error) from error

    def _refuse_without_room(self) -> None:
        """Raise BacklogFullError while local files pile up, or another journal would fill the disk."""
        settings = self._options.settings
        with self._table.snapshot() as snapshot:
            waiting = sum(handle.bytes for handle in snapshot.file_list.local())
        if waiting > settings.disk_budget_bytes:
            raise BacklogFullError(
                f"{waiting} bytes of journals wait, above `disk_budget_bytes` "
                f"({settings.disk_budget_bytes}); raise the budget",
                retry_after_s=RETRY_AFTER_S,
            )
        free = self._seams.filesystem.free_bytes(self._paths.root)
        if free < settings.journal_bytes + settings.disk_reserve_bytes:
            raise BacklogFullError(
                f"{free} bytes are free on the disk of {self._paths.root}, less than `journal_bytes` "
                f"and `disk_reserve_bytes` together "
                f"({settings.journal_bytes + settings.disk_reserve_bytes}); free some space",
                retry_after_s=RETRY_AFTER_S,
            )
