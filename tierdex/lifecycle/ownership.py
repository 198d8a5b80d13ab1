"""Who may commit to a node's manifest: one owner with an epoch, or many jobs without.

Owned::

    open: commit {epoch: e+1, owner: our uuid}     durable: from here every older owner is fenced
    commit: newest state has our epoch and uuid?   no -> FencedError, for good
            create number n+1 only if absent       an older owner cannot get here: it lost n+1 to us

Shared: no epoch. A commit that lost its number is drafted again on the newer state. Jobs never touch
an owned node, owners never a shared one, so a job cannot fence an owner.

A fenced owner keeps answering; it commits nothing and deletes nothing.
Depends on changes, manifest, manifest_log and the store's probe.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import FencedError, OwnershipError
from tierdex.lifecycle import changes
from tierdex.lifecycle.manifest import (
    NO_CHANGE,
    Change,
    FileRow,
    ManifestState,
    NodeKind,
    RemoveReason,
)
from tierdex.lifecycle.manifest_log import Draft
from tierdex.storage_layer.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tierdex.ids import IdSource
    from tierdex.lifecycle.changes import TableDraft
    from tierdex.lifecycle.manifest_log import ManifestLog

logger = logging.getLogger(__name__)

NO_OWNER = bytes(16)


class OwnedNode:
    """The right to write to one node, until somebody else takes it. Safe to share between threads.

    `open` is the only way to get one; it fences whoever had the node before.
    """

    def __init__(self, log: ManifestLog, owner: bytes, epoch: int) -> None:
        self._log = log
        self._owner = owner
        self.epoch = epoch
        self._is_fenced = False

    @classmethod
    def open(cls, log: ManifestLog, ids: IdSource) -> OwnedNode:
        """Commit a new epoch and return its owner.

        Raises OwnershipError for a shared node, StoreRefusedError when the store does not honour
        conditional writes, UnavailableError and CorruptFileError as the log does.
        """
        probe(log.store, log.paths.prefix, ids)
        owner = ids.uuid()

        def claim(state: ManifestState) -> Draft | None:
            if state.kind is NodeKind.SHARED:
                raise OwnershipError(f"node {log.node} is shared by jobs: choose another node")
            if state.owner == owner:  # our claim, whose answer was lost
                return None
            return Draft(NodeKind.OWNED, state.epoch + 1, owner, NO_CHANGE)

        log.refresh()
        state = log.commit(claim)
        logger.info("owned", extra={"node": log.node, "epoch": state.epoch})
        node = cls(log, owner, state.epoch)
        node._check_epoch(state)
        return node

    @property
    def log(self) -> ManifestLog:
        return self._log

    @property
    def state(self) -> ManifestState:
        """Return the newest state read so far, without a request."""
        return self._log.state

    @property
    def is_fenced(self) -> bool:
        return self._is_fenced

    def refresh(self) -> ManifestState:
        """Read the newest state and check that the node is still ours. Raises FencedError.

        To be called before anything local is dropped because the manifest lists it.
        """
        self._check_not_fenced()
        state = self._log.refresh()
        self._check_epoch(state)
        return state

    def commit(self, build: Callable[[ManifestState], Change | None]) -> ManifestState:
        """Commit what `build` makes of the newest state (None: nothing); return the state after it.

        Raises FencedError, and what `build` and the log raise.
        """
        self._check_not_fenced()

        def draft(state: ManifestState) -> Draft | None:
            self._check_epoch(state)
            change = build(state)
            if change is None or change.is_empty:
                return None
            return Draft(NodeKind.OWNED, self.epoch, self._owner, change)

        return self._log.commit(draft)

    def publish(self, rows: Sequence[FileRow], *, table: TableDraft | None = None) -> ManifestState:
        """List files whose objects are uploaded. Listing one again is a success without a commit.

        Raises FloorError (upload again under a fresh name), FencedError.
        """
        return self.commit(lambda state: changes.add_files(state, rows, table=table))

    def merge(self, row: FileRow, merged: Sequence[bytes]) -> ManifestState:
        """List `row` in place of the files `merged`, at once. Raises ConflictError, FloorError."""
        return self.commit(lambda state: changes.merge_files(state, row, merged))

    def remove(self, uuids: Iterable[bytes], reason: RemoveReason) -> ManifestState:
        """Drop files from the list; their objects go after the grace time."""
        gone = tuple(uuids)
        return self.commit(lambda state: changes.remove_files(state, gone, reason))

    def _check_not_fenced(self) -> None:
        if self._is_fenced:
            raise FencedError(f"node {self._log.node} was taken over: see `tierdex adopt`")

    def _check_epoch(self, state: ManifestState) -> None:
        if state.epoch == self.epoch and state.owner == self._owner:
            return
        self._is_fenced = True  # for good: nothing below sets it back
        extra = {"node": self._log.node, "epoch": self.epoch, "newest": state.epoch}
        logger.warning("fenced", extra=extra)
        self._check_not_fenced()


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
        """Commit what `build` makes of the newest state, again and again while others win.

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
