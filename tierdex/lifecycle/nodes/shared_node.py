"""A node that many jobs commit to, without an epoch.

A commit that lost its number is drafted again on the newer state. Jobs never touch an owned node
(`ownership`), owners never a shared one, so a job cannot fence an owner.

Depends on changes, file_row, manifest, manifest_log, liveness, storage_layer and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import OwnershipError
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.liveness import NO_OWNER
from tierdex.lifecycle.manifests.manifest import (
    Change,
    Draft,
    ManifestState,
    NodeKind,
    RemoveReason,
)
from tierdex.storage_layer.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog


class SharedNode:
    """A node that many jobs write to. Safe to share between threads and between processes."""

    def __init__(self, log: ManifestLog) -> None:
        self._log = log

    @classmethod
    def open(cls, log: ManifestLog, ids: IdSource) -> SharedNode:
        """Return the node for writing. Raises OwnershipError for an owned one; see `OwnedNode`."""
        probe(log.store, log.paths.prefix, ids)
        _check_shared(log.refresh())
        return cls(log)

    @property
    def log(self) -> ManifestLog:
        return self._log

    @property
    def state(self) -> ManifestState:
        return self._log.state

    def refresh(self) -> ManifestState:
        return self._log.refresh()

    def commit(self, build: Callable[[ManifestState], Change | None]) -> ManifestState:
        """Commit the change that `build` returns for the newest state; repeat after lost races.

        Raises OwnershipError, ConflictError, and what `build` and the log raise.
        """

        def draft(state: ManifestState) -> Draft | None:
            _check_shared(state)
            change = build(state)
            if change is None or change.is_empty:
                return None
            return Draft(NodeKind.SHARED, 0, NO_OWNER, change)

        return self._log.commit(draft)

    def publish(self, rows: Sequence[FileRow]) -> ManifestState:
        """List files of a job. Raises FloorError."""
        return self.commit(lambda state: changes.add_files(state, rows))

    def publish_batch(self, query_id: str, batch_id: int, rows: Sequence[FileRow]) -> ManifestState:
        """List a micro-batch exactly once, however often it is replayed. Raises FloorError."""
        return self.commit(lambda state: changes.add_batch(state, query_id, batch_id, rows))

    def merge(self, row: FileRow, merged: Sequence[bytes] = ()) -> ManifestState:
        """List `row` in place of files of this node and, by `row.replaces`, of others."""
        return self.commit(lambda state: changes.merge_files(state, row, merged))

    def remove(self, uuids: Iterable[bytes], reason: RemoveReason) -> ManifestState:
        gone = tuple(uuids)
        return self.commit(lambda state: changes.remove_files(state, gone, reason))


def _check_shared(state: ManifestState) -> None:
    if state.kind is NodeKind.OWNED:
        raise OwnershipError(f"node {state.node} has an owner: jobs write to another node")
