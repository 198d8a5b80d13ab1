"""The claim of this process's node, made when the store first answers.

An index starts and takes puts while the store cannot be reached. Every job that needs the manifest
asks here, and gets StoreUnavailableError until the claim is committed.

Depends on lifecycle.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from tierdex.lifecycle.nodes.ownership import OwnedNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog
    from tierdex.lifecycle.nodes.claim_terms import ClaimTerms


class NodeClaim:
    """Claims a node once. Safe to share between threads."""

    def __init__(
        self,
        log: ManifestLog,
        ids: IdSource,
        on_claimed: Callable[[OwnedNode], None],
        terms: ClaimTerms,
    ) -> None:
        """`on_claimed` is called once: after the epoch is committed, before any other commit."""
        self._on_claimed = on_claimed
        self._open = partial(OwnedNode.open, log, ids, terms)
        self._lock = threading.Lock()
        self._node: OwnedNode | None = None

    @property
    def is_claimed(self) -> bool:
        return self._node is not None

    def owns(self, state: ManifestState) -> bool:
        """Return whether the node was claimed here, and still ours when its manifest said `state`."""
        node = self._node
        return node is not None and node.owns(state)

    def has_lost(self, state: ManifestState) -> bool:
        """Return whether the node was claimed here, and its manifest says that it is another's."""
        node = self._node
        return node is not None and not node.owns(state)

    def get(self) -> OwnedNode:
        """Return the owned node; claim it at the first call. Raises what `OwnedNode.open` raises."""
        with self._lock:
            if self._node is None:
                node = self._open()
                self._on_claimed(node)
                self._node = node
            return self._node
