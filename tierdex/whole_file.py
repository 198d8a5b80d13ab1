"""Small files, read and replaced as a whole: a reader and a crash find the old content or the new one.

::

    write `NAME.tmp`, sync it    its bytes are durable before it has the name
    rename it to NAME            visible; after a crash here either content may be found
    sync the folder              the name is durable

The writers of one path take turns: each caller holds the data folder or a lock of its own.

Depends on nothing.
"""

from __future__ import annotations

import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem

TEMPORARY_SUFFIX: Final = ".tmp"


def temporary_beside(path: Path) -> Path:
    """Return the temporary name of `path`, in the same folder."""
    return path.with_name(path.name + TEMPORARY_SUFFIX)


def read_file(filesystem: FileSystem, path: Path) -> bytes:
    """Return the content of the file at `path`. Raises OSError (FileNotFoundError ...)."""
    with closing(filesystem.open(path)) as file:
        return file.read_at(0, file.size())


def read_head(filesystem: FileSystem, path: Path, most: int) -> bytes | None:
    """Return the first bytes of the file at `path`, at most so many; None without one. Raises OSError."""
    try:
        with closing(filesystem.open(path)) as file:
            return file.read_at(0, most)
    except FileNotFoundError:
        return None


def with_checksum(text: bytes) -> bytes:
    """Return a note's text as a line that ends in its checksum."""
    return b"%s %08x\n" % (text, zlib.crc32(text))


def without_checksum(line: bytes) -> bytes | None:
    """Return the text of a line that `with_checksum` made, None of any other."""
    text = line.rpartition(b" ")[0]
    return text if line == with_checksum(text) else None


def replace_file(
    filesystem: FileSystem, path: Path, data: Buffer, *, private: bool = False
) -> None:
    """Replace the file at `path`, durably; make its folder when absent. Raises OSError.

    A `private` file is its owner's alone from its first byte on.
    """
    filesystem.make_folder(path.parent)
    temporary = temporary_beside(path)
    filesystem.unlink(temporary)  # of a replacement that was cut off
    with closing(filesystem.open(temporary, writable=True, create=True, private=private)) as file:
        file.write_at(0, data)
        file.sync()
    filesystem.rename(temporary, path)
    filesystem.sync_folder(path.parent)
