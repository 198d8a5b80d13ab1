"""The unsealed file that takes the puts: which it is, its age, and the roll to the next one.

A roll is one rename: the file made ahead of time gets its number, and the compactor seals the old one,
as it seals every file that is not active. A file whose rename failed is never used again: it is removed
under both names, and the next attempt makes another one.

Depends on put_folder, disk_errors, fileparts, indexfile and lifecycle.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.disk_errors import disk_error
from tierdex.errors import UnavailableError
from tierdex.fileparts.predecessor import NO_PREDECESSOR
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.table.file_handle import live_handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.ingest.direct_puts import DirectPuts
    from tierdex.index_service.ingest.group_commit import GroupCommit
    from tierdex.index_service.ingest.next_file import NextFile
    from tierdex.index_service.ingest.put_folder import PutFolder
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)


class ActiveFile:
    """The file that takes the next batch, if there is one. Every method under the writer's lock."""

    def __init__(
        self,
        folder: PutFolder,
        *,
        next_file: NextFile,
        disk: GroupCommit,
        puts: DirectPuts,
        on_rolled: Callable[[], None],
    ) -> None:
        """`on_rolled` lets the compactor know of work."""
        self._settings = folder.settings
        self._filesystem = folder.seams.filesystem
        self._clock = folder.seams.clock
        self._paths = folder.paths
        self._table = folder.table
        self._numbers = folder.numbers
        self._next_file = next_file
        self._disk = disk
        self._puts = puts
        self._on_rolled = on_rolled
        self.handle: FileHandle | None = None
        self.file: ChainedFile | None = None
        self._opened_at = 0.0
        self._last_end = NO_PREDECESSOR  # where the batches of the last rolled file ended
        self._last_number: int | None = None
        # Why no file can be opened since the last attempt, and for what it was wanted.
        self.trouble: str | None = None
        self._wanted: Schema | None = None

    def resume(self, handle: FileHandle) -> None:
        """Continue the newest unsealed file that recovery found."""
        age_s = max(0, self._clock.now_ms() - handle.begin_ms) / 1000  # also of earlier runs
        self._adopt(handle, handle.reader, min(age_s, self._settings.roll_after))

    def file_for(self, schema: Schema) -> ChainedFile | None:
        """Return the file, if it takes items of `schema`."""
        file = self.file
        return file if file is not None and file.schema == schema and not file.suspect else None

    def is_older_than(self, share: float) -> bool:
        """Return whether so much of `roll_after` has gone by since the file was opened."""
        age_s = self._clock.monotonic() - self._opened_at
        return age_s >= share * self._settings.roll_after

    def retire(self, reason: str) -> bool:
        """Release the file, if it holds anything: the compactor may seal it then."""
        if self.file is None or not self.file.item_count:
            return False
        self.let_go(reason)
        return True

    def roll(self, reason: str, schema: Schema) -> ChainedFile:
        """Direct the puts to the next file, and return it. Raises as a put does."""
        self.let_go(reason)
        self._wanted = schema
        try:
            with (
                self._next_file.lock
            ):  # until the rename: no other thread may make a file of that name
                file = self._open(self._next_file.take(schema))
        except BaseException as error:
            self._forget_unlisted()
            if not isinstance(error, UnavailableError):
                raise
            self.trouble = str(error)
            raise
        self.trouble = None
        return file

    def try_again(self) -> None:
        """Open a file, when the last attempt failed; a service that is not ready gets no put to try it.

        Raises as a put does.
        """
        if self.trouble is not None and self._wanted is not None:
            self.roll("tried again", self._wanted)

    def let_go(self, reason: str) -> None:
        """Give up the file; the compactor may seal it."""
        if self.file is None:
            return
        self._puts.close_file()  # before its end is read: nothing comes behind that
        self._last_end = self.file.end_of_batches
        handle, self.handle, self.file = self.handle, None, None
        assert handle is not None
        self._last_number = handle.number
        logger.info("roll", extra={"file_id": handle.file_id, "reason": reason})
        self._on_rolled()

    def _open(self, file: ChainedFile) -> ChainedFile:
        number = self._numbers.take()
        while self._table.get(number, self._settings.node) is not None:
            number = self._numbers.take()  # an owner that took over published under that number
        path = self._paths.path_of(FileState.UNSEALED, number)
        self._disk.forget_sealed(self._settings.node)
        # Durable before: the file's header (synced when it was made), the name of the file before.
        # Visible after: an empty unsealed file, which says where the one before it ended. Its own
        # name is made durable by the first flush("disk"), the next roll, or the seal.
        try:
            file.follow(self._last_end)
            if self._last_number is not None:
                self._disk.make_name_durable(self._last_number)
        except OSError as error:
            self._next_file.give_back(file)  # no name was touched
            raise disk_error(error) from error
        try:
            self._filesystem.rename(self._next_file.path, path)
        except OSError as error:
            # It may have neither name, or either: it is empty, and its number was never given before.
            self._next_file.discard(file, path)
            raise disk_error(error) from error
        handle = live_handle(
            number=number,
            node=self._settings.node,
            uuid=file.uuid,
            path=path,
            reader=file,
            slot_count=file.slot_count,
            begin_ms=file.created_ms,
        )
        self._adopt(handle, file)  # before it is seen: the compactor seals what is not active
        self._table.insert(handle)
        return file

    def _forget_unlisted(self) -> None:
        """Give up a file that no query would see: a signal handler raised before it was listed.

        Nothing was put into it. Its name stays, and the next recovery removes it.
        """
        handle = self.handle
        if handle is not None and self._table.get(*handle.key) is not handle:
            self.handle = self.file = None

    def _adopt(self, handle: FileHandle, file: ChainedFile, age_s: float = 0.0) -> None:
        self.handle, self.file = handle, file
        self._opened_at = self._clock.monotonic() - age_s
