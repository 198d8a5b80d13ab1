"""Files that no running owner can rewrite: those of shared nodes, and of owners that ended.

::

    uploaded under a name that no manifest lists   a crash leaves garbage
    one commit to the file's own node              every reader sees the new file in place of the old one
    after the grace time: deleted, forgotten       by the process that continues the request

A node stays what it is, and so do a file's number, its order among others and its retention. Who commits
in an owner's name fences no owner (decision 0050).

Depends on compactor, lifecycle, open_view and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.compactor.collect import collect_node
from tierdex.compactor.upload import Target, upload_anew
from tierdex.errors import TierdexError
from tierdex.lifecycle.manifests.liveness import CLOSED, RETIRED, SHARED
from tierdex.lifecycle.manifests.manifest import NodeKind, NodeOwner
from tierdex.lifecycle.nodes.closed_node import ClosedNode
from tierdex.lifecycle.nodes.shared_node import SharedNode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.index_service.opening.open_view import View
    from tierdex.lifecycle.manifests.forgotten import ForgottenEntries
    from tierdex.lifecycle.table.file_handle import FileHandle


class UnownedFiles:
    """Writes files of other nodes anew, and deletes what they dropped. For one thread at a time."""

    def __init__(self, view: View) -> None:
        self._view = view

    def are_of(self, node: str) -> bool:
        """Return whether no owner rewrites the node's files, as of the last refresh."""
        standing = self._view.manifests.ages.standings.get(node)
        return standing is not None and standing.standing in (CLOSED, RETIRED, SHARED)

    def write_anew(self, handle: FileHandle, forgotten: ForgottenEntries) -> str | None:
        """Write a published file without what is forgotten; return why it was not done, if it was not."""
        row, view = handle.row, self._view
        assert row is not None
        try:
            node = self._open(handle.node)
            bits = view.settings.filter_bits
            target = Target(handle.node, node.refresh().number, bits, forgotten)
            node.merge(upload_anew(view.store, row, target), [row.uuid])
        except (TierdexError, OSError) as error:  # not swallowed: the receipt says it
            return f"not written anew: {error}"
        return None

    def collect(self, nodes: Iterable[str]) -> None:
        """Delete the objects that these nodes dropped before the grace time. Raises what the store raises."""
        view = self._view
        grace_ms = round(view.settings.grace_time * 1000)
        for name in nodes:
            node, now_ms = self._open(name), view.manifests.now_ms()
            collect_node(node, view.store, now_ms=now_ms, grace_ms=grace_ms, orphans=False)

    def _open(self, name: str) -> SharedNode | ClosedNode:
        manifests = self._view.manifests
        log = manifests.log_of(name)
        if log.state.kind is NodeKind.SHARED:
            return SharedNode(log)
        states = manifests.ages.states.values()
        return ClosedNode(log, frozenset[NodeOwner]().union(*(state.adopted for state in states)))
