"""The right of one owner to commit to a node's manifest, by an epoch.

::

    open: the newest owner is ourselves, ended with everything published, is silent for long, or is to be
          taken over?
                                                   no -> NodeInUseError, nothing done
          what did it not publish?                 ours: it is in our folder; else it stays outstanding
          note our uuid in the folder              durable: the claim is known as ours after any crash
          commit {epoch: e+1, owner: our uuid}     durable: from here every older owner is fenced
    commit: newest state has our epoch and uuid?   no -> FencedError, for good
            create number n+1 only if absent       an older owner cannot get here: it lost n+1 to us

Jobs write to nodes without an epoch (`shared_node`); owners never touch one of those.

A fenced owner keeps answering; it commits nothing and deletes nothing.

An owner's heartbeats show that it lives: its newest commit, and the hint that it rewrites now and then
(`sign`). Their age is counted by the store's clock alone, which dates them and the object that
asks for the time; no other clock can make a living owner look dead (decision 0024).

With every commit and every heartbeat an owner tells how far it has published (live_record, and
decision 0028). Only its folder holds the entries that it acknowledged and did not publish: an
owner that takes the node without that folder lists them as `outstanding`, so that answers name
them.

Depends on changes, file_row, live_record, manifest, manifest_log, claim_terms, owner_record, liveness,
storage_layer and errors.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import (
    FencedError,
    NotFoundError,
    OwnershipError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.live_record import LiveRecord
from tierdex.lifecycle.manifests.liveness import NO_OWNER, is_closed, through_of
from tierdex.lifecycle.manifests.manifest import (
    NO_CHANGE,
    Change,
    Draft,
    ManifestState,
    NodeKind,
    RemoveReason,
)
from tierdex.lifecycle.nodes.claim_terms import (
    ClaimTerms,
    OwnerMemory,
    check_silent,
    tell_following,
)
from tierdex.lifecycle.nodes.owner_record import OwnerRecord, Published, make_owner_record
from tierdex.storage_layer.probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.changes import TableDraft
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest_log import ManifestLog

logger = logging.getLogger(__name__)


class OwnedNode:
    """The right to write to one node, until another owner takes it. Safe to share between threads.

    Only `open` makes one; it fences the previous owner.
    """

    def __init__(
        self, log: ManifestLog, owner: bytes, epoch: int, memory: OwnerMemory, voice: OwnerRecord
    ) -> None:
        self._log = log
        self._owner = owner
        self._memory = memory
        self._voice = voice
        self.epoch = epoch
        self._fenced = ""
        self._is_closing = False
        log.make_live = self._make_live

    @classmethod
    def open(cls, log: ManifestLog, ids: IdSource, terms: ClaimTerms | None = None) -> OwnedNode:
        """Commit a new epoch and return its owner.

        Raises NodeInUseError, OwnershipError for a shared node, StoreRefusedError when the store ignores
        conditional writes, LostManifestError, UnavailableError and CorruptFileError as the log
        does, OSError when the terms' memory fails.
        """
        terms = terms or ClaimTerms()
        memory, voice = terms.memory, terms.voice or make_owner_record(log)
        voice.time.measure(probe(log.store, log.paths.prefix, ids))
        owner = ids.uuid()
        # Before the claim: the hint of its commit already names us.
        node = cls(log, owner, -1, memory, voice)

        def claim(state: ManifestState) -> Draft | None:
            if state.kind is NodeKind.SHARED:
                raise OwnershipError(f"node {log.node} is shared by jobs: choose another node")
            if state.owner == owner:  # our claim, whose answer was lost
                node.epoch = state.epoch
                return None
            is_ours = state.owner == NO_OWNER or memory.holds(state.owner)
            is_over = is_closed(state, log.live)
            if not (is_ours or is_over or terms.takeover or terms.accept_rollback):
                check_silent(log, state, ids, terms)
            terms.check(state, is_ours, is_over)
            if is_over and not is_ours:
                tell_following(state, memory)
            through, outstanding = _inherit(log, memory, voice, has_all=terms.accept_rollback)
            if outstanding:
                owners = {owner.hex(): through for owner, through in outstanding.items()}
                extra = {"node": log.node, "outstanding": owners}
                logger.warning("entries may be lost: their folder did not come back", extra=extra)
            memory.note_claim(owner, state.owner)  # durable before the commit is
            node.epoch = state.epoch + 1
            voice.unpublished.begin(through, holds_unpublished=voice.folder_from is not None)
            change = Change(
                outstanding=None if outstanding == state.outstanding else outstanding,
                adopts=tuple(each for each in voice.adopts if each not in state.adopted),
            )
            return Draft(NodeKind.OWNED, node.epoch, owner, change, through)

        log.expect(memory.number)
        if terms.accept_rollback:
            state = log.commit_after_loss(claim)
        else:
            log.refresh_live()
            state = log.commit(claim)
        logger.info("owned", extra={"node": log.node, "epoch": state.epoch})
        node._check_epoch(state)
        memory.note_commit(state.number)
        return node

    @property
    def log(self) -> ManifestLog:
        return self._log

    @property
    def owner(self) -> bytes:
        """The uuid of this claim."""
        return self._owner

    @property
    def state(self) -> ManifestState:
        """The newest state read so far, without a request."""
        return self._log.state

    @property
    def is_fenced(self) -> bool:
        return bool(self._fenced)

    def check(self) -> None:
        """Raise FencedError when the newest state read so far has another owner. Sends no request."""
        self._check_not_fenced()
        self._check_epoch(self._log.state)

    def owns(self, state: ManifestState) -> bool:
        """Return whether the node was ours at its newest known state."""
        return state.epoch == self.epoch and state.owner == self._owner

    def look(self) -> Published:
        """Update how far all is published; frequent calls make it exact."""
        return self._voice.unpublished.look(self._log.state)

    def sign(self) -> None:
        """Write the live record: how far we have published, and that we live. Best effort.

        Raises FencedError, and what `commit` raises where an operator had retired our entries.
        """
        self.check()
        if self._log.state.is_retired:
            self.commit(lambda state: NO_CHANGE)  # what is ours counts again
        if self._log.put_hint():
            self._measure_time()

    def sign_closed(self) -> None:
        """Write that this owner acknowledges nothing more; call it when that holds. Best effort.

        Raises FencedError.
        """
        self.check()
        self._is_closing = True
        self._log.put_hint()

    def _measure_time(self) -> None:
        try:
            self._voice.time.measure(self._log.store.head(self._log.paths.hint).modified_ms)
        except (UnavailableError, StoreRefusedError, NotFoundError) as error:
            # Not swallowed for good: our time only lags until the next heartbeat.
            logger.debug("time not measured", extra={"node": self._log.node, "error": str(error)})

    def _make_live(self) -> LiveRecord | None:
        """Return our record for the newest state, None when another owner has the node."""
        state, voice = self._log.state, self._voice
        if not self.owns(state):
            return None
        published = voice.unpublished.look(state)
        return LiveRecord(
            epoch=self.epoch,
            owner=self._owner,
            published_through=published.through,
            time_ms=voice.time.now_ms(),
            clock_ms=self._log.clock.now_ms(),
            skew_ms=voice.time.skew_ms,
            interval_ms=max(1, round(voice.interval_s * 1000)),
            is_closed=self._is_closing,
            holds_unpublished=published.holds_unpublished,
            advertise_url=voice.advertise_url,
        )

    def refresh(self) -> ManifestState:
        """Read the newest state and check that the node is still ours. Raises FencedError.

        Call it before a local file is dropped because the manifest lists it.
        """
        self._check_not_fenced()
        state = self._log.refresh()
        self._check_epoch(state)
        return state

    def commit(self, build: Callable[[ManifestState], Change | None]) -> ManifestState:
        """Commit the change that `build` returns for the newest state (None: none); return the state.

        Raises FencedError, and what `build` and the log raise.
        """
        self._check_not_fenced()

        def draft(state: ManifestState) -> Draft | None:
            self._check_epoch(state)
            change = build(state)
            if change is None or (change.is_empty and not state.is_retired):
                return None
            through = self._voice.unpublished.look(state, change.add).through
            return Draft(NodeKind.OWNED, self.epoch, self._owner, change, through)

        state = self._log.commit(draft)
        # After the commit is durable: the store must not know less than the note.
        self._memory.note_commit(state.number)
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
        """Remove files from the list; their objects are deleted after the grace time."""
        gone = tuple(uuids)
        return self.commit(lambda state: changes.remove_files(state, gone, reason))

    def _check_not_fenced(self) -> None:
        if self._fenced:
            raise FencedError(self._fenced)

    def _check_epoch(self, state: ManifestState) -> None:
        if state.epoch == self.epoch and state.owner == self._owner:
            return
        # For good: no call resets it.
        self._fenced = (
            f"node {self._log.node} was taken over by another owner (epoch {state.epoch}, ours was "
            f"{self.epoch}): this one takes no puts and publishes nothing, it only answers. Stop it; "
            "then publish what its folder still holds under another node with `tierdex adopt`, or "
            "open it with --take-over (takeover=True) if it is to be the owner again"
        )
        extra = {"node": self._log.node, "epoch": self.epoch, "newest": state.epoch}
        logger.error("fenced: %s", self._fenced, extra=extra)
        self._check_not_fenced()


def _inherit(
    log: ManifestLog, memory: OwnerMemory, voice: OwnerRecord, *, has_all: bool
) -> tuple[int, Mapping[bytes, int]]:
    """Return what is published of all that our folder may hold, and what others left `outstanding`.

    Before this opening nothing of it was acknowledged, so a folder without a past begins there. One
    that had the node before, by its memory, holds what it had not published. `has_all`: the operator
    says that nothing else is to be waited for.
    """
    state = log.state
    outstanding = dict(state.outstanding)
    ours = [outstanding.pop(owner) for owner in list(outstanding) if memory.holds(owner)]
    if voice.adopted_through is not None:
        ours.append(voice.adopted_through)
    through = through_of(state, log.live)
    if through is not None and not is_closed(state, log.live):
        if has_all or memory.holds(state.owner):
            ours.append(through)
        elif not state.is_retired:
            outstanding[state.owner] = through
    if not ours and voice.folder_from is not None:
        ours.append(voice.folder_from)  # of a program that said nothing, or given up and come back
    return min([voice.time.opened_ms, *ours]), {} if has_all else outstanding
