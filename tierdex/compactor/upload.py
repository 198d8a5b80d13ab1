"""Uploads compacted files that need no data folder: what jobs build, merges, one file written anew.

::

    sorted rows -> a temporary file of this machine -> one object that no manifest lists yet

An object that is never published is garbage, which the node's next collection removes.

Depends on lifecycle, indexfile, merged_file, rewrite, the store and the ground.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tierdex.clock import SystemClock
from tierdex.compactor.merged_file import make_merged_row, open_sources, plan_of_merge
from tierdex.compactor.rewrite import CHUNK_ITEMS, AppendingFile
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.indexfile.compacted.writer import CompactedSummary, CompactedWriter, FilePlan
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.storage_layer.base import Store


class Target(NamedTuple):
    """Where merges go: the node, a manifest number of it that was read before, its filters' bits.

    What is `forgotten` is left out.
    """

    node: str
    read_number: int
    filter_bits: int
    forgotten: ForgottenEntries


def upload_file(
    store: Store,
    key: str,
    chunks: Iterable[np.ndarray],
    plan: FilePlan,
    *,
    filter_bits: int,
    created_ms: int,
) -> CompactedSummary:
    """Write sorted chunks as one compacted file and upload it under `key`; no reader sees it yet.

    Memory holds a chunk and the file's tail. Raises what the chunks, the disk and the store raise.
    """
    filesystem = LocalFileSystem()
    with tempfile.TemporaryDirectory(prefix="tierdex-") as folder:
        path = Path(folder) / "file"
        file = filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            out = AppendingFile(file)
            writer = CompactedWriter(
                out.write,
                plan,
                filter_bits=filter_bits,
                created_ms=created_ms,
            )
            for rows in chunks:
                writer.append(rows)
            summary = writer.finish()
            out.flush()
            store.upload(key, file, summary.bytes)
        finally:
            file.close()
    return summary


def upload_merge(
    store: Store,
    group: Sequence[tuple[str, FileRow]],
    target: Target,
    merge: RowMerge,
    chunks: Iterable[np.ndarray],
    expected_items: int,
) -> FileRow:
    """Write and upload one file of a merge of `group`, of about so many items; return its row."""
    uuid = SystemIds().uuid()
    plan = plan_of_merge(merge, uuid, [row for _, row in group])
    key = StorePaths(target.node).file_object(target.read_number, uuid)
    summary = upload_file(
        store,
        key,
        chunks,
        replace(plan, expected_items=max(1, expected_items)),
        filter_bits=target.filter_bits,
        created_ms=SystemClock().now_ms(),
    )
    return make_merged_row(group, summary, uuid, key, target.node, target.forgotten)


def upload_anew(store: Store, row: FileRow, target: Target) -> FileRow:
    """Write and upload a file of the target's node without what is forgotten; return its new row.

    Number, range of hashes and what it tells of its queues stay.
    """
    group = [(target.node, row)]
    merge = RowMerge(open_sources(store, group, target.forgotten))
    chunks = merge.rows(CHUNK_ITEMS)
    anew = upload_merge(store, group, target, merge, chunks, merge.item_count)
    return replace(anew, tells=row.tells, hash_range=row.hash_range)
