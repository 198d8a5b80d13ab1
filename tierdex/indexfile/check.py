"""Verifies one index file of either form from end to end: `tierdex verify`, the compactor, the scrub.

Depends on fileparts, header, chained, compacted and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.fileparts.check import find_faults
from tierdex.indexfile import layout
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.header import decode_header
from tierdex.indexfile.layout import Form

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Buffer

    from tierdex.filesystem import FileSystem


def open_for_check(filesystem: FileSystem, path: Path) -> ChainedFile | CompactedFile:
    """Open a file of whatever form and state without writing. Raises OSError, CorruptFileError."""
    file = filesystem.open(path)
    try:
        header = decode_header(file.read_at(0, layout.HEADER_BYTES), path)
    finally:
        file.close()
    if header.form is Form.COMPACTED:
        return CompactedFile.open_local(filesystem, path)
    try:
        return ChainedFile.open_sealed(filesystem, path)
    except CorruptFileError:
        # Perhaps it was never sealed; a sealed file that is damaged shows its damage here too.
        return ChainedFile.open_for_reading(filesystem, path)


def check_file(filesystem: FileSystem, path: Path) -> list[str]:
    """Return every broken rule of a file in words; empty means it is sound. Raises OSError."""
    return find_faults(lambda: open_for_check(filesystem, path))


def check_compacted(data: Buffer, name: object = "compacted file") -> list[str]:
    """Return every broken rule of a compacted file whose bytes are `data`, as `check_file` does."""
    return find_faults(lambda: CompactedFile.from_bytes(data, name=name))
