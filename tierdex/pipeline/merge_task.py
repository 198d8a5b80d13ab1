"""One merge: published files of any nodes, oldest first, become one uploaded file, not yet published.

Runs in a Spark task, or in the driver after a micro-batch.

Depends on compactor, indexfile, lifecycle and file_builder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.compactor.merged_file import make_merged_row, open_sources, plan_of_merge
from tierdex.compactor.rewrite import CHUNK_ITEMS
from tierdex.ids import SystemIds
from tierdex.indexfile.compacted.merge_rows import RowMerge
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.file_builder import upload_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.lifecycle.forgotten import ForgottenEntries
    from tierdex.lifecycle.manifest import FileRow
    from tierdex.storage_layer.base import Store


def merge_group(
    store: Store,
    group: Sequence[tuple[str, FileRow]],
    *,
    node: str,
    read_number: int,
    filter_bits: int,
    forgotten: ForgottenEntries,
) -> FileRow:
    """Write and upload the merge of `group`: (node, row), oldest first. Return its manifest row.

    What is `forgotten` is left out. `read_number` is a manifest number of `node` that was read before.
    Every page of every source is verified. Raises CorruptFileError and what the store raises.
    """
    uuid = SystemIds().uuid()
    rows = [row for _, row in group]
    merge = RowMerge(open_sources(store, group, forgotten))
    key = StorePaths(node).file_object(read_number, uuid)
    summary = upload_file(
        store,
        key,
        merge.rows(CHUNK_ITEMS),
        plan_of_merge(merge, uuid, rows),
        filter_bits=filter_bits,
        created_ms=SystemClock().now_ms(),
    )
    return make_merged_row(group, summary, uuid, key, node)
