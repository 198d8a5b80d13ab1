"""What a node's manifest lists, as a reader of the store reads it."""

from __future__ import annotations

from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.manifest_log import ManifestLog


def state_of(store, node="n"):
    """Return the newest state of a node's manifest."""
    log = ManifestLog(store, node, clock=ManualClock(0), ids=SeededIds(1), checkpoint_every=8)
    return log.refresh()


def published_files(store, node="n"):
    """Return the keys of the objects that a node lists."""
    return {row.object_key for row in state_of(store, node).files.values()}
