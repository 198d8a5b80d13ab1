"""The files of a log that another process writes, or none: read, never touched.

Unsealed journals are scanned for new batches, and synced here before anything of them counts as `disk`: how
far their writer synced is not written down for others. A journal that is sealed meanwhile is opened as such.

What the writer publishes leaves the folder, after it was noted there (`published_note`): `show_published`
then brings the table up to the manifest, in one step with taking out what is gone.

The writer may take a file's blocks for another one, but not while it is locked here: what is found under its
name once the lock is held is that file, and stays it.

Depends on fileparts, lifecycle, logfile and the rest of log_service.
"""

from __future__ import annotations

import threading
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import list_beside_writer, open_beside_writer
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.notes.published_note import mark_of_note, refuse_published
from tierdex.log_service.recovery.clean_close import noted_end, told_of_loss
from tierdex.log_service.recovery.log_recovery import open_immutable, open_sealed, unsealed_handle
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.journal.file import Journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.seams import Seams

_ATTEMPTS = 20  # a file may be moved between the look at a folder and its opening


class FolderReader:
    """Keeps a table in step with the folders. Safe to share between threads."""

    is_quick = True
    every_s = 0.1

    def __init__(
        self, seams: Seams, paths: DataPaths, table: FileTable, gone: TrimRecord, node: str
    ) -> None:
        self._filesystem = seams.filesystem
        self._paths = paths
        self._table = table
        self._gone = gone
        self._node = node
        self._lock = threading.Lock()
        self._mark: bytes | None = None  # of the note of published files that was acted on
        self.show_published: Callable[[list[FileHandle]], None] | None = (
            None  # None: without a store
        )
        self.unread: list[MissingMessages] = []  # files that do not open

    def refresh(self) -> None:
        """Read the folders and the unsealed journals again. Raises OSError."""
        with self._lock:
            for attempt in range(_ATTEMPTS):
                try:
                    self._refresh()
                except (FileNotFoundError, BlockingIOError):  # moved, or about to be another file
                    if attempt == _ATTEMPTS - 1:
                        raise
                else:
                    return

    def _refresh(self) -> None:
        closed_at = noted_end(self._filesystem, self._paths.root)  # before journals are followed
        # Before the folders: a file goes after it was noted.
        mark = mark_of_note(self._filesystem, self._paths.root)
        found = list_beside_writer(self._filesystem, self._paths)
        self._gone.refresh()  # what expired before a folder was listed is in it
        self.unread = []
        for number, (state, path) in sorted(found.items()):
            handle = self._table.get(number, self._node)
            if handle is None or handle.state is not state:
                opened = self._open(state, number, path)
                if opened is None:
                    continue
                self._table.change(add=(opened,), remove=() if handle is None else (handle,))
                handle = opened
            if handle.is_live:
                self._follow(handle)
                loss = told_of_loss(handle.reader.end_of_batches, closed_at)
                if loss is not None:
                    self.unread.append(MissingMessages(handle.file_id, loss))
        gone = [h for h in self._table.version.files.local() if h.number not in found]
        if gone:  # merged into a file of a number that was there before, expired, or published
            self._take_merges(gone)
        if mark is not None and (gone or mark != self._mark):
            if self.show_published is None:
                refuse_published(self._filesystem, self._paths.root)
            else:
                self.show_published(gone)  # as far as manifests can be read; else at the next look
                self._mark = mark
        elif gone:
            self._table.remove(*gone)

    def _take_merges(self, gone: list[FileHandle]) -> None:
        """Open compacted files whose number has become another file."""
        for handle in self._table.version.files.local():
            if handle in gone or handle.state is not FileState.COMPACTED:
                continue
            assert handle.path is not None
            with closing(self._filesystem.open(handle.path)) as file:
                header = decode_log_header(file.read_at(0, HEADER_BYTES), handle.path)
            if header.uuid != handle.uuid:
                opened = self._open(handle.state, handle.number, handle.path)
                if opened is not None:
                    self._table.change(add=(opened,), remove=(handle,))

    def _open(self, state: FileState, number: int, path: Path) -> FileHandle | None:
        try:
            return open_beside_writer(
                self._filesystem, path, partial(self._open_as_it_is, state, number, path)
            )
        except CorruptFileError as error:
            if state is FileState.UNSEALED and self._is_about_to_move(path):
                return None
            self.unread.append(MissingMessages(path.name, error.reason))
            return None

    def _open_as_it_is(self, state: FileState, number: int, path: Path) -> FileHandle:
        if state is not FileState.UNSEALED:
            return open_immutable(self._filesystem, self._node, state, number, path)
        journal = Journal.open_for_reading(self._filesystem, path)
        return unsealed_handle(self._node, number, path, journal, is_own=False)

    def _is_about_to_move(self, path: Path) -> bool:
        """Return whether an unsealed journal has its footer: it is renamed next."""
        try:
            open_sealed(self._filesystem, self._node, 0, path).reader.close()
        except CorruptFileError:
            return False
        return True

    def _follow(self, handle: FileHandle) -> None:
        journal: Journal = handle.reader.journal
        published = journal.refresh()
        if published > handle.reader.durable:
            assert handle.path is not None
            with closing(self._filesystem.open(handle.path)) as file:
                file.sync_data()
            handle.reader.durable = published
