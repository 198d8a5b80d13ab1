"""Merges the small files of earlier micro-batches after a micro-batch, by the compactor's plan.

A batch every few seconds leaves files of a few thousand entries. The files of one tier are merged
when there are enough of them, up to a size that takes the driver a few seconds; `merge` makes
larger ones. A merge that fails or loses a race is left for the next batch: the batch itself is
published.

Depends on compactor, merge_task and snapshot.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.compactor.merge import plan_merge
from tierdex.compactor.upload import Target
from tierdex.errors import TierdexError
from tierdex.pipeline.jobs.snapshot import read_forgotten
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from tierdex.pipeline.jobs.publishing import JobNode
    from tierdex.storage_layer.base import Store

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
