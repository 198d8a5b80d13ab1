"""The parts of an open index, and how they are closed.

Depends on the other modules of index_service, for their types only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from tierdex.compactor.worker import Compactor
    from tierdex.filesystem import FolderLock
    from tierdex.index_service.background import WorkerThread
    from tierdex.index_service.batch_query import BatchQueryRunner
    from tierdex.index_service.catalogue import Catalogue
    from tierdex.index_service.maintenance import Maintenance
    from tierdex.index_service.put_request import PutChecker
    from tierdex.index_service.query import QueryRunner
    from tierdex.index_service.remote import RemoteFlush
    from tierdex.index_service.surroundings import ViewSurroundings
    from tierdex.index_service.watermark import Watermarks
    from tierdex.index_service.writer import Writer
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.settings import Settings
    from tierdex.storage_layer.base import Store

STOP_TIMEOUT_S = 8.0


@dataclass(kw_only=True)
class WritingParts:
    """What only the owner of a data folder has."""

    writer: Writer
    remote: RemoteFlush
    compactor: Compactor
    maintenance: Maintenance
    lock: FolderLock


@dataclass(kw_only=True)
class Parts:
    """Everything behind the facade. `writing` is None in a read-only index."""

    settings: Settings
    store: Store
    table: FileTable
    surroundings: ViewSurroundings
    queries: QueryRunner
    batch_queries: BatchQueryRunner
    catalogue: Catalogue
    watermarks: Watermarks
    checker: PutChecker
    executor: ThreadPoolExecutor
    writing: WritingParts | None = None
    threads: list[WorkerThread] = field(default_factory=list)
    is_closed: bool = False

    def close(self) -> None:
        """Sync what was received, stop the threads, give back files and lock; done once.

        Raises what the sync raises, after everything else is closed all the same.
        """
        if self.is_closed:
            return
        self.is_closed = True
        try:
            if self.writing is not None:
                self.writing.writer.close()
        finally:
            for thread in self.threads:
                thread.stop(STOP_TIMEOUT_S)
            self.executor.shutdown(wait=False, cancel_futures=True)
            with self.table.snapshot() as snapshot:
                self.table.remove(*snapshot.files)
            self.store.close()
            if self.writing is not None:
                self.writing.lock.release()
