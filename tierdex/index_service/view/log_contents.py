"""The contents of a folder's message log, for a reader of the index that does not open the log.

::

    unsealed, sealed    batches that verify: a power cut may have taken those that the index has
    compacted           was in the index as a whole before: its name is enough
    GONE, PUBLISHED     notes of the log: what expired, or lies in the store

The owner cuts the index to that when it opens (`opening.log_owner`); until then a reader passes over what it
would cut, since offsets that were lost are given again. The log is looked at once a batch is met that it was
not known to hold.

Depends on errors, fileparts, lifecycle, logfile and whole_file.
"""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import GONE_NOTE, PUBLISHED_NOTE, DataPaths, parse_number
from tierdex.logfile.grouped.file import GroupedFile
from tierdex.logfile.header import decode_log_header
from tierdex.logfile.journal.scan import BatchScan
from tierdex.whole_file import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem
    from tierdex.indexfile.source import Source


class LogContents:
    """The log in one folder, which may be written meanwhile. Safe to share between threads."""

    def __init__(self, filesystem: FileSystem, root: Path) -> None:
        self._filesystem = filesystem
        self._paths = DataPaths(root)
        self._lock = threading.Lock()
        self._scans: dict[bytes, BatchScan] = {}  # by uuid of a journal
        self._compacted: dict[bytes, str] = {}  # by uuid of a file: what it says of its journals
        self._notes = ""

    def holds(self, source: Source) -> bool:
        """Return whether the log has all batches up to there. Raises OSError."""
        with self._lock:
            if not self._has(source):
                self._look()
            return self._has(source)

    def _has(self, source: Source) -> bool:
        scan = self._scans.get(source.uuid)
        if scan is not None and source.is_within(scan.end.number, scan.end.crc):
            return True
        name = source.uuid.hex()
        if source.uuid in self._compacted or name in self._notes:
            return True
        return any(name in told for told in self._compacted.values())

    # -- looking -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Read what came since. A file that moves on meanwhile is met in its next state."""
        scans, compacted = {}, {}
        for state in (FileState.UNSEALED, FileState.SEALED):
            for path in self._files(state):
                with suppress(FileNotFoundError, CorruptFileError):
                    uuid, scan = self._scanned(path)
                    scans[uuid] = scan
        for path in self._files(FileState.COMPACTED):
            with suppress(FileNotFoundError, BlockingIOError, CorruptFileError):
                uuid, told = self._told_by(path)
                compacted[uuid] = told
        self._scans, self._compacted = scans, compacted
        self._notes = "".join(
            self._read(self._paths.root / name) for name in (GONE_NOTE, PUBLISHED_NOTE)
        )

    def _files(self, state: FileState) -> Iterator[Path]:
        folder = self._paths.folder(state)
        if self._filesystem.is_folder(folder):
            for name in self._filesystem.list_folder(folder):
                if parse_number(name) is not None:
                    yield folder / name

    def _scanned(self, path: Path) -> tuple[bytes, BatchScan]:
        with closing(self._filesystem.open(path)) as file:
            header = decode_log_header(file.read_at(0, HEADER_BYTES), path)
            scan = self._scans.get(header.uuid) or BatchScan(header)
            scan.pass_file(file.read_at, min(header.capacity, file.size()))
        return header.uuid, scan

    def _told_by(self, path: Path) -> tuple[bytes, str]:
        with closing(self._filesystem.open(path)) as file:
            uuid = decode_log_header(file.read_at(0, HEADER_BYTES), path).uuid
        if uuid in self._compacted:
            return uuid, self._compacted[uuid]
        with closing(GroupedFile.open_local(self._filesystem, path)) as grouped:
            return grouped.uuid, str(grouped.extra)

    def _read(self, path: Path) -> str:
        """Return a note as text, in which uuids stand as hex digits."""
        with suppress(FileNotFoundError):
            return read_file(self._filesystem, path).decode("latin-1")
        return ""
