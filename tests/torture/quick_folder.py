"""A folder for real processes: in memory where there is room, since no sync matters to kill -9."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 1 << 30


@contextlib.contextmanager
def quick_folder():
    """Yield a folder that is removed afterwards; the page cache is what kill -9 leaves, here as there."""
    fastest = memory_with_room(_ROOM_BYTES)
    with tempfile.TemporaryDirectory(prefix="tierdex-", dir=fastest) as folder:
        yield Path(folder)


def memory_with_room(wanted_bytes):
    """Return the folder that lies in memory if it has the room; else None."""
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        return None
    room = os.statvfs(_MEMORY)
    return _MEMORY if room.f_bavail * room.f_frsize >= wanted_bytes else None
