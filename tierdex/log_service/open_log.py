"""Opens a data folder's message log, and wires its components.

::

    writing   lock the folder -> settle its node -> claim it (with an index) -> list, refuse newer formats
              -> drop what follows lost batches -> recover -> table, next offset of every queue
              -> closed in order? -> the index is cut, and opened -> threads
    reading   nothing is locked, nothing changed: the folders are followed

A log that was not closed in order goes on in a new journal of the next generation: offsets may have been
given to messages that are gone. Depends on background, compactor, fileparts, lifecycle, logfile,
index_service.opening.folder_owner and the rest of log_service.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.background import WorkerThread
from tierdex.compactor.local_work import LocalWork
from tierdex.compactor.scrub import Scrubber
from tierdex.compactor.unit import FileClaims, UnitWorker
from tierdex.errors import (
    CorruptFileError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
)
from tierdex.fileparts.predecessor import NO_PREDECESSOR
from tierdex.filesystem import make_durable_folder
from tierdex.index_service.opening.folder_owner import Claiming
from tierdex.lifecycle.file_number import NextNumber
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import list_folders
from tierdex.lifecycle.folders.folder_lock import (
    SharedFolderLock,
    acquire_folder_lock,
    make_holder_text,
)
from tierdex.lifecycle.folders.folder_notes import (
    FolderNumber,
    read_folder_node,
    settle_node,
    write_folder_node,
)
from tierdex.lifecycle.folders.gap import drop_behind_a_gap
from tierdex.lifecycle.folders.recovery import apply_recovery, plan_recovery, quarantine
from tierdex.lifecycle.paths import LOG_FOLDER, DataPaths, parse_quarantined_name
from tierdex.lifecycle.table.file_table import FileTable
from tierdex.log_service.answer import MissingMessages
from tierdex.log_service.append.active_journal import ActiveJournal
from tierdex.log_service.append.appender import Appender
from tierdex.log_service.append.committer import Committer
from tierdex.log_service.append.journal_tending import JournalTending
from tierdex.log_service.append.next_journal import NextJournal
from tierdex.log_service.append.single_appends import SingleAppends
from tierdex.log_service.files.queue_table import QueueTable, queues_of_ends
from tierdex.log_service.files.tier import Tier
from tierdex.log_service.forget.forgetting import ForgetfulLog, LogForgetting
from tierdex.log_service.keys.dispatcher import DispatcherTending
from tierdex.log_service.levels import Level
from tierdex.log_service.log_components import LogComponents, LogWriting, newest_end
from tierdex.log_service.log_options import LogFolder, LogOptions
from tierdex.log_service.notes.published_note import PublishedNote, refuse_published
from tierdex.log_service.notes.trim_record import TrimRecord
from tierdex.log_service.read.reads import LogReads
from tierdex.log_service.read.tail_reads import TailReads
from tierdex.log_service.recovery.clean_close import noted_end, take_clean_close
from tierdex.log_service.recovery.folder_reader import FolderReader
from tierdex.log_service.recovery.log_recovery import (
    JournalMending,
    open_immutable,
    refuse_strangers,
    remove_gone,
    unsealed_handle,
)
from tierdex.log_service.recovery.repair import Mender, note_ends
from tierdex.log_service.recovery.takeover import Succession
from tierdex.log_service.tiering.log_kind import LogKind, LogWork
from tierdex.log_service.tiering.log_merge import LogMerging
from tierdex.log_service.tiering.log_retention import LogRetention
from tierdex.log_service.tiering.published_queues import (
    refuse_unnoted,
    settle_note,
)
from tierdex.log_service.tiering.remote_commits import RemoteCommits
from tierdex.log_service.timer.timer import Timer, TimerLog
from tierdex.logfile.journal.file import Journal, recover_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.compactor.unit import Unit
    from tierdex.filesystem import FolderLock
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.keys.followed_index import FollowedIndex
    from tierdex.log_service.keys.log_index import LogIndex
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

_STAGE_MAX_AGE_S: Final = 0.010  # after which a staged message is written at the latest

logger = logging.getLogger(__name__)

LOCAL_WORKER = "log-compactor"
HOUSEKEEPING_WORKER = "log-housekeeping"


class _Appending(NamedTuple):
    """The parts that take messages."""

    next_journal: NextJournal
    active: ActiveJournal
    committer: Committer
    appender: Appender
    singles: SingleAppends


class IndexChoice(NamedTuple):
    """An index beside the log is wanted; its node's epoch and manifest lie in `store`.

    `claiming` says how the node may be claimed.
    """

    store: str | Store | None = None
    claiming: Claiming = Claiming()


def open_log(
    data: Path | None, settings: Settings, seams: Seams, choice: IndexChoice | None = None
) -> LogComponents:
    """Open the log of a data folder. Raises FolderInUseError, CorruptFileError, OSError.

    Without a folder the log is read from its store.
    """
    if data is None:
        if choice is None or choice.store is None or not settings.read_only:
            raise InvalidRequestError(
                "give a data folder; or a `store`, with `read_only`, to read what is published there",
                field="data",
            )
        from tierdex.log_service.mounted_log import mount_log  # its owner does not load it

        return mount_log(choice.store, settings, seams)
    if settings.read_only:
        return _open_reading(data, settings, seams, choice)
    held = acquire_folder_lock(seams.filesystem, data, make_holder_text(seams.clock))
    lock = SharedFolderLock(held)
    opening = None
    try:
        _refuse_foreign_index(seams, data)
        recorded = read_folder_node(seams.filesystem, data)
        claiming = Claiming() if choice is None else choice.claiming
        settings = settle_node(settings, recorded, data, adopt=claiming.adopt)
        opening = _OwnerOpening(data, LogOptions.of(settings), seams, lock)
        opening.succession = Succession(seams, data, is_lossy=claiming.lossy)
        if recorded is not None and recorded != settings.node:
            opening.adopted_node = recorded
        if recorded is None:
            write_folder_node(seams.filesystem, data, settings.node)
        return opening.run(choice)
    except BaseException:
        if opening is not None:
            opening.close_files()
        lock.release()
        raise


def _refuse_foreign_index(seams: Seams, data: Path) -> None:
    """Refuse a folder with an index that no log wrote: its entries would be taken for the log's."""
    filesystem = seams.filesystem
    has_log = filesystem.is_folder(data / LOG_FOLDER)
    if not has_log and filesystem.is_folder(DataPaths(data).folder(FileState.UNSEALED)):
        raise InvalidRequestError(
            f"{data} holds an index that was put into: give the message log a folder of its own",
            field="data",
        )


