"""The level `remote`: roll, wait until every file that held anything then is published.

All waiters share one roll, and there is at most one every `remote_interval`, so that acknowledging
single messages remotely does not make a swamp of tiny files.

Depends on the ground.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.clock import Bell
from tierdex.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.clock import Clock
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.settings import Settings

_LOOK_EVERY_S = 0.02


class RemoteFlush:
    """Waits for `remote`. Safe to share between threads."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        table: FileTable,
        writer: Writer,
        *,
        is_published: Callable[[bytes], bool],
        advance: Callable[[], None],
    ) -> None:
        """`is_published` says whether the node's manifest knows a uuid.

        `advance` lets the compactor work: wakes its thread, or does the work where there is none.
        """
        self._settings = settings
        self._clock = clock
        self._table = table
        self._writer = writer
        self._is_published = is_published
        self._advance = advance
        self._roll_lock = threading.Lock()
        self._rolled_at = float("-inf")
        self._never = Bell()

    def flush(self) -> None:
        """Return once everything put before the call is published.

        Raises UnavailableError, FencedError when the node was taken over meanwhile, ClosedError.
        """
        self._writer.flush_buffer()
        wanted = {handle.uuid: handle for handle in self._waiting()}
        deadline = self._clock.monotonic() + self._settings.remote_timeout
        while wanted:
            self._writer.check_accepts()  # fenced or closed: it will not be published
            active = self._writer.active
            if active is not None and active.uuid in wanted:
                self._roll_when_due()
            self._advance()
            wanted = self._still_waiting(wanted)
            if wanted and self._clock.monotonic() > deadline:
                raise UnavailableError(
                    f"not published within remote_timeout ({self._settings.remote_timeout:g} s); "
                    "it is on disk and will be: see compaction_status() for the last error",
                    retry_after_s=5.0,
                )
            if wanted:
                self._clock.wait(self._never, _LOOK_EVERY_S)

    def _still_waiting(self, wanted: Mapping[bytes, FileHandle]) -> dict[bytes, FileHandle]:
        """Return those of `wanted` that are not published yet. Raises for one that never will be."""
        local = {handle.uuid for handle in self._waiting()}
        for uuid, handle in wanted.items():
            if uuid not in local and not self._is_published(uuid):
                self._writer.check_accepts()
                raise UnavailableError(
                    f"{handle.file_id} was not published: quarantined, see `missing` of answers"
                )
        return {uuid: handle for uuid, handle in wanted.items() if uuid in local}

    def _waiting(self) -> list[FileHandle]:
        """Return the local files that hold anything and are not published."""
        with self._table.snapshot() as snapshot:
            return [
                handle
                for handle in snapshot.file_list.local()
                if handle.node == self._settings.node and handle.item_count
            ]

    def _roll_when_due(self) -> None:
        with self._roll_lock:
            now = self._clock.monotonic()
            if now - self._rolled_at >= self._settings.remote_interval and self._writer.roll():
                self._rolled_at = now
