"""Writes a compacted file: one chained file's rows in hash order, or the rows of several files.

Rows arrive in chunks and pages are written in order; memory holds the directory, one filter
partition and the finished filter. The result counts only once it is synced, verified whole and
renamed (`lifecycle.folders.transition.swap_in`), or uploaded and committed.

::

    sealed/N ---> compacted/N.tmp ---> synced, verified ---> compacted/N ---> sealed/N given up

Depends on indexfile, lifecycle, merged_file and the ground.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.compactor.merged_file import RememberedRows, open_sources, plan_of_merge
from tierdex.errors import CorruptFileError
from tierdex.indexfile.check import check_file
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.indexfile.compacted.writer import CompactedWriter, FilePlan
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.folders.transition import swap_in
from tierdex.lifecycle.topic_set import topic_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np

    from tierdex.compactor.components import CompactorComponents
    from tierdex.filesystem import OpenFile
    from tierdex.indexfile.chained.file import ChainedFile
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.lifecycle.table.file_handle import FileHandle

_WRITE_BYTES = 1 << 20
_LARGE_BYTES = 1 << 17
CHUNK_ITEMS = (
    49_152  # 2 MB: after a kernel Python's memory is out of the CPU cache, so return seldom
)


class AppendingFile:
    """Joins small writes into large ones at the end of a file."""

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._position = 0
        self._waiting = bytearray()

    def write(self, data: Any) -> None:
        data = memoryview(data).cast("B")
        if len(data) >= _LARGE_BYTES:  # large enough for a call of its own, too large to copy
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
    """Bring a sealed file to `compacted`. Raises CorruptFileError when its chains are inconsistent."""
    source: ChainedFile = handle.reader
    assert handle.path is not None
    target = components.paths.path_of(FileState.COMPACTED, handle.number)

    def write(path: Path) -> None:
        plan = FilePlan(
            uuid=source.uuid,
            schema=source.schema,
            dictionaries=source.dictionaries,
            slot_count=source.slot_count,
            bounds=source.row_bounds(),
            expected_items=source.item_count,
            dates={"begin_ms": handle.begin_ms, "sealed_at_ms": handle.sealed_at_ms or 0},
            source=source.source,
            covers=source.covers if source.covers != source.source else None,
        )
        kept = RememberedRows(source, handle.place, components.forgotten(), components.dead_rows)
        _write(components, path, kept.rows_in_hash_order(CHUNK_ITEMS), plan)

    swap_in(
        components.filesystem,
        target=target,
        old=(),  # it goes below, for its blocks; recovery knows both copies
        write=write,
        verify=lambda path: check_file(components.filesystem, path),
    )
    components.give_up(handle.path)
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
    group: Sequence[FileRow],
    forgotten: ForgottenEntries,
) -> CompactedFile:
    """Write the published files of `group` (oldest first) as one at `path`; verify it, open it."""
    node = components.claim.get().log.node
    named = [(node, row) for row in group]
    merge = RowMerge(open_sources(components.store, named, forgotten, components.dead_rows))
    components.filesystem.unlink(path)  # of an earlier attempt
    _write(components, path, merge.rows(CHUNK_ITEMS), plan_of_merge(merge, uuid, group))
    merged = CompactedFile.open_local(components.filesystem, path)
    if wrong := merged.check():
        merged.close()
        raise CorruptFileError(path, f"a merge does not verify: {'; '.join(wrong[:3])}")
    return merged


def _write(
    components: CompactorComponents,
    path: Path,
    chunks: Iterable[np.ndarray],
    plan: FilePlan,
) -> None:
    """Write all chunks through a CompactedWriter into a new file, and close it."""
    file = components.filesystem.open(path, writable=True, create=True, exclusive=True)
    try:
        out = AppendingFile(file)
        writer = CompactedWriter(
            out.write,
            plan,
            filter_bits=components.settings.filter_bits,
            created_ms=components.clock.now_ms(),
        )
        for rows in chunks:
            writer.append(rows)
            components.progress.advance(len(rows), rows.nbytes)
        writer.finish(components.clock.now_ms())
        out.flush()
    finally:
        file.close()
