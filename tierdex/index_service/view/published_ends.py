"""The published end offset of a queue of any node: the newest queue table, and the files since.

Read at its first use: a table is one request, the sidecar of a file one more unless it is cached.
The manifest that was read last decides which table and files.

Depends on compactor.queue_table, manifest_follower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import NotFoundError

if TYPE_CHECKING:
    from tierdex.compactor.queue_table import QueueTables
    from tierdex.index_service.view.manifest_follower import ManifestFollower


class PublishedEnds:
    """How far nodes have published queues. Safe to share between threads."""

    def __init__(self, manifests: ManifestFollower, tables: QueueTables) -> None:
        self._manifests = manifests
        self._tables = tables

    def of(self, node: str, topic: str, queue_id: int) -> int | None:
        """Return the queue's published end offset, None when nothing of it is published.

        Raises CorruptFileError, and what the store raises.
        """
        try:
            return self._of(node, topic, queue_id)
        except NotFoundError:
            # An object of the manifest is gone: the manifest is older than the grace time. Read it again.
            self._manifests.refresh()
            return self._of(node, topic, queue_id)

    def of_known(self, node: str, topic: str, queue_id: int) -> int | None:
        """Do as `of` for a node that is read here. Raises NotFoundError when there is none."""
        self._manifests.refuse_unknown(node)
        return self.of(node, topic, queue_id)

    def _of(self, node: str, topic: str, queue_id: int) -> int | None:
        state = self._manifests.state_of(node)
        ends: list[int | None] = []
        if state.queue_table is not None:
            ends.append(self._tables.read(state.queue_table).of(topic, queue_id))
        for uuid in state.uncovered:
            reader = self._manifests.reader_of(state.files[uuid], node)
            ends.append(reader.sidecar().end_of(topic, queue_id))
        return max((end for end in ends if end is not None), default=None)
