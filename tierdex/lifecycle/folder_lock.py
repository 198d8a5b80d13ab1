"""One writing process a data folder: a kernel lock on `DATA/LOCK`, with the holder's name in it.

The kernel gives the lock back when the process ends, however it ends; the text inside is for people
and never decides anything. Depends on filesystem, clock and paths.
"""

from __future__ import annotations

import os
import socket
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


def make_holder_text(clock: Clock) -> str:
    """Return who we are, for the message that a second writer gets."""
    since = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")
    return f"pid {os.getpid()} on {socket.gethostname()} since {since}"


def acquire_folder_lock(filesystem: FileSystem, root: Path, holder_text: str) -> FolderLock:
    """Take the data folder for writing; make it when absent. Raises FolderInUseError, OSError."""
    make_durable_folder(filesystem, root)
    path = DataPaths(root).lock
    try:
        return filesystem.lock(path, holder_text)
    except BlockingIOError as error:
        holder = read_holder(filesystem, root)
        message = f"{root} is in use by {holder or 'another process'}; open it read-only instead"
        raise FolderInUseError(message, holder=holder) from error


def read_holder(filesystem: FileSystem, root: Path) -> str:
    """Return what the lock file says, as far as it is readable text; empty when it says nothing."""
    try:
        file = filesystem.open(DataPaths(root).lock)
    except FileNotFoundError:
        return ""
    try:
        text = file.read_at(0, _HOLDER_BYTES_MAX).decode(errors="replace")
    finally:
        file.close()
    return "".join(character for character in text if character.isprintable())