def _open_reading(
    data: Path, settings: Settings, seams: Seams, choice: IndexChoice | None
) -> LogComponents:
    paths = DataPaths(data / LOG_FOLDER)
    if not seams.filesystem.is_folder(paths.root):
        raise NotFoundError(f"{data} holds no message log: is the path right?")
    settings = settle_node(settings, read_folder_node(seams.filesystem, data), data, adopt=False)
    table = FileTable()
    gone = TrimRecord(seams.filesystem, paths.root, seams.clock)
    tier = Tier(seams, paths, table, settings)
    follower = FolderReader(seams, paths, table, gone, settings.node)
    quarantined = _quarantined(seams, paths)
    reads = LogReads(
        table, settings.node, lambda: [*quarantined, *follower.unread], gone, tier.memory,
        lambda: tier.unknown(),
    )  # fmt: skip
    components = LogComponents(
        LogOptions(settings, 0), seams, table, gone,
        reads, TailReads(table, reads),
        follower=follower, missing=quarantined, tier=tier,
        open_index=None if choice is None else partial(_follow_index, data, choice, settings, seams, tier),
    )  # fmt: skip
    if choice is not None:
        follower.show_published = components.show_published
    try:
        follower.refresh()
    except BaseException:
        components.close()
        raise
    return components


def _follow_index(
    data: Path, choice: IndexChoice, settings: Settings, seams: Seams, tier: Tier
) -> FollowedIndex:
    """Open the index of a log that another process writes. Raises InvalidRequestError without one."""
    from tierdex.log_service.keys.followed_index import (
        FollowedIndex,  # a log alone does not load it
    )

    if not seams.filesystem.is_folder(DataPaths(data).folder(FileState.UNSEALED)):
        raise InvalidRequestError(
            "this log has no index: open it for writing with `index=True` once", field="key"
        )
    return FollowedIndex(data, choice.store, settings, seams, tier)


def _quarantined(seams: Seams, paths: DataPaths) -> list[MissingMessages]:
    names = seams.filesystem.list_folder(paths.quarantine)
    return [
        MissingMessages(f"quarantine/{name}", "does not open: it was moved away")
        for name in names
        if parse_quarantined_name(name) is not None
    ]


