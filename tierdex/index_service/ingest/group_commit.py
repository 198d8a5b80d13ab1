"""Level `disk`: syncs rows, makes names of files durable, and keeps the end offsets that are covered.

A failed sync is never repeated: the kernel may have dropped the pages, and a second sync would succeed
without them. The file is suspect from then on and takes no more batches; the compactor re-reads and
rewrites it.

Depends on put_folder, indexfile and lifecycle.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import UnavailableError
from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.index_service.ingest.put_folder import PutFolder
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)


class GroupCommit:
    """Syncs the unsealed files. Safe to share between threads, which share one sync."""

    def __init__(self, folder: PutFolder, on_suspect: Callable[[FileHandle], None]) -> None:
        """`on_suspect` is called with a file whose sync failed."""
        self._filesystem = folder.seams.filesystem
        self._paths = folder.paths
        self._table = folder.table
        self._sync_lock = folder.sync_lock
        self._on_suspect = on_suspect
        self._folder_synced_for: set[int] = set()
        self._durable_ends: dict[int, Mapping[tuple[str, int], int]] = {}
        self._loss: str | None = None

    def note_loss(self, what: str) -> None:
        """Remember that the device lost entries that were put and not yet acknowledged at `disk`."""
        self._loss = what

    def tell_loss(self) -> None:
        """Raise UnavailableError, once, when the device lost something."""
        loss, self._loss = self._loss, None
        if loss is not None:
            raise UnavailableError(
                f"{loss}; put again what was not acknowledged at `disk`, from the watermark on"
            )

    def durable_ends(self, number: int) -> Mapping[tuple[str, int], int]:
        """Return the end offsets of a still unsealed file that its last sync covered."""
        return self._durable_ends.get(number, {})

    def sync(self) -> None:
        """Make everything published in unsealed files durable. Raises UnavailableError."""
        with self._table.snapshot() as snapshot:
            pending = [
                (handle, handle.reader.published)
                for handle in snapshot.file_list.local()  # oldest first: put order
                if handle.state is FileState.UNSEALED
            ]
            for handle, published in pending:
                with self._sync_lock:
                    self._sync_one(handle, published)

    def _sync_one(self, handle: FileHandle, published: int) -> None:
        newest = self._table.get(*handle.key)
        if newest is None and published:
            raise UnavailableError(
                f"{handle.file_id} left before it was synced: quarantined, see `missing` of answers"
            )
        if newest is None or newest.state is not FileState.UNSEALED:
            return  # sealed meanwhile: a seal syncs first
        file: ChainedFile = handle.reader
        if file.suspect:
            raise UnavailableError(
                f"a sync of {handle.path} failed; it is being re-read and rewritten: try again",
                retry_after_s=2.0,
            )
        if file.synced >= published and handle.number in self._folder_synced_for:
            return  # another caller's sync covered us
        ends = file.end_offsets()  # before the sync: what it covers, or less
        try:
            file.sync()
            self.make_name_durable(handle.number)
            self._durable_ends[handle.number] = ends
        except OSError as error:
            file.suspect = True
            logger.error("sync failed", extra={"file_id": handle.file_id, "error": str(error)})
            self._on_suspect(handle)
            raise UnavailableError(
                f"syncing {handle.path} failed ({error}); nothing more is acknowledged in that "
                "file, it is re-read and rewritten: try again",
                retry_after_s=2.0,
            ) from error

    def make_name_durable(self, number: int) -> None:
        """Sync the folder's entry of an unsealed file. Raises OSError."""
        if number not in self._folder_synced_for:
            self._filesystem.sync_folder(self._paths.folder(FileState.UNSEALED))
            self._folder_synced_for.add(number)

    def forget_sealed(self, node: str) -> None:
        """Forget what was remembered of the node's files that are sealed by now."""
        for number in list(self._folder_synced_for | self._durable_ends.keys()):
            handle = self._table.get(number, node)
            if handle is None or handle.state is not FileState.UNSEALED:
                self._folder_synced_for.discard(number)
                self._durable_ends.pop(number, None)
