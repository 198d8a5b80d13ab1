"""Gives up the unpublished entries of a node, by an operator's command, in the node's manifest.

Depends on clock, filesystem, ids, settings, manifest, manifest_log, liveness, claim_terms and storage_layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import (
    NodeInUseError,
    NotFoundError,
    OwnershipError,
)
from tierdex.lifecycle.manifests.liveness import is_closed
from tierdex.lifecycle.manifests.manifest import (
    Change,
    Draft,
    ManifestState,
    NodeKind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog

from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.claim_terms import seconds_silent
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store


def retire_node(store: str, node: str, settings: Mapping[str, Any]) -> None:
    """Commit that no answer waits for the node's unpublished entries. Idempotent.

    Raises NotFoundError for an unknown node, NodeInUseError for one whose owner lives and lacks
    nothing, OwnershipError for one that jobs share, and what the store raises.
    """
    checked = load_settings(**settings)
    clock, ids = SystemClock(), SystemIds()
    opened = open_store(store, settings=checked, clock=clock, ids=ids, filesystem=LocalFileSystem())
    try:
        log = ManifestLog(
            opened, node, clock=clock, ids=ids, checkpoint_every=checked.checkpoint_every
        )
        retire(log, ids)
    finally:
        opened.close()


def retire(log: ManifestLog, ids: IdSource) -> ManifestState:
    """Give up the node's acknowledged entries that were never published.

    Returns the state after the commit.

    A living owner is left alone: only the entries that earlier owners left outstanding are given
    up. The commit is made in the owner's name and fences no owner. An owner that was given up and
    still lives makes its entries count again with its next heartbeat. Raises NodeInUseError when only a
    living owner has unpublished entries, OwnershipError for a shared node, NotFoundError, and as
    the log.
    """
    log.refresh_live()
    live, silent_s, until_s = log.live, 0.0, 0.0
    if live is not None and log.state.names_owner_of(live) and not live.is_closed:
        silent_s, until_s = seconds_silent(log, log.state, ids), 3 * live.interval_ms / 1000
    lives = silent_s < until_s

    def draft(state: ManifestState) -> Draft | None:
        _check_owned(state)
        if lives and not state.outstanding:
            raise NodeInUseError(
                f"the owner of node {state.node} is alive and publishes its entries: nothing to give up. "
                f"Its last heartbeat is {silent_s:.0f} s old; a node can be retired after {until_s:.0f} s",
                node=state.node,
            )
        if not state.outstanding and (state.is_retired or is_closed(state, log.live)):
            return None
        change = Change(outstanding={}) if lives else Change(retires=True)
        return Draft(NodeKind.OWNED, state.epoch, state.owner, change)

    return log.commit(draft)


def _check_owned(state: ManifestState) -> None:
    if not state.number:
        raise NotFoundError(f"there is no node {state.node}: is its name right?")
    if state.kind is NodeKind.SHARED:
        raise OwnershipError(f"node {state.node} is shared by jobs and has no unpublished entries")
