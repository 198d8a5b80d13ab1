"""How a small note in the data folder is written: whole and durably, or not at all.

Depends on lifecycle.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tierdex.lifecycle.paths import temporary_beside

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem


def write_note(filesystem: FileSystem, path: Path, data: bytes) -> None:
    """Replace the note at `path`, durably. Raises OSError; the old note is whole then."""
    temporary = temporary_beside(path)
    filesystem.unlink(temporary)
    with closing(filesystem.open(temporary, writable=True, create=True)) as file:
        file.write_at(0, data)
        file.sync()  # durable before it has its name
    filesystem.rename(temporary, path)
    filesystem.sync_folder(path.parent)
