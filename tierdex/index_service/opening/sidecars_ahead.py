"""Fetches the sidecars of the newest published files before a query needs them.

One a step, newest file first, no more than the cache keeps: what is fetched ahead never pushes out what a
query has used. A reader that starts beside others answers its first lookups as they do.

Depends on readers, lifecycle and errors.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from tierdex.errors import TierdexError, UnavailableError

if TYPE_CHECKING:
    from tierdex.index_service.readers.published_file import PublishedFile
    from tierdex.index_service.readers.sidecar_cache import SidecarCache
    from tierdex.lifecycle.table.file_table import FileList, FileTable

logger = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 5.0


class SidecarsAhead:
    """A worker of one thread."""

    name = "sidecars"

    def __init__(self, table: FileTable, sidecars: SidecarCache) -> None:
        self._table = table
        self._sidecars = sidecars
        self._looked_at: FileList | None = None
        self._wanted: deque[PublishedFile] = deque()  # newest first

    def step(self) -> float:
        """Fetch one sidecar; return the seconds until the next one is wanted."""
        if not self._wanted:
            with self._table.snapshot() as snapshot:
                if snapshot.file_list is self._looked_at:
                    return _LOOK_EVERY_S
                self._looked_at = snapshot.file_list
                self._wanted.extend(self._newest(snapshot.file_list))
            return 0.0
        file = self._wanted.popleft()
        if self._sidecars.is_here(file.row):
            return 0.0
        if not self._sidecars.has_room(file.row):
            self._wanted.clear()
            return _LOOK_EVERY_S
        try:
            file.sidecar()
        except UnavailableError as error:
            logger.warning("sidecar not fetched ahead", extra={"error": str(error)})
            self._wanted.appendleft(file)
            return _LOOK_EVERY_S
        except TierdexError as error:  # gone meanwhile, or damaged: a query tells it
            logger.warning("sidecar not fetched ahead", extra={"error": str(error)})
        return 0.0

    @staticmethod
    def _newest(files: FileList) -> list[PublishedFile]:
        return [handle.reader for handle in files if handle.row is not None and handle.reader]
