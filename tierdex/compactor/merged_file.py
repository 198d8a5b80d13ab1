"""What a merge of published files writes and lists, whoever merges: a node's compactor or a Spark job.

Depends on indexfile, lifecycle and the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tierdex.errors import CorruptFileError
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.lifecycle.manifest import FileRef, FileRow
from tierdex.lifecycle.topic_set import listed_topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.indexfile.compacted.merge_rows import RowMerge
    from tierdex.storage_layer.base import Store


class WrittenFile(Protocol):
    """What is known of a compacted file once it is written: the file opened, or its summary."""

    @property
    def item_count(self) -> int: ...
    @property
    def min_time(self) -> int: ...
    @property
    def max_time(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def sidecar_position(self) -> int: ...
    @property
    def topics(self) -> list[str]: ...
    @property
    def footer_crc(self) -> int: ...


def open_published(store: Store, row: FileRow) -> CompactedFile:
    """Open a published file for reading it from end to end; sends one request for the tail.

    Raises what the store raises, and CorruptFileError when the object is not the row's, sound or not.
    """

    def read(position: int, length: int) -> bytes:
        return store.get(row.object_key, position, length)

    tail = read(row.sidecar_position, row.bytes - row.sidecar_position)
    file = CompactedFile.from_sidecar(
        tail, read, position=row.sidecar_position, name=row.object_key
    )
    if file.uuid != row.uuid or file.footer_crc != row.tail_crc:
        raise CorruptFileError(row.object_key, "is another file than the manifest says")
    return file


def dates_of(group: Sequence[FileRow]) -> dict[str, int]:
    """Return the birth and the sealing time of a merged file."""
    return {
        "begin_ms": min(row.begin_ms for row in group),
        "sealed_at_ms": max(row.sealed_at_ms for row in group),
    }


def writer_arguments(merge: RowMerge, uuid: bytes, group: Sequence[FileRow]) -> dict[str, Any]:
    """Return what a CompactedWriter is told of a merged file, but filter bits and the time."""
    return {
        "uuid": uuid,
        "schema": merge.schema,
        "dictionaries": merge.dictionaries,
        "slot_count": group[-1].slot_count,
        "bounds": merge.bounds,
        "expected_items": merge.item_count,
        "extra": dates_of(group),
    }


def make_merged_row(
    group: Sequence[tuple[str, FileRow]], merged: WrittenFile, uuid: bytes, key: str, node: str
) -> FileRow:
    """Return the row under which `node` lists the merge of `group`: (node, row), oldest first.

    The number is that of the newest part; files of other nodes are named in `replaces`.
    """
    refs = {FileRef(owner, row.uuid, row.number) for owner, row in group}
    replaces = tuple(sorted(ref for ref in refs if ref.node != node))
    refs.update(part for _, row in group for part in row.parts)
    newest = group[-1][1]
    dates = dates_of([row for _, row in group])
    return FileRow(
        uuid=uuid,
        number=newest.number,
        object_key=key,
        bytes=merged.bytes,
        item_count=merged.item_count,
        slot_count=newest.slot_count,
        min_time=merged.min_time,
        max_time=merged.max_time,
        begin_ms=dates["begin_ms"],
        sealed_at_ms=dates["sealed_at_ms"],
        sidecar_position=merged.sidecar_position,
        tail_crc=merged.footer_crc,
        topics=listed_topics(merged.topics),
        schema=newest.schema,
        replaces=replaces,
        parts=tuple(sorted(refs)),
    )
