"""Writes a compacted file: one chained file's rows in hash order, or several files merged.

Streams: rows come in chunks, pages go out in order; memory holds the directory, one filter
partition and the finished filter. Nothing of the result counts until it was synced, verified whole
and renamed (`lifecycle.transition.swap_in`), or uploaded and committed.

::

    sealed/N ---> compacted/N.tmp ---> synced, verified ---> compacted/N ---> sealed/N unlinked

Depends on indexfile, lifecycle and filesystem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import CorruptFileError
from tierdex.indexfile.check import check_file
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.indexfile.compacted.writer import CompactedWriter
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.topic_set import topic_set
from tierdex.lifecycle.transition import swap_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np

    from tierdex.compactor.components import CompactorComponents
    from tierdex.filesystem import OpenFile
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.lifecycle.file_handle import FileHandle

_WRITE_BYTES = 1 << 20
_LARGE_BYTES = 1 << 17
CHUNK_ITEMS = 49_152  # 2 MB: kernels push Python's memory out of the cache, so return seldom


class AppendingFile:
    """Gathers small writes into large ones at the end of a file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._position = 0
        self._waiting = bytearray()

    def write(self, data: Any) -> None:
        data = memoryview(data).cast("B")
        if len(data) >= _LARGE_BYTES:  # worth a call of its own, and not worth a copy
            self.flush()
            self._put(data)
            return
        self._waiting += data
        if len(self._waiting) >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._put(self._waiting)
            self._waiting = bytearray()

    def _put(self, data: Any) -> None:
        self._file.write_at(self._position, data)
        self._position += len(data)


def compact_file(components: CompactorComponents, handle: FileHandle) -> None:
    """Bring a sealed file to `compacted`. Raises CorruptFileError when its chains do not add up."""
    source: ChainedFile = handle.reader
    assert handle.path is not None
    target = components.paths.path_of(FileState.COMPACTED, handle.number)
    dates = {"begin_ms": handle.begin_ms, "sealed_at_ms": handle.sealed_at_ms}

    def write(path: Path) -> None:
        writer_of = {
            "uuid": source.uuid,
            "schema": source.schema,
            "dictionaries": source.dictionaries,
            "slot_count": source.slot_count,
            "bounds": source.row_bounds(),
            "expected_items": source.item_count,
            "extra": dates,
        }
        _write(components, path, source.rows_in_hash_order(CHUNK_ITEMS), writer_of)

    swap_in(
        components.filesystem,
        target=target,
        old=[handle.path],
        write=write,
        verify=lambda path: check_file(components.filesystem, path),
    )
    reader = CompactedFile.open_local(components.filesystem, target)
    components.table.move(
        handle,
        FileState.COMPACTED,
        reader=reader,
        path=target,
        topics=topic_set(reader.topics),
        fixed_item_count=reader.item_count,
        fixed_min_time=reader.min_time,
        fixed_max_time=reader.max_time,
        fixed_bytes=reader.bytes_used,
    )


def write_merged(
    components: CompactorComponents,
    path: Path,
    uuid: bytes,
    sources: Sequence[CompactedFile],
    dates: dict[str, int],
) -> CompactedFile:
    """Write the rows of `sources` (newest file first) as one file at `path`, verify and open it."""
    merge = RowMerge(sources)
    writer_of = {
        "uuid": uuid,
        "schema": merge.schema,
        "dictionaries": merge.dictionaries,
        "slot_count": sources[0].slot_count,
        "bounds": merge.bounds,
        "expected_items": merge.item_count,
        "extra": dates,
    }
    components.filesystem.unlink(path)  # of an earlier attempt
    _write(components, path, merge.rows(CHUNK_ITEMS), writer_of)
    merged = CompactedFile.open_local(components.filesystem, path)
    if wrong := merged.check():
        merged.close()
        raise CorruptFileError(path, f"a merge does not verify: {'; '.join(wrong[:3])}")
    return merged


def _write(
    components: CompactorComponents,
    path: Path,
    chunks: Iterable[np.ndarray],
    writer_of: dict[str, Any],
) -> None:
    """Write all chunks through a CompactedWriter into a fresh file, and close it."""
    file = components.filesystem.open(path, writable=True, create=True, exclusive=True)
    try:
        out = AppendingFile(file)
        writer = CompactedWriter(
            out.write,
            filter_bits=components.settings.filter_bits,
            created_ms=components.clock.now_ms(),
            **writer_of,
        )
        for rows in chunks:
            writer.append(rows)
            components.progress.advance(len(rows), rows.nbytes)
        writer.finish()
        out.flush()
    finally:
        file.close()
