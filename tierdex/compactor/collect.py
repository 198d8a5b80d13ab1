"""Garbage collection: delete what no reader can need, in the order that `plan_garbage` proves safe.

Depends on lifecycle and the store.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tierdex.lifecycle.garbage import NUMBERS_A_STEP, find_orphans, plan_garbage

if TYPE_CHECKING:
    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.ownership import OwnedNode, SharedNode
    from tierdex.storage_layer.base import Store


logger = logging.getLogger(__name__)


class Collected(NamedTuple):
    """What a round did, see `collect_node`; `refused` says why orphans were kept, empty when none were."""

    done: int
    refused: str


def collect_garbage(components: CompactorComponents, *, yes: bool = False) -> int:
    """Do one round; 0 when nothing is due any more. Raises what the store raises, FencedError.

    `yes`: orphans may be more than half of the node's objects. What was refused is in the status.
    """
    found = collect_node(
        components.claim.get(),
        components.store,
        now_ms=components.clock.now_ms(),
        grace_ms=round(components.settings.grace_time * 1000),
        yes=yes,
    )
    components.progress.refuse(found.refused)
    return found.done


def collect_node(
    node: OwnedNode | SharedNode, store: Store, *, now_ms: int, grace_ms: int, yes: bool = False
) -> Collected:
    """Do one round for a node of either kind; a shared one is collected by the jobs that write it.

    `done` is how many objects were deleted, and how many numbers were buried if that was a full step:
    then more are due. (Not else: the commit of this round may be the next number that is due.)
    """
    paths = node.log.paths
    listing = [*store.list(paths.files_prefix), *store.list(paths.queues_prefix)]
    state = node.refresh()  # still the owner, and nothing newer than this decides
    # Only where it matters: a LIST of every manifest number that was not collected.
    missing = node.log.missing_numbers() if find_orphans(state, listing, now_ms - grace_ms) else []
    plan = plan_garbage(state, listing, now_ms=now_ms, grace_ms=grace_ms, missing=missing, yes=yes)
    if plan.refused:
        logger.warning("orphans kept: %s", plan.refused, extra={"node": node.log.node})
    for key in plan.delete:
        store.delete(key)
    if plan.bury:
        node.log.bury(plan.bury[0], plan.bury[-1])
    if not plan.change.is_empty:
        # After the deletions: a crash before this commit deletes the same objects again.
        node.commit(lambda newest: plan.change if newest.number >= state.number else None)
    is_full = len(plan.bury) == NUMBERS_A_STEP
    return Collected(len(plan.delete) + (NUMBERS_A_STEP if is_full else 0), plan.refused)
