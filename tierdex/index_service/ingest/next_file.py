"""The file of the next roll, made ahead of time, so that no put waits for it.

Its name is `next.ready` until it is renamed to its number. `lock` is held while the file is made or
taken, so that there is one file of that name. The best blocks for it are those of a file that was
compacted: they are written already, and in memory, so that puts cost less than half (`reuse`)::

    file compacted               durable before: what it held, in its compacted form
    rename to `next.ready`       no name is left under which it is opened; recovery removes this one
    both folders synced          it cannot come back under its old name
    no process has it open       a lease that the kernel grants says so; else the file is unlinked, and
                                 the processes that have it keep it
    header overwritten, synced   the new uuid refuses every batch of its old life

Only when the next file is made, half a file later or at the roll, the lease is asked for and the first byte
overwritten: queries that began before have time to end.

Depends on put_folder, disk_errors, indexfile and lifecycle.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tierdex.disk_errors import disk_error
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.lifecycle.folders.transition import retire, sync_folders

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.index_service.ingest.put_folder import PutFolder
    from tierdex.indexfile.schema import Schema

logger = logging.getLogger(__name__)


class _Wanted(NamedTuple):
    """What a new file is to be, as `ChainedFile.create` and `recycle` take it."""

    uuid: bytes
    schema: Schema
    slot_count: int
    item_capacity: int
    created_ms: int


class NextFile:
    """Makes one empty file at `path` and keeps it until the writer takes it."""

    def __init__(self, folder: PutFolder) -> None:
        self._settings = folder.settings
        self._filesystem = folder.seams.filesystem
        self._clock = folder.seams.clock
        self._ids = folder.seams.ids
        self.path = folder.paths.ready
        self.lock = threading.Lock()
        self._file: ChainedFile | None = None
        self._root = folder.paths.root
        self._moved: Path | None = None  # a file of no use lies under `path`: whose name this was
        self._has_old_blocks = False  # and that it is not under that name any more is durable
        self._is_closed = False

    @property
    def is_made(self) -> bool:
        return self._file is not None

    def make_ahead(self, schema: Schema) -> ChainedFile | None:
        """Make the file unless it is there; return it. Holding `lock`. Raises as a put does."""
        if self._file is None:
            self._file = self._make(schema)
        return self._file

    def take(self, schema: Schema) -> ChainedFile:
        """Return the file that was made ahead of time, or make one now. Holding `lock`."""
        file, self._file = self._file, None
        if file is not None and file.schema == schema:
            return file
        if file is not None:
            file.close()
        return self._make(schema)

    def give_back(self, file: ChainedFile) -> None:
        """Keep a file that was taken and not used; it still has its name. Holding `lock`."""
        self._file = file

    def discard(self, file: ChainedFile, *names: Path) -> None:
        """Remove a file that was taken, from `path` and `names`: either may be its name. Holding `lock`.

        A name that stays is harmless: `path` is removed before the next file is made, and an empty
        file of another name by the next recovery.
        """
        file.close()
        self._remove(self.path, *names)

    def _remove(self, *names: Path) -> None:
        for name in names:
            try:
                self._filesystem.unlink(name)
            except OSError as error:  # the first error is the one to raise
                logger.warning("file stays", extra={"path": str(name), "error": str(error)})

    def reuse(self, path: Path) -> None:
        """Give up a file that no process will open again: its blocks are the next one's, or are freed.

        What it held is durable elsewhere; queries, and readers in other processes, may have it still.
        Raises OSError; then the file lies there, or under `next.ready`, and the call may be repeated.
        """
        filesystem = self._filesystem
        with self.lock:  # not while folders are synced: a roll may wait for it
            is_kept = self._wants(path)
            if is_kept:
                filesystem.rename(path, self.path)
                self._moved = path
        if not is_kept:
            retire(filesystem, [path])
            return
        sync_folders(filesystem, self.path, path)
        with self.lock:
            self._has_old_blocks = self._moved == path  # unless a file was made meanwhile

    def _wants(self, path: Path) -> bool:
        """Return whether a file's blocks are of use: none are here, and the disk has room without them."""
        if self._is_closed or self._moved is not None or self._file is not None:
            return False
        if not self._filesystem.exists(path):  # an earlier attempt moved it
            return False
        return not self._lacks_room(self._filesystem.file_size(path))

    def _lacks_room(self, more: int = 0) -> bool:
        free = self._filesystem.free_bytes(self._root)
        return free < self._settings.disk_reserve_bytes + more

    def free_if_short(self) -> None:
        """Free the blocks of a file that was given up while the disk lacks them. Raises OSError."""
        if self._moved is not None:
            with self.lock:
                if self._moved is not None and self._lacks_room():
                    self._forget_moved()
                    self._filesystem.unlink(self.path)

    def close(self) -> None:
        """Remove what was made ahead, or was to be; `reuse` keeps nothing from here on. Holding `lock`."""
        self._is_closed = True
        file, self._file = self._file, None
        if file is not None:
            self.discard(file)
        elif self._moved is not None:
            self._forget_moved()
            self._remove(self.path)

    def _make(self, schema: Schema) -> ChainedFile:
        wanted = _Wanted(
            self._ids.uuid(),
            schema,
            self._settings.slot_count,
            self._settings.item_capacity,
            self._clock.now_ms(),
        )
        has_old_blocks = self._has_old_blocks
        self._forget_moved()  # whatever happens: else it is tried for ever
        try:
            if has_old_blocks:
                with suppress(BlockingIOError):  # a query or another process has it still
                    file = ChainedFile.recycle(self._filesystem, self.path, **wanted._asdict())
                    logger.info("recycle", extra={"path": str(self.path)})
                    return file
            self._filesystem.unlink(self.path)
            return ChainedFile.create(self._filesystem, self.path, **wanted._asdict())
        except OSError as error:
            raise disk_error(error) from error

    def _forget_moved(self) -> None:
        self._moved, self._has_old_blocks = None, False


def reserve_ahead(file: ChainedFile, expected_bytes: int = 0) -> None:
    """Reserve a file's disk blocks ahead; a full disk is told to the put that finds no block."""
    with suppress(OSError):
        file.reserve_ahead(expected_bytes)
