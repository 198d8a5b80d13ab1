"""Verifies one log file of either form and any state from end to end: `tierdex verify`, compactor, scrub.

Depends on fileparts, filesystem, header, journal, grouped and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.fileparts.check import find_faults
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.journal.file import Journal, SealedJournal
from tierdex.logfile.layout import Form

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import FileSystem


def open_log_file(filesystem: FileSystem, path: Path) -> Journal | SealedJournal | GroupedFile:
    """Open a file of whatever form and state without writing. Raises OSError, CorruptFileError."""
    file = filesystem.open(path)
    try:
        header = decode_log_header(file.read_at(0, HEADER_BYTES), path)
        is_unsealed = header.form is Form.JOURNAL and file.size() == header.capacity
    finally:
        file.close()
    if header.form is Form.GROUPED:
        return GroupedFile.open_local(filesystem, path)
    if is_unsealed:
        return Journal.open_for_reading(filesystem, path)
    return SealedJournal.open(filesystem, path)


def check_log_file(filesystem: FileSystem, path: Path) -> list[str]:
    """Return every broken rule of a file in words; empty means it is sound. Raises OSError."""
    return find_faults(lambda: open_log_file(filesystem, path))
