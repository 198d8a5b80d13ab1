"""The lock of a data folder: one writing process at a time, by a kernel lock on `DATA/LOCK`.

The kernel releases the lock when the process ends, however it ends. The text in the file names the
holder, for messages; no decision depends on it.

Depends on filesystem, clock and paths.
"""

from __future__ import annotations

import os
import socket
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tierdex.errors import FolderInUseError
from tierdex.filesystem import make_durable_folder
from tierdex.lifecycle.paths import DataPaths

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.clock import Clock
    from tierdex.filesystem import FileSystem, FolderLock

_HOLDER_BYTES_MAX = 200


class SharedFolderLock:
    """A folder's lock with several holders in one process: the kernel's is released with the last."""

    def __init__(self, lock: FolderLock) -> None:
        """Take the lock over, for one holder."""
        self._lock = lock
        self._holders = 1
        self._guard = threading.Lock()

    def share(self) -> SharedFolderLock:
        """Return the lock for one holder more, who releases it as well."""
        with self._guard:
            assert self._holders, "released"
            self._holders += 1
        return self

    def release(self) -> None:
        """Give one holder's share back."""
        with self._guard:
            self._holders -= 1
            is_last = self._holders == 0
        if is_last:
            self._lock.release()


def make_holder_text(clock: Clock) -> str:
    """Return the name of this process, for the message to a second writer."""
    since = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")
    return f"pid {os.getpid()} on {socket.gethostname()} since {since}"


def acquire_folder_lock(filesystem: FileSystem, root: Path, holder_text: str) -> FolderLock:
    """Lock the data folder for writing; make it when absent. Raises FolderInUseError, OSError."""
    make_durable_folder(filesystem, root)
    path = DataPaths(root).lock
    try:
        return filesystem.lock(path, holder_text)
    except BlockingIOError as error:
        holder = read_holder(filesystem, root)
        message = f"{root} is in use by {holder or 'another process'}; open it read-only instead"
        raise FolderInUseError(message, holder=holder) from error


def read_holder(filesystem: FileSystem, root: Path) -> str:
    """Return the readable text of the lock file; empty when there is none."""
    try:
        file = filesystem.open(DataPaths(root).lock)
    except FileNotFoundError:
        return ""
    try:
        text = file.read_at(0, _HOLDER_BYTES_MAX).decode(errors="replace")
    finally:
        file.close()
    return "".join(character for character in text if character.isprintable())