class _OwnerOpening:
    """The opening of one locked folder, and the open log as its index knows it (`log_index.OwnedLog`)."""

    def __init__(
        self, data: Path, options: LogOptions, seams: Seams, lock: SharedFolderLock
    ) -> None:
        self.folder = data
        self.root = data / LOG_FOLDER
        self.settings = options.settings
        self.seams = seams
        self.numbers = NextNumber(seams.clock, FolderNumber(seams.filesystem, data).highest)
        self.claims = FileClaims()
        self._paths = DataPaths(self.root)
        self._options = options
        self._seams = seams
        self._lock = lock
        self._table = FileTable()
        self.tier = Tier(seams, self._paths, self._table, options.settings)
        self._queues = QueueTable()
        self._missing: list[MissingMessages] = []
        self.gone: TrimRecord
        self._is_first = False
        self._components: LogComponents | None = None
        self._known: frozenset[bytes] = frozenset()  # files that were here whole at the opening
        self.succession: Succession
        self.adopted_node: str | None = None

    def run(self, choice: IndexChoice | None) -> LogComponents:
        """Recover and wire; start the threads, unless the settings want none."""
        filesystem = self._seams.filesystem
        self._is_first = not filesystem.is_folder(self.root)
        make_durable_folder(filesystem, self.root)
        self.gone = TrimRecord(filesystem, self.root, self._seams.clock)
        if choice is None:
            refuse_published(filesystem, self.root)
            self._begin(PublishedNote(), None)
        else:
            self._open_index(choice)
        components = self._components
        assert components is not None
        if self._options.settings.background:
            self._start(components, self._writing)
        return components

    # -- what the index's opening asks -------------------------------------------------------------------

    def share_lock(self) -> FolderLock:
        return self._lock.share()

    def recover(self, state: ManifestState | None) -> None:
        """Recover the log, at the first call, with what its node has published."""
        if self._components is None:
            # Before the others, which recovery makes: the note may need sidecars, and they are kept.
            self._seams.filesystem.make_folder(self._paths.folder(FileState.UPLOADED))
            note = settle_note(self._seams, self._paths, self.tier, state)
            # Made void, or restored, since it was read.
            self.gone = TrimRecord(self._seams.filesystem, self.root, self._seams.clock)
            self._begin(note, state)

    def note_claim(self, state: ManifestState) -> None:
        """Called after a late claim of the node. Raises FencedError when offsets were given twice."""
        if self._components is not None:
            refuse_unnoted(self.kind.note, self._known, state)

    def refuse(self, error: FencedError) -> None:
        """Take no more appends; what was read goes on to be. Counts what no other owner will have."""
        components = self._components
        assert components is not None
        if components.fenced is not None:
            return
        # Appends under way have ended; a later one is told the count.
        with self.committer.append_lock:
            count = components.unpublished_count()
            told = (
                f"{error}. {count} messages that were appended here lie in this folder alone: "
                "`tierdex adopt` publishes them under another node"
            )
            components.fenced = FencedError(told) if count else error
        logger.error("fenced", extra={"node": self.settings.node, "unpublished_messages": count})

    @property
    def committer(self) -> Committer:
        return self._writing.committer

    @property
    def kind(self) -> LogKind:
        return self._writing.kind

    @property
    def _writing(self) -> LogWriting:
        assert self._components is not None and self._components.writing is not None  # noqa: PT018
        return self._components.writing

    # -- private -----------------------------------------------------------------------------------------

    def _begin(self, note: PublishedNote, state: ManifestState | None) -> None:
        """Recover folder and queues; wire the components."""
        self._queues.note_ends(*queues_of_ends(note.ends))  # what is published, first
        for file in note.files.values():
            self.numbers.see(file.number)
        has_lost = self._recover(note, state)
        end = newest_end(self._table, note) or NO_PREDECESSOR
        is_new = self._is_first and not note.files
        is_clean = is_new or take_clean_close(self._seams.filesystem, self.root, end)
        files = self._table.version.files.local()
        whole = (handle.uuid for handle in files if handle.state is FileState.COMPACTED)
        self._known = frozenset((*whole, *self.gone.current.files))
        generation = max(
            [note.generation, self.gone.current.generation, *(h.reader.generation for h in files)]
        )
        is_new_generation = has_lost or not is_clean
        if is_new_generation:
            generation += 1
            self.gone.raise_generation(generation)
        self._components = self._wire(generation, note)
        newest = self._newest_unsealed()
        if newest is not None and newest.reader.generation == generation:
            self._writing.active.resume(newest)
        else:
            self._writing.active.abandon(end)  # all of it is durable: recovered

    def close_files(self) -> None:
        """Give back what was opened."""
        with self._table.snapshot() as snapshot:
            self._table.remove(*snapshot.files)

    def _recover(self, note: PublishedNote, state: ManifestState | None) -> bool:
        """Recover the folder, fill table and queues; say whether a file is gone or does not open."""
        filesystem, paths = self._seams.filesystem, self._paths
        mending = JournalMending(filesystem, self._seams.clock, noted_end(filesystem, self.root))
        listing = list_folders(filesystem, paths, mending.identify)
        if mending.newer is not None:
            raise mending.newer  # before anything is moved
        refuse_strangers(filesystem, listing)
        gone = self.gone.current
        listing = remove_gone(filesystem, listing, gone.files)
        self.numbers.see(gone.through)
        dropped = drop_behind_a_gap(filesystem, paths, listing, mending.read_order)
        has_lost = len(dropped.files) < len(listing.files)
        # Copies of published files go; an unsealed one, of an old copy of the folder, to quarantine.
        actions = plan_recovery(
            dropped, lambda uuid: uuid in note.files or (state is not None and state.knows(uuid))
        )
        recovered = apply_recovery(filesystem, paths, actions, mending)
        for file_state, number, path in recovered.files:
            self.numbers.see(number)
            try:
                self._take(self._open(file_state, number, path))
            except CorruptFileError as error:
                # Damaged, or cut: no state that a crash leaves. What it held is named, and a new generation
                # begins: an offset of a newest file may be given again.
                quarantine(filesystem, paths, file_state, path, error.reason, recovered)
        self._missing = _quarantined(self._seams, paths)
        self._queues.raise_ends(*queues_of_ends(gone.ends))
        forgotten = self.gone.forgotten.current
        kept = forgotten.below(self._queues.next_offset)
        if kept is not forgotten:  # taken over, and offsets that were lost are given anew
            self.gone.forgotten.keep(kept)
        for name in filesystem.list_folder(paths.quarantine):
            self.numbers.see(parse_quarantined_name(name) or 0)
        return has_lost or bool(recovered.quarantined)

    def _take(self, handle: FileHandle) -> None:
        """Take a file into the table, and where its queues end. CorruptFileError: it is in neither."""
        try:
            note_ends(self._queues, handle.reader)
        except BaseException:
            handle.release()
            raise
        self._table.insert(handle)

    def _open(self, state: FileState, number: int, path: Path) -> FileHandle:
        filesystem, node = self._seams.filesystem, self._options.settings.node
        if state is not FileState.UNSEALED:
            return open_immutable(filesystem, node, state, number, path)
        journal = recover_journal(filesystem, path, stage_bytes=self._options.stage_bytes)
        if not isinstance(journal, Journal):
            journal.close()
            raise CorruptFileError(path, "is sealed, and lies among the unsealed: recover again")
        return unsealed_handle(node, number, path, journal)

    def _newest_unsealed(self) -> FileHandle | None:
        local = self._table.version.files.local()
        return local[-1] if local and local[-1].state is FileState.UNSEALED else None

    def _make_readers(self) -> LogComponents:
        """Return the components that read; `_wire` adds those that write."""
        reads = LogReads(
            self._table, self._options.settings.node, lambda: components.missing, self.gone,
            self.tier.memory, lambda: self.tier.unknown(),
        )  # fmt: skip
        components = LogComponents(
            self._options, self._seams, self._table, self.gone, reads, TailReads(self._table, reads),
            missing=self._missing, tier=self.tier,
        )  # fmt: skip
        return components

    def _make_appending(
        self, folder: LogFolder, generation: int, components: LogComponents
    ) -> _Appending:
        """Return what takes messages: from the call to the journal, and to the next journal."""

        def rolled() -> None:
            singles.let_go()
            components.tail_reads.let_go()
            components.reads.let_go()
            _wake(components, LOCAL_WORKER)

        options, seams = folder.options, folder.seams
        next_journal = NextJournal(folder)
        active = ActiveJournal(folder, next_journal, generation=generation, on_rolled=rolled)
        committer = Committer(active, seams.clock, _STAGE_MAX_AGE_S)
        appender = Appender(
            options, self._queues, active, committer, check_accepts=components.check_accepts
        )
        mender = Mender(
            seams, folder.table, self._queues, active, committer, self.gone, options.stage_bytes
        )
        mender.on_loss = lambda: _note_loss(components)
        committer.mend = mender.mend
        singles = SingleAppends(
            options.settings, self._queues, active, committer, appender, components.check_accepts
        )
        return _Appending(next_journal, active, committer, appender, singles)

    def _wire(self, generation: int, note: PublishedNote) -> LogComponents:
        options, seams, table = self._options, self._seams, self._table
        folder = LogFolder(options, seams, self._paths, table, self.numbers)
        components = self._make_readers()
        reads = components.reads
        next_journal, active, committer, appender, singles = self._make_appending(
            folder, generation, components
        )
        kind = LogKind(folder, self.tier, active, committer, next_journal, note, self.gone)
        work = LogWork(
            options.settings, seams.clock, seams.ids, table,
            is_active=kind.is_active, quarantine=kind.leave,
        )  # fmt: skip
        timer = Timer(
            TimerLog(seams.clock, self._queues, active, committer, appender, singles, reads)
        )
        claims = self.claims
        retention = LogRetention(seams, work, kind, self.gone, claims, timer.needs)
        retention.keep_rules()
        merging = LogMerging(seams, self._paths, work, kind, self.gone, claims)
        forgetting = LogForgetting(
            ForgetfulLog(
                options.settings, seams, table, self.gone.forgotten, reads, self._queues, active,
                committer, appender, next_journal, timer, kind.damaged, self.tier.copies,
                lambda: components.missing, merging, kind.carry_notes, lambda: self._writing.asked_index(),
            )
        )  # fmt: skip
        scrubber = Scrubber(work, claims=claims, scrub_sidecar=self.tier.tails.scrub)
        local_work = LocalWork(work, kind, on_compacted=lambda: _wake_publisher(components))

        def housekeeping() -> Iterator[Unit]:
            self.tier.tend(options.settings.node)
            yield from retention.units()
            yield from forgetting.units()
            yield from merging.units()

        remote = RemoteCommits(work, kind, appender, components.check_publishes)
        committer.on_remote, committer.wait_remote = remote.add, remote.wait

        def published() -> None:
            remote.note_published()
            committer.tell_arrived(Level.REMOTE)

        kind.on_published = published

        components.writing = LogWriting(
            queues=self._queues, active=active, committer=committer, appender=appender, singles=singles,
            timer=timer,
            tending=JournalTending(active, appender, committer, next_journal), kind=kind,
            local=UnitWorker(LOCAL_WORKER, work, claims, local_work.units, on_fenced=self.refuse),
            housekeeping=UnitWorker(
                HOUSEKEEPING_WORKER, work, claims, housekeeping, on_fenced=self.refuse
            ),
            retention=retention, merging=merging, forgetting=forgetting, scrubber=scrubber,
            units=local_work.units, chores=housekeeping, next_journal=next_journal, lock=self._lock,
            paths=self._paths, progress=work.progress, remote=remote,
        )  # fmt: skip
        writing = components.writing
        remote.advance = lambda: writing.run_all(table)
        return components

    def _open_index(self, choice: IndexChoice) -> None:
        """Open the index; the log recovers meanwhile, once its node is claimed."""
        from tierdex.log_service.keys.log_index import LogIndex  # a log alone does not load it

        log_index = LogIndex(self, choice.store, choice.claiming)
        self._writing.log_index = self._writing.kind.log_index = log_index

    def _start(self, components: LogComponents, writing: LogWriting) -> None:
        clock = self._seams.clock
        writing.threads = [
            WorkerThread(writing.committer, clock),
            WorkerThread(writing.tending, clock),
            WorkerThread(writing.local, clock),
            WorkerThread(writing.housekeeping, clock),
            WorkerThread(writing.scrubber, clock),
        ]
        writing.committer.wake = writing.threads[0].wake
        if writing.log_index is not None:
            tending = DispatcherTending(writing.log_index.catch_up)
            thread = WorkerThread(tending, clock)
            tending.wake = thread.wake
            tending.note_written()  # what a crash kept from the index
            writing.committer.on_written = tending.note_written
            writing.threads.append(thread)
            self._start_remote(components, writing, writing.log_index)
        timer = WorkerThread(writing.timer, clock)
        writing.timer.wake = timer.wake
        writing.threads.append(timer)
        for thread in writing.threads:
            thread.start()

    def _start_remote(
        self, components: LogComponents, writing: LogWriting, log_index: LogIndex
    ) -> None:
        def advance() -> None:
            log_index.catch_up()  # what is not indexed is not compacted
            _wake(components, LOCAL_WORKER)
            log_index.wake_publisher()

        thread = WorkerThread(writing.remote, self._seams.clock)
        writing.remote.advance, writing.remote.wake = advance, thread.wake
        writing.threads.append(thread)


def _note_loss(components: LogComponents) -> None:
    if components.writing is not None and components.writing.log_index is not None:
        components.writing.log_index.note_loss()


def _wake_publisher(components: LogComponents) -> None:
    if components.writing is not None and components.writing.log_index is not None:
        components.writing.log_index.wake_publisher()


def _wake(components: LogComponents, name: str) -> None:
    if components.writing is not None:
        for thread in components.writing.threads:
            if thread.name == name:
                thread.wake()
