"""The log's files as a kind: journals are sealed, then compacted into grouped files.

::

    rolled      sync           everything in it is durable (`committer`)
                seal           dense index, parts, footer: durable
                rename         visible as sealed, folders synced
    sealed      indexed        the index batches that cover it are durable: it loses its order of arrival
                group          log/compacted/N.tmp: synced, verified whole, renamed
                swap, reuse    reads go over; its blocks become the next journal's

A crash between two steps leaves what recovery finishes: of two copies the later one, if it verifies.
Depends on compactor, errors, lifecycle, logfile and the other modules of this folder.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierdex.compactor.progress import Progress
from tierdex.compactor.rewrite import AppendingFile
from tierdex.errors import UnavailableError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.transition import move_by_rename, swap_in
from tierdex.log_service.log_file import BATCH_COUNT, BATCH_CRC
from tierdex.log_service.log_recovery import open_grouped, open_sealed, seal_notes
from tierdex.logfile.check import check_log_file
from tierdex.logfile.grouped.merge import write_grouped
from tierdex.logfile.grouped.sources import JournalSource
from tierdex.logfile.journal.file import Journal
from tierdex.logfile.layout import PAGE_BYTES_DEFAULT, Codec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.log_service.active_journal import ActiveJournal
    from tierdex.log_service.committer import Committer
    from tierdex.log_service.log_index import LogIndex
    from tierdex.log_service.next_journal import NextJournal
    from tierdex.seams import Seams
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)


@dataclass
class LogWork:
    """What the compactor's worker needs of a log (`compactor.kind.Work`)."""

    settings: Settings
    clock: Clock
    ids: IdSource
    table: FileTable
    is_active: Callable[[FileHandle], bool]
    quarantine: Callable[[FileHandle, str], None]
    progress: Progress = field(default_factory=Progress)

    def show_manifest(self, *_: object) -> None:
        """Show nothing: no file of a log is published yet."""


class LogKind:
    """Seals journals and compacts them (`compactor.kind.FileKind`)."""

    def __init__(
        self, seams: Seams, paths: DataPaths, table: FileTable, active: ActiveJournal,
        committer: Committer, next_journal: NextJournal,
    ) -> None:  # fmt: skip
        self._seams = seams
        self._paths = paths
        self._table = table
        self._active = active
        self._committer = committer
        self._next_journal = next_journal
        self.log_index: LogIndex | None = None
        self.damaged: dict[bytes, str] = {}  # by uuid: files that stay as they are, and why

    def is_active(self, handle: FileHandle) -> bool:
        """Say whether a journal takes appends."""
        with self._committer.append_lock:
            active = self._active.handle
            return active is not None and active.key == handle.key

    def leave(self, handle: FileHandle, reason: str) -> None:
        """Leave a damaged file where it lies: what is sound of it is answered, the rest is named."""
        self.damaged[handle.uuid] = reason
        logger.error("left as it is", extra={"file_id": handle.file_id, "reason": reason})

    # -- unsealed -> sealed ------------------------------------------------------------------------------

    def seal(self, handle: FileHandle) -> None:
        """Bring a rolled journal to `sealed`. Raises UnavailableError, OSError."""
        with self._committer.commit_lock:
            if self._committer.is_suspect:
                raise UnavailableError("a journal is suspect: it is read back first")
            self._committer.sync_rolled()
        assert handle.path is not None
        journal = handle.reader.journal
        if not journal.message_count:  # nothing was ever in it
            self._table.remove(handle)
            self._next_journal.reuse(handle.path)
            return
        if isinstance(journal, Journal):  # else its seal was found finished after an error
            try:
                journal.seal(seal_notes(journal, self._seams.clock))
            except OSError:
                if journal.suspect:
                    self._committer.is_suspect = True
                raise
        target = self._paths.path_of(FileState.SEALED, handle.number)
        move_by_rename(self._seams.filesystem, handle.path, target)
        if isinstance(journal, Journal):
            journal.path = target
        self._show(handle, open_sealed(self._seams.filesystem, handle.node, handle.number, target))

    # -- sealed -> compacted -----------------------------------------------------------------------------

    def may_compact(self, handle: FileHandle) -> bool:
        """Say whether a sealed journal is whole and in the index."""
        return handle.uuid not in self.damaged and self.is_indexed(handle)

    def is_left(self, handle: FileHandle) -> bool:
        """Say whether a damaged file stays as it is."""
        return handle.uuid in self.damaged

    def is_indexed(self, handle: FileHandle) -> bool:
        """Say whether all of a file that takes no more appends is in the index, if there is one."""
        return self.log_index is None or self.log_index.has_passed(handle)

    def compact(self, handle: FileHandle) -> None:
        """Bring a sealed journal to `compacted`. Raises CorruptFileError, UnavailableError, OSError."""
        if self.log_index is not None:
            self.log_index.index.flush("disk")
        filesystem, old = self._seams.filesystem, handle.path
        assert old is not None
        target = self._paths.path_of(FileState.COMPACTED, handle.number)
        swap_in(
            filesystem,
            target=target,
            old=(),  # it goes below, for its blocks; recovery knows both copies
            write=lambda path: self._write_grouped(handle, path),
            verify=lambda path: check_log_file(filesystem, path),
        )
        self._show(handle, open_grouped(filesystem, handle.node, handle.number, target))
        self._next_journal.reuse(old)

    def _write_grouped(self, handle: FileHandle, path: Path) -> None:
        journal = handle.reader.journal
        end = journal.end
        extra = {
            "begin_ms": handle.begin_ms,
            "sealed_at_ms": handle.sealed_at_ms,
            BATCH_COUNT: end.number,
            BATCH_CRC: end.crc,
        }
        file = self._seams.filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            out = AppendingFile(file)
            write_grouped(
                [JournalSource(journal)],
                out.write,
                header=journal.header.grouped(page_bytes=PAGE_BYTES_DEFAULT, codec=Codec.LZ4),
                extra=extra,
            )
            out.flush()
        finally:
            file.close()

    def _show(self, handle: FileHandle, opened: FileHandle) -> None:
        """Let reads go over to the file in its next state."""
        assert opened.lease is not None
        assert opened.path is not None
        self._table.move(
            handle,
            opened.state,
            reader=opened.lease.reader,
            path=opened.path,
            sealed_at_ms=opened.sealed_at_ms,
            topics=opened.topics,
            fixed_bytes=opened.fixed_bytes,
        )
