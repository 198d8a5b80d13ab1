"""One merge: published files of any nodes, oldest first, become uploaded files, not yet published.

One file, or the pieces of a run. Runs in a Spark task, in the driver after a micro-batch, or in
`tierdex merge`.

Depends on compactor, indexfile, lifecycle, file_builder and runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tierdex.clock import SystemClock
from tierdex.compactor.merged_file import make_merged_row, open_sources, plan_of_merge
from tierdex.compactor.rewrite import CHUNK_ITEMS
from tierdex.ids import SystemIds
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.file_builder import upload_file
from tierdex.pipeline.runs import RunCutter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    from tierdex.lifecycle.forgotten import ForgottenEntries
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.storage_layer.base import Store


class Target(NamedTuple):
    """Where merges go: the node, a manifest number of it that was read before, its filters' bits.

    What is `forgotten` is left out.
    """

    node: str
    read_number: int
    filter_bits: int
    forgotten: ForgottenEntries


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
        return [_write(store, group, target, merge, merge.rows(CHUNK_ITEMS), merge.item_count)]
    pieces: list[FileRow] = []
    cutter = RunCutter(merge.rows(min(CHUNK_ITEMS, piece_items)), piece_items)
    left = merge.item_count
    for chunks in cutter:
        row = _write(store, group, target, merge, chunks, min(left, piece_items))
        left -= row.item_count
        number = rows[-1].number + len(pieces)
        pieces.append(replace(row, number=number, hash_range=cutter.hash_range))
    return pieces


def _write(
    store: Store,
    group: Sequence[tuple[str, FileRow]],
    target: Target,
    merge: RowMerge,
    chunks: Iterable[np.ndarray],
    expected_items: int,
) -> FileRow:
    """Write and upload one file of a merge, of about so many items."""
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
    return make_merged_row(group, summary, uuid, key, target.node)
