"""Retention: removes expired files from the manifest; their objects are deleted after the grace time.

Depends on lifecycle and covering.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.compactor.covering import cover
from tierdex.lifecycle.garbage import plan_replaced
from tierdex.lifecycle.manifests.manifest import Change, RemoveReason
from tierdex.lifecycle.nodes.expiry import expire_rows
from tierdex.lifecycle.retention import begins_to_hide, make_retention, plan_expiry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.compactor.components import CompactorComponents
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.nodes.ownership import OwnedNode
    from tierdex.settings import Settings


def commit_rules(node: OwnedNode, settings: Settings) -> None:
    """Commit the settings' retention rules unless the manifest has the same."""
    rules = make_retention(settings.retention, settings.topic_retention)

    def change(state: ManifestState) -> Change | None:
        return None if state.retention == rules else Change(retention=rules)

    node.commit(change)


def due_for_expiry(components: CompactorComponents, before_ms: int | None = None) -> list[FileRow]:
    """Return this node's published files that may be removed now, oldest first.

    A file whose local copy still answers queries stays until that copy is dropped. One beside a log stays
    as long as the messages that it names.
    """
    state = components.claim.get().state
    now_ms = components.clock.now_ms()
    answering = local_uuids(components)
    rows = plan_expiry(state.index_files.values(), state.retention, now_ms, before_ms=before_ms)
    dated = (components.dated(row) for row in rows if row.uuid not in answering)
    return plan_expiry(dated, state.retention, now_ms, before_ms=before_ms)


def local_uuids(components: CompactorComponents) -> set[bytes]:
    """Return the uuids of the local files, published or not."""
    with components.table.snapshot() as snapshot:
        return {handle.uuid for handle in snapshot.file_list.local()}


def hiding_uuids(components: CompactorComponents) -> set[bytes]:
    """Return the uuids of this node's files of which retention already hides some entries."""
    state, now_ms = components.claim.get().state, components.clock.now_ms()
    rows = state.index_files.values()
    return {row.uuid for row in rows if begins_to_hide(state.retention, row, now_ms)}


def expire(components: CompactorComponents, rows: Sequence[FileRow]) -> list[FileRow]:
    """Remove `rows` from the manifest; return those that went. Readers see it at their next refresh.

    A file that another node's merge has taken meanwhile expires with the merged file.
    """
    if not rows:
        return []
    cover(components, [row.uuid for row in rows])
    gone = expire_rows(components.claim.get(), rows)
    components.show_manifest()
    return gone


def drop_replaced(components: CompactorComponents, others: Sequence[ManifestState]) -> int:
    """Remove this node's files that another node's merge contains; return how many."""
    node = components.claim.get()
    rows = plan_replaced(node.state, others)
    if rows:
        gone = [row.uuid for row in rows]
        cover(components, gone)
        node.remove(gone, RemoveReason.REPLACED)
        components.show_manifest()
    return len(rows)
