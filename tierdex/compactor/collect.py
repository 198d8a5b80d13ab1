"""Garbage collection: delete what no reader can need, in the order that `plan_garbage` proves safe.

Depends on lifecycle and the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.lifecycle.garbage import plan_garbage
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from tierdex.compactor.parts import CompactorParts


def collect_garbage(parts: CompactorParts) -> int:
    """Do one round; return the objects deleted. Raises what the store raises, FencedError."""
    node = parts.claim.get()
    listing = list(parts.store.list(StorePaths(node.log.node).files_prefix))
    state = node.refresh()  # still the owner, and nothing newer than this decides
    plan = plan_garbage(
        state,
        listing,
        now_ms=parts.clock.now_ms(),
        grace_ms=round(parts.settings.grace_time * 1000),
    )
    for key in plan.delete:
        parts.store.delete(key)
    if plan.bury:
        node.log.bury(plan.bury[0], plan.bury[-1])
    if not plan.change.is_empty:
        # After the deletions: a crash before this commit deletes the same objects again.
        node.commit(lambda newest: plan.change if newest.number >= state.number else None)
    return len(plan.delete)
