"""Opens a data folder for writing, and wires what its owner has besides a reader's view.

::

    lock the folder -> settle its node -> claim the node (if the store answers) -> recover the folder
    -> table -> writer, compactor, queries -> threads

When the store cannot be reached, the index serves its local files and takes puts; the compactor claims
the node as soon as the store answers.

Depends on compactor, ingest, view, lifecycle and the rest of index_service.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from tierdex.background import WorkerThread
from tierdex.compactor.claim import NodeClaim
from tierdex.compactor.components import (
    CompactorComponents,
    already_durable,
    always,
    as_it_says,
    note_nothing,
)
from tierdex.compactor.expire import commit_rules
from tierdex.compactor.heartbeat import Heartbeat
from tierdex.compactor.merged_file import open_published
from tierdex.compactor.progress import Progress
from tierdex.compactor.scrub import Scrubber
from tierdex.compactor.unpublished import UnpublishedFiles
from tierdex.compactor.worker import LOCAL_WORKER, STORE_WORKER, Compactor
from tierdex.errors import CorruptFileError, InvalidRequestError, UnavailableError
from tierdex.index_service.forget.forgetting import Forgetter
from tierdex.index_service.ingest.put_folder import PutFolder
from tierdex.index_service.ingest.remote_flush import RemoteFlush
from tierdex.index_service.ingest.writer import Writer
from tierdex.index_service.opening.catalogue import Catalogue
from tierdex.index_service.opening.components import (
    Components,
    WritingComponents,
    make_components,
    start_threads,
)
from tierdex.index_service.opening.folder_owner import FolderOwner
from tierdex.index_service.opening.folder_record import make_folder_record
from tierdex.index_service.opening.folder_store import note_store
from tierdex.index_service.opening.maintenance import Maintenance, PutFlusher, WriterTending
from tierdex.index_service.opening.open_view import close_view, open_view
from tierdex.index_service.tables.dead_entries import rows_of_dead
from tierdex.index_service.tables.table_objects import TablePublisher
from tierdex.index_service.view.local_recovery import LocalMending, open_local
from tierdex.index_service.view.published_view import LocalFiles
from tierdex.index_service.view.quarantine import Quarantine
from tierdex.index_service.view.read_view import ReadView
from tierdex.lifecycle.file_number import NextNumber
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import list_folders
from tierdex.lifecycle.folders.folder_lock import acquire_folder_lock, make_holder_text
from tierdex.lifecycle.folders.folder_notes import (
    FolderNumber,
    read_folder_node,
    settle_node,
    write_folder_node,
)
from tierdex.lifecycle.folders.gap import drop_behind_a_gap
from tierdex.lifecycle.folders.recovery import apply_recovery, plan_recovery
from tierdex.lifecycle.folders.transition import retire
from tierdex.lifecycle.manifests.file_row import LOG_KIND
from tierdex.lifecycle.nodes.claim_terms import ClaimTerms
from tierdex.lifecycle.paths import LOG_FOLDER
from tierdex.lifecycle.store_time import StoreTime

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from typing_extensions import Buffer

    from tierdex.errors import FencedError
    from tierdex.filesystem import FolderLock
    from tierdex.index_service.opening.folder_owner import Claiming
    from tierdex.index_service.opening.log_owner import LogOwner
    from tierdex.index_service.opening.open_view import Places, View
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.nodes.ownership import OwnedNode
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.seams import Seams
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)


def open_writing(
    places: Places,
    settings: Settings,
    seams: Seams,
    claiming: Claiming,
    log_owner: LogOwner | None = None,
) -> Components:
    """Open the components of the folder's owner. Raises FolderInUseError and what the steps raise."""
    paths = places.data
    assert paths is not None, places
    # Nothing in the folder is read, let alone changed, before this process has its lock.
    if log_owner is None:
        lock = acquire_folder_lock(seams.filesystem, paths.root, make_holder_text(seams.clock))
    else:
        lock = log_owner.share_lock()
    view = None
    try:
        if log_owner is None and seams.filesystem.is_folder(paths.root / LOG_FOLDER):
            raise InvalidRequestError(
                f"{paths.root} holds a message log, which writes its index itself: open it with "
                "MessageLog.open, or this index with `read_only`",
                field="data",
            )
        for folder in paths.folders:
            seams.filesystem.make_folder(folder)
        recorded = read_folder_node(seams.filesystem, paths.root)
        settings = settle_node(settings, recorded, paths.root, adopt=claiming.adopt)
        view = open_view(places, settings, seams, adopt=claiming.adopt)
        return _OwnerOpening(paths, view, lock, claiming, log_owner).run()
    except BaseException:
        if view is not None:
            close_view(view)
        lock.release()
        raise


