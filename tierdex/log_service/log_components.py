"""The components of an open message log, and how they are closed.

Depends on background, compactor, errors, fileparts, lifecycle and the rest of log_service.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tierdex.errors import (
    ClosedError,
    FencedError,
    InvalidRequestError,
    ReadOnlyError,
    TierdexError,
    raised_anew,
)
from tierdex.fileparts.predecessor import NO_PREDECESSOR
from tierdex.log_service.levels import Level, level_of
from tierdex.log_service.recovery.clean_close import note_clean_close

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.background import WorkerThread
    from tierdex.compactor.progress import Progress
    from tierdex.compactor.scrub import Scrubber
    from tierdex.compactor.unit import Unit, UnitWorker
    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.lifecycle.folders.folder_lock import SharedFolderLock
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.answer import MissingMessages
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.appender import Appender
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.append.journal_tending import JournalTending
    from tierdex.log_service.append.next_journal import NextJournal
    from tierdex.log_service.append.single_appends import SingleAppends
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.files.tier import Tier
    from tierdex.log_service.forget.forgetting import LogForgetting
    from tierdex.log_service.keys.followed_index import FollowedIndex
    from tierdex.log_service.keys.log_index import LogIndex
    from tierdex.log_service.log_options import LogOptions
    from tierdex.log_service.notes.published_note import PublishedNote
    from tierdex.log_service.notes.trim_record import TrimRecord
    from tierdex.log_service.read.reads import LogReads
    from tierdex.log_service.read.tail_reads import TailReads
    from tierdex.log_service.tiering.log_kind import LogKind
    from tierdex.log_service.tiering.log_merge import LogMerging
    from tierdex.log_service.tiering.log_retention import LogRetention
    from tierdex.log_service.tiering.remote_commits import RemoteCommits
    from tierdex.log_service.timer.timer import Timer
    from tierdex.seams import Seams

_STOP_TIMEOUT_S = 60.0


class HandedOverError(FencedError):
    """The log was handed over by its owner."""


@dataclass
class LogWriting:
    """What the owner of a log has besides its files."""

    queues: QueueTable
    active: ActiveJournal
    committer: Committer
    appender: Appender
    singles: SingleAppends
    timer: Timer
    tending: JournalTending
    kind: LogKind
    local: UnitWorker  # seals and compacts
    housekeeping: UnitWorker  # expires, forgets and merges
    retention: LogRetention
    merging: LogMerging
    forgetting: LogForgetting
    scrubber: Scrubber
    units: Callable[[], Iterable[Unit]]  # of the one
    chores: Callable[[], Iterable[Unit]]  # of the other
    next_journal: NextJournal
    lock: SharedFolderLock
    paths: DataPaths
    progress: Progress
    remote: RemoteCommits
    log_index: LogIndex | None = None
    threads: list[WorkerThread] = field(default_factory=list)

    def run_all(self, table: FileTable) -> int:
        """Do all work on files that is due, of the index as well; return the number of steps."""
        steps = 0
        while True:
            self.retention.look_at_everything()
            self.forgetting.look_at_everything()
            self.merging.look_at_everything()
            done = self._run_own(table)
            if self.log_index is not None:
                done += self.log_index.index.run_compaction()  # which publishes: more may be merged
            if not done:
                return steps
            steps += done

    def _run_own(self, table: FileTable) -> int:
        """Do all work on the log's own files; return the number of steps."""
        steps = 0
        while True:
            before = table.version
            if self.log_index is not None:
                self.log_index.catch_up()  # what is not indexed is not compacted
            if self.local.run_first(self.units()) or self.housekeeping.run_first(self.chores()):
                steps += 1
            elif table.version is before:  # else a worker sealed a file that was not caught up yet
                return steps

    def asked_index(self) -> LogIndex:
        """Return the index. Raises InvalidRequestError in a log that was opened without one."""
        if self.log_index is None:
            raise no_index()
        return self.log_index


class Follower(Protocol):
    """Keeps the table of a log that is only read in step with what another process writes."""

    @property
    def is_quick(self) -> bool: ...  # so quick that a waiting thread may call it each time
    @property
    def every_s(self) -> float: ...  # else so often
    def refresh(self) -> None: ...


