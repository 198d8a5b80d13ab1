"""The local files of a data folder that somebody else writes: read, never touched.

The folder moves under the reader's hands: a file is renamed to its next state, or published and
gone. A listing is therefore tried again when a file in it has vanished. Each refresh shows what the
writer has added since. Depends on lifecycle and local_recovery.
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

    def refresh(self) -> None:
        """Show the folder as it is now. Raises OSError when it cannot be read at all."""
        with self._lock:
            for attempt in range(_ATTEMPTS):
                try:
                    self._refresh()
                    return
                except FileNotFoundError:
                    if attempt + 1 == _ATTEMPTS:
                        raise
                    logger.debug("a listed file moved on; listing again")

    def _refresh(self) -> None:
        missing: list[Missing] = []
        found: dict[int, tuple[FileState, Path]] = {}
        for state in LOCAL_STATES:
            for name in self._filesystem.list_folder(self._paths.folder(state)):
                number = parse_number(name)
                if number is not None:
                    # of two copies the later wins: it is whole once it has its name
                    found[number] = (state, self._paths.folder(state) / name)
        missing += [
            Missing(name, "in quarantine; see `tierdex verify`")
            for name in self._filesystem.list_folder(self._paths.quarantine)
        ]
        fresh: list[FileHandle] = []
        with self._table.snapshot() as snapshot:
            shown = {handle.key: handle for handle in snapshot.files}
        gone = [handle for handle in shown.values() if handle.state in LOCAL_STATES]
        for number, (state, path) in found.items():
            before = shown.get((number, self._node))
            if before is not None and before.state is state and state is not FileState.UNSEALED:
                gone.remove(before)
                continue
            try:
                fresh.append(open_for_reading(self._filesystem, self._node, state, number, path))
            except CorruptFileError as error:
                missing.append(Missing(f"{state.value}/{path.name}", error.reason))
        replaced = {handle.key for handle in fresh}
        gone += [h for key, h in shown.items() if key in replaced and h not in gone]
        self._table.change(remove=gone, add=fresh)
        self._missing = missing

    def missing(self) -> list[Missing]:
        """Return the files of the folder that could not be opened."""
        return list(self._missing)
