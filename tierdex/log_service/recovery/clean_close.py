"""The mark of an orderly close: a small file `DATA/log/CLOSED`, present only while the log is closed.

It names where the newest journal's batches end. An opening for writing that does not find it, or finds
another end, goes on in a new journal of the next generation: offsets may have been given, and lost with
the process that gave them. Removed, durably, before anything is appended.
As long as it is there, a journal that ends before it has lost what was durable: that is damage, no torn end.

Depends on whole_file and fileparts.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from tierdex.fileparts.predecessor import Predecessor
from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem

_NAME: Final = "CLOSED"
_BYTES_MAX: Final = 200


def note_clean_close(filesystem: FileSystem, root: Path, end: Predecessor) -> None:
    """Note, durably, that everything up to `end` is all that was ever given out. Raises OSError."""
    replace_file(filesystem, root / _NAME, _encode(end))


def take_clean_close(filesystem: FileSystem, root: Path, end: Predecessor) -> bool:
    """Remove the note; say whether it named `end`. Raises OSError."""
    try:
        found = _read(filesystem, root)
    except FileNotFoundError:
        return False
    filesystem.unlink(root / _NAME)
    filesystem.sync_folder(root)
    return found == _encode(end)


def noted_end(filesystem: FileSystem, root: Path) -> Predecessor | None:
    """Return where the log ended when it was closed, None without a note that says so. Raises OSError."""
    try:
        uuid, count, crc = _read(filesystem, root).decode().split()
        return Predecessor(bytes.fromhex(uuid), int(count), int(crc))
    except (FileNotFoundError, ValueError):
        return None


def told_of_loss(end: Predecessor, noted: Predecessor | None) -> str | None:
    """Return what is wrong with a journal that ends before where the log was closed; None: nothing."""
    if noted is None or end.uuid != noted.uuid or end.batch_count >= noted.batch_count:
        return None
    return (
        f"is damaged: {end.batch_count} of {noted.batch_count} batches, all of them durable, verify"
    )


def _read(filesystem: FileSystem, root: Path) -> bytes:
    with closing(filesystem.open(root / _NAME)) as file:
        return file.read_at(0, _BYTES_MAX)


def _encode(end: Predecessor) -> bytes:
    return f"{end.uuid.hex()} {end.batch_count} {end.batch_crc}\n".encode()
