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

    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.manifest import ManifestState
    from tierdex.lifecycle.ownership import OwnedNode
    from tierdex.settings import Settings


def commit_rules(node: OwnedNode, settings: Settings) -> None:
    """Write the settings' retention into the manifest when it says something else."""
    rules = make_retention(settings.retention, settings.topic_retention)

    def change(state: ManifestState) -> Change | None:
        return None if state.retention == rules else Change(retention=rules)

    node.commit(change)


def due_for_expiry(components: CompactorComponents, before_ms: int | None = None) -> list[FileRow]:
    """Return this node's published files that may go now, oldest first.

    A file whose local copy still answers stays until that is dropped: it would go on answering.
    """
    state = components.claim.get().state
    now_ms = components.clock.now_ms()
    answering = local_uuids(components)
    rows = plan_expiry(state.files.values(), state.retention, now_ms, before_ms=before_ms)
    return [row for row in rows if row.uuid not in answering]


def local_uuids(components: CompactorComponents) -> set[bytes]:
    """Return the uuids of the files that lie here, published already or not."""
    with components.table.snapshot() as snapshot:
        return {handle.uuid for handle in snapshot.file_list.local()}


def hiding_uuids(components: CompactorComponents) -> set[bytes]:
    """Return the uuids of this node's files of which retention hides something already."""
    state, now_ms = components.claim.get().state, components.clock.now_ms()
    rows = state.files.values()
    return {row.uuid for row in rows if begins_to_hide(state.retention, row, now_ms)}


def expire(components: CompactorComponents, rows: Sequence[FileRow]) -> int:
    """Drop `rows` from the manifest, invisible to readers once they refreshed; return how many."""
    if rows:
        gone = [row.uuid for row in rows]
        cover(components, gone)
        components.claim.get().remove(gone, RemoveReason.EXPIRED)
        components.show_manifest()
    return len(rows)


def drop_replaced(components: CompactorComponents, others: Sequence[ManifestState]) -> int:
    """Drop this node's files that another node's merge holds; return how many."""
    node = components.claim.get()
    rows = plan_replaced(node.state, others)
    if rows:
        gone = [row.uuid for row in rows]
        cover(components, gone)
        node.remove(gone, RemoveReason.REPLACED)
        components.show_manifest()
    return len(rows)
