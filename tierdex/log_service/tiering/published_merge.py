"""A merged log file goes up in place of its published sources.

::

    1 upload     under a fresh name: no reader sees it; an orphan for garbage collection after a crash
    2 commit     one row in place of the sources' rows: durable, and visible to every reader in one step
    3 sidecar    kept, cut from the file that lies here
    4 table      what the manifest lists now: kept copies of the sources go
    5 keep       the merged file's copy, where all of its sources had one; else it goes

The sources' objects stay for the grace time, for readers that planned before. The row names them all as
`parts`, with the journals in them, so that these do not look lost. Depends on compactor, lifecycle and the
rest of log_service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierdex.compactor.publish import upload_object
from tierdex.lifecycle.manifests.file_row import FileRef
from tierdex.lifecycle.paths import StorePaths
from tierdex.log_service.files.log_row import LogRowMore
from tierdex.log_service.recovery.log_recovery import open_grouped

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.tiering.log_kind import LogKind


def publish_merged(kind: LogKind, path: Path, group: Sequence[FileHandle]) -> int:
    """Publish the merged file at `path` in place of `group`, oldest first; return its bytes.

    Raises what the store raises, FencedError, and ConflictError when a source is no longer listed.
    """
    components, copies, newest = kind.publishing, kind.copies, group[-1]
    node = components.claim.get()
    merged = open_grouped(components.filesystem, newest.node, newest.number, path)
    try:
        key = StorePaths(newest.node).file_object(node.state.number, merged.uuid)
        upload_object(components, merged, key)
        row, _ = kind.make_row(merged, key)
        row = replace(row, parts=_parts_of(group), schema=_schema_of(row, group[0].row))
        node.merge(row, [handle.uuid for handle in group])
        components.keep_sidecar(row, kind.sidecar(merged))
        were_kept = all(copies.has(handle.uuid) for handle in group)
        components.show_manifest()
        if were_kept:
            copies.take(merged)
    finally:
        merged.release()
    return row.bytes


def _schema_of(merged: FileRow, oldest: FileRow | None) -> str:
    """Return what the merged row says: it follows what the oldest source did. Raises CorruptFileError."""
    assert oldest is not None, "a published file has a row"
    return LogRowMore.of(merged)._replace(follows=LogRowMore.of(oldest).follows).encode()


def _parts_of(group: Sequence[FileHandle]) -> tuple[FileRef, ...]:
    """Return the files that come together, and what is in them, by number."""
    refs = {FileRef(handle.node, handle.uuid, handle.number) for handle in group}
    refs.update(part for handle in group if handle.row is not None for part in handle.row.parts)
    return tuple(sorted(refs, key=lambda ref: (ref.number, ref.uuid)))
