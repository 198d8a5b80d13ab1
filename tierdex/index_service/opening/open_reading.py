"""Opens an index for reading: a data folder, a store, or both, that another process may write to.

::

    view -> follow the folder (not locked, not changed) and the manifests -> refresh -> refresh thread

A reader that saw nothing at all would answer "not found" for every key. So an opening fails when the
store it was given has no manifest.

Depends on view, lifecycle and the rest of index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.background import WorkerThread
from tierdex.errors import NotFoundError
from tierdex.index_service.forget.forgetting import Forgetter
from tierdex.index_service.opening.catalogue import Catalogue
from tierdex.index_service.opening.components import make_components, start_threads
from tierdex.index_service.opening.folder_owner import FolderOwner
from tierdex.index_service.opening.open_view import close_view, open_view
from tierdex.index_service.opening.sidecars_ahead import SidecarsAhead
from tierdex.index_service.view.folder_follower import FolderFollower
from tierdex.index_service.view.published_view import LocalFiles
from tierdex.index_service.view.read_view import ReadView
from tierdex.lifecycle.folders.folder_notes import read_folder_node, settle_node
from tierdex.lifecycle.manifests.liveness import NO_OWNER
from tierdex.lifecycle.manifests.manifest_log import list_nodes
from tierdex.lifecycle.nodes.node_reading import READING_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.index_service.opening.components import Components
    from tierdex.index_service.opening.open_view import Places, View
    from tierdex.index_service.view.published_view import PublishedView
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


def open_reading(
    places: Places,
    settings: Settings,
    seams: Seams,
    shelf_of: Callable[[View], PublishedView] | None = None,
) -> Components:
    """Open the components of a reader. Raises NotFoundError when there is nothing to read."""
    paths = places.data
    if paths is not None:
        if places.store is None and not any(map(seams.filesystem.is_folder, paths.folders)):
            raise NotFoundError(f"{paths.root} is no data folder: is the path right?")
        recorded = read_folder_node(seams.filesystem, paths.root)
        settings = settle_node(settings, recorded, paths.root, adopt=False)
    view = open_view(places, settings, seams)
    try:
        read_view = _make_read_view(places, view, shelf_of)
        read_view.refresh()
        if places.store is not None:
            view.manifests.refuse_absent()  # else an empty answer would say that it was read
    except BaseException:
        close_view(view)
        raise
    catalogue = Catalogue(
        clock=seams.clock,
        table=view.table,
        manifests=view.manifests,
        read_view=read_view,
        compaction=None,
        worker_error=lambda: None,
        dead=view.tables.dead,
    )
    forgetter = Forgetter(view, read_view, writer=None)
    components = make_components(view, read_view, catalogue, forgetter)
    if settings.background:
        workers = [WorkerThread(read_view, seams.clock)]
        if settings.warm_up:
            workers.append(WorkerThread(SidecarsAhead(view.table, view.sidecars), seams.clock))
        start_threads(components, workers)
    return components


def _make_read_view(
    places: Places, view: View, shelf_of: Callable[[View], PublishedView] | None
) -> ReadView:
    if shelf_of is not None:
        view.manifests.show_on(shelf_of(view))
    paths = places.data
    read_view = ReadView(
        view.manifests,
        folder_follower=_follow_folder(paths, view, is_store_named=places.store is not None),
        rocketmq=view.rocketmq,
        led_node=None if shelf_of is None else view.settings.node,
        tables=view.tables,
    )
    if paths is not None:
        view.manifests.show_beside(_files_of_folder(paths, view, read_view))
    return read_view


def _follow_folder(
    paths: DataPaths | None, view: View, *, is_store_named: bool
) -> FolderFollower | None:
    if paths is None:
        return None
    filesystem, node = view.seams.filesystem, view.settings.node
    follower = FolderFollower(filesystem, paths, node, view.table)
    log = view.manifests.log_of(node)  # followed also where `read_nodes` leaves it out
    # A named store without any node is mistyped: `refuse_absent` says so better than `expect` would.
    if not (is_store_named and _has_no_node(view.store)):
        log.expect(FolderOwner(filesystem, paths.root, node).number)
    return follower


def _files_of_folder(paths: DataPaths, view: View, read_view: ReadView) -> LocalFiles:
    """Return what the followed folder answers for: its node, while that is of its own last claim."""
    filesystem, node = view.seams.filesystem, view.settings.node

    def is_of(state: ManifestState) -> bool:
        owner = state.owner
        return owner == NO_OWNER or FolderOwner(filesystem, paths.root, node).holds(owner)

    def is_taken(state: ManifestState) -> bool:
        return not is_of(state)

    return LocalFiles(node, is_of, is_taken, lambda: read_view.folder_read_ms)


def _has_no_node(store: Store) -> bool:
    """Return whether the store has no node; False when the store cannot be reached."""
    try:
        return not list_nodes(store)
    except READING_ERRORS:
        return False
