"""Every node's published files in the file table, and how fresh that knowledge is.

::

    store: nodes/a, nodes/b, ...  --refresh-->  ManifestLog a, b, ...  --diff-->  FileTable (uploaded)

One manifest log a node. After each refresh the difference between what a node's manifest lists and
what the table shows is applied in one step, so that a query sees a merge whole or not at all. Files
that another node's merge replaced are left out; a local copy of a published file stays in place of
the published one until the compactor drops it.

A node whose manifest could not be read for `max_staleness` makes answers incomplete and is named.
Depends on lifecycle, published.py.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError, StoreRefusedError, UnavailableError
from tierdex.index_service.answer import Missing
from tierdex.index_service.published import PublishedFile
from tierdex.lifecycle.file_handle import FileHandle
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifest import FileRef, is_replaced
from tierdex.lifecycle.manifest_log import ManifestLog, list_nodes

if TYPE_CHECKING:
    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.index_service.page_cache import PageCache
    from tierdex.index_service.sidecar_cache import SidecarCache
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

_STORE_ERRORS = (UnavailableError, StoreRefusedError, CorruptFileError, OSError)


class Nodes:
    """Follows the manifests of all nodes under the store. Safe to share between threads."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        ids: IdSource,
        store: Store,
        table: FileTable,
        sidecars: SidecarCache,
        pages: PageCache,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._store = store
        self._table = table
        self._sidecars = sidecars
        self._pages = pages
        self._lock = threading.Lock()
        self._logs: dict[str, ManifestLog] = {}
        self._errors: dict[str, str] = {}
        self._listing_error: str | None = None
        self._listed_ms = 0
        self._replaced: frozenset[FileRef] = frozenset()

    def log_of(self, node: str) -> ManifestLog:
        """Return the one log of a node in this process."""
        with self._lock:
            return self._log_of(node)

    def _log_of(self, node: str) -> ManifestLog:
        if node not in self._logs:
            self._logs[node] = ManifestLog(
                self._store,
                node,
                clock=self._clock,
                ids=self._ids,
                checkpoint_every=self._settings.checkpoint_every,
            )
        return self._logs[node]

    @property
    def logs(self) -> list[ManifestLog]:
        """Return the logs of all nodes known so far."""
        return list(self._logs.values())

    # -- following -------------------------------------------------------------------------------

    @property
    def refresh_interval(self) -> float:
        """Return the seconds between two refreshes."""
        return self._settings.refresh_interval

    def refresh(self) -> int:
        """Look at every node's manifest now and update the table; return a lower bound of requests.

        Errors of single nodes are remembered and named by `missing`; they raise nothing here.
        """
        with self._lock:
            self._list_nodes()
            requests = 1
            for node, log in self._logs.items():
                requests += 1
                try:
                    log.refresh()
                    self._errors.pop(node, None)
                except _STORE_ERRORS as error:
                    logger.warning("manifest not read", extra={"node": node, "error": str(error)})
                    self._errors[node] = str(error)
            self._show()
            return requests

    def _list_nodes(self) -> None:
        wanted = self._settings.read_nodes
        try:
            found = wanted if wanted is not None else list_nodes(self._store)
            self._listing_error = None
            self._listed_ms = self._clock.now_ms()
        except _STORE_ERRORS as error:
            logger.warning("nodes not listed", extra={"error": str(error)})
            self._listing_error = str(error)
            return
        for node in found:
            self._log_of(node)

    def show(self) -> None:
        """Bring the table up to what the logs know; after a commit of our own."""
        with self._lock:
            self._show()

    def _show(self) -> None:
        states = {node: log.state for node, log in self._logs.items()}
        self._replaced = frozenset().union(*(state.replaced for state in states.values()))
        listed = {
            (row.number, node): row
            for node, state in states.items()
            for row in state.files.values()
            if not is_replaced(row, node, self._replaced)
        }
        with self._table.snapshot() as snapshot:
            shown = {handle.key: handle for handle in snapshot.files}
        gone, fresh = [], []
        for key, handle in shown.items():
            if handle.state is not FileState.UPLOADED:
                listed.pop(key, None)  # the local copy answers until the compactor drops it
                continue
            if handle.row is None:
                continue  # of another system: not in any manifest
            row = listed.get(key)
            if row is None or row.uuid != handle.uuid:
                gone.append(handle)
        for (number, node), row in listed.items():
            before = shown.get((number, node))
            if before is None or before.uuid != row.uuid:
                fresh.append(self.handle_of(row, node))
        if gone or fresh:
            self._table.change(remove=gone, add=fresh)
        for handle in gone:
            self._sidecars.forget(handle.uuid)

    def reader_of(self, row: FileRow, node: str) -> PublishedFile:
        return PublishedFile(
            row, node, self._store, self._sidecars, self._pages, self._settings.max_get_bytes
        )

    def handle_of(self, row: FileRow, node: str) -> FileHandle:
        return FileHandle.of_row(row, node, self.reader_of(row, node))

    # -- what answers say ------------------------------------------------------------------------

    def missing(self) -> list[Missing]:
        """Return the nodes whose manifest is older than `max_staleness`, or was never read."""
        oldest = self._clock.now_ms() - round(self._settings.max_staleness * 1000)
        found = []
        if self._listing_error is not None and self._listed_ms < oldest:
            found.append(Missing("store", f"nodes cannot be listed: {self._listing_error}"))
        for node, log in self._logs.items():
            if log.read_ms >= oldest:
                continue
            reason = self._errors.get(node, "not refreshed")
            found.append(Missing(f"node:{node}", f"manifest not read lately: {reason}"))
        return found

    def as_of(self) -> int:
        """Return the time (ms) up to which every node's manifest is known; now without a node."""
        return min(
            (log.read_ms for log in self._logs.values()),
            default=self._listed_ms or self._clock.now_ms(),
        )

    def hides(self, handle: FileHandle, topic: str) -> bool:
        """Say whether the topic's own retention, counted from the file's sealing, has passed."""
        if handle.sealed_at_ms is None:
            return False
        log = self._logs.get(handle.node)
        if log is None:
            return False
        kept_ms = log.state.retention.of(topic)
        return kept_ms is not None and self._clock.now_ms() - handle.sealed_at_ms > kept_ms
