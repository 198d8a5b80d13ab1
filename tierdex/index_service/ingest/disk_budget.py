"""The disk budget of puts: bytes that wait for the store, and bytes that are free.

Depends on put_folder and disk_errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.disk_errors import RETRY_AFTER_S
from tierdex.errors import BacklogFullError

if TYPE_CHECKING:
    from tierdex.index_service.ingest.put_folder import PutFolder


_CHECK_S: Final = 0.25


class DiskRoom(NamedTuple):
    """Bytes that wait for the store and may, and bytes that are free on the disk and must be."""

    waiting_bytes: int
    budget_bytes: int
    free_bytes: int
    reserve_bytes: int


class DiskBudget:
    """Refuses puts while local files pile up, or the disk fills. The caller locks."""

    def __init__(self, folder: PutFolder) -> None:
        """The disk of `folder` is the one that counts."""
        self._settings = folder.settings
        self._filesystem = folder.seams.filesystem
        self._monotonic = folder.seams.clock.monotonic
        self._table = folder.table
        self._root = folder.paths.root
        self._checked_at = float("-inf")
        self._excess: str | None = None

    def check(self) -> None:
        """Raise BacklogFullError when no more may be written; looks a few times a second."""
        now = self._monotonic()
        if now - self._checked_at >= _CHECK_S:
            self._checked_at = now
            self._excess = self._find_excess()
        if self._excess is not None:
            raise BacklogFullError(self._excess, retry_after_s=RETRY_AFTER_S)

    def look_again(self) -> None:
        """Make the next check measure the room again."""
        self._checked_at = float("-inf")

    def room(self) -> DiskRoom:
        """Return how much is waiting and free now. Raises OSError."""
        with self._table.snapshot() as snapshot:
            waiting = sum(handle.bytes for handle in snapshot.file_list.local())
        settings = self._settings
        free = self._filesystem.free_bytes(self._root)
        return DiskRoom(waiting, settings.disk_budget_bytes, free, settings.disk_reserve_bytes)

    def _find_excess(self) -> str | None:
        room = self.room()
        if room.waiting_bytes > room.budget_bytes:
            return (
                f"{room.waiting_bytes} bytes of index files wait for the store, above "
                f"`disk_budget_bytes` ({room.budget_bytes}); mend the store or raise the budget"
            )
        if room.free_bytes < room.reserve_bytes:
            return (
                f"{room.free_bytes} bytes are free on the disk of {self._root}, below "
                f"`disk_reserve_bytes` ({room.reserve_bytes}); free some space"
            )
        return None
