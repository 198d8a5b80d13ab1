"""Writes a compacted file: one chained file's rows in hash order, or several files merged.

Streams: rows come in chunks, pages go out in order; memory holds the directory, one filter
partition and the finished filter. Nothing of the result counts until the caller has synced,
verified and renamed it (`lifecycle.transition.swap_in`).

Depends on indexfile and filesystem.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from tierdex.indexfile.compacted_writer import CompactedSummary, CompactedWriter
from tierdex.indexfile.merge_rows import MergeSource, merge_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tierdex.compactor.progress import Progress
    from tierdex.filesystem import FileSystem, OpenFile
    from tierdex.indexfile.chained import ChainedFile
    from tierdex.indexfile.compacted import CompactedFile

_WRITE_BYTES = 1 << 20
CHUNK_ITEMS = 65_536


class _AppendingFile:
    """Gathers small writes into large ones at the end of a file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._position = 0
        self._waiting = bytearray()

    def write(self, data: Any) -> None:
        self._waiting += memoryview(data).cast("B")
        if len(self._waiting) >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        self._file.write_at(self._position, self._waiting)
        self._position += len(self._waiting)
        self._waiting = bytearray()
