"""Opens a data folder for writing, and wires what its owner has besides a reader's view.

::

    lock the folder -> settle its node -> claim the node (if the store answers) -> recover the folder
    -> table -> writer, queries, compactor -> threads

When the store cannot be reached, local files are served and puts are taken; the compactor claims
the node as soon as it can.

Depends on compactor, ingest, view, lifecycle and the other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tierdex.compactor.claim import NodeClaim
from tierdex.compactor.components import CompactorComponents
from tierdex.compactor.expire import commit_rules
from tierdex.compactor.owner_sign import OwnerSign
from tierdex.compactor.progress import Progress
from tierdex.compactor.scrub import Scrubber
from tierdex.compactor.worker import LOCAL_WORKER, STORE_WORKER, Compactor
from tierdex.errors import (
    CorruptFileError,
    UnavailableError,
)
from tierdex.index_service.background import WorkerThread
from tierdex.index_service.catalogue import Catalogue
from tierdex.index_service.components import Components, WritingComponents
from tierdex.index_service.folder_node import (
    read_folder_node,
    settle_node,
    write_folder_node,
)
from tierdex.index_service.folder_number import FolderNumber
from tierdex.index_service.folder_owner import FolderOwner
from tierdex.index_service.ingest.remote_flush import RemoteFlush
from tierdex.index_service.ingest.writer import Writer
from tierdex.index_service.maintenance import Maintenance, PutFlusher, WriterTending
from tierdex.index_service.opening import (
    Seams,
    View,
    close_view,
    make_components,
    open_view,
    start_threads,
)
from tierdex.index_service.view.local_recovery import LocalMending, drop_behind_a_gap, open_local
from tierdex.index_service.view.quarantine import Quarantine
from tierdex.index_service.view.read_view import ReadView
from tierdex.lifecycle.file_number import NextNumber
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folder_lock import acquire_folder_lock, make_holder_text
from tierdex.lifecycle.recovery import apply_recovery, list_folders, plan_recovery

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FolderLock
    from tierdex.index_service.claiming import Claiming
    from tierdex.index_service.view.manifest_follower import ManifestFollower
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.manifest import FileRow, ManifestState
    from tierdex.lifecycle.ownership import OwnedNode
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)


def open_writing(
    paths: DataPaths,
    store: str | Store | None,
    rocketmq: Path | None,
    settings: Settings,
    seams: Seams,
    claiming: Claiming,
) -> Components:
    # Nothing in the folder is looked at, let alone mended, before it is ours.
    lock = acquire_folder_lock(seams.filesystem, paths.root, make_holder_text(seams.clock))
    view = None
    try:
        for folder in paths.folders:
            seams.filesystem.make_folder(folder)
        recorded = read_folder_node(seams.filesystem, paths.root)
        settings = settle_node(settings, recorded, paths.root, adopt=claiming.adopt)
        view = open_view(paths, store, rocketmq, settings, seams)
        return _open_locked(paths, view, lock, claiming)
    except BaseException:
        if view is not None:
            close_view(view)
        lock.release()
        raise


def _open_locked(paths: DataPaths, view: View, lock: FolderLock, claiming: Claiming) -> Components:
    settings, seams, table, manifests = view.settings, view.seams, view.table, view.manifests
    noted = FolderNumber(seams.filesystem, paths.root)
    numbers = NextNumber(seams.clock, noted.highest)
    quarantine = Quarantine(seams.filesystem, paths, table)
    claim = NodeClaim(
        manifests.log_of(settings.node),
        seams.ids,
        lambda node: _on_claimed(node, numbers, noted, settings),
        memory=FolderOwner(seams.filesystem, paths.root, settings.node),
        takeover_after_s=settings.takeover_after,
        takeover=claiming.takeover,
        accept_rollback=claiming.accept_rollback,
    )
    state = _claim_or_go_on(claim, manifests, settings.node)
    # Before there is any file, and not before the claim: if that is refused another name is still free.
    if read_folder_node(seams.filesystem, paths.root) != settings.node:
        write_folder_node(seams.filesystem, paths.root, settings.node)
    newest = _recover(paths, view, state, quarantine, numbers)
    sync_lock = threading.Lock()
    threads: list[WorkerThread] = []

    def wake(*names: str) -> None:
        """Wake those that have work now: the others ask the store, or read whole files, when due."""
        for thread in threads:
            if thread.name in names:
                thread.wake()

    writer = Writer(
        settings=settings,
        filesystem=seams.filesystem,
        clock=seams.clock,
        ids=seams.ids,
        paths=paths,
        table=table,
        numbers=numbers,
        sync_lock=sync_lock,
        on_rolled=lambda: wake(LOCAL_WORKER, WriterTending.name),
        on_short_of_room=lambda: wake(WriterTending.name),
    )
    writer.resume(newest)
    compaction = _compactor_parts(paths, view, claim, sync_lock, writer, quarantine, numbers, noted)
    compactor = Compactor(
        compaction,
        other_states=lambda: [log.state for log in manifests.logs if log.node != settings.node],
        on_fenced=writer.refuse,
        on_compacted=lambda: wake(STORE_WORKER),
    )
    read_view = ReadView(
        manifests, quarantine=quarantine, rocketmq=view.rocketmq, unwritten=writer.unwritten
    )
    read_view.refresh()
    catalogue = Catalogue(
        clock=seams.clock,
        table=table,
        manifests=manifests,
        read_view=read_view,
        compaction=compaction,
        worker_error=lambda: next((t.last_error for t in threads if t.last_error), None),
    )
    components = make_components(view, read_view, catalogue, writer)
    sign = OwnerSign(compaction, on_fenced=compactor.fence)
    maintenance = Maintenance(writer, compactor, read_view, sign)

    def advance() -> None:
        if threads:
            wake(LOCAL_WORKER, STORE_WORKER)
        else:
            maintenance.run_all()

    components.writing = WritingComponents(
        writer=writer,
        remote=RemoteFlush(
            settings,
            seams.clock,
            table,
            writer,
            is_published=lambda uuid: manifests.state_of(settings.node).knows(uuid),
            advance=advance,
        ),
        compactor=compactor,
        maintenance=maintenance,
        lock=lock,
    )
    if settings.background:
        threads += _make_threads(view, components.writing, compaction, read_view, sign)
        start_threads(components, threads)
    return components


def _make_threads(
    view: View,
    writing: WritingComponents,
    compaction: CompactorComponents,
    read_view: ReadView,
    sign: OwnerSign,
) -> list[WorkerThread]:
    settings, writer, compactor = view.settings, writing.writer, writing.compactor
    scrubber = Scrubber(
        compaction,
        claims=compactor.claims,
        kept_sidecar=view.sidecars.kept,
        forget_sidecar=view.sidecars.forget,
    )
    flusher, tending = PutFlusher(settings, writer), WriterTending(writer)
    workers = (compactor.local, compactor.store, read_view, flusher, tending, scrubber, sign)
    return [WorkerThread(worker, view.seams.clock) for worker in workers]


def _on_claimed(
    node: OwnedNode, numbers: NextNumber, noted: FolderNumber, settings: Settings
) -> None:
    numbers.see(node.state.highest_number)
    try:
        noted.note(node.state.highest_number)
    except OSError as error:  # a full disk: only a start without store and clock would miss it
        logger.warning("highest number not noted", extra={"error": str(error)})
    commit_rules(node, settings)


def _claim_or_go_on(
    claim: NodeClaim, manifests: ManifestFollower, node: str
) -> ManifestState | None:
    """Claim the node; None when the store cannot be reached now. Refusals are raised."""
    try:
        return claim.get().state
    except UnavailableError as error:
        logger.warning("store not reached at start", extra={"node": node, "error": str(error)})
        return None


def _recover(
    paths: DataPaths,
    view: View,
    state: ManifestState | None,
    quarantine: Quarantine,
    numbers: NextNumber,
) -> FileHandle | None:
    """Bring the folder in order, fill the table, and return the unsealed file to go on with."""
    filesystem, node = view.seams.filesystem, view.settings.node
    mending = LocalMending(filesystem)
    listing = list_folders(filesystem, paths, mending.identify)
    listing = drop_behind_a_gap(filesystem, paths, listing)
    actions = plan_recovery(listing, state.knows if state is not None else lambda uuid: False)
    recovered = apply_recovery(filesystem, paths, actions, mending)
    for path, reason in recovered.quarantined:
        quarantine.note(path, reason)
    newest = None
    for file_state, number, path in recovered.files:
        numbers.see(number)
        try:
            handle = open_local(filesystem, node, file_state, number, path)
        except CorruptFileError as error:
            quarantine.put_path(file_state, path, error.reason)
            continue
        view.table.insert(handle)
        if file_state is FileState.UNSEALED:
            newest = handle
    quarantine.refresh()
    for number in quarantine.numbers():
        numbers.see(number)
    return newest


def _compactor_parts(
    paths: DataPaths,
    view: View,
    claim: NodeClaim,
    sync_lock: threading.Lock,
    writer: Writer,
    quarantine: Quarantine,
    numbers: NextNumber,
    noted: FolderNumber,
) -> CompactorComponents:
    settings, seams = view.settings, view.seams

    def is_active(handle: FileHandle) -> bool:
        active = writer.active
        return active is not None and active.key == handle.key

    def keep_sidecar(row: FileRow, data: Buffer) -> object:
        return view.sidecars.keep(row, settings.node, data)

    return CompactorComponents(
        settings=settings,
        filesystem=seams.filesystem,
        clock=seams.clock,
        ids=seams.ids,
        paths=paths,
        table=view.table,
        store=view.store,
        claim=claim,
        progress=Progress(),
        sync_lock=sync_lock,
        is_active=is_active,
        queue_tables=view.queue_tables,
        reader_of_row=lambda row: view.manifests.reader_of(row, settings.node),
        keep_sidecar=keep_sidecar,
        show_manifest=view.manifests.show,
        on_loss=writer.note_loss,
        quarantine=quarantine.put,
        quarantined_numbers=quarantine.numbers,
        next_number=numbers.take,
        note_number=noted.note,
    )
