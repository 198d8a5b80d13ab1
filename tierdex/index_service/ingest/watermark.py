"""How far a queue's puts have come: the end offset below which everything has a level.

`{os, disk, remote}`, each the greatest end offset (offset + size) such that everything put before
it for that queue, in put order, is at that level; None when nothing is. Files are in put order, so
a level's watermark is a maximum over the longest run of files, from the oldest, that are all at the
level. A file that cannot be read is at none: behind it nothing rises until an operator has taken it out
of quarantine. What is published counts for every level, also after its files expired.

A broker replays from there; replayed duplicates are harmless. Depends on lifecycle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.lifecycle.file_state import FileState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from tierdex.index_service.view.published_ends import PublishedEnds
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable

    Offsets = Mapping[tuple[str, int], int]


class Watermarks:
    """Computes watermarks from the files at hand. Safe to share between threads."""

    def __init__(
        self,
        table: FileTable,
        node: str,
        published: PublishedEnds,
        synced: Callable[[int], Offsets],
        lost: Callable[[], Collection[int]],
    ) -> None:
        """`published` tells how far a queue is published, `synced` what a file's sync covered.

        `lost` returns the numbers of the node's files that were not published and cannot be read.
        """
        self._table = table
        self._node = node
        self._published = published
        self._synced = synced
        self._lost = lost

    def of(self, topic: str, queue_id: int) -> dict[str, int | None]:
        """Return the queue's watermark at each level.

        Raises what the store raises when it must be asked how far the queue is published.
        """
        queue = (topic, queue_id)
        # The files before the manifest: a file that is no longer local in the snapshot was published
        # before it, so the manifest read afterwards knows it. The other way round it could be in
        # neither.
        with self._table.snapshot() as snapshot:
            remote = self._published.of(self._node, topic, queue_id)
            local = [handle for handle in snapshot.file_list.local() if handle.node == self._node]
            disk = os = remote
            is_durable = True
            lost = min(self._lost(), default=None)
            for handle in local:
                if lost is not None and handle.number > lost:
                    break
                os = _later(os, handle.reader.end_offsets().get(queue))
                is_durable = is_durable and not _is_suspect(handle)
                if is_durable:
                    disk = _later(disk, self._durable_offsets(handle).get(queue))
                    is_durable = _is_durable_whole(handle)
        return {"os": os, "disk": disk, "remote": remote}

    def published_by(self, node: str, topic: str, queue_id: int) -> int | None:
        """Return how far a node has published a queue, as of the last refresh; it need not be ours.

        Raises NotFoundError when no such node is read, and what the store raises.
        """
        return self._published.of_known(node, topic, queue_id)

    def _durable_offsets(self, handle: FileHandle) -> Offsets:
        if handle.state is FileState.UNSEALED:
            return self._synced(handle.number)
        offsets: Offsets = handle.reader.end_offsets()
        return offsets


def _later(first: int | None, second: int | None) -> int | None:
    known = [offset for offset in (first, second) if offset is not None]
    return max(known, default=None)


def _is_suspect(handle: FileHandle) -> bool:
    return handle.state is FileState.UNSEALED and handle.reader.suspect


def _is_durable_whole(handle: FileHandle) -> bool:
    if handle.state is not FileState.UNSEALED:
        return True  # a seal syncs, a compaction syncs
    return bool(handle.reader.synced == handle.reader.published)
