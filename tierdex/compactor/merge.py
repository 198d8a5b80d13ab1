"""Merges neighbouring small published files of this node into one.

With one file a minute a query over a month would probe 43,000 filters. Files are merged in tiers: a run of
neighbours is taken when no file is larger than all others together, so every entry is rewritten a
logarithmic number of times; where one is, what lies on either side of it is taken. Files whose ages differ
too much for their retention are not merged (`lifecycle.retention`). The merged file keeps the number of its
newest source, so the order of entries does not change, and lists all its sources, so that cursors stay
valid.

One commit replaces the sources by the merged file. The sources' objects stay for the grace time,
for readers that planned before the commit.

Depends on lifecycle, merged_file, covering and rewrite.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierdex.compactor.covering import cover
from tierdex.compactor.merged_file import make_merged_row
from tierdex.compactor.rewrite import write_merged
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import StorePaths
from tierdex.lifecycle.retention import is_of_an_age

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.settings import Settings

_MERGE_MAX_FILES = 64


def plan_merge(
    state: ManifestState,
    settings: Settings,
    unmergeable: Container[bytes] = (),
    *,
    in_tiers: bool = True,
) -> tuple[FileRow, ...]:
    """Return the oldest run of neighbours worth merging, by number; empty when there is none. Pure.

    Files whose uuid is `unmergeable` end a run. Without `in_tiers` every run of enough files is
    worth it: for one merge on request, not for a compactor that plans again and again.
    """
    run: list[FileRow] = []
    for row in sorted(state.index_files.values(), key=lambda row: row.number):
        fits = (
            row.item_count < settings.merge_below_items
            and row.uuid not in unmergeable
            and row.hash_range is None
            and len(run) < _MERGE_MAX_FILES
            and sum(source.item_count for source in run) + row.item_count <= settings.item_capacity
            and (not run or row.schema == run[0].schema)
            and (not run or is_of_an_age(state.retention, (*run, row)))
        )
        if fits:
            run.append(row)
            continue
        if found := _worth_it(run, settings, in_tiers=in_tiers):
            return found
        can_begin = (
            row.item_count < settings.merge_below_items
            and row.uuid not in unmergeable
            and row.hash_range is None  # a piece of a run stays as it is
        )
        run = [row] if can_begin else []
    return _worth_it(run, settings, in_tiers=in_tiers)


def _worth_it(run: Sequence[FileRow], settings: Settings, *, in_tiers: bool) -> tuple[FileRow, ...]:
    """Return the run, or what of it is worth it on either side of its largest file; else nothing."""
    if len(run) < settings.merge_min_files:
        return ()
    sizes = [row.item_count for row in run]
    if not in_tiers or 2 * max(sizes) <= sum(sizes):
        return tuple(run)
    largest = sizes.index(max(sizes))
    before = _worth_it(run[:largest], settings, in_tiers=True)
    return before or _worth_it(run[largest + 1 :], settings, in_tiers=True)


def merge_published(components: CompactorComponents, group: Sequence[FileRow]) -> int:
    """Merge the files of `group` (oldest first) and publish the result; return the number of files."""
    node = components.claim.get()
    newest, forgotten = group[-1], components.forgotten()
    temporary = components.paths.temporary(FileState.COMPACTED, newest.number)
    uuid = components.ids.uuid()
    try:
        # Nothing here is visible: a crash leaves a temporary file, which recovery removes, and
        # perhaps an orphan in the store, which garbage collection removes.
        merged = write_merged(components, temporary, uuid, group, forgotten)
        key = StorePaths(node.log.node).file_object(node.state.number, uuid)
        file = components.filesystem.open(temporary)
        try:
            components.store.upload(key, file, file.size())
        finally:
            file.close()
        name = node.log.node
        named = [(name, source) for source in group]
        row = make_merged_row(named, merged, uuid, key, name, forgotten)
        # A file that holds a source without `tells` must not tell end offsets either: then a queue
        # table holds those of the others, committed before the sources leave the list.
        row = replace(row, tells=all(source.tells for source in group))
        if not row.tells:
            cover(components, [source.uuid for source in group])
        # The commit: durable and visible. Every reader sees either all sources or the merged file.
        node.merge(row, [source.uuid for source in group])
        components.keep_sidecar(row, merged.sidecar_bytes().data)
        merged.close()
    finally:
        components.filesystem.unlink(temporary)
    components.show_manifest()
    return len(group)
