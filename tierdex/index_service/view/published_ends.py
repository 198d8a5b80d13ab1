"""How far a queue of a node is published: the newest queue table, and what files since then tell.

Read when it is first asked for: a table is one request, a file's sidecar one more unless it is here.
Whether asked by the owner or by a reader, the manifest read last decides which.
Depends on compactor.queue_table, manifest_follower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import NotFoundError

if TYPE_CHECKING:
    from tierdex.compactor.queue_table import QueueTables
    from tierdex.index_service.view.manifest_follower import ManifestFollower


class PublishedEnds:
    """The `remote` watermarks of one node. Safe to share between threads."""

    def __init__(self, manifests: ManifestFollower, tables: QueueTables, node: str) -> None:
        self._manifests = manifests
        self._tables = tables
        self._node = node

    def of(self, topic: str, queue_id: int) -> int | None:
        """Return the queue's published end offset, None when nothing is.

        Raises what the store raises when it must be asked, CorruptFileError.
        """
        try:
            return self._of(topic, queue_id)
        except NotFoundError:
            # What the manifest named is gone: it is older than the grace time. Once more, anew.
            self._manifests.refresh()
            return self._of(topic, queue_id)

    def _of(self, topic: str, queue_id: int) -> int | None:
        state = self._manifests.state_of(self._node)
        ends = [state.end_offsets.get((topic, queue_id))]
        if state.queue_table is not None:
            ends.append(self._tables.read(state.queue_table).of(topic, queue_id))
        for uuid in state.uncovered:
            reader = self._manifests.reader_of(state.files[uuid], self._node)
            ends.append(reader.sidecar().end_of(topic, queue_id))
        return max((end for end in ends if end is not None), default=None)
