"""The log's files as a kind: journals are sealed, then compacted into grouped files.

::

    rolled      sync           everything in it is durable (`committer`)
                seal           dense index, parts, footer: durable
                rename         visible as sealed, folders synced
    sealed      indexed        the index batches that cover it are durable: it loses its order of arrival
                group          log/compacted/N.tmp: synced, verified whole, renamed
                swap, reuse    reads go over; its blocks become the next journal's
    compacted   carry          what expired here unpublished: the gap that the file lies behind
                upload, commit all its queues by one object and one row (`compactor.publish`)
                note           where its queues end, durably: offsets go on without the store
                keep, unlink   reads go over to the kept copy, or the object

A crash between two steps leaves what recovery finishes: of two copies the later one, if it verifies; a
published file's copy that was not noted is noted and given up by the next publication of it.

A damaged journal stays sealed and is no file for quarantine: a sound prefix of each queue is an answer.

Depends on compactor, errors, lifecycle, logfile and the rest of log_service.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from tierdex.compactor.components import always
from tierdex.compactor.kind import Publication
from tierdex.compactor.progress import Progress
from tierdex.compactor.rewrite import AppendingFile
from tierdex.errors import UnavailableError
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import move_by_rename, retire, swap_in
from tierdex.lifecycle.manifests.file_row import LOG_KIND, FileRef
from tierdex.log_service.files.log_file import BATCH_COUNT, BATCH_CRC, FORGETS
from tierdex.log_service.notes.carried_notes import carry, last_gone
from tierdex.log_service.notes.published_note import FileContents, NotedFile, PublishedNote
from tierdex.log_service.recovery.log_recovery import open_grouped, open_sealed, seal_notes
from tierdex.log_service.recovery.repair import ends_of
from tierdex.logfile.check import check_log_file
from tierdex.logfile.grouped.merge import write_grouped
from tierdex.logfile.grouped.sources import ForgettingSource, JournalSource
from tierdex.logfile.grouped.writer import BesideMessages
from tierdex.logfile.journal.file import Journal
from tierdex.logfile.layout import PAGE_BYTES_DEFAULT, Codec
from tierdex.logfile.queue_ends import QueueEnds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.compactor.components import CompactorComponents
    from tierdex.ids import IdSource
    from tierdex.index_service.index import Index
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import Closing, FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.append.next_journal import NextJournal
    from tierdex.log_service.files.kept_copies import KeptCopies
    from tierdex.log_service.files.log_file import GroupedLogFile
    from tierdex.log_service.files.tier import Tier
    from tierdex.log_service.log_options import LogFolder
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)


class IndexOfFiles(Protocol):
    """The index beside the log, as the log's files need it."""

    @property
    def index(self) -> Index:
        """The index, which is flushed before a sealed journal goes."""

    def has_passed(self, handle: FileHandle) -> bool:
        """Return whether every message of a file is in the index."""

    def is_published(self, uuid: bytes) -> bool:
        """Return whether a file of the log is published, as far as is known."""

    def note_if_published(self, handle: FileHandle) -> None:
        """Note durably how far the published index goes, before the file's local copy goes."""


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
        """Show nothing: what is published is shown by the publication's components."""


