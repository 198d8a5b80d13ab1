"""Removes published files for good, beside jobs that merge files of other nodes.

::

    mark     commit to the files' own node: expiring    merges that look from here on leave them out
    floors   commit to each shared node: merge_floor    merges that looked before look again, or were first:
                                                        what one of them took is in its file, and stays
    remove   commit to the files' own node: EXPIRED     no merge holds them, and none will

A merge commits to one manifest what it read from another: it looks whether its sources are listed, at or
above its node's floor, and then commits. Without the floors an expiry in between would come back with the
merge. A shared node that is not listed yet when the floors are set is created before its merge looks
(`JobNode.merge`): such a look sees the mark. After a crash the marked files are listed until they are
expired again.

Depends on changes, file_row, forgotten, manifest, manifest_log, shared_node and errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from tierdex.errors import CorruptFileError
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.forgotten import FORGOTTEN_NODE
from tierdex.lifecycle.manifests.manifest import Change, NodeKind, RemoveReason, is_replaced
from tierdex.lifecycle.manifests.manifest_log import list_nodes
from tierdex.lifecycle.nodes.shared_node import SharedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRef, FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog

logger = logging.getLogger(__name__)


class CommittingNode(Protocol):
    """The node that lists the files: an owned or a shared one."""

    @property
    def log(self) -> ManifestLog: ...

    def commit(self, build: Callable[[ManifestState], Change | None]) -> ManifestState: ...


def expire_rows(node: CommittingNode, rows: Sequence[FileRow]) -> list[FileRow]:
    """Remove `rows` from the list of their node; return those that no merge had taken before.

    Raises ConflictError as `changes.remove_files` does, and what the store raises: then nothing was removed.
    """
    gone = [row.uuid for row in rows]
    node.commit(lambda state: changes.mark_expiring(state, gone))
    taken = _raise_floors(node.log)
    kept = [row for row in rows if not is_replaced(row, node.log.node, taken)]
    if len(kept) < len(rows):
        merged = [row.uuid.hex() for row in rows if row not in kept]
        logger.info("merged before they expired", extra={"node": node.log.node, "files": merged})
    uuids = [row.uuid for row in kept]
    node.commit(lambda state: changes.remove_files(state, uuids, RemoveReason.EXPIRED))
    return kept


def _raise_floors(own: ManifestLog) -> frozenset[FileRef]:
    """Make running merges check again; return the files that earlier merges have taken."""
    taken: frozenset[FileRef] = frozenset()
    for name in list_nodes(own.store):
        if name in (own.node, FORGOTTEN_NODE):
            continue
        log = own.of_node(name)
        try:
            if log.load().kind is NodeKind.SHARED:
                taken |= _raise_floor(SharedNode(log))
        except CorruptFileError as error:
            # No merge commits to a node whose manifest cannot be read.
            logger.warning("floor not raised", extra={"node": name, "error": str(error)})
    return taken


def _raise_floor(node: SharedNode) -> frozenset[FileRef]:
    taken: frozenset[FileRef] = frozenset()

    def build(state: ManifestState) -> Change:
        nonlocal taken
        taken = state.replaced  # of the very state that the floor is committed on
        return Change(merge_floor=state.number + 1)

    node.commit(build)
    return taken
