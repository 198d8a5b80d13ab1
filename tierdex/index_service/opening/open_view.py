"""The view that every opened index has, for reading and for writing: store, table, caches, manifests.

Depends on folder_store, compactor, readers, tables, view, lifecycle, storage_layer and errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tierdex.compactor.queue_table import QueueTables
from tierdex.errors import InvalidRequestError
from tierdex.index_service.opening.folder_store import settle_store
from tierdex.index_service.readers.page_cache import PageCache
from tierdex.index_service.readers.range_cache import RangeCache
from tierdex.index_service.readers.read_threads import ReadThreads
from tierdex.index_service.readers.sidecar_cache import SidecarCache
from tierdex.index_service.tables.followed_tables import FollowedTables
from tierdex.index_service.tables.table_objects import TableObjects
from tierdex.index_service.view.manifest_follower import ManifestFollower
from tierdex.index_service.view.rocketmq_source import RocketmqView
from tierdex.lifecycle.table.file_table import FileTable
from tierdex.storage_layer.metered import LOOKUPS, MANIFESTS, MeteredStore
from tierdex.storage_layer.open import open_store

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.lifecycle.paths import DataPaths
    from tierdex.seams import Seams
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store


class Places(NamedTuple):
    """The places of an index.

    `store` None is that of the data folder (folder_store), or an empty one in memory where there is none.
    """

    data: DataPaths | None
    store: str | Store | None
    rocketmq: Path | None  # a folder of RocketMQ's index files, read only


@dataclass(frozen=True)
class View:
    """The components for reading, whether or not this process writes."""

    settings: Settings
    seams: Seams
    store: Store
    store_place: str | Store  # as it was named, or as the data folder records it
    owns_store: bool  # opened here, from a url
    table: FileTable
    sidecars: SidecarCache
    pages: PageCache
    manifests: ManifestFollower
    queue_tables: QueueTables
    rocketmq: RocketmqView | None
    executor: Executor
    tables: FollowedTables


def open_view(places: Places, settings: Settings, seams: Seams, *, adopt: bool = False) -> View:
    """Open the store, if it is given by its URL, and make the view over it. Makes no request.

    Raises InvalidRequestError for another store than that of the data folder, unless that is adopted.
    """
    paths, store = places.data, places.store
    if paths is not None:
        store = settle_store(seams.filesystem, paths.root, store, adopt=adopt)
    elif store is None:
        store = "memory://none"
    place = os.fspath(store) if isinstance(store, os.PathLike) else store
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
    pages = PageCache(settings.page_cache_bytes)
    sidecars = SidecarCache(
        seams.filesystem,
        paths,
        settings.sidecar_cache_bytes,
        read_only=settings.read_only,
        memory_bytes=settings.sidecar_memory_bytes,
        ranges=_open_ranges(settings, seams),
    )
    manifests = ManifestFollower(
        settings=settings,
        seams=seams,
        store=_for_purpose(store, MANIFESTS),
        files=_for_purpose(store, LOOKUPS),
        table=table,
        sidecars=sidecars,
        pages=pages,
    )
    executor = seams.executor or ReadThreads(4 * settings.look_ahead)
    rocketmq = (
        None if places.rocketmq is None else RocketmqView(seams.filesystem, places.rocketmq, table)
    )
    return View(
        settings=settings,
        seams=seams,
        store=store,
        store_place=place,
        owns_store=owns_store,
        table=table,
        sidecars=sidecars,
        pages=pages,
        manifests=manifests,
        queue_tables=QueueTables(store),
        rocketmq=rocketmq,
        executor=executor,
        tables=FollowedTables(
            seams.filesystem,
            None if paths is None else paths.root,
            TableObjects(_for_purpose(store, MANIFESTS)),
        ),
    )


def _for_purpose(store: Store, purpose: str) -> Store:
    """Return a view of the store that counts by purpose; a store that was passed in counts nothing."""
    return store.for_purpose(purpose) if isinstance(store, MeteredStore) else store


def _open_ranges(settings: Settings, seams: Seams) -> RangeCache | None:
    """Open the cache folder of a reader; owners keep sidecars in their data folder."""
    if settings.cache_dir is None or not settings.read_only:
        return None
    try:
        return RangeCache(Path(settings.cache_dir), settings.cache_bytes, seams)
    except OSError as error:
        raise InvalidRequestError(f"cannot be used: {error}", field="cache_dir") from error


def close_view(view: View) -> None:
    """Close the view of an opening that failed."""
    view.executor.shutdown(wait=False)
    with view.table.snapshot() as snapshot:
        view.table.remove(*snapshot.files)
    if view.owns_store:
        view.store.close()
