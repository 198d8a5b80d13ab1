"""A small file of the log that is replaced as a whole: notes as JSON, and a table behind them.

::

    | magic 8 | crc u4 | notes u4 | notes: JSON, spaces to 8 | table |

The owner writes it, one thread at a time; any number reads. Depends on errors, fileparts and whole_file.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import checksum
from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem

_HEAD: Final = np.dtype([("magic", "S8"), ("crc", "<u4"), ("notes_bytes", "<u4")])


class Record(NamedTuple):
    """What such a file holds."""

    notes: dict[str, Any]
    table: bytes


class RecordFile:
    """One of these files."""

    def __init__(
        self, filesystem: FileSystem, path: Path, magic: bytes, why_it_matters: str
    ) -> None:
        """`why_it_matters` ends the message of the error when it is damaged."""
        self.path = path
        self._filesystem = filesystem
        self._magic = magic
        self._why_it_matters = why_it_matters
        self._head = b""

    def read_changed(self) -> Record | None:
        """Return what it holds if it was replaced since; None if not, or without it.

        Raises CorruptFileError, OSError.
        """
        size = _HEAD.itemsize
        try:
            file = self._filesystem.open(self.path)
        except FileNotFoundError:
            return None
        with closing(file):
            if file.read_at(0, size) == self._head:  # the checksum of another content is another
                return None
            data = file.read_at(0, file.size())
        record = self.decode(data)
        self._head = data[:size]
        return record

    def decode(self, data: bytes) -> Record:
        """Return what the bytes of such a file say. Raises CorruptFileError."""
        size = _HEAD.itemsize
        head = np.frombuffer(data[:size], _HEAD)[0] if len(data) >= size else None
        if (
            head is None
            or head["magic"] != self._magic
            or checksum(data[size:], 0) != int(head["crc"])
        ):
            raise CorruptFileError(self.path, self._why_it_matters)
        notes_end = size + int(head["notes_bytes"])
        return Record(json.loads(data[size:notes_end]), data[notes_end:])

    def replace(self, record: Record) -> None:
        """Replace its content by `record`, durably. Raises OSError."""
        text = json.dumps(record.notes, separators=(",", ":"), sort_keys=True).encode()
        text += b" " * (-len(text) % 8)
        content = text + record.table
        head = np.zeros((), _HEAD)
        head["magic"], head["crc"], head["notes_bytes"] = (
            self._magic, checksum(content, 0), len(text),
        )  # fmt: skip
        replace_file(self._filesystem, self.path, head.tobytes() + content)
        self._head = head.tobytes()
