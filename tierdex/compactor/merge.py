"""Merges neighbouring small published files of this node into one.

A file a minute would make a query over a month ask 43,000 filters. Files are merged in tiers: a run
of neighbours is taken when no member is larger than all the others together, so every entry is
rewritten a logarithmic number of times. The merged file keeps the number of its newest part (the
order of entries does not change) and lists all its parts, so that cursors find their way.

One commit swaps the parts for the whole; the parts' objects live on for the grace time, for readers
that planned before it. Depends on lifecycle, indexfile and the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.compactor.rewrite import write_merged
from tierdex.indexfile.compacted import CompactedFile
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.manifest import FileRef, FileRow, listed_topics
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tierdex.compactor.parts import CompactorParts
    from tierdex.lifecycle.manifest import ManifestState
    from tierdex.settings import Settings

_MERGE_MAX_FILES = 64


def plan_merge(
    state: ManifestState, settings: Settings, unmergeable: Container[bytes] = ()
) -> tuple[FileRow, ...]:
    """Return the oldest run of neighbours worth merging, by number; empty when there is none. Pure.

    Files whose uuid is `unmergeable` end a run.
    """
    run: list[FileRow] = []
    for row in sorted(state.files.values(), key=lambda row: row.number):
        fits = (
            row.item_count < settings.merge_below_items
            and row.uuid not in unmergeable
            and len(run) < _MERGE_MAX_FILES
            and sum(part.item_count for part in run) + row.item_count <= settings.item_capacity
            and (not run or row.schema == run[0].schema)
        )
        if fits:
            run.append(row)
            continue
        if _is_worth_it(run, settings):
            break
        can_begin = row.item_count < settings.merge_below_items and row.uuid not in unmergeable
        run = [row] if can_begin else []
    return tuple(run) if _is_worth_it(run, settings) else ()


def _is_worth_it(run: Sequence[FileRow], settings: Settings) -> bool:
    if len(run) < settings.merge_min_files:
        return False
    largest = max(row.item_count for row in run)
    return largest <= sum(row.item_count for row in run) - largest


def merge_published(parts: CompactorParts, group: Sequence[FileRow]) -> int:
    """Merge the files of `group` (oldest first) and swap them in; return how many there were."""
    node = parts.claim.get()
    newest = group[-1]
    temporary = parts.paths.temporary(FileState.COMPACTED, newest.number)
    uuid = parts.ids.uuid()
    try:
        # Nothing here is visible: a crash leaves a temporary file, which recovery removes, and
        # perhaps an orphan in the store, which garbage collection removes.
        dates = {
            "begin_ms": group[0].begin_ms,
            "sealed_at_ms": max(row.sealed_at_ms for row in group),
        }
        sources = [_open(parts, row) for row in reversed(group)]
        merged = write_merged(parts, temporary, uuid, sources, dates)
        key = StorePaths(node.log.node).file_object(node.state.number, uuid)
        file = parts.filesystem.open(temporary)
        try:
            parts.store.upload(key, file, file.size())
        finally:
            file.close()
        row = _merged_row(group, merged, uuid, key, node.log.node)
        # The commit: every reader sees either all parts or the merged file.
        node.merge(row, [part.uuid for part in group])
        parts.keep_sidecar(row, merged.sidecar_bytes().data)
        merged.close()
    finally:
        parts.filesystem.unlink(temporary)
    parts.show_manifest()
    return len(group)


def _open(parts: CompactorParts, row: FileRow) -> CompactedFile:
    """Open a published file for reading it from end to end."""

    def read(position: int, length: int) -> bytes:
        return parts.store.get(row.object_key, position, length)

    tail = read(row.sidecar_position, row.bytes - row.sidecar_position)
    return CompactedFile.from_sidecar(
        tail, read, position=row.sidecar_position, name=row.object_key
    )


def _merged_row(
    group: Sequence[FileRow], merged: CompactedFile, uuid: bytes, key: str, node: str
) -> FileRow:
    refs = {FileRef(node, row.uuid, row.number) for row in group}
    refs.update(part for row in group for part in row.parts)
    newest = group[-1]
    return FileRow(
        uuid=uuid,
        number=newest.number,
        object_key=key,
        bytes=merged.bytes,
        item_count=merged.item_count,
        slot_count=newest.slot_count,
        min_time=merged.min_time,
        max_time=merged.max_time,
        begin_ms=group[0].begin_ms,
        sealed_at_ms=max(row.sealed_at_ms for row in group),
        sidecar_position=merged.sidecar_position,
        tail_crc=merged.footer_crc,
        topics=listed_topics(merged.topics),
        schema=newest.schema,
        parts=tuple(sorted(refs)),
    )
