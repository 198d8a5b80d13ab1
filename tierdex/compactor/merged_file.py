"""A merged file's sources, contents and manifest row; a compactor and a Spark job both use them.

Depends on components, indexfile, lifecycle, file_row and the store.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tierdex.compactor.components import no_row
from tierdex.compactor.file_row import make_row
from tierdex.errors import CorruptFileError
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.hash_group import GROUP_SIZES
from tierdex.indexfile.compacted.page_stream import PageStream
from tierdex.indexfile.compacted.writer import FilePlan
from tierdex.lifecycle.manifests.file_row import FilePlace, FileRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from tierdex.compactor.file_row import WrittenFile
    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.compacted.merge_rows import RowMerge, RowSource
    from tierdex.indexfile.row_bounds import RowBounds
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.storage_layer.base import Store

    DeadRows = Callable[[Schema, Dictionaries, np.ndarray], np.ndarray | None]


def open_published(store: Store, row: FileRow) -> CompactedFile:
    """Open a published file to read all of it; sends one request, for the file's tail.

    Raises what the store raises, and CorruptFileError when the object is not the row's.
    """
    read = partial(store.get, row.object_key)
    tail = read(row.sidecar_position, row.bytes - row.sidecar_position)
    file = CompactedFile.from_sidecar(
        tail, read, position=row.sidecar_position, name=row.object_key
    )
    if file.uuid != row.uuid or file.footer_crc != row.tail_crc:
        raise CorruptFileError(row.object_key, "is not the file that the manifest lists")
    return file


def _stream_published(store: Store, row: FileRow) -> RowSource:
    """Open a published file to read its rows in order: its small parts now, of the rest a little at a time.

    Two requests; one for a file whose tail is small. Raises as `open_published`.
    """
    if row.bytes - row.sidecar_position < GROUP_SIZES.whole_bytes:
        return open_published(store, row)
    stream = PageStream(
        partial(store.get, row.object_key),
        position=row.sidecar_position,
        file_bytes=row.bytes,
        crc=row.tail_crc,
        name=row.object_key,
    )
    if stream.uuid != row.uuid:
        raise CorruptFileError(row.object_key, "is not the file that the manifest lists")
    return stream


def kept_bytes(row: FileRow) -> int:
    """Return how many bytes of a source's object a merge keeps in memory from its opening on, about."""
    tail = row.bytes - row.sidecar_position
    if tail < GROUP_SIZES.whole_bytes:
        return tail
    return (
        GROUP_SIZES.whole_bytes
        if row.groups is None
        else row.groups.head_end - row.sidecar_position
    )


class RememberedRows:
    """The rows of a file without those that are forgotten, or dead. A `RowSource`.

    Bounds and ends of queues stay what they were: a watermark does not fall by what is left out.
    """

    def __init__(
        self,
        source: RowSource,
        place: FilePlace,
        forgotten: ForgottenEntries,
        dead_rows: DeadRows = no_row,
    ) -> None:
        self._source = source
        self._dead_rows = dead_rows
        self._place = place
        self._forgotten = forgotten
        self.schema = source.schema
        self.item_count = source.item_count
        self.dictionaries = source.dictionaries

    def row_bounds(self) -> RowBounds:
        return self._source.row_bounds()

    def rows_in_hash_order(self, chunk_items: int) -> Iterator[np.ndarray]:
        for rows in self._source.rows_in_hash_order(chunk_items):
            gone = self._forgotten.hidden(self._place, self.schema, self.dictionaries, rows)
            kept = rows if gone is None else rows[~gone]
            dead = self._dead_rows(self.schema, self.dictionaries, kept)
            yield kept if dead is None else kept[~dead]


def open_sources(
    store: Store,
    group: Sequence[tuple[str, FileRow]],
    forgotten: ForgottenEntries,
    dead_rows: DeadRows = no_row,
) -> list[RememberedRows]:
    """Open the published files of `group`, (node, row), for a merge, newest first.

    Their pages and directories are read as the merge comes to them. Raises as `open_published`.
    """
    return [
        RememberedRows(
            _stream_published(store, row), FilePlace(node, row.number, row), forgotten, dead_rows
        )
        for node, row in reversed(group)
    ]


def dates_of(group: Sequence[FileRow]) -> dict[str, int]:
    """Return the birth and the sealing time of a merged file."""
    return {
        "begin_ms": min(row.begin_ms for row in group),
        "sealed_at_ms": max(row.sealed_at_ms for row in group),
    }


def plan_of_merge(merge: RowMerge, uuid: bytes, group: Sequence[FileRow]) -> FilePlan:
    """Return what the merged file of `group` is going to hold."""
    return FilePlan(
        uuid=uuid,
        schema=merge.schema,
        dictionaries=merge.dictionaries,
        slot_count=group[-1].slot_count,
        bounds=merge.bounds,
        expected_items=merge.item_count,
        dates=dates_of(group),
    )


def make_merged_row(
    group: Sequence[tuple[str, FileRow]],
    merged: WrittenFile,
    uuid: bytes,
    key: str,
    node: str,
    forgotten: ForgottenEntries,
) -> FileRow:
    """Return the row under which `node` lists the merge of `group`: (node, row), oldest first.

    It holds nothing of what was `forgotten`. Its number is that of the newest source; `replaces` names the
    sources of other nodes.
    """
    refs = {FileRef(owner, row.uuid, row.number) for owner, row in group}
    replaces = tuple(sorted(ref for ref in refs if ref.node != node))
    refs.update(part for _, row in group for part in row.parts)
    newest = group[-1][1]
    row = make_row(merged, uuid, key, dates_of([row for _, row in group]))
    return replace(
        row,
        number=newest.number,
        replaces=replaces,
        parts=tuple(sorted(refs)),
        forgets_through=forgotten.number,
    )
