"""Gives up the unpublished entries of a node, by an operator's command, in the node's manifest.

Depends on clock, filesystem, ids, settings, lifecycle and storage_layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.clock import SystemClock
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SystemIds
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.ownership import retire
from tierdex.settings import load_settings
from tierdex.storage_layer.open import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping


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