class LogKind:
    """Seals journals, compacts and publishes them (`compactor.kind.FileKind`)."""

    row_kind = LOG_KIND

    def __init__(
        self, folder: LogFolder, tier: Tier, active: ActiveJournal, committer: Committer,
        next_journal: NextJournal, note: PublishedNote, gone: TrimRecord,
    ) -> None:  # fmt: skip
        self._gone = gone
        self._seams = folder.seams
        self._paths = folder.paths
        self._tier = tier
        self._table = tier.table
        self.note = note  # replaced, never changed
        self._active = active
        self._committer = committer
        self._next_journal = next_journal
        self.log_index: IndexOfFiles | None = None
        self.components: CompactorComponents | None = None  # of the publication; None: no store
        self.damaged: dict[bytes, str] = {}  # by uuid: files that stay as they are, and why
        self.on_published: Callable[[], None] = lambda: None  # one more file is read from the store
        self._carrying = threading.Lock()  # else older notes may replace newer ones
        self._is_released = False

    def is_active(self, handle: FileHandle) -> bool:
        """Return whether a journal takes appends."""
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
        self._committer.on_written()  # the dispatcher has to see its end, though nothing more is appended

    # -- sealed -> compacted -----------------------------------------------------------------------------

    def may_compact(self, handle: FileHandle) -> bool:
        """Return whether a sealed journal is whole and in the index."""
        return handle.uuid not in self.damaged and self.is_indexed(handle)

    def is_left(self, handle: FileHandle) -> bool:
        """Return whether a damaged file stays as it is."""
        return handle.uuid in self.damaged

    def is_indexed(self, handle: FileHandle) -> bool:
        """Return whether all of a file that takes no more appends is in the index, if there is one."""
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
        forgotten = self._gone.forgotten.current
        if forgotten.number:
            extra[FORGETS] = forgotten.number
        file = self._seams.filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            out = AppendingFile(file)
            write_grouped(
                [ForgettingSource(JournalSource(journal), forgotten.places)],
                out.write,
                header=journal.header.grouped(page_bytes=PAGE_BYTES_DEFAULT, codec=Codec.LZ4),
                beside=BesideMessages(extra=extra),
            )
            out.flush()
        finally:
            file.close()

    # -- compacted -> uploaded ---------------------------------------------------------------------------

    def publication(self, components: CompactorComponents) -> Publication:
        """Return how the log's files are published; `components` are those of the index beside it."""
        self.components = replace(
            components,
            paths=self._paths,
            table=self._table,
            is_active=self.is_active,
            keep_sidecar=lambda row, data: self._tier.tails.keep(
                row, components.settings.node, data
            ),
            quarantine=self.leave,
            quarantined_numbers=tuple,
            may_publish=always,
        )
        return Publication(self.components, self)

    @property
    def publishing(self) -> CompactorComponents:
        """What publication and work on published files need: of a log with an index."""
        assert self.components is not None, "a log without an index publishes nothing"
        return self.components

    @property
    def copies(self) -> KeptCopies:
        """Local copies of published files."""
        return self._tier.copies

    def passes_over(self, handle: FileHandle) -> bool:
        """Return whether a file is damaged: it stays, and what follows does not wait for it for ever."""
        return self.is_left(handle)

    def may_publish(self, handle: FileHandle) -> bool:
        return True

    def check(self, path: Path) -> Sequence[str]:
        return check_log_file(self._seams.filesystem, path)

    def contents(self, handle: FileHandle) -> Buffer:
        file: GroupedFile = handle.reader.file
        return file.mapped_bytes().data

    def sidecar(self, handle: FileHandle) -> Buffer:
        file: GroupedFile = handle.reader.file
        return file.sidecar_bytes().data

    def make_row(self, handle: FileHandle, object_key: str) -> tuple[FileRow, None]:
        """Return the file's row; the end offsets of its queues are in the file itself."""
        dates = {"begin_ms": handle.begin_ms, "sealed_at_ms": handle.sealed_at_ms or 0}
        before = self.note.end
        follows = None if before is None else before.uuid
        reader: GroupedLogFile = handle.reader
        row = reader.make_row(object_key, dates, follows)
        merged = (part.uuid for part in reader.parts if part.uuid != handle.uuid)
        parts = tuple(FileRef(handle.node, uuid, handle.number) for uuid in merged)
        return replace(row, number=handle.number, topics=handle.topics, parts=parts), None

    def reader_of(self, row: FileRow) -> Closing:
        return self._tier.reader_of(row, self.publishing.settings.node)

    def drop_local_copy(self, handle: FileHandle) -> None:
        """Note what is published, then keep the file as a copy for reads, or unlink it."""
        assert handle.path is not None
        state = self.publishing.claim.get().state
        reader: GroupedLogFile = handle.reader
        uuids = {handle.uuid, *(part.uuid for part in reader.parts)}
        file = NotedFile(handle.number, reader.end_of_batches)
        note = self.note.with_file(uuids, file, contents_of(reader, handle.number))
        note = note.without(lambda uuid: not state.knows(uuid))
        # Durable before the file goes: the numbers that were given, and where its queues end.
        self.publishing.note_number(handle.number)
        note.write(self._seams.filesystem, self._paths.root)
        self.note = note
        if self.log_index is not None:
            self.log_index.note_if_published(handle)
        if handle.uuid not in state.files or not self._tier.copies.take(handle):
            retire(self._seams.filesystem, [handle.path])

    def note_shown(self) -> None:
        self.on_published()

    def last_failure(self) -> str | None:
        """Return why the last publication failed, None when none has."""
        failure = None if self.components is None else self.components.progress.last_error
        return None if failure is None else failure.error

    def unlist(self, handles: Sequence[FileHandle]) -> None:
        """Take published files out of the manifest, and out of the table with it."""
        # In the same commit: where their queues ended, for an owner without this folder.
        self._carry([handle.uuid for handle in handles])
        self.publishing.show_manifest()

    def carry_notes(self) -> None:
        """Publish the folder's notes, if there is a store. Raises as `release`."""
        if self.components is not None:
            self._carry()

    def release(self) -> None:
        """Hand the node over: everything is published. Raises FencedError, and what the store raises."""
        self._is_released = True  # from here on: nothing is appended any more
        self._carry()

    def prepare_publication(self) -> None:
        """Publish what expired here unpublished. Raises as `release`.

        Durable before it lists a file behind that gap: for a reader of the store queues begin there.
        """
        files = self._gone.current.files
        if files and files[-1] != last_gone(self.publishing.claim.get().state):
            self._carry()

    def _carry(self, gone: Sequence[bytes] = ()) -> None:
        with self._carrying:
            carry(
                self.publishing, self._paths.root, is_released=self._is_released,
                known=self._gone.current.files, gone=gone,
            )  # fmt: skip

    @property
    def gone_files(self) -> Sequence[bytes]:
        """The uuids of the files, and journals in them, that went last by their age."""
        return self._gone.current.files

    def is_published(self, uuid: bytes, state: ManifestState) -> bool:
        """Return whether a file of the log is published, as far as is known; `state` is the node's."""
        return uuid in self.note.files or state.knows(uuid)

    def is_known_published(self, uuid: bytes) -> bool:
        """Return the same from the manifest as last read, if it was read."""
        claim = None if self.components is None else self.components.claim
        if claim is None or not claim.is_claimed:
            return uuid in self.note.files
        return self.is_published(uuid, claim.get().state)

    def _show(self, handle: FileHandle, opened: FileHandle) -> None:
        """Direct reads to the file in its next state."""
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


def contents_of(reader: GroupedLogFile, number: int) -> FileContents:
    """Return what a file adds to the note: its queues, and those that merges left out of it.

    Raises CorruptFileError, and what the store raises.
    """
    ends = QueueEnds.of(*ends_of(reader), last_file=number)
    return FileContents(ends.joined(reader.left_out()), reader.generation)
