"""One node's manifest in the store: read it, follow it, add to it.

::

    nodes/<node>/hint ──> nodes/<node>/manifest/...0064   a checkpoint: a commit with the whole state
                                              ...0065   a change
                                              ...0066   a change, repeats 65     0067: absent, the next

Everything rests on one rule: a number is created only if absent, by one conditional PUT, and is
never deleted. The creator of number n+1 had read number n, so the history cannot fork. A number far
below the newest checkpoint may be *collected*: overwritten by a tombstone that names a checkpoint,
so that a stalled process finds the way instead of a free number.

The hint tells where a checkpoint is, so that the folder need not be listed, how far the history
goes, and the owner's live record: best effort, possibly old, but never ahead of what is durable. So
a history that ends below it has lost its end (LostManifestError). Without a hint the names of file
objects tell: each has a number that its writer had read. What this process knows otherwise
(`expect`) is compared too.

A hole in the history is damage (CorruptFileError), never taken for its end; so is an object that
does not verify when it was read twice, since the first answer may be altered in transit. After an
old copy was restored on purpose, the history goes on above every known number, by a checkpoint;
tombstones fill the gap::

    ...0039   0040 .. 0057 lost: tombstones that name 58   0058 a checkpoint, says `rollback: 57`

Requests: `refresh` with nothing new 1 GET, once a minute and when the owner's next record is due 2,
with a new commit 3; `load` with a hint 3 GET and 1 LIST, and 1 GET for each further 32 KiB of changes
since the checkpoint; `commit` 2 PUT.

Thread safety: `state` is an immutable value, read without a lock; every other call takes one.

Depends on manifest, applied_commit, manifest_codec, manifest_reader, paths, store_time and the seams.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tierdex.clock import Bell
from tierdex.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptFileError,
    NotFoundError,
    StoreRefusedError,
    UnavailableError,
    UnsupportedFormatError,
)
from tierdex.lifecycle.manifests.applied_commit import apply, with_checkpoint
from tierdex.lifecycle.manifests.manifest import (
    Commit,
    Draft,
    Hint,
    ManifestState,
    Tombstone,
)
from tierdex.lifecycle.manifests.manifest_codec import (
    encode_commit,
    encode_hint,
    encode_tombstone,
)
from tierdex.lifecycle.manifests.manifest_reader import ManifestReader
from tierdex.lifecycle.paths import NODES_PREFIX, StorePaths, is_node_name
from tierdex.lifecycle.store_time import StoreTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.lifecycle.manifests.live_record import LiveRecord
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS: Final = 50
HINT_EVERY_MS: Final = 60_000  # a reader that follows looks at the hint so often
_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 1.0


def list_nodes(store: Store) -> list[str]:
    """Return the nodes that have anything in the store, in order. Raises StoreUnavailableError."""
    return [name for name in store.list_folders(NODES_PREFIX) if is_node_name(name)]


class ManifestLog:
    """The manifest of one node, followed by one process.

    Invariants:
      1. `state` is the result of applying commits 1 .. `state.number`, all of which are durable;
      2. `state.number` never falls.
    """

    def __init__(
        self,
        store: Store,
        node: str,
        *,
        clock: Clock,
        ids: IdSource,
        checkpoint_every: int,
        time: StoreTime | None = None,
    ) -> None:
        """`time` dates what is read; None: by our own clock."""
        self.store = store
        self.paths = StorePaths(node)
        self._reader = ManifestReader(store, self.paths)
        self._clock = clock
        self._time = time or StoreTime(clock)
        self._ids = ids
        self._checkpoint_every = checkpoint_every
        self._lock = threading.Lock()
        self._state = ManifestState(node=node)
        self._is_loaded = False
        self._read_ms = 0
        self._expected = 0  # the history is known to reach this number
        self._hint_read_ms = 0
        self._hinted = 0  # the number that `state` had when a hint was last read, or written here
        self._live: LiveRecord | None = None  # read with a number that `state` has reached
        self.make_live: Callable[[], LiveRecord | None] = lambda: None  # for our own hints

    @property
    def node(self) -> str:
        return self.paths.node

    @property
    def state(self) -> ManifestState:
        """The newest state read so far, without a request."""
        return self._state

    @property
    def read_ms(self) -> int:
        """When the store was last asked, and confirmed `state` as the newest; 0 before the first load."""
        return self._read_ms

    @property
    def live(self) -> LiveRecord | None:
        """Return the last owner record, none if there is none; it may be of an older owner."""
        return self._live

    @property
    def clock(self) -> Clock:
        return self._clock

    def of_node(self, node: str) -> ManifestLog:
        """Return the log of another node of the same store."""
        return ManifestLog(
            self.store,
            node,
            clock=self._clock,
            ids=self._ids,
            checkpoint_every=self._checkpoint_every,
            time=self._time,
        )

    def expect(self, number: int) -> None:
        """Note that the history reached `number` once: a history that ends below it is refused."""
        self._expected = max(self._expected, number)

    def load(self) -> ManifestState:
        """Read the newest state. Raises CorruptFileError (LostManifestError), StoreUnavailableError."""
        with self._lock:
            return self._load()

    def refresh(self) -> ManifestState:
        """Follow the history to its end: one request when nothing is new. Raises as `load`."""
        with self._lock:
            return self._advance() if self._is_loaded else self._load()

    def refresh_live(self) -> ManifestState:
        """Do as `refresh`, and read the owner's live record."""
        with self._lock:
            self._hint_read_ms = 0
            return self._advance() if self._is_loaded else self._load()

    def commit(
        self, build: Callable[[ManifestState], Draft | None], *, attempts: int = COMMIT_ATTEMPTS
    ) -> ManifestState:
        """Add the commit that `build` drafts for the newest state; return the state after it.

        `build` is called again with a newer state whenever another writer took the number, so it
        holds the policy: it raises (FencedError, FloorError, ConflictError), drafts again, or
        returns None when nothing is left to do, which is success. It must be free of side effects.

        Raises what `build` raises, ConflictError after `attempts` lost races, UnavailableError when
        the store does (the commit may then exist: calling again with the same intent is safe).
        """
        with self._lock:
            if not self._is_loaded:
                self._load()
            for attempt in range(attempts):
                draft = build(self._state)
                if draft is None:
                    return self._state
                commit = self._stamp(draft, self._state, self._state.number + 1)
                asked_ms = self._time.now_ms()
                if self._create(commit, self._state):
                    # Durable and visible to every process from here on; our own state follows.
                    self._state = apply(self._state, commit)
                    self._read_ms = asked_ms
                    self._log_commit(commit)
                    self.put_hint()
                    return self._state
                # The pause first, then the read that the next attempt builds on. In the other order a
                # writer that commits more often than this one wakes up would win every time.
                self._pause(attempt)
                self._advance()
        raise ConflictError(f"node {self.node}: {attempts} commits in a row lost against others")

    def commit_after_loss(self, build: Callable[[ManifestState], Draft | None]) -> ManifestState:
        """Do as `commit`, but give up the lost part of the history first; return the state after.

        The history goes on from the newest state that can be read whole, above every known number.
        A process that knows a lost number does not mistake the new history for it: it finds a
        tombstone there. Without a loss this is `commit`. Raises as `commit`,
        UnsupportedFormatError; ConflictError when another writer commits meanwhile.
        """
        with self._lock:
            try:
                self._load()
            except UnsupportedFormatError:
                raise
            except CorruptFileError as error:
                return self._go_on_after(error, build)
        return self.commit(build)

    def _go_on_after(
        self, loss: CorruptFileError, build: Callable[[ManifestState], Draft | None]
    ) -> ManifestState:
        numbers = self._reader.numbers()
        state = self._reader.newest_readable(numbers)
        last = max(state.number, self._expected, self._reader.newest_named(state), *numbers, 0)
        draft = build(state)
        assert draft is not None, "only what commits something goes on after a loss"
        change = replace(draft.change, rollback=last)
        stamped = self._stamp(draft._replace(change=change), state, last + 1)
        commit, asked_ms = with_checkpoint(state, stamped), self._time.now_ms()
        if not self._create(commit, state):
            raise ConflictError(f"node {self.node}: another writer commits to it at the same time")
        # Durable: a checkpoint that needs nothing below it. Until the gap is filled, readers that
        # come that way raise; a crash here leaves holes, which the next call fills.
        self._state, self._is_loaded = apply(state, commit), True
        self._read_ms = asked_ms
        lost = set(range(state.collected + 1, last + 1)).difference(numbers)
        for number in sorted(lost.union(range(state.number + 1, last + 1))):
            self.bury(number, number)
        self.put_hint()
        extra = {"node": self.node, "from": state.number, "lost": last, "error": str(loss)}
        logger.warning("rollback accepted", extra=extra)
        return self._state

    def put_hint(self) -> bool:
        """Write the hint: the end of the history and the live record, a sign that the owner lives.

        Best effort: returns whether it was written.
        """
        live = self.make_live()  # before the number: what it counts as published is listed there
        hint = Hint(self._state.base, self._state.number, live)
        try:
            self.store.put(self.paths.hint, encode_hint(self.node, hint))
        except (UnavailableError, StoreRefusedError) as error:
            # Every commit that it names is durable; the next hint tells it again.
            logger.debug("hint not written", extra={"node": self.node, "error": str(error)})
            return False
        self._live, self._hinted = live or self._live, hint.number
        return True

    def bury(self, first: int, last: int) -> None:
        """Overwrite the manifest numbers first..last, all below the checkpoint, by tombstones.

        Harmless at any time and from any process: the checkpoint that they name is durable.
        """
        base = self._state.base
        assert 0 < first <= last < base, (first, last, base)
        for number in range(first, last + 1):
            tombstone = Tombstone(self.node, number, base)
            self.store.put(self.paths.manifest(number), encode_tombstone(tombstone))

    def missing_numbers(self) -> list[int]:
        """Return the absent numbers, of those never collected, below the newest one: one LIST."""
        return self._reader.absent_of(self._state)

    # -- reading ------------------------------------------------------------------------------

    def _load(self) -> ManifestState:
        asked_ms = self._time.now_ms()  # what is committed from here on may be missing
        self.expect(self._state.number)
        hint = self._read_hint()
        state = self._reader.from_hint(hint) or self._reader.newest_checkpoint()
        # One LIST instead of a probe: it also shows a hole that a probe would take for the end.
        after = self.store.list(self.paths.manifest_prefix, self.paths.manifest(state.number))
        numbers = {self.paths.parse_manifest(found.key) for found in after}
        newest = max((number for number in numbers if number is not None), default=0)
        # Also where another commit repeats it: who follows step by step comes by it.
        absent = sorted(set(range(state.number + 1, newest)) - numbers)
        if absent:
            raise self._reader.lost(absent[0], f"though {newest} exists")
        try:
            state = self._reader.follow(state, newest)
        except NotFoundError as error:
            raise self._reader.lost(newest, "though it was listed") from error
        if hint is None:
            self.expect(self._reader.newest_named(state))
        state = self._reader.reach(state, self._expected)
        if state.number >= self._state.number:
            self._state = state
        self._live = (hint and hint.live) or self._live
        self._hinted = self._state.number
        self._is_loaded = True
        self._read_ms = asked_ms
        return self._state

    def _read_hint(self) -> Hint | None:
        """Read the hint, and expect what it says."""
        self._hint_read_ms = self._time.now_ms()
        hint = self._reader.hint()
        if hint is not None:
            self.expect(hint.number)
        return hint

    def _advance(self) -> ManifestState:
        """Read on from `state` until a number is absent."""
        while True:
            asked_ms = self._time.now_ms()  # before: a commit behind the answer is not in it
            try:
                self._state = self._reader.step(self._state)
            except NotFoundError:
                hint = self._read_hint() if self._is_hint_due(self._time.now_ms()) else None
                self._state = self._reader.reach(self._state, self._expected)
                self._hinted = self._state.number
                self._live = (hint and hint.live) or self._live
                self._read_ms = asked_ms
                return self._state

    def _is_hint_due(self, now_ms: int) -> bool:
        """Return whether the owner's next record is due, or the hint was not read for long."""
        if abs(now_ms - self._hint_read_ms) >= HINT_EVERY_MS:
            return True
        if self._state.number > self._hinted:  # each commit is followed by a hint
            return True
        live = self._live
        if live is None or live.is_closed or not self._state.names_owner_of(live):
            return False
        # Until a look that came an interval too late found nothing newer: who is silent, or has a wrong
        # clock, is looked at once a minute. Counted from the look, not from now: looks may be seldom.
        due_ms = live.time_ms + live.interval_ms
        return due_ms <= now_ms and self._hint_read_ms < due_ms + live.interval_ms

    # -- writing ------------------------------------------------------------------------------

    def _stamp(self, draft: Draft, state: ManifestState, number: int) -> Commit:
        commit = Commit(
            node=self.node,
            number=number,
            kind=draft.kind,
            epoch=draft.epoch,
            owner=draft.owner,
            commit_id=self._ids.uuid(),
            time_ms=self._clock.now_ms(),
            base=state.base,
            change=draft.change,
            published_through=draft.published_through,
        )
        if number - state.base < self._checkpoint_every:
            return commit
        return with_checkpoint(state, commit)

    def _create(self, commit: Commit, before: ManifestState) -> bool:
        """Create the commit's number; False when another writer has it (or it was collected)."""
        data = encode_commit(commit, before)
        try:
            self.store.put_if_absent(self.paths.manifest(commit.number), data)
        except AlreadyExistsError:
            # The refusal may answer a retry of our own request whose first attempt took effect.
            try:
                found = self._reader.read(commit.number)
            except NotFoundError:  # refused in favour of a request that then failed: try again
                return False
            return isinstance(found, Commit) and found.commit_id == commit.commit_id
        return True

    def _pause(self, attempt: int) -> None:
        """Wait a random time, longer after more lost races, so that racers part."""
        longest = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2 ** min(attempt, 10))
        self._clock.wait(Bell(), longest * self._ids.random())

    def _log_commit(self, commit: Commit) -> None:
        fields = {"node": self.node, "number": commit.number, "epoch": commit.epoch}
        fields |= {"added": len(commit.change.add), "removed": len(commit.change.remove)}
        logger.info("committed", extra=fields)
