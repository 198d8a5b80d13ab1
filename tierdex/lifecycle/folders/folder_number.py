"""The highest file number that a data folder has known: a small file `DATA/NUMBER`.

Numbers order files by birth. The manifest and the files in the folder tell the highest one. But a
process may start while the store cannot be reached, with all files published and gone from the
folder, and with its clock set back: without this note its next file would be ordered before older
ones.

Depends on the ground.
"""

from __future__ import annotations

import zlib
from contextlib import closing
from typing import TYPE_CHECKING

from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem

_NAME = "NUMBER"
_DIGITS = 20
_BYTES = _DIGITS + 10  # a space, the checksum, a new line


class FolderNumber:
    """The note of one folder. `note` is for one thread at a time."""

    def __init__(self, filesystem: FileSystem, root: Path) -> None:
        self._filesystem = filesystem
        self._path = root / _NAME
        self.highest = _read(filesystem, self._path)

    def note(self, number: int) -> None:
        """Write the number, durably, if it is above the known one. Raises OSError."""
        if number <= self.highest:
            return
        replace_file(self._filesystem, self._path, _encode(number))
        self.highest = number


def _encode(number: int) -> bytes:
    digits = b"%020d" % number
    return b"%s %08x\n" % (digits, zlib.crc32(digits))


def _read(filesystem: FileSystem, path: Path) -> int:
    """Return the number; 0 when it is absent or damaged, since the note is only a help."""
    try:
        with closing(filesystem.open(path)) as file:
            data = file.read_at(0, _BYTES + 1)
    except OSError:
        return 0
    digits = data[:_DIGITS]
    return int(digits) if digits.isdigit() and data == _encode(int(digits)) else 0
