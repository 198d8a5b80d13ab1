"""Garbage collection: deletes what no reader needs, in the order that `plan_garbage` proves safe.

Depends on lifecycle and the store.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tierdex.lifecycle.garbage import NUMBERS_A_STEP, find_orphans, plan_garbage

if TYPE_CHECKING:
    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.nodes.closed_node import ClosedNode
    from tierdex.lifecycle.nodes.ownership import OwnedNode
    from tierdex.lifecycle.nodes.shared_node import SharedNode
    from tierdex.storage_layer.base import Store


logger = logging.getLogger(__name__)


class Collected(NamedTuple):
    """The result of a round, see `collect_node`; `refused` tells why orphans were kept, if they were."""

    done: int
    refused: str


def collect_garbage(components: CompactorComponents, *, yes: bool = False) -> int:
    """Do one round; return 0 when nothing more is due. Raises what the store raises, FencedError.

    With `yes` orphans may be more than half of the node's objects. The status shows what was
    refused.
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
    node: OwnedNode | SharedNode | ClosedNode,
    store: Store,
    *,
    now_ms: int,
    grace_ms: int,
    yes: bool = False,
    orphans: bool = True,
) -> Collected:
    """Do one round for a node; the jobs that write a shared node collect it, as its owner does one's own.

    `done` is the number of deleted objects, plus the number of buried manifest numbers if they fill
    a step: then more are due. (A smaller step is not counted: the commit of this round may itself
    be the next number that is due.) Without `orphans` only dropped objects go, and nothing is listed.
    """
    paths = node.log.paths
    prefixes = [paths.files_prefix, paths.queues_prefix] if orphans else []
    listing = [found for prefix in prefixes for found in store.list(prefix)]
    state = node.refresh()  # raises when fenced; the plan uses this state and none newer
    # A LIST of every manifest number that was not collected: only when there are orphans.
    missing = node.log.missing_numbers() if find_orphans(state, listing, now_ms - grace_ms) else []
    plan = plan_garbage(state, listing, now_ms=now_ms, grace_ms=grace_ms, missing=missing, yes=yes)
    if plan.refused:
        logger.warning("orphans kept: %s", plan.refused, extra={"node": node.log.node})
    for key in plan.delete:
        store.delete(key)
    if plan.bury:
        node.log.bury(plan.bury[0], plan.bury[-1])
    if not plan.change.is_empty:
        # After the deletions: after a crash before this commit the next round deletes the same objects.
        node.commit(lambda newest: plan.change if newest.number >= state.number else None)
    is_full = len(plan.bury) == NUMBERS_A_STEP
    return Collected(len(plan.delete) + (NUMBERS_A_STEP if is_full else 0), plan.refused)
