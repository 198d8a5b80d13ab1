"""One merge: published files of any nodes, oldest first, become uploaded files, not yet published.

One file, or the pieces of a run. Runs in a Spark task, in the driver after a micro-batch, or in
`tierdex merge`.

Depends on compactor, indexfile, lifecycle and runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tierdex.compactor.merged_file import open_sources
from tierdex.compactor.rewrite import CHUNK_ITEMS
from tierdex.compactor.upload import upload_merge
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.pipeline.merging.runs import RunCutter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.compactor.upload import Target
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.storage_layer.base import Store


def merge_group(
    store: Store,
    group: Sequence[tuple[str, FileRow]],
    target: Target,
    *,
    piece_items: int | None = None,
) -> list[FileRow]:
    """Write and upload the merge of `group`: (node, row), oldest first. Return its manifest rows.

    One, or a run's pieces of about `piece_items` each, in the order of their hashes; their numbers are
    the newest source's and those behind it. What is forgotten is left out. Every page of every source is
    verified. Raises CorruptFileError and what the store raises.
    """
    rows = [row for _, row in group]
    merge = RowMerge(open_sources(store, group, target.forgotten))
    if piece_items is None:
        return [
            upload_merge(store, group, target, merge, merge.rows(CHUNK_ITEMS), merge.item_count)
        ]
    pieces: list[FileRow] = []
    cutter = RunCutter(merge.rows(min(CHUNK_ITEMS, piece_items)), piece_items)
    left = merge.item_count
    for chunks in cutter:
        row = upload_merge(store, group, target, merge, chunks, min(left, piece_items))
        left -= row.item_count
        number = rows[-1].number + len(pieces)
        pieces.append(replace(row, number=number, hash_range=cutter.hash_range))
    return pieces
