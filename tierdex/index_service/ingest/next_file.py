"""The file of the next roll, made ahead of time, so that no put waits for it.

Its name is `next.ready` until it is renamed to its number. `lock` is held while the file is made or
taken, so that there is one file of that name.

Depends on put_folder, disk_errors and indexfile.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from tierdex.disk_errors import disk_error
from tierdex.indexfile.chained.file import ChainedFile

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.index_service.ingest.put_folder import PutFolder
    from tierdex.indexfile.schema import Schema

logger = logging.getLogger(__name__)


class NextFile:
    """Makes one empty file at `path` and keeps it until somebody takes it."""

    def __init__(self, folder: PutFolder) -> None:
        self._settings = folder.settings
        self._filesystem = folder.seams.filesystem
        self._clock = folder.seams.clock
        self._ids = folder.seams.ids
        self.path = folder.paths.ready
        self.lock = threading.Lock()
        self._file: ChainedFile | None = None

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
        """Remove a file that was taken, from `path` and `names`: nobody knows which it has. Holding `lock`.

        A name that stays is harmless: `path` is removed before the next file is made, and an empty
        file of another name by the next recovery.
        """
        file.close()
        for name in (self.path, *names):
            try:
                self._filesystem.unlink(name)
            except OSError as error:  # the first error is the one to raise
                logger.warning("file stays", extra={"path": str(name), "error": str(error)})

    def drop(self) -> None:
        """Remove the file, if there is one. Holding `lock`."""
        file, self._file = self._file, None
        if file is not None:
            self.discard(file)

    def _make(self, schema: Schema) -> ChainedFile:
        try:
            self._filesystem.unlink(self.path)
            return ChainedFile.create(
                self._filesystem,
                self.path,
                uuid=self._ids.uuid(),
                schema=schema,
                slot_count=self._settings.slot_count,
                item_capacity=self._settings.item_capacity,
                created_ms=self._clock.now_ms(),
            )
        except OSError as error:
            raise disk_error(error) from error


def reserve_ahead(file: ChainedFile, expected_bytes: int = 0) -> None:
    """Reserve a file's disk blocks ahead; a full disk is told to the put that finds no block."""
    with suppress(OSError):
        file.reserve_ahead(expected_bytes)
