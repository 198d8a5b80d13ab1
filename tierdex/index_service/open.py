"""Wires an index together: the only place that decides which part gets which.

::

    reading:  store + folder (not locked, not touched) -> table -> queries -> refresh thread
    writing:  lock the folder -> claim the node (if the store answers) -> recover the folder
              -> table -> writer, queries, compactor -> threads

When the store cannot be reached, local files are served and puts are taken; the compactor claims
the node as soon as it can. Depends on every layer below app/.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.compactor.claim import NodeClaim
from tierdex.compactor.expire import commit_rules
from tierdex.compactor.parts import CompactorParts
from tierdex.compactor.progress import Progress
from tierdex.compactor.scrub import Scrubber
from tierdex.compactor.worker import Compactor
from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.index_service.background import WorkerThread
from tierdex.index_service.batch_query import BatchQueryRunner
from tierdex.index_service.catalogue import Catalogue
from tierdex.index_service.folder_node import (
    read_folder_node,
    settle_node,
    write_folder_node,
)
from tierdex.index_service.local_query import LocalQueries
from tierdex.index_service.local_recovery import LocalMending, drop_behind_a_gap, open_local
from tierdex.index_service.local_view import LocalView
from tierdex.index_service.maintenance import Maintenance, PutFlusher, WriterTending
from tierdex.index_service.nodes import Nodes
from tierdex.index_service.page_cache import PageCache
from tierdex.index_service.parts import Parts, WritingParts
from tierdex.index_service.put_request import PutChecker
from tierdex.index_service.quarantine import Quarantine
from tierdex.index_service.query import QueryRunner
from tierdex.index_service.remote import RemoteFlush
from tierdex.index_service.rocketmq_source import RocketmqView
from tierdex.index_service.sidecar_cache import SidecarCache
from tierdex.index_service.surroundings import ViewSurroundings
from tierdex.index_service.watermark import Watermarks
from tierdex.index_service.writer import Writer
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.file_number import NextNumber
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.file_table import FileTable
from tierdex.lifecycle.folder_lock import acquire_folder_lock, make_holder_text
from tierdex.lifecycle.paths import DataPaths
from tierdex.lifecycle.recovery import apply_recovery, list_folders, plan_recovery
from tierdex.storage_layer.open import open_store

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem, FolderLock
    from tierdex.ids import IdSource
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.manifest import FileRow, ManifestState
    from tierdex.lifecycle.ownership import OwnedNode
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seams:
    """The ways out of this thread; real ones unless a test or a simulation gives others."""

    clock: Clock
    ids: IdSource
    filesystem: FileSystem
    executor: Executor | None = None  # runs look-ahead reads; None: threads of our own


@dataclass(frozen=True)
class _View:
    """What reading needs, whoever writes."""

    settings: Settings
    seams: Seams
    store: Store
    owns_store: bool  # opened here, from a url
    table: FileTable
    sidecars: SidecarCache
    nodes: Nodes
    rocketmq: RocketmqView | None
    executor: Executor


def open_parts(
    data: str | Path | None,
    *,
    store: str | Store | None,
    rocketmq: str | Path | None,
    clock: Clock | None,
    ids: IdSource | None,
    filesystem: FileSystem | None,
    executor: Executor | None = None,
    settings: Settings,
    adopt: bool,
) -> Parts:
    """Open a data folder, a store, or both.

    Raises FolderInUseError, InvalidRequestError, NotFoundError, OSError.
    """
    seams = Seams(
        clock or SystemClock(), ids or SystemIds(), filesystem or LocalFileSystem(), executor
    )
    root = None if data is None else Path(data).absolute()
    if root is None and store is None and rocketmq is None:
        raise InvalidRequestError("give a data folder, a store or both", field="data")
    if root is None:
        settings = settings.model_copy(update={"read_only": True})
    paths = None if root is None else DataPaths(root)
    ancestor = None if rocketmq is None else Path(rocketmq).absolute()
    if settings.read_only or paths is None:
        if paths is not None:
            if store is None and not seams.filesystem.is_folder(paths.root):
                raise NotFoundError(f"there is no data folder {paths.root}")
            recorded = read_folder_node(seams.filesystem, paths.root)
            settings = settle_node(settings, recorded, paths.root, adopt=False)
        return _open_reading(paths, _open_view(paths, store, ancestor, settings, seams))
    return _open_writing(paths, store, ancestor, settings, seams, adopt=adopt)


def _open_view(
    paths: DataPaths | None,
    store: str | Store | None,
    rocketmq: Path | None,
    settings: Settings,
    seams: Seams,
) -> _View:
    if store is None:
        store = "memory://none" if paths is None else str(paths.root / "store")
    owns_store = isinstance(store, str | os.PathLike)
    if isinstance(store, str | os.PathLike):
        store = open_store(
            store,
            settings=settings,
            clock=seams.clock,
            ids=seams.ids,
            filesystem=seams.filesystem,
        )
    table = FileTable()
    sidecars = SidecarCache(
        seams.filesystem, paths, settings.sidecar_cache_bytes, read_only=settings.read_only
    )
    nodes = Nodes(
        settings=settings,
        clock=seams.clock,
        ids=seams.ids,
        store=store,
        table=table,
        sidecars=sidecars,
        pages=PageCache(settings.page_cache_bytes),
    )
    executor = seams.executor or ThreadPoolExecutor(
        max_workers=4 * settings.look_ahead, thread_name_prefix="tierdex-read"
    )
    ancestor = None if rocketmq is None else RocketmqView(seams.filesystem, rocketmq, table)
    return _View(settings, seams, store, owns_store, table, sidecars, nodes, ancestor, executor)


# -- reading ----------------------------------------------------------------------------------


def _open_reading(paths: DataPaths | None, view: _View) -> Parts:
    local_view = None
    if paths is not None:
        node = view.settings.node
        local_view = LocalView(view.seams.filesystem, paths, node, view.table)
        view.nodes.log_of(node)  # followed also where `read_nodes` leaves it out
    surroundings = ViewSurroundings(view.nodes, local_view=local_view, rocketmq=view.rocketmq)
    try:
        surroundings.refresh()
    except BaseException:
        _close_view(view)
        raise
    catalogue = Catalogue(
        clock=view.seams.clock,
        table=view.table,
        nodes=view.nodes,
        quarantine=None,
        compaction=None,
        worker_error=lambda: None,
    )
    parts = _make_parts(view, surroundings, catalogue)
    if view.settings.background:
        _start(parts, [WorkerThread(surroundings, view.seams.clock)])
    return parts


def _make_parts(
    view: _View,
    surroundings: ViewSurroundings,
    catalogue: Catalogue,
    writer: Writer | None = None,
) -> Parts:
    settings, seams = view.settings, view.seams
    queries = QueryRunner(
        settings=settings,
        clock=seams.clock,
        table=view.table,
        surroundings=surroundings,
        executor=view.executor,
    )
    return Parts(
        settings=settings,
        clock=seams.clock,
        store=view.store,
        table=view.table,
        surroundings=surroundings,
        queries=queries,
        local_queries=LocalQueries(
            clock=seams.clock,
            table=view.table,
            surroundings=surroundings,
            sidecars=view.sidecars,
            settings=settings,
        ),
        batch_queries=BatchQueryRunner(settings, view.table, surroundings, queries, view.executor),
        catalogue=catalogue,
        watermarks=Watermarks(
            view.table,
            settings.node,
            lambda: view.nodes.state_of(settings.node).end_offsets,
            writer.durable_ends if writer is not None else lambda number: {},
        ),
        checker=PutChecker(settings.max_key_bytes, settings.item_capacity),
        executor=view.executor,
    )


def _start(parts: Parts, threads: list[WorkerThread]) -> None:
    parts.threads = threads
    for thread in threads:
        thread.start()


# -- writing ----------------------------------------------------------------------------------


def _open_writing(
    paths: DataPaths,
    store: str | Store | None,
    rocketmq: Path | None,
    settings: Settings,
    seams: Seams,
    *,
    adopt: bool,
) -> Parts:
    # Nothing in the folder is looked at, let alone mended, before it is ours.
    lock = acquire_folder_lock(seams.filesystem, paths.root, make_holder_text(seams.clock))
    view = None
    try:
        for folder in paths.folders:
            seams.filesystem.make_folder(folder)
        recorded = read_folder_node(seams.filesystem, paths.root)
        settings = settle_node(settings, recorded, paths.root, adopt=adopt)
        view = _open_view(paths, store, rocketmq, settings, seams)
        if recorded != settings.node:
            write_folder_node(seams.filesystem, paths.root, settings.node)
        return _open_locked(paths, view, lock)
    except BaseException:
        if view is not None:
            _close_view(view)
        lock.release()
        raise


def _close_view(view: _View) -> None:
    """Give back what an opening that failed had opened."""
    view.executor.shutdown(wait=False)
    with view.table.snapshot() as snapshot:
        view.table.remove(*snapshot.files)
    if view.owns_store:
        view.store.close()


def _open_locked(paths: DataPaths, view: _View, lock: FolderLock) -> Parts:
    settings, seams, table, nodes = view.settings, view.seams, view.table, view.nodes
    numbers = NextNumber(seams.clock)
    quarantine = Quarantine(seams.filesystem, paths, table)
    claim = NodeClaim(
        nodes.log_of(settings.node), seams.ids, lambda node: _on_claimed(node, numbers, settings)
    )
    state = _claim_or_go_on(claim, nodes, settings.node)
    newest = _recover(paths, view, state, quarantine, numbers)
    sync_lock = threading.Lock()
    threads: list[WorkerThread] = []

    def wake_all() -> None:
        for thread in threads:
            thread.wake()

    writer = Writer(
        settings=settings,
        filesystem=seams.filesystem,
        clock=seams.clock,
        ids=seams.ids,
        paths=paths,
        table=table,
        numbers=numbers,
        schema=MESSAGE_SCHEMA,
        sync_lock=sync_lock,
        on_rolled=wake_all,
    )
    writer.resume(newest)
    compaction = _compactor_parts(paths, view, claim, sync_lock, writer, quarantine, numbers)
    compactor = Compactor(
        compaction,
        other_states=lambda: [log.state for log in nodes.logs if log.node != settings.node],
        on_fenced=writer.refuse,
    )
    surroundings = ViewSurroundings(
        nodes, quarantine=quarantine, rocketmq=view.rocketmq, unwritten=writer.unwritten
    )
    surroundings.refresh()
    maintenance = Maintenance(writer, compactor, surroundings)
    catalogue = Catalogue(
        clock=seams.clock,
        table=table,
        nodes=nodes,
        quarantine=quarantine,
        compaction=compaction,
        worker_error=lambda: next((t.last_error for t in threads if t.last_error), None),
    )
    parts = _make_parts(view, surroundings, catalogue, writer)

    def advance() -> None:
        if threads:
            wake_all()
        else:
            maintenance.run_all()

    parts.writing = WritingParts(
        writer=writer,
        remote=RemoteFlush(
            settings,
            seams.clock,
            table,
            writer,
            is_published=lambda uuid: nodes.state_of(settings.node).knows(uuid),
            advance=advance,
        ),
        compactor=compactor,
        maintenance=maintenance,
        lock=lock,
    )
    if settings.background:
        scrubber = Scrubber(
            compaction,
            alone=compactor.alone,
            kept_sidecar=view.sidecars.kept,
            forget_sidecar=view.sidecars.forget,
        )
        flusher, tending = PutFlusher(settings, writer), WriterTending(writer)
        workers = (compactor, surroundings, flusher, tending, scrubber)
        threads += [WorkerThread(worker, seams.clock) for worker in workers]
        _start(parts, threads)
    return parts


def _on_claimed(node: OwnedNode, numbers: NextNumber, settings: Settings) -> None:
    numbers.see(node.state.highest_number)
    commit_rules(node, settings)


def _claim_or_go_on(claim: NodeClaim, nodes: Nodes, node: str) -> ManifestState | None:
    """Claim the node; None when the store cannot be reached now. Refusals are raised."""
    try:
        return claim.get().state
    except UnavailableError as error:
        logger.warning("store not reached at start", extra={"node": node, "error": str(error)})
        return None


def _recover(
    paths: DataPaths,
    view: _View,
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
    return newest


def _compactor_parts(
    paths: DataPaths,
    view: _View,
    claim: NodeClaim,
    sync_lock: threading.Lock,
    writer: Writer,
    quarantine: Quarantine,
    numbers: NextNumber,
) -> CompactorParts:
    settings, seams = view.settings, view.seams

    def is_active(handle: FileHandle) -> bool:
        active = writer.active
        return active is not None and active.key == handle.key

    def keep_sidecar(row: FileRow, data: Buffer) -> object:
        return view.sidecars.keep(row, settings.node, data)

    return CompactorParts(
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
        reader_of_row=lambda row: view.nodes.reader_of(row, settings.node),
        keep_sidecar=keep_sidecar,
        show_manifest=view.nodes.show,
        on_loss=writer.note_loss,
        quarantine=quarantine.put,
        next_number=numbers.take,
    )
