"""Opens an index: a data folder, a store, or both, for reading or for writing.

::

    reading:  store + folder (not locked, not touched) -> table -> queries -> refresh thread
    writing:  see open_writing.py

With view.py and open_writing.py the only place that decides which part gets which.

Depends on view, lifecycle and the other modules of this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.errors import (
    InvalidRequestError,
    NotFoundError,
)
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.index_service.background import WorkerThread
from tierdex.index_service.catalogue import Catalogue
from tierdex.index_service.folder_node import (
    read_folder_node,
    settle_node,
)
from tierdex.index_service.folder_owner import FolderOwner
from tierdex.index_service.opening import (
    Seams,
    View,
    close_view,
    make_components,
    open_view,
    start_threads,
)
from tierdex.index_service.view.folder_follower import FolderFollower
from tierdex.index_service.view.read_view import ReadView
from tierdex.lifecycle.manifest_log import list_nodes
from tierdex.lifecycle.node_reading import READING_ERRORS
from tierdex.lifecycle.paths import DataPaths

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem
    from tierdex.ids import IdSource
    from tierdex.index_service.claiming import Claiming
    from tierdex.index_service.components import Components
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


def open_components(
    data: str | Path | None,
    *,
    store: str | Store | None,
    rocketmq: str | Path | None,
    clock: Clock | None,
    ids: IdSource | None,
    filesystem: FileSystem | None,
    executor: Executor | None = None,
    settings: Settings,
    claiming: Claiming,
) -> Components:
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
            if store is None and not any(map(seams.filesystem.is_folder, paths.folders)):
                raise NotFoundError(f"{paths.root} is no data folder: is the path right?")
            recorded = read_folder_node(seams.filesystem, paths.root)
            settings = settle_node(settings, recorded, paths.root, adopt=False)
        view = open_view(paths, store, ancestor, settings, seams)
        return _open_reading(paths, view, is_store_named=store is not None)
    # Here: who only reads does not wait for the import of the writer and the compactor.
    from tierdex.index_service.open_writing import open_writing

    return open_writing(paths, store, ancestor, settings, seams, claiming)


def _open_reading(paths: DataPaths | None, view: View, *, is_store_named: bool) -> Components:
    folder_follower = None
    if paths is not None:
        node = view.settings.node
        folder_follower = FolderFollower(view.seams.filesystem, paths, node, view.table)
        log = view.manifests.log_of(node)  # followed also where `read_nodes` leaves it out
        if not (is_store_named and _holds_nothing(view.store)):  # else it is mistyped: see below
            log.expect(FolderOwner(view.seams.filesystem, paths.root, node).number)
    read_view = ReadView(view.manifests, folder_follower=folder_follower, rocketmq=view.rocketmq)
    try:
        read_view.refresh()
        if is_store_named:
            view.manifests.refuse_absent()  # an empty answer would say that it was looked at
    except BaseException:
        close_view(view)
        raise
    catalogue = Catalogue(
        clock=view.seams.clock,
        table=view.table,
        manifests=view.manifests,
        read_view=read_view,
        compaction=None,
        worker_error=lambda: None,
    )
    components = make_components(view, read_view, catalogue)
    if view.settings.background:
        start_threads(components, [WorkerThread(read_view, view.seams.clock)])
    return components


def _holds_nothing(store: Store) -> bool:
    """Say whether the store has no node; no when it cannot be asked."""
    try:
        return not list_nodes(store)
    except READING_ERRORS:
        return False
