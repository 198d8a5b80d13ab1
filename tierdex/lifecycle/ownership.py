"""Who may commit to a node's manifest: one owner with an epoch, or many jobs without.

Owned::

    open: the newest owner is ourselves, is silent for long, or is to be taken over?
                                                   no -> NodeInUseError, nothing done
          what did it not publish?                 ours: it is in our folder; else it stays outstanding
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

With every commit, and with every sign, an owner says how far it has published (live_record, and
docs/decisions/0028). Only its folder holds what it had acknowledged and not published: whoever takes
the node without that folder lists it as `outstanding`, so that no answer passes over it.
Depends on changes, live_record, manifest, manifest_log, owner_time, standing and storage_layer.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tierdex.errors import (
    FencedError,
    NodeInUseError,
    NotFoundError,
    OwnershipError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.lifecycle import changes
from tierdex.lifecycle.live_record import LiveRecord
from tierdex.lifecycle.manifest import (
    NO_CHANGE,
    Change,
    FileRow,
    ManifestState,
    NodeKind,
    NodeOwner,
    RemoveReason,
)
from tierdex.lifecycle.manifest_log import Draft
from tierdex.lifecycle.owner_time import OwnerTime
from tierdex.lifecycle.standing import is_closed, through_of
from tierdex.storage_layer.probe import probe, read_store_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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


class Published(NamedTuple):
    """Every entry acknowledged before `through` (ms, owner's time) is published; are others waiting?"""

    through: int
    holds_unpublished: bool


class Unpublished(Protocol):
    """What the owner's process holds and has not published."""

    def begin(self, through: int, *, holds_unpublished: bool) -> None:
        """Hear, before the claim is committed, what is published of all that came before."""
        ...

    def look(self, state: ManifestState, added: Sequence[FileRow] = ()) -> Published:
        """Say how far all is published once `state` and, on top of it, the rows `added` are committed."""
        ...


class NothingUnpublished:
    """Of an owner that acknowledges nothing before it is published."""

    def __init__(self, time: OwnerTime) -> None:
        self._time = time

    def begin(self, through: int, *, holds_unpublished: bool) -> None:
        """Nothing waits to be told."""

    def look(self, state: ManifestState, added: Sequence[FileRow] = ()) -> Published:
        return Published(self._time.now_ms(), holds_unpublished=False)


class OwnerVoice(NamedTuple):
    """What an owner's records are made of. `adopts` are owners whose folder's files it publishes.

    `adopted_through` is what those had published, None if they never said. `folder_from` is a time before
    everything that the folder's files hold, None when it has none.
    """

    time: OwnerTime
    unpublished: Unpublished
    interval_s: float = 60.0
    advertise_url: str | None = None
    adopts: tuple[NodeOwner, ...] = ()
    adopted_through: int | None = None
    folder_from: int | None = None


def make_voice(log: ManifestLog) -> OwnerVoice:
    """Return that of an owner without a folder."""
    time = OwnerTime(log.clock)
    return OwnerVoice(time, NothingUnpublished(time))


class OwnedNode:
    """The right to write to one node, until somebody else takes it. Safe to share between threads.

    `open` is the only way to get one; it fences whoever had the node before.
    """

    def __init__(
        self, log: ManifestLog, owner: bytes, epoch: int, memory: OwnerMemory, voice: OwnerVoice
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
    def open(
        cls,
        log: ManifestLog,
        ids: IdSource,
        *,
        memory: OwnerMemory = NO_MEMORY,
        voice: OwnerVoice | None = None,
        takeover_after_s: float = 0.0,
        takeover: bool = False,
        accept_rollback: bool = False,
    ) -> OwnedNode:
        """Commit a new epoch and return its owner.

        `voice` says what is published. `takeover`: also from an owner that is alive. `accept_rollback`:
        that, and even if the store knows less of the node than it once did. Raises NodeInUseError,
        OwnershipError for a shared node, StoreRefusedError when the store does not honour conditional
        writes, LostManifestError, UnavailableError and CorruptFileError as the log does, OSError when
        `memory` fails.
        """
        voice = voice or make_voice(log)
        voice.time.measure(probe(log.store, log.paths.prefix, ids))
        owner = ids.uuid()
        # Before the claim: the hint that its commit writes says already who we are.
        node = cls(log, owner, -1, memory, voice)

        def claim(state: ManifestState) -> Draft | None:
            if state.kind is NodeKind.SHARED:
                raise OwnershipError(f"node {log.node} is shared by jobs: choose another node")
            if state.owner == owner:  # our claim, whose answer was lost
                node.epoch = state.epoch
                return None
            if not (takeover or accept_rollback or memory.holds(state.owner)):
                _check_silent(log, state, ids, takeover_after_s)
            through, outstanding = _inherit(log, memory, voice, has_all=accept_rollback)
            if outstanding:
                extra = {"node": log.node, "outstanding": dict(outstanding)}
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
        if accept_rollback:
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

    def owns(self, state: ManifestState) -> bool:
        """Say whether the node was ours when its manifest said so."""
        return state.epoch == self.epoch and state.owner == self._owner

    def look(self) -> Published:
        """Look how far all is published; asked often, the answer is exact."""
        return self._voice.unpublished.look(self._log.state)

    def sign(self) -> None:
        """Write the live record: how far we have published, and that we live. Best effort.

        Raises FencedError, what `commit` raises where an operator had given us up.
        """
        self.check()
        if self._log.state.is_retired:
            self.commit(lambda state: NO_CHANGE)  # what is ours counts again
        if self._log.put_hint():
            self._measure_time()

    def sign_closed(self) -> None:
        """Write that nothing more will be acknowledged; to be called when that is so. Best effort.

        Raises FencedError.
        """
        self.check()
        self._is_closing = True
        self._log.put_hint()

    def _measure_time(self) -> None:
        try:
            self._voice.time.measure(self._log.store.head(self._log.paths.hint).modified_ms)
        except (UnavailableError, StoreRefusedError, NotFoundError) as error:
            # Not swallowed for good: our time only lags until the next sign.
            logger.debug("time not measured", extra={"node": self._log.node, "error": str(error)})

    def _make_live(self) -> LiveRecord | None:
        """Return our record for the newest state, none when that is somebody else's."""
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
            if change is None or (change.is_empty and not state.is_retired):
                return None
            through = self._voice.unpublished.look(state, change.add).through
            return Draft(NodeKind.OWNED, self.epoch, self._owner, change, through)

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


def _inherit(
    log: ManifestLog, memory: OwnerMemory, voice: OwnerVoice, *, has_all: bool
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


def retire(log: ManifestLog, ids: IdSource) -> ManifestState:
    """Give up what owners of the node have acknowledged and not published; return the state after.

    An owner that lives is left alone, only what those before it left outstanding is given up. The commit
    is made in the owner's name and fences nobody; one that was given up and lives after all makes what
    it says count again with its next sign. Raises NodeInUseError when there is nothing to give up but
    what a living owner has, OwnershipError for a shared node, NotFoundError, and as the log.
    """
    log.refresh_live()
    lives = log.live is not None and log.live.is_of(log.state) and not log.live.is_closed
    if lives and log.live is not None:
        lives = _silent_s(log, log.state, ids) * 1000 < 3 * log.live.interval_ms

    def draft(state: ManifestState) -> Draft | None:
        _check_owned(state)
        if lives and not state.outstanding:
            raise NodeInUseError(
                f"the owner of node {state.node} lives, and publishes what it has: nothing to give up",
                node=state.node,
            )
        if not state.outstanding and (state.is_retired or is_closed(state, log.live)):
            return None
        change = Change(outstanding={}) if lives else Change(retires=True)
        return Draft(NodeKind.OWNED, state.epoch, state.owner, change)

    return log.commit(draft)


def _check_owned(state: ManifestState) -> None:
    if not state.number:
        raise NotFoundError(f"there is no node {state.node}: is its name right?")
    if state.kind is NodeKind.SHARED:
        raise OwnershipError(
            f"node {state.node} is shared by jobs, which keep nothing to themselves"
        )


def _check_silent(log: ManifestLog, state: ManifestState, ids: IdSource, after_s: float) -> None:
    """Raise NodeInUseError when the node's owner, if it has one, gave a sign of life lately."""
    if state.owner == NO_OWNER or after_s <= 0:
        return
    silent_s = _silent_s(log, state, ids)
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


def _silent_s(log: ManifestLog, state: ManifestState, ids: IdSource) -> float:
    """Return for how many seconds, by the store's clock, the node's owner gave no sign."""
    signs_ms = []
    for key in (log.paths.manifest(state.number), log.paths.hint):
        try:
            signs_ms.append(log.store.head(key).modified_ms)
        except NotFoundError:
            continue
    # After the signs were looked at: what is given in between counts as given now.
    now_ms = read_store_time(log.store, log.paths.prefix, ids)
    return (now_ms - max(signs_ms, default=now_ms)) / 1000


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
