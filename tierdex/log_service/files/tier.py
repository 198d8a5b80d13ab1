"""The log's published files: where their sidecars are kept, and how ranges of them are fetched.

::

    manifest row --> handle in the log's table    `handle_of`: no request
    sidecar          one GET, kept in DATA/log/uploaded/ or in memory     queues, directory: where pages lie
    pages            of a kept copy, or by GETs that readers share        `KeptCopies`, `FetchedRanges`

The store is that of the index beside the log, which may be opened anew: it is bound, not held.

Depends on index_service, lifecycle, fetched_ranges, kept_copies, page_arena, published_file, read_ahead and
reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierdex.index_service.view.published_view import PublishedView
from tierdex.lifecycle.manifests.file_row import LOG_KIND
from tierdex.lifecycle.table.file_handle import FileHandle
from tierdex.log_service.files.fetched_ranges import FetchedRanges
from tierdex.log_service.files.kept_copies import KeptCopies
from tierdex.log_service.files.page_arena import PageArena
from tierdex.log_service.files.published_file import LogTails, PublishedLogFile
from tierdex.log_service.files.read_ahead import ReadAhead
from tierdex.log_service.files.reading import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


_TEND_S: Final = 10.0


class Tier:
    """The published files of a log. Safe to share between threads."""

    def __init__(
        self, seams: Seams, paths: DataPaths | None, table: FileTable, settings: Settings
    ) -> None:
        self.tails = LogTails(
            seams.filesystem, paths, settings.sidecar_cache_bytes, read_only=settings.read_only,
            memory_bytes=settings.sidecar_memory_bytes,
        )  # fmt: skip
        budget = settings.read_ahead_bytes
        self.tails.fetched = FetchedRanges(seams.clock, budget, self.tails.fetch, seams.executor)
        self.tails.copies = self.copies = KeptCopies(seams.filesystem, paths, settings)
        self.memory = Memory(ReadAhead(seams.clock, budget), PageArena(settings.page_arena_bytes))
        self._clock = seams.clock
        self._tended_at = seams.clock.monotonic()
        self.table = table
        # Why files of the own node are published that are not known here, if there are any.
        self.unknown: Callable[[], str | None] = lambda: None

    @property
    def store(self) -> Store:
        """The store. Raises UnavailableError before one is bound."""
        return self.tails.reached_store()

    def bind(self, store: Store) -> PublishedView:
        """Fetch from `store` from here on; return where what it lists is shown."""
        self.tails.store = store
        return PublishedView(
            LOG_KIND, self.table, self.handle_of, self.tails.forget, self.tails.forget_others,
            of_one_owner=True,
        )  # fmt: skip

    def handle_of(self, row: FileRow, node: str) -> FileHandle:
        return FileHandle.of_row(row, node, self.reader_of(row, node))

    def reader_of(self, row: FileRow, node: str) -> PublishedLogFile:
        return PublishedLogFile(row, node, self.tails)

    def tend(self, node: str, *, at_once: bool = False) -> None:
        """Release what is not needed any more, if that was not done just now: for the owner."""
        now = self._clock.monotonic()
        if not at_once and now - self._tended_at < _TEND_S:
            return
        self._tended_at = now
        self.tails.fetched.let_old_go()
        if self.unknown() is None:  # else nothing is known to be gone
            with self.table.snapshot() as snapshot:
                sealed_at_ms = {
                    handle.uuid: handle.sealed_at_ms or 0
                    for handle in snapshot.file_list
                    if handle.node == node
                }
            self.copies.trim(sealed_at_ms, self._clock.now_ms())

    def close(self) -> None:
        self.tails.close()
        self.tails.fetched.close()
        self.memory.arena.clear()
