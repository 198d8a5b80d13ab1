"""The components of an open index: how they are made over its view, guarded, and closed.

Depends on ingest, peers, query, requests, view and the ground.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tierdex.disk_errors import raise_typed
from tierdex.errors import ClosedError
from tierdex.index_service.ingest.watermark import Watermarks
from tierdex.index_service.query.executor import LookupExecutor
from tierdex.index_service.query.in_memory import LocalQueries
from tierdex.index_service.requests.put import PutChecker
from tierdex.index_service.view.published_ends import PublishedEnds

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from tierdex.background import WorkerThread
    from tierdex.clock import Clock
    from tierdex.compactor.claim import NodeClaim
    from tierdex.compactor.heartbeat import Heartbeat
    from tierdex.compactor.worker import Compactor
    from tierdex.errors import TierdexError
    from tierdex.filesystem import FolderLock
    from tierdex.index_service.forget.forgetting import Forgetter
    from tierdex.index_service.ingest.remote_flush import RemoteFlush
    from tierdex.index_service.ingest.writer import Writer
    from tierdex.index_service.opening.catalogue import Catalogue
    from tierdex.index_service.opening.maintenance import Maintenance
    from tierdex.index_service.opening.open_view import View
    from tierdex.index_service.peers.asking import Peers
    from tierdex.index_service.readers.page_cache import PageCache
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.index_service.tables.followed_tables import FollowedTables
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 8.0  # for all background work together; a server has 10 s to end


@dataclass(kw_only=True)
class WritingComponents:
    """The components that only the owner of a data folder has. `data` is the folder."""

    data: Path
    writer: Writer
    remote: RemoteFlush
    compactor: Compactor
    maintenance: Maintenance
    sign: Heartbeat
    claim: NodeClaim
    lock: FolderLock


@dataclass(kw_only=True)
class Components:
    """Everything behind the facade. `writing` is None in a read-only index."""

    settings: Settings
    clock: Clock
    store: Store
    table: FileTable
    sidecars: SidecarCache
    pages: PageCache
    read_view: ReadView
    queries: LookupExecutor
    local_queries: LocalQueries
    catalogue: Catalogue
    forgetter: Forgetter
    watermarks: Watermarks
    tables: FollowedTables
    checker: PutChecker
    executor: Executor
    writing: WritingComponents | None = None
    threads: list[WorkerThread] = field(default_factory=list)
    refusal: TierdexError | None = None  # why every call is refused: closed, or a child of fork

    def close(self) -> None:
        """Sync what was received, stop the threads, close files and release the lock; once.

        Work that does not end in time keeps the folder's lock until it ends: no other process may
        move files meanwhile. Raises an error of the sync, after everything else is closed.
        """
        if self.refusal is not None:  # a child of fork has nothing to close either
            return
        self.refusal = ClosedError("the index was closed")
        # Now, not at the next garbage collection: each open file is a descriptor.
        self.local_queries.close()
        with ExitStack() as closing:  # from the last line up, each also after an error of another
            closing.callback(self._stop_and_release)
            if self.writing is not None:
                closing.callback(self.writing.writer.close)

    def _stop_and_release(self) -> None:
        deadline = self.clock.monotonic() + STOP_TIMEOUT_S
        has_stopped = self._stop(deadline)
        if self.writing is not None and has_stopped:
            # After everything else: nothing is put, and nothing more is published.
            left_s = max(0.0, deadline - self.clock.monotonic())
            self.writing.sign.say_closed(left_s if self.threads else None)
        with ExitStack() as closing:
            if self.writing is not None:
                closing.callback(_release, self.writing, at_once=has_stopped)
            closing.callback(self.store.close)
            closing.callback(self.sidecars.close)
            closing.callback(self._close_files)
            if self.queries.peers is not None:
                closing.callback(self.queries.peers.close)
            closing.callback(self.executor.shutdown, wait=False, cancel_futures=True)

    def _close_files(self) -> None:
        with self.table.snapshot() as snapshot:
            self.table.remove(*snapshot.files)

    def _stop(self, deadline: float) -> bool:
        """Ask everything to stop and wait for it; return whether all of it stopped."""
        for thread in self.threads:
            thread.ask_to_stop()
        has_stopped = True
        if self.writing is not None:
            has_stopped = self.writing.compactor.stop(STOP_TIMEOUT_S)
        for thread in self.threads:
            has_stopped &= thread.stop(max(0.0, deadline - self.clock.monotonic()))
        return has_stopped


def _release(writing: WritingComponents, *, at_once: bool) -> None:
    """Release the folder, or let a thread do so once the compactor's unit of work has ended."""
    if at_once:
        writing.lock.release()
        return
    logger.warning("closing goes on in the background: a unit of work has not ended yet")

    def release_later() -> None:
        writing.compactor.stop(-1)
        writing.lock.release()

    threading.Thread(target=release_later, name="tierdex-release", daemon=True).start()


def _make_peers(settings: Settings, clock: Clock, read_view: ReadView) -> Peers | None:
    if settings.peers == "off":
        return None
    from tierdex.index_service.peers.asking import Peers

    return Peers(settings, clock, read_view)


def make_components(
    view: View,
    read_view: ReadView,
    catalogue: Catalogue,
    forgetter: Forgetter,
    writer: Writer | None = None,
) -> Components:
    """Make the components of queries and status over the view; `writer` is None for a reader."""
    settings, seams = view.settings, view.seams
    queries = LookupExecutor(
        settings=settings,
        clock=seams.clock,
        table=view.table,
        read_view=read_view,
        executor=view.executor,
        peers=_make_peers(settings, seams.clock, read_view),
    )

    return Components(
        settings=settings,
        clock=seams.clock,
        store=view.store,
        table=view.table,
        sidecars=view.sidecars,
        pages=view.pages,
        read_view=read_view,
        queries=queries,
        local_queries=LocalQueries(
            clock=seams.clock,
            table=view.table,
            manifests=view.manifests,
            settings=settings,
            writer=writer,
            hidden_from=read_view.hidden_from,
        ),
        catalogue=catalogue,
        forgetter=forgetter,
        watermarks=Watermarks(
            view.table,
            settings.node,
            PublishedEnds(view.manifests, view.queue_tables),
            writer.durable_ends if writer is not None else lambda number: {},
            lambda: read_view.lost_numbers(settings.node),
        ),
        checker=PutChecker(settings.max_key_bytes, settings.item_capacity),
        executor=view.executor,
        tables=view.tables,
    )


def start_threads(components: Components, threads: list[WorkerThread]) -> None:
    """Start the threads; if one does not start, ask those that did to stop, and raise."""
    components.threads = threads
    try:
        for thread in threads:
            thread.start()
    except BaseException:  # of a signal handler: the opening fails, and nothing may go on behind it
        for thread in threads:
            thread.ask_to_stop()
        raise


class QueryGuard:
    """Shows a query every put that returned, and raises rather than let a closed index look empty."""

    __slots__ = ("_components", "_writer")

    def __init__(self, components: Components, writer: Writer | None) -> None:
        self._components = components
        self._writer = writer

    def __enter__(self) -> None:
        refuse_closed(self._components)
        if self._writer is not None and self._writer.has_buffered:
            self._writer.show_buffered()

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object
    ) -> None:
        refuse_closed(self._components)
        raise_typed(error)


def refuse_closed(components: Components) -> None:
    """Raise ClosedError when the index was closed, ForkedError in a child of the process it belongs to."""
    refusal = components.refusal
    if refusal is not None:
        raise type(refusal)(*refusal.args)  # a new one each time: tracebacks add up
