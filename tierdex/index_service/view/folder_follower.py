"""The local files of a data folder that another process writes: read, never changed.

The folder changes during a read: a file is renamed to its next state, or is published and removed.
A listing is therefore repeated when a file in it has vanished. Each refresh shows the files that
the writer has added. A file that left the folder stays shown until the manifest, read afterwards,
shows it as published, so that every query sees one of the two.

The writer may take a compacted file's blocks for another one, but not while a process has it open: what has
its name once it is open is that file, and stays it.

Beside a message log only what the log has is shown: a crash may have left more (`log_contents`).

Depends on log_contents, local_recovery, freshness, answer and lifecycle.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.index_service.answer import Missing
from tierdex.index_service.view.freshness import tell_nobody
from tierdex.index_service.view.local_recovery import open_for_reading
from tierdex.index_service.view.log_contents import LogContents
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.folder_listing import list_beside_writer, open_beside_writer
from tierdex.lifecycle.paths import LOCAL_STATES, LOG_FOLDER, parse_quarantined_name

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.index_service.view.freshness import TellMissing
    from tierdex.lifecycle.paths import DataPaths
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable

logger = logging.getLogger(__name__)

_ATTEMPTS = 30


class FolderFollower:
    """Shows another process's local files in a table. Safe to share between threads."""

    def __init__(
        self, filesystem: FileSystem, paths: DataPaths, node: str, table: FileTable
    ) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._node = node
        self._led = LogContents(filesystem, paths.root / LOG_FOLDER)
        self._table = table
        self._lock = threading.Lock()
        self.tell: TellMissing = tell_nobody
        self._missing: list[Missing] = []
        self._lost: frozenset[int] = frozenset()
        self.is_read = False  # whether the last scan saw the folder

    def refresh(self) -> list[FileHandle]:
        """Show the folder as it is now; return the files that vanished from it and are still shown."""
        with self._lock:
            scan = _FolderScan(self._shown())
            try:
                self._scan_all(scan)
            except OSError as error:
                scan.release()
                self.is_read = False
                self._name([Missing(str(self._paths.root), f"cannot be read: {error}")])
                return []
            except BaseException:
                scan.release()
                self.is_read = False
                raise
            self.is_read = True
            return self._show(scan)

    def _shown(self) -> dict[int, FileHandle]:
        with self._table.snapshot() as snapshot:
            return {h.number: h for h in snapshot.files if h.node == self._node}

    def _scan_all(self, scan: _FolderScan) -> None:
        """Open new files; list again while files move. Raises OSError.

        An opened file stays open. A file moves a few times in its life, so each can fail only a few
        times.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            scan.found = list_beside_writer(self._filesystem, self._paths)
            failure = self._open_new(scan)
            if failure is None:
                break
            if attempt == _ATTEMPTS:
                raise failure
            logger.debug("listing again", extra={"error": str(failure)})
        for name in self._filesystem.list_folder(self._paths.quarantine):
            scan.missing.append(Missing(name, "in quarantine; see `tierdex verify`"))
            if (number := parse_quarantined_name(name)) is not None:
                scan.quarantined.add(number)

    def _open_new(self, scan: _FolderScan) -> OSError | None:
        """Open what is not open yet; return what the last one said that has moved on meanwhile."""
        failure = None
        for number, (state, path) in scan.found.items():
            before = scan.shown.get(number)
            if before and before.state is state and state is not FileState.UNSEALED:
                continue
            if number in scan.fresh or number in scan.broken:
                continue
            try:
                scan.fresh[number] = open_beside_writer(
                    self._filesystem, path, partial(
                        open_for_reading, self._filesystem, self._node, state, number, path, self._led.holds,
                    ),
                )  # fmt: skip
            except CorruptFileError as error:
                scan.missing.append(Missing(f"{state.value}/{path.name}", error.reason))
                scan.broken.add(number)
            except OSError as error:  # renamed, or cut by a seal, between listing and opening
                failure = error
        return failure

    def _show(self, scan: _FolderScan) -> list[FileHandle]:
        local = [handle for handle in scan.shown.values() if handle.state in LOCAL_STATES]
        replaced = [scan.shown[number] for number in scan.fresh if number in scan.shown]
        broken = [handle for handle in local if handle.number in scan.broken]
        self._lost = frozenset(scan.broken | scan.quarantined)
        # A missing file is named before it leaves the table, and until it is back.
        self._name(list(dict.fromkeys(self._missing + scan.missing)))
        self._table.change(remove=replaced + broken, add=list(scan.fresh.values()))
        self._name(scan.missing)
        return [
            handle for handle in local
            if handle.number not in scan.found and handle.number not in scan.fresh
        ]  # fmt: skip

    def _name(self, missing: list[Missing]) -> None:
        self._missing = missing
        self.tell(is_missing=bool(missing))

    def missing(self) -> list[Missing]:
        """Return the files of the folder that could not be opened."""
        return list(self._missing)

    def numbers(self) -> frozenset[int]:
        """Return the numbers of files that could not be opened, here or by their writer."""
        return self._lost


class _FolderScan:
    """One scan of the folder: the files shown, the files present, and those of them that were opened."""

    def __init__(self, shown: dict[int, FileHandle]) -> None:
        self.shown = shown
        self.found: dict[int, tuple[FileState, Path]] = {}
        self.fresh: dict[int, FileHandle] = {}
        self.broken: set[int] = set()
        self.quarantined: set[int] = set()
        self.missing: list[Missing] = []

    def release(self) -> None:
        for handle in self.fresh.values():
            handle.release()