@dataclass
class LogComponents:
    """An open log. `missing` are files that do not open; `refusal` is why every call is refused."""

    options: LogOptions
    seams: Seams
    table: FileTable
    gone: TrimRecord
    reads: LogReads
    tail_reads: TailReads
    writing: LogWriting | None = None
    follower: Follower | None = None
    missing: list[MissingMessages] = field(default_factory=list)
    refusal: TierdexError | None = None
    fenced: TierdexError | None = (
        None  # why no append is taken any more: another owner has the node
    )
    tier: Tier | None = None
    open_index: Callable[[], FollowedIndex] | None = None  # of a log that is only read
    followed_index: FollowedIndex | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)

    def follow_index(self) -> FollowedIndex:
        """Return the index of a log that is only read, opened at the first call. InvalidRequestError."""
        if self.open_index is None:
            raise no_index()
        with self.opening:
            if self.followed_index is None:
                self.followed_index = self.open_index()
        return self.followed_index

    def show_published(self, gone: list[FileHandle]) -> None:
        """Show what the manifest lists, and take out files that are gone, as far as it can be read."""
        self.follow_index().show_published(gone)

    def unpublished_count(self) -> int:
        """Return how many messages lie in the folder and are not known to be published.

        A commit may have taken effect although its answer was lost: what the manifest says counts.
        """
        kind = None if self.writing is None else self.writing.kind
        with self.table.snapshot() as snapshot:
            return sum(
                handle.item_count
                for handle in snapshot.file_list.local()
                if kind is None or not kind.is_known_published(handle.uuid)
            )

    def check_open(self) -> None:
        """Raise ClosedError, or ForkedError in a child, when no call is answered any more."""
        if self.refusal is not None:
            raise raised_anew(self.refusal)

    def need_writing(self) -> LogWriting:
        """Return the writing half. Raises ReadOnlyError without one, ClosedError, ForkedError."""
        self.check_open()
        if self.writing is None:
            raise ReadOnlyError("the log was opened read-only")
        return self.writing

    def level(self, name: object, field: str) -> Level:
        """Return the level that a caller named. Raises InvalidRequestError."""
        level = level_of(name, field)
        if level is Level.REMOTE and not self.has_store:
            raise InvalidRequestError(
                "`remote` needs a store, which is that of the index: open the log with `index=True`",
                field=field,
            )
        return level

    @property
    def has_store(self) -> bool:
        """Whether the log's files are published: by the index beside it."""
        if self.writing is None:
            return self.open_index is not None
        return self.writing.log_index is not None

    def check_accepts(self) -> None:
        """Raise when no more appends are taken: as `check_open`, or FencedError."""
        refusal = self.refusal or self.fenced
        if refusal is not None:
            raise raised_anew(refusal)

    def check_publishes(self) -> None:
        """Raise when nothing is published any more: a log that is being handed over still does."""
        if self.refusal is not None or not isinstance(self.fenced, HandedOverError):
            self.check_accepts()

    def close(self) -> None:
        """Make everything durable, note that, stop the threads, give files and lock back; done once."""
        if self.refusal is not None:
            return
        self.refusal = ClosedError("the message log was closed")
        try:
            if self.writing is not None:
                self._close_writing(self.writing)
        finally:
            if self.followed_index is not None:
                self.followed_index.close()
            self._close_files()
            if self.tier is not None:
                self.tier.close()

    def _close_writing(self, writing: LogWriting) -> None:
        try:
            writing.local.is_stopping = writing.housekeeping.is_stopping = True
            for thread in writing.threads:
                thread.ask_to_stop()
            writing.committer.wake = None
            with writing.committer.append_lock:
                commit = writing.committer.join(Level.DISK)
            for thread in writing.threads:
                thread.stop(_STOP_TIMEOUT_S)
            writing.committer.wait(commit, Level.DISK)
            writing.next_journal.close()
            end = newest_end(self.table, writing.kind.note) or NO_PREDECESSOR
            note_clean_close(self.seams.filesystem, writing.paths.root, end)
        finally:
            with (
                ExitStack() as closing
            ):  # from the last line up, each also after an error of another
                closing.callback(writing.lock.release)
                closing.callback(self._close_files)
                if writing.log_index is not None:
                    closing.callback(writing.log_index.close)
                closing.callback(writing.remote.close)

    def _close_files(self) -> None:
        with self.table.snapshot() as snapshot:
            self.table.remove(*snapshot.files)


def no_index() -> InvalidRequestError:
    """Return the error of a question about keys to a log without an index."""
    return InvalidRequestError(
        "this log was opened without an index: open it with `index=True`", field="key"
    )


def newest_end(table: FileTable, note: PublishedNote) -> Predecessor | None:
    """Return where the batches of the newest file end, published or not; None without a file."""
    local = table.version.files.local()
    if not local:
        return note.end
    end: Predecessor = local[-1].reader.end_of_batches
    return end
