"""How far the published index of a log goes: a small file `DATA/log/INDEXED`.

Index files note it themselves (`indexfile.source`), but a published one may be merged away, into the files of
another node, and then this folder does not have it. Written, durably, before the local copy of an index file
goes.

Depends on indexfile and whole_file.
"""

from __future__ import annotations

import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Final

from tierdex.indexfile.source import decode_source
from tierdex.whole_file import replace_file

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.indexfile.source import Source

_NAME: Final = "INDEXED"
_BYTES_MAX: Final = 400


def note_indexed(filesystem: FileSystem, root: Path, source: Source) -> None:
    """Note that everything up to `source` is in published index files. Raises OSError."""
    replace_file(filesystem, root / _NAME, _encode(source.encode()))


def read_indexed(filesystem: FileSystem, root: Path) -> Source | None:
    """Return the position, None where none was noted, or it does not verify. Raises OSError."""
    try:
        with closing(filesystem.open(root / _NAME)) as file:
            found = file.read_at(0, _BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        data = bytes.fromhex(found.partition(b" ")[0].decode())
        return decode_source(data) if found == _encode(data) else None
    except ValueError:
        return None


def _encode(data: bytes) -> bytes:
    return f"{data.hex()} {zlib.crc32(data):08x}\n".encode()
