"""One merge: published files of any nodes, oldest first, become uploaded files, not yet published.

One file, or the pieces of a run. Runs in a Spark task, in the driver after a micro-batch, or in
`tierdex merge`.

After a micro-batch small files of earlier ones are merged, by the compactor's plan (`SmallMerges`).

Depends on compactor, indexfile, lifecycle, snapshot and runs.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from tierdex.compactor.merge import plan_merge
from tierdex.compactor.merged_file import open_sources
from tierdex.compactor.rewrite import CHUNK_ITEMS
from tierdex.compactor.upload import Target, upload_merge
from tierdex.errors import TierdexError
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.pipeline.jobs.snapshot import read_forgotten
from tierdex.pipeline.merging.runs import RunCutter
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.pipeline.jobs.publishing import JobNode
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


logger = logging.getLogger(__name__)

_MERGED_ITEMS_MAX = 2_000_000  # a few seconds of the driver at most


def merge_small_files(store: Store, node: JobNode) -> int:
    """Merge one run of small neighbours, when there is one; return how many files it had."""
    base = load_settings()
    settings = load_settings(
        merge_below_items=min(base.merge_below_items, _MERGED_ITEMS_MAX // 2),
        item_capacity=min(base.item_capacity, _MERGED_ITEMS_MAX),
    )
    forgotten = read_forgotten(store)  # before the files that are merged
    state = node.shared.refresh()
    run = plan_merge(state, settings)
    if not run:
        return 0
    try:
        target = Target(node.name, state.number, settings.filter_bits, forgotten)
        rows = merge_group(store, [(node.name, part) for part in run], target)
        node.merge([(rows, [part.uuid for part in run])])
    except (TierdexError, OSError):
        logger.exception("small files not merged", extra={"node": node.name, "files": len(run)})
        return 0
    return len(run)
