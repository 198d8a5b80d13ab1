"""The right to write this process's node, claimed when the store can first be reached.

An index starts and takes puts while the store is away; everything that needs the manifest asks here
and gets StoreUnavailableError until the claim was committed. Depends on lifecycle.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.lifecycle.ownership import OwnedNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifest_log import ManifestLog


class NodeClaim:
    """Claims a node once. Safe to share between threads."""

    def __init__(
        self, log: ManifestLog, ids: IdSource, on_claimed: Callable[[OwnedNode], None]
    ) -> None:
        """`on_claimed` is called once, after the epoch is committed and before anything else is."""
        self._log = log
        self._ids = ids
        self._on_claimed = on_claimed
        self._lock = threading.Lock()
        self._node: OwnedNode | None = None

    @property
    def is_claimed(self) -> bool:
        return self._node is not None

    def get(self) -> OwnedNode:
        """Return the owned node, claiming it first when that is still to do. Raises what `open` does."""
        with self._lock:
            if self._node is None:
                node = OwnedNode.open(self._log, self._ids)
                self._on_claimed(node)
                self._node = node
            return self._node
