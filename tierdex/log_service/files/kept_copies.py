"""Local copies of published files that are kept for reads, within a budget and for a time.

::

    compacted/N  --published, noted-->  uploaded/N-<node>-<uuid>.kept      else unlinked
    goes         the oldest, while they take more than `keep_local_bytes`, or the disk is short; what was
                 sealed longer ago than `keep_local_s`, is not listed any more, or has a damaged page

A cache: any of them may be missing at any time, and the store has what it held. A crash between note and name
leaves the file in `compacted/`, where recovery drops it as published; one that was kept is found again by its
name. It is opened for each read, so one that goes takes its blocks with it, also from other processes.

Depends on filesystem, lifecycle and logfile.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from tierdex.filesystem import read_aside
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import move_by_rename
from tierdex.lifecycle.paths import parse_kept_name
from tierdex.logfile.check import check_log_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)


class _Kept(NamedTuple):
    number: int
    path: Path
    bytes: int


class KeptCopies:
    """Safe to share between threads; one process moves and removes, others read."""

    def __init__(self, filesystem: FileSystem, paths: DataPaths | None, settings: Settings) -> None:
        """Find those that are there; what the disk does not tell is read from the store."""
        self._filesystem = filesystem
        self._paths = paths
        self._settings = settings
        self._lock = threading.Lock()
        self._kept: dict[bytes, _Kept] = {}
        self._left: set[Path] = set()  # that could not be removed yet: read no more
        if paths is not None and not settings.read_only:
            self._find(paths)
            self._make_room()  # the budget may be smaller than it was

    @property
    def held_bytes(self) -> int:
        """Bytes of all copies."""
        with self._lock:
            return sum(kept.bytes for kept in self._kept.values())

    def read(
        self, row: FileRow, node: str, position: int, length: int, *, only_cached: bool
    ) -> bytes | None:
        """Return a range of a file, None where it is not here; with `only_cached` not in memory."""
        path = self._path_of(row, node)
        if path is None:
            return None
        try:
            with closing(self._filesystem.open(path)) as file:
                read = file.read_cached if only_cached else None
                data = read(position, length) if read else read_aside(file, position, length)
        except FileNotFoundError:
            return None
        except OSError as error:
            logger.warning("kept copy not read", extra={"path": str(path), "error": str(error)})
            return None
        return data if data is not None and len(data) == length else None

    def is_sound(self, row: FileRow, node: str) -> bool:
        """Return whether a whole copy is here and verifies, for reads of all of it. A damaged one goes."""
        path = self._path_of(row, node)
        if path is None or not self._filesystem.exists(path):
            return False
        try:
            faults = check_log_file(self._filesystem, path)
        except FileNotFoundError:
            return False
        except OSError as error:
            faults = [str(error)]
        if faults:
            logger.warning("kept copy damaged", extra={"path": str(path), "faults": faults[:3]})
            self.forget(row.uuid)
        return not faults

    def has(self, uuid: bytes) -> bool:
        """Return whether a copy is here."""
        with self._lock:
            return uuid in self._kept

    def take(self, handle: FileHandle) -> bool:
        """Keep the local file of one that was published and noted, if there is room. Raises OSError."""
        assert self._paths is not None
        assert handle.path is not None
        if handle.bytes > self._settings.keep_local_bytes:
            return False
        path = self._paths.kept_copy(handle.number, handle.node, handle.uuid)
        move_by_rename(self._filesystem, handle.path, path)
        with self._lock:
            self._kept[handle.uuid] = _Kept(handle.number, path, handle.bytes)
        self._make_room()
        return True

    def forget(self, uuid: bytes) -> None:
        """Remove a copy: its file is gone, or it is damaged."""
        with self._lock:
            kept = self._kept.pop(uuid, None)
        if kept is not None:
            self._unlink(kept.path)

    def remove_left(self) -> list[Path]:
        """Remove copies that could not be removed before; return those that still cannot be."""
        with self._lock:
            left = sorted(self._left)
            self._left.clear()
        return [path for path in left if not self._unlink(path)]

    def _unlink(self, path: Path) -> bool:
        try:
            self._filesystem.unlink(path)
        except OSError as error:  # tried again, also by the next start, which counts it as kept
            logger.warning("kept copy stays", extra={"path": str(path), "error": str(error)})
            with self._lock:
                self._left.add(path)
            return False
        return True

    def trim(self, sealed_at_ms: Mapping[bytes, int], now_ms: int) -> None:
        """Remove copies of files that are not listed, or old: `sealed_at_ms` has those that are listed."""
        self.remove_left()
        with self._lock:
            known = list(self._kept)
        most = self._settings.keep_local_s
        for uuid in known:
            sealed = sealed_at_ms.get(uuid)
            if sealed is None or (most is not None and now_ms - sealed > most * 1000):
                self.forget(uuid)
        self._make_room()

    # -- private -----------------------------------------------------------------------------------------

    def _find(self, paths: DataPaths) -> None:
        folder = paths.folder(FileState.UPLOADED)
        try:
            for name in self._filesystem.list_folder(folder):
                parsed = parse_kept_name(name)
                if parsed is not None:
                    path = folder / name
                    size = self._filesystem.file_size(path)
                    self._kept[parsed.uuid] = _Kept(parsed.number, path, size)
        except OSError as error:
            logger.warning("kept copies not listed", extra={"error": str(error)})

    def _path_of(self, row: FileRow, node: str) -> Path | None:
        if self._settings.read_only:  # whatever its writer keeps
            paths = self._paths
            return None if paths is None else paths.kept_copy(row.number, node, row.uuid)
        with self._lock:
            kept = self._kept.get(row.uuid)
        return None if kept is None else kept.path

    def _make_room(self) -> None:
        """Remove the oldest over the budget, or where the disk has less left than its reserve."""
        while True:
            with self._lock:
                total = sum(kept.bytes for kept in self._kept.values())
                oldest = min(self._kept, key=lambda uuid: self._kept[uuid].number, default=None)
            if oldest is None:
                return
            if total <= self._settings.keep_local_bytes and not self._is_disk_short():
                return
            self.forget(oldest)

    def _is_disk_short(self) -> bool:
        assert self._paths is not None
        try:
            free = self._filesystem.free_bytes(self._paths.root)
        except OSError as error:
            logger.warning("free bytes not known", extra={"error": str(error)})
            return False
        # A roll must find a journal's room: before it is refused, copies go.
        return free < self._settings.disk_reserve_bytes + self._settings.journal_bytes
