"""Whether the log was closed in order: a small file `DATA/log/CLOSED`, there only while it is closed.

It names where the newest journal's batches end. An opening for writing that does not find it, or finds
another end, goes on in a new journal of the next generation: offsets may have been given, and lost with
the process that gave them. Removed, durably, before anything is appended.

Depends on whole_file and fileparts.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.fileparts.predecessor import Predecessor
    from tierdex.filesystem import FileSystem

_NAME: Final = "CLOSED"
_BYTES_MAX: Final = 200


def note_clean_close(filesystem: FileSystem, root: Path, end: Predecessor) -> None:
    """Note, durably, that everything up to `end` is all that was ever given out. Raises OSError."""
    replace_file(filesystem, root / _NAME, _encode(end))


def take_clean_close(filesystem: FileSystem, root: Path, end: Predecessor) -> bool:
    """Remove the note; say whether it named `end`. Raises OSError."""
    path = root / _NAME
    try:
        with closing(filesystem.open(path)) as file:
            found = file.read_at(0, _BYTES_MAX)
    except FileNotFoundError:
        return False
    filesystem.unlink(path)
    filesystem.sync_folder(root)
    return found == _encode(end)


def _encode(end: Predecessor) -> bytes:
    return f"{end.uuid.hex()} {end.batch_count} {end.batch_crc}\n".encode()
