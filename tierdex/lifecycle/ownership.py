"""Who may commit to a node's manifest: one owner with an epoch, or many jobs without.

Owned::

    open: the newest owner is ourselves, is silent for long, or is to be taken over?
                                                   no -> NodeInUseError, nothing done
          note our uuid in the folder              durable: whatever happens, the claim is known as ours
          commit {epoch: e+1, owner: our uuid}     durable: from here every older owner is fenced
    commit: newest state has our epoch and uuid?   no -> FencedError, for good
            create number n+1 only if absent       an older owner cannot get here: it lost n+1 to us

Shared: no epoch. A commit that lost its number is drafted again on the newer state. Jobs never touch
an owned node, owners never a shared one, so a job cannot fence an owner.

A fenced owner keeps answering; it commits nothing and deletes nothing.

Whether an owner lives, its signs tell: its newest commit, and the hint that it writes anew now and
then (`sign`). Their age is counted by the store's clock alone, which dates them and the object that asks for
the time; no other clock can make a living owner look dead (docs/decisions/0024).
Depends on changes, manifest, manifest_log and storage_layer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from tierdex.errors import FencedError, NodeInUseError, NotFoundError, OwnershipError
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
from tierdex.storage_layer.probe import probe, read_store_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tierdex.ids import IdSource
    from tierdex.lifecycle.changes import TableDraft
    from tierdex.lifecycle.manifest_log import ManifestLog

logger = logging.getLogger(__name__)

NO_OWNER = bytes(16)


class OwnerMemory(Protocol):
    """What survives a process of its claims: in a data folder, DATA/OWNER."""

    number: int  # the newest manifest number that was committed or read

    def holds(self, token: bytes) -> bool:
        """Say whether `token` is that of a claim which was made, or begun, with this memory."""
        ...

    def note_claim(self, token: bytes, before: bytes) -> None:
        """Remember a claim about to be committed on top of that of `before`, durably."""
        ...

    def note_commit(self, number: int) -> None:
        """Remember how far the manifest is known."""
        ...


class NoMemory:
    """An owner without a folder: whoever had the node before, it was somebody else."""

    number = 0

    def holds(self, token: bytes) -> bool:
        return False

    def note_claim(self, token: bytes, before: bytes) -> None:
        """Forget it."""

    def note_commit(self, number: int) -> None:
        """Forget it."""


NO_MEMORY: Final = NoMemory()


class OwnedNode:
    """The right to write to one node, until somebody else takes it. Safe to share between threads.

    `open` is the only way to get one; it fences whoever had the node before.
    """

    def __init__(self, log: ManifestLog, owner: bytes, epoch: int, memory: OwnerMemory) -> None:
        self._log = log
        self._owner = owner
        self._memory = memory
        self.epoch = epoch
        self._fenced = ""

    @classmethod
    def open(
        cls,
        log: ManifestLog,
        ids: IdSource,
        *,
        memory: OwnerMemory = NO_MEMORY,
        takeover_after_s: float = 0.0,
        takeover: bool = False,
        accept_rollback: bool = False,
    ) -> OwnedNode:
        """Commit a new epoch and return its owner.

        `takeover`: also from an owner that is alive. `accept_rollback`: that, and even if the store
        knows less of the node than it once did. Raises NodeInUseError, OwnershipError for a shared
        node, StoreRefusedError when the store does not honour conditional writes, LostManifestError,
        UnavailableError and CorruptFileError as the log does, OSError when `memory` fails.
        """
        probe(log.store, log.paths.prefix, ids)
        owner = ids.uuid()

        def claim(state: ManifestState) -> Draft | None:
            if state.kind is NodeKind.SHARED:
                raise OwnershipError(f"node {log.node} is shared by jobs: choose another node")
            if state.owner == owner:  # our claim, whose answer was lost
                return None
            if not (takeover or accept_rollback or memory.holds(state.owner)):
                _check_silent(log, state, ids, takeover_after_s)
            memory.note_claim(owner, state.owner)  # durable before the commit is
            return Draft(NodeKind.OWNED, state.epoch + 1, owner, NO_CHANGE)

        log.expect(memory.number)
        if accept_rollback:
            state = log.commit_after_loss(claim)
        else:
            log.refresh()
            state = log.commit(claim)
        logger.info("owned", extra={"node": log.node, "epoch": state.epoch})
        node = cls(log, owner, state.epoch, memory)
        node._check_epoch(state)
        memory.note_commit(state.number)
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
        return bool(self._fenced)

    def check(self) -> None:
        """Raise FencedError when what was read so far shows another owner. Sends no request."""
        self._check_not_fenced()
        self._check_epoch(self._log.state)

    def sign(self) -> None:
        """Give a sign of life: the hint, written anew. Best effort. Raises FencedError."""
        self.check()
        self._log.put_hint()

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

        state = self._log.commit(draft)
        self._memory.note_commit(state.number)  # after it is durable: the store must know as much
        return state

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
        if self._fenced:
            raise FencedError(self._fenced)

    def _check_epoch(self, state: ManifestState) -> None:
        if state.epoch == self.epoch and state.owner == self._owner:
            return
        # For good: nothing sets it back.
        self._fenced = (
            f"node {self._log.node} was taken over by another owner (epoch {state.epoch}, ours was "
            f"{self.epoch}): this one takes no puts and publishes nothing, it only answers. Stop it; "
            "then publish what its folder still holds under another node with `tierdex adopt`, or "
            "open it with --take-over (takeover=True) if it is to be the owner again"
        )
        extra = {"node": self._log.node, "epoch": self.epoch, "newest": state.epoch}
        logger.error("fenced: %s", self._fenced, extra=extra)
        self._check_not_fenced()


def _check_silent(log: ManifestLog, state: ManifestState, ids: IdSource, after_s: float) -> None:
    """Raise NodeInUseError when the node's owner, if it has one, gave a sign of life lately."""
    if state.owner == NO_OWNER or after_s <= 0:
        return
    signs_ms = []
    for key in (log.paths.manifest(state.number), log.paths.hint):
        try:
            signs_ms.append(log.store.head(key).modified_ms)
        except NotFoundError:
            continue
    # After the signs were looked at: what is given in between counts as given now.
    now_ms = read_store_time(log.store, log.paths.prefix, ids)
    silent_s = (now_ms - max(signs_ms, default=now_ms)) / 1000
    if silent_s >= after_s:
        logger.warning("taken over", extra={"node": log.node, "silent_s": round(silent_s)})
        return
    raise NodeInUseError(
        f"node {log.node} has another owner, which gave a sign of life {max(silent_s, 0):.0f} s ago: "
        f"it would be fenced. Use another node (node=NAME, --set node=NAME), or --url where it "
        f"serves; if it is gone for good, say --take-over (takeover=True). Unasked a node is taken "
        f"over after {after_s:g} s of silence (takeover_after)",
        node=log.node,
    )


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
