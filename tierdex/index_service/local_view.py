"""The local files of a data folder that somebody else writes: read, never touched.

The folder moves under the reader's hands: a file is renamed to its next state, or published and
gone. A listing is therefore tried again when a file in it has vanished. Each refresh shows what the
writer has added since; what left the folder for good stays shown until the manifest, read after
that, shows it as published: no query in between sees neither.
Depends on lifecycle and local_recovery.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.index_service.answer import Missing
from tierdex.index_service.local_recovery import open_for_reading
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import LOCAL_STATES, parse_number

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.lifecycle.paths import DataPaths

logger = logging.getLogger(__name__)

_ATTEMPTS = 10


class LocalView:
    """Shows another process's local files in a table. Safe to share between threads."""

    def __init__(
        self, filesystem: FileSystem, paths: DataPaths, node: str, table: FileTable
    ) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._node = node
        self._table = table
        self._lock = threading.Lock()
        self._missing: list[Missing] = []

    def refresh(self) -> list[FileHandle]:
        """Show the folder as it is now; return the files that vanished from it, still shown."""
        with self._lock:
            for _ in range(_ATTEMPTS):
                try:
                    return self._refresh()
                except OSError as error:  # moved on, or cut by a seal, between listing and opening
                    failure = error
                    logger.debug("listing again", extra={"error": str(error)})
            self._missing = [Missing(str(self._paths.root), f"cannot be read: {failure}")]
            return []

    def _refresh(self) -> list[FileHandle]:
        found = self._list()
        missing = [
            Missing(name, "in quarantine; see `tierdex verify`")
            for name in self._filesystem.list_folder(self._paths.quarantine)
        ]
        with self._table.snapshot() as snapshot:
            shown = {h.number: h for h in snapshot.files if h.node == self._node}
        fresh: list[FileHandle] = []
        broken: set[int] = set()
        try:
            for number, (state, path) in found.items():
                before = shown.get(number)
                if before and before.state is state and state is not FileState.UNSEALED:
                    continue
                try:
                    handle = open_for_reading(self._filesystem, self._node, state, number, path)
                    fresh.append(handle)
                except CorruptFileError as error:
                    missing.append(Missing(f"{state.value}/{path.name}", error.reason))
                    broken.add(number)
        except BaseException:
            for handle in fresh:
                handle.release()
            raise
        local = [handle for handle in shown.values() if handle.state in LOCAL_STATES]
        replaced = [shown[h.number] for h in fresh if h.number in shown]
        self._missing = missing  # named before it is gone from the table
        self._table.change(remove=replaced + [h for h in local if h.number in broken], add=fresh)
        return [handle for handle in local if handle.number not in found]

    def _list(self) -> dict[int, tuple[FileState, Path]]:
        """Return each number's state and path."""
        found: dict[int, tuple[FileState, Path]] = {}
        for state in LOCAL_STATES:
            for name in self._filesystem.list_folder(self._paths.folder(state)):
                number = parse_number(name)
                if number is not None:
                    # of two copies the later wins: it is whole once it has its name
                    found[number] = (state, self._paths.folder(state) / name)
        return found

    def missing(self) -> list[Missing]:
        """Return the files of the folder that could not be opened."""
        return list(self._missing)
