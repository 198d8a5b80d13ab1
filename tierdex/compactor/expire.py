"""Retention: drop files whose time is up from the manifest; their objects go after the grace time.

Depends on lifecycle and queue_table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.compactor.queue_table import cover
from tierdex.lifecycle.garbage import plan_replaced
from tierdex.lifecycle.manifest import Change, FileRow, RemoveReason
from tierdex.lifecycle.retention import begins_to_hide, make_retention, plan_expiry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.compactor.parts import CompactorParts
    from tierdex.lifecycle.manifest import ManifestState
    from tierdex.lifecycle.ownership import OwnedNode
    from tierdex.settings import Settings


def commit_rules(node: OwnedNode, settings: Settings) -> None:
    """Write the settings' retention into the manifest when it says something else."""
    rules = make_retention(settings.retention, settings.topic_retention)

    def change(state: ManifestState) -> Change | None:
        return None if state.retention == rules else Change(retention=rules)

    node.commit(change)


def due_for_expiry(parts: CompactorParts, before_ms: int | None = None) -> list[FileRow]:
    """Return this node's published files that may go now, oldest first.

    A file whose local copy still answers stays until that is dropped: it would go on answering.
    """
    state = parts.claim.get().state
    now_ms = parts.clock.now_ms()
    answering = local_uuids(parts)
    rows = plan_expiry(state.files.values(), state.retention, now_ms, before_ms=before_ms)
    return [row for row in rows if row.uuid not in answering]


def local_uuids(parts: CompactorParts) -> set[bytes]:
    """Return the uuids of the files that lie here, published already or not."""
    with parts.table.snapshot() as snapshot:
        return {handle.uuid for handle in snapshot.file_list.local()}


def hiding_uuids(parts: CompactorParts) -> set[bytes]:
    """Return the uuids of this node's files of which retention hides something already."""
    state, now_ms = parts.claim.get().state, parts.clock.now_ms()
    rows = state.files.values()
    return {row.uuid for row in rows if begins_to_hide(state.retention, row, now_ms)}


def expire(parts: CompactorParts, rows: Sequence[FileRow]) -> int:
    """Drop `rows` from the manifest, invisible to readers once they refreshed; return how many."""
    if rows:
        gone = [row.uuid for row in rows]
        cover(parts, gone)
        parts.claim.get().remove(gone, RemoveReason.EXPIRED)
        parts.show_manifest()
    return len(rows)


def drop_replaced(parts: CompactorParts, others: Sequence[ManifestState]) -> int:
    """Drop this node's files that another node's merge holds; return how many."""
    node = parts.claim.get()
    rows = plan_replaced(node.state, others)
    if rows:
        gone = [row.uuid for row in rows]
        cover(parts, gone)
        node.remove(gone, RemoveReason.REPLACED)
        parts.show_manifest()
    return len(rows)
