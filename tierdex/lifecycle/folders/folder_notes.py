"""Two notes of a data folder: its node (`DATA/NODE`), and its highest file number (`DATA/NUMBER`).

Files in the folder have numbers, not nodes. Opened under another node's name they would be
published twice, and a reader beside the writer would give them ids that no cursor or manifest
knows. So the name is taken from the folder where none is given, and another name is refused, unless
the folder is *adopted*: its files go on under the new name.

Numbers order files by birth. The manifest and the files in the folder tell the highest one. But a
process may start while the store cannot be reached, with all files published and gone from the
folder, and with its clock set back: without the note its next file would be ordered before older ones.

Depends on lifecycle and the ground.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.lifecycle.paths import is_node_name
from tierdex.whole_file import read_head, replace_file, with_checksum, without_checksum

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.settings import Settings

_NAME = "NODE"
_BYTES_MAX = 64


def read_folder_node(filesystem: FileSystem, root: Path) -> str | None:
    """Return the folder's node, None for a new folder. Raises CorruptFileError."""
    path = root / _NAME
    data = read_head(filesystem, path, _BYTES_MAX + 1)
    if data is None:
        return None
    name = data.decode("ascii", "replace").strip()
    if not is_node_name(name):
        raise CorruptFileError(path, "does not hold a node's name; write the correct one into it")
    return name


def write_folder_node(filesystem: FileSystem, root: Path, node: str) -> None:
    """Write the folder's node, durably."""
    replace_file(filesystem, root / _NAME, f"{node}\n".encode())


def settle_node(settings: Settings, recorded: str | None, root: Path, *, adopt: bool) -> Settings:
    """Return the settings with the folder's node. Raises InvalidRequestError for another name."""
    if recorded is None or recorded == settings.node or adopt:
        return settings
    if "node" in settings.model_fields_set:
        raise InvalidRequestError(
            f"the folder {root} belongs to node {recorded}, not {settings.node}: leave `node` out, "
            "or let `tierdex adopt` publish its files under the new name",
            field="node",
        )
    return settings.model_copy(update={"node": recorded})


_NUMBER_NAME = "NUMBER"
_DIGITS = 20
_NUMBER_BYTES = _DIGITS + 10  # a space, the checksum, a new line


class FolderNumber:
    """The note of one folder. `note` is for one thread at a time."""

    def __init__(self, filesystem: FileSystem, root: Path) -> None:
        self._filesystem = filesystem
        self._path = root / _NUMBER_NAME
        self.highest = _read_number(filesystem, self._path)

    def note(self, number: int) -> None:
        """Write the number, durably, if it is above the known one. Raises OSError."""
        if number <= self.highest:
            return
        replace_file(self._filesystem, self._path, with_checksum(b"%020d" % number))
        self.highest = number


def _read_number(filesystem: FileSystem, path: Path) -> int:
    """Return the number; 0 when it is absent or damaged, since the note is only a help."""
    try:
        line = read_head(filesystem, path, _NUMBER_BYTES + 1)
    except OSError:
        return 0
    digits = without_checksum(line or b"")
    return int(digits) if digits and digits.isdigit() and len(digits) == _DIGITS else 0
