"""Files that could not be opened or were found damaged: moved away, kept, and named in every answer.

Every answer names them in `missing`, since their content is unknown: an unreadable file must not
look like "not found". A file leaves the list when an operator removes it from `DATA/quarantine/`.

Depends on freshness, answer and lifecycle.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tierdex.index_service.answer import Missing
from tierdex.index_service.view.freshness import tell_nobody
from tierdex.lifecycle.folders.transition import sync_folders
from tierdex.lifecycle.paths import parse_quarantined_name

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.index_service.view.freshness import TellMissing
    from tierdex.lifecycle.file_state import FileState
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable

logger = logging.getLogger(__name__)


class Quarantine:
    """The quarantined files of one data folder. Safe to share between threads."""

    def __init__(self, filesystem: FileSystem, paths: DataPaths, table: FileTable) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._table = table
        self.tell: TellMissing = tell_nobody
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}  # replaced, never changed: read without a lock
        self._moving: dict[str, str] = {}  # files that are about to be moved into the folder
        self.refresh()

    def refresh(self) -> None:
        """Read the folder again: an operator may have removed a file."""
        with self._lock:
            names = self._filesystem.list_folder(self._paths.quarantine)
            known = "in quarantine; see `tierdex verify`"
            self._name({name: self._reasons.get(name, known) for name in names} | self._moving)

    def note(self, path: Path, reason: str) -> None:
        """Note why a file is in the folder."""
        with self._lock:
            self._name({**self._reasons, path.name: reason})

    def put(self, handle: FileHandle, reason: str) -> None:
        """Move a damaged local file out of the table and into the folder."""
        assert handle.path is not None
        # Named before it leaves the table, so that no answer in between looks complete.
        self._announce(self._paths.quarantined(handle.state, handle.path.name), reason)
        self._table.remove(handle)
        self.put_path(handle.state, handle.path, reason)

    def put_path(self, state: FileState, path: Path, reason: str) -> None:
        """Move a file that does not open into the folder, and name it from now on."""
        target = self._paths.quarantined(state, path.name)
        self._announce(target, reason)
        self._filesystem.rename(path, target)
        with self._lock:
            self._moving.pop(target.name, None)
        sync_folders(self._filesystem, target, path)
        logger.error("quarantined", extra={"path": str(target), "reason": reason})

    def _announce(self, target: Path, reason: str) -> None:
        """Name a file before its rename; it stays named if the rename fails."""
        with self._lock:
            self._moving[target.name] = reason
            self._name({**self._reasons, target.name: reason})

    def _name(self, reasons: dict[str, str]) -> None:
        """Name these files from now on; the caller holds the lock."""
        self._reasons = reasons
        self.tell(is_missing=bool(reasons))

    def missing(self) -> list[Missing]:
        reasons = self._reasons
        return [Missing(*item) for item in reasons.items()] if reasons else []

    def numbers(self) -> set[int]:
        """Return the numbers of the files that have one."""
        found = map(parse_quarantined_name, self._reasons)
        return {number for number in found if number is not None}

    def names(self) -> dict[str, str]:
        """Return name -> reason."""
        return dict(self._reasons)