class _OwnerOpening:
    """The opening of one locked folder. `run` calls the steps, each of which needs those before it."""

    def __init__(
        self,
        paths: DataPaths,
        view: View,
        lock: FolderLock,
        claiming: Claiming,
        log_owner: LogOwner | None,
    ) -> None:
        settings, seams = view.settings, view.seams
        self._paths = paths
        self._view = view
        self._lock = lock
        self._log_owner = log_owner
        self._must_claim = claiming.takeover or claiming.adopt
        self._folder_number = FolderNumber(seams.filesystem, paths.root)
        self._numbers = (
            NextNumber(seams.clock, self._folder_number.highest)
            if log_owner is None
            else log_owner.numbers
        )
        self._quarantine = Quarantine(seams.filesystem, paths, view.table)
        time = StoreTime(seams.clock)  # nothing of this opening is acknowledged before
        tables = [view.table] if log_owner is None else [log_owner.table, view.table]
        self._unpublished = UnpublishedFiles(tables, settings.node, time)
        self._claim = NodeClaim(
            view.manifests.log_of(settings.node),
            seams.ids,
            self._on_claimed,
            ClaimTerms(
                memory=FolderOwner(seams.filesystem, paths.root, settings.node),
                voice=make_folder_record(paths, view, claiming, time, self._unpublished),
                takeover_after_s=settings.takeover_after,
                takeover=claiming.takeover,
                accept_rollback=claiming.accept_rollback,
                check=_refuse_log if log_owner is None else partial(log_owner.check_claim, view),
            ),
        )
        claim = self._claim
        view.manifests.show_beside(
            LocalFiles(settings.node, claim.owns, claim.has_lost, lambda: None)
        )
        self._sync_lock = threading.Lock()
        self._threads: list[WorkerThread] = []

    def run(self) -> Components:
        """Claim, recover and wire; start the threads, unless the settings want none."""
        state = self._claim_or_go_on()
        self._note_node()
        if self._log_owner is not None:
            # Before the index, which is cut to what the log has.
            self._view.manifests.show_on(self._log_owner.recover(self._view, state))
        newest = self._recover(state)
        writer = self._make_writer(newest)
        read_view = ReadView(
            self._view.manifests,
            quarantine=self._quarantine,
            rocketmq=self._view.rocketmq,
            unwritten=writer.unwritten,
            led_node=None if self._log_owner is None else self._view.settings.node,
            tables=self._view.tables,
        )
        forgetter = Forgetter(self._view, read_view, writer)
        compaction = self._make_compaction(writer, forgetter)
        compactor = self._make_compactor(compaction, writer)
        forgetter.seal_rolled = compactor.seal_rolled
        read_view.refresh()
        catalogue = self._make_catalogue(compaction, read_view)
        components = make_components(self._view, read_view, catalogue, forgetter, writer)
        sign = Heartbeat(compaction, on_fenced=compactor.fence, is_asked=forgetter.asks_for_sign)
        publisher = TablePublisher(
            self._view.tables, self._view.store, self._view.seams.clock, self._unpublished_numbers,
            lambda: compactor.fenced is not None, self._view.settings.node,
        )  # fmt: skip
        maintenance = Maintenance(writer, compactor, read_view, sign, forgetter, publisher)
        components.writing = WritingComponents(
            data=self._paths.root,
            writer=writer,
            remote=self._make_remote_flush(writer, maintenance),
            compactor=compactor,
            maintenance=maintenance,
            sign=sign,
            claim=self._claim,
            lock=self._lock,
        )
        if self._view.settings.background:
            scrubber = self._make_scrubber(compaction, compactor)
            flusher = PutFlusher(self._view.settings, writer)
            tending = WriterTending(writer, forgetter)
            workers = (
                compactor.local,
                compactor.store,
                read_view,
                flusher,
                tending,
                scrubber,
                sign,
                publisher,
            )
            self._threads += [WorkerThread(worker, self._view.seams.clock) for worker in workers]
            start_threads(components, self._threads)
        return components

    def _unpublished_numbers(self) -> list[int]:
        """Return the numbers of our files that have entries and are not published."""
        node = self._view.settings.node
        with self._view.table.snapshot() as snapshot:
            return [
                file.number
                for file in snapshot.files
                if file.node == node and file.row is None and file.item_count
            ]

    # -- the node and its folder -----------------------------------------------------------------

    def _on_claimed(self, node: OwnedNode) -> None:
        """Learn what the manifest knows. The claim is committed; no other commit has been made."""
        if self._log_owner is not None:
            self._log_owner.note_claim(node.state)
        self._numbers.see(node.state.highest_number)
        filesystem, root = self._view.seams.filesystem, self._paths.root
        try:
            note_store(filesystem, root, self._view.store_place)
        except OSError as error:  # a full disk: it is noted at the next opening
            logger.warning("store not noted", extra={"error": str(error)})
        try:
            self._folder_number.note(node.state.highest_number)
        except OSError as error:  # a full disk: only a start without store and clock would miss it
            logger.warning("highest number not noted", extra={"error": str(error)})
        commit_rules(node, self._view.settings)

    def _claim_or_go_on(self) -> ManifestState | None:
        """Claim the node; None when the store cannot be reached now. Refusals are raised."""
        try:
            return self._claim.get().state
        except UnavailableError as error:
            node = self._view.settings.node
            if self._log_owner is not None and self._must_claim:
                # Before the folder gets the node's name: it may not be made the new owner's yet.
                raise UnavailableError(
                    f"{error}: the store alone knows the log that is to be taken over, or adopted",
                    retry_after_s=5.0,
                ) from error
            logger.warning("store not reached at start", extra={"node": node, "error": str(error)})
            return None

    def _note_node(self) -> None:
        """Write the node's name into the folder, durably.

        After the claim: if that is refused, the folder is still free for another name. Before the
        first file: a file's number is only unique within its node.
        """
        filesystem, root = self._view.seams.filesystem, self._paths.root
        if read_folder_node(filesystem, root) != self._view.settings.node:
            write_folder_node(filesystem, root, self._view.settings.node)

    def _recover(self, state: ManifestState | None) -> FileHandle | None:
        """Recover the folder, fill the table, and return the unsealed file to append to, if any."""
        paths, filesystem = self._paths, self._view.seams.filesystem
        holds = None if self._log_owner is None else self._log_owner.holds
        mending = LocalMending(filesystem, holds)
        listing = list_folders(filesystem, paths, mending.identify)
        listing = drop_behind_a_gap(filesystem, paths, listing, mending.read_order)
        actions = plan_recovery(listing, state.knows if state is not None else lambda uuid: False)
        recovered = apply_recovery(filesystem, paths, actions, mending)
        for path, reason in recovered.quarantined:
            self._quarantine.note(path, reason)
        newest = None
        for file_state, number, path in recovered.files:
            self._numbers.see(number)
            try:
                node = self._view.settings.node
                handle = open_local(filesystem, node, file_state, number, path, holds)
            except CorruptFileError as error:
                self._quarantine.put_path(file_state, path, error.reason)
                continue
            self._view.table.insert(handle)
            if file_state is FileState.UNSEALED:
                newest = handle
        self._quarantine.refresh()
        for number in self._quarantine.numbers():
            self._numbers.see(number)
        return newest

    # -- components ------------------------------------------------------------------------------

    def _make_writer(self, newest: FileHandle | None) -> Writer:
        folder = PutFolder(
            self._view.settings,
            self._view.seams,
            self._paths,
            self._view.table,
            self._numbers,
            self._sync_lock,
        )
        writer = Writer(
            folder,
            on_rolled=lambda: self._wake(LOCAL_WORKER, WriterTending.name),
            on_short_of_room=lambda: self._wake(WriterTending.name),
            is_led=self._log_owner is not None,
        )
        writer.resume(newest)
        self._unpublished.watch(lambda: writer.has_buffered, self._quarantine.numbers)
        return writer

    def _make_compaction(self, writer: Writer, forgetter: Forgetter) -> CompactorComponents:
        view, settings, seams = self._view, self._view.settings, self._view.seams

        def is_active(handle: FileHandle) -> bool:
            active = writer.active
            return active is not None and active.key == handle.key

        def keep_sidecar(row: FileRow, data: Buffer) -> object:
            return view.sidecars.keep(row, settings.node, data)

        def give_up(path: Path) -> None:
            if (
                view.manifests.ages.forgotten
            ):  # of which no file that a backup copies shall hold a trace
                retire(seams.filesystem, [path])
            else:
                writer.reuse(path)

        return CompactorComponents(
            settings=settings,
            filesystem=seams.filesystem,
            clock=seams.clock,
            ids=seams.ids,
            paths=self._paths,
            table=view.table,
            store=view.store,
            claim=self._claim,
            progress=Progress(),
            sync_lock=self._sync_lock,
            is_active=is_active,
            queue_tables=view.queue_tables,
            reader_of_row=lambda row: view.manifests.reader_of(row, settings.node),
            keep_sidecar=keep_sidecar,
            show_manifest=view.manifests.show,
            give_up=give_up,
            on_loss=writer.note_loss,
            quarantine=self._quarantine.put,
            quarantined_numbers=self._quarantine.numbers,
            next_number=self._numbers.take,
            note_number=self._folder_number.note,
            before_seal=already_durable
            if self._log_owner is None
            else self._log_owner.make_durable,
            may_publish=always if self._log_owner is None else self._log_owner.may_publish,
            dated=as_it_says if self._log_owner is None else self._log_owner.dated,
            before_drop=note_nothing if self._log_owner is None else self._log_owner.note_published,
            forgotten=lambda: view.manifests.ages.forgotten,
            files_to_rewrite=lambda: [*forgetter.files_to_rewrite(), *self._files_of_dead()],
            end_forgettings=forgetter.end_what_is_done,
            dead_rows=lambda *file: rows_of_dead(self._left_out(), *file),
        )

    def _left_out(self) -> dict[str, np.ndarray]:
        """Return which files of followed tables have no entries in files that are written now."""
        grace_s = self._view.settings.grace_time
        return self._view.tables.dead.left_out(self._view.seams.clock.monotonic() - grace_s)

    def _files_of_dead(self) -> list[FileRow]:
        """Return our published files of which so much is dead that they are written anew."""
        rows = self._claim.get().state.index_files.values()
        read = partial(open_published, self._view.store)
        return self._view.tables.dead.files_to_rewrite(rows, read, self._left_out())

    def _make_compactor(self, compaction: CompactorComponents, writer: Writer) -> Compactor:
        manifests, node = self._view.manifests, self._view.settings.node
        log_owner = self._log_owner

        def refuse(error: FencedError) -> None:
            if log_owner is not None:
                log_owner.refuse(error)
            writer.refuse(error)

        return Compactor(
            compaction,
            other_states=lambda: [log.state for log in manifests.logs if log.node != node],
            on_fenced=refuse,
            on_compacted=lambda: self._wake(STORE_WORKER),
            claims=None if log_owner is None else log_owner.claims,
            before=() if log_owner is None else (log_owner.publication(compaction),),
        )

    def _make_catalogue(self, compaction: CompactorComponents, read_view: ReadView) -> Catalogue:
        return Catalogue(
            clock=self._view.seams.clock,
            table=self._view.table,
            manifests=self._view.manifests,
            read_view=read_view,
            compaction=compaction,
            worker_error=lambda: next((t.last_error for t in self._threads if t.last_error), None),
            dead=self._view.tables.dead,
        )

    def _make_remote_flush(self, writer: Writer, maintenance: Maintenance) -> RemoteFlush:
        manifests, node = self._view.manifests, self._view.settings.node

        def advance() -> None:
            if self._threads:
                self._wake(LOCAL_WORKER, STORE_WORKER)
            else:
                maintenance.run_all()

        return RemoteFlush(
            self._view.settings,
            self._view.seams.clock,
            self._view.table,
            writer,
            is_published=lambda uuid: manifests.state_of(node).knows(uuid),
            advance=advance,
        )

    def _make_scrubber(self, compaction: CompactorComponents, compactor: Compactor) -> Scrubber:
        return Scrubber(
            compaction,
            claims=compactor.claims,
            scrub_sidecar=self._view.sidecars.scrub,
        )

    def _wake(self, *names: str) -> None:
        """Wake these workers. Every other worker reads the store or whole files, when that is due."""
        for thread in self._threads:
            if thread.name in names:
                thread.wake()


def _refuse_log(state: ManifestState, is_ours: bool, is_over: bool) -> None:
    """Refuse a node that has a message log, which writes its index itself."""
    if state.files_of(LOG_KIND):
        raise InvalidRequestError(
            f"node {state.node} has a message log, which writes its index itself: open it with "
            "MessageLog.open, or this index with `read_only`",
            field="node",
        )
