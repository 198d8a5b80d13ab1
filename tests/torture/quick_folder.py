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
    with tempfile.TemporaryDirectory(prefix="tierdex-", dir=_fastest()) as folder:
        yield Path(folder)


def _fastest():
    if not (_MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)):
        return None
    room = os.statvfs(_MEMORY)
    return _MEMORY if room.f_bavail * room.f_frsize >= _ROOM_BYTES else None
