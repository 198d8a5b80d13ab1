"""One node's manifest in the store: read it, follow it, add to it.

::

    nodes/<node>/hint ──> nodes/<node>/manifest/...0064   a checkpoint: a commit with the whole state
                                              ...0065   a change
                                              ...0066   a change       0067: absent, the next commit

The one rule that all else rests on: a number is created only if absent, by one conditional PUT, and
is never deleted. Who creates number n+1 had read number n, so the history cannot fork. A number far
below the newest checkpoint may be *collected*: overwritten by a tombstone that names a checkpoint,
so that whoever stalled there finds the way instead of a free number.

The hint is an optimisation: best effort, possibly old, never trusted. Without it the folder is
listed once. A hole in the history is damage (CorruptFileError), never taken for its end; so is an
object that does not verify when it was read twice, since the first answer may be altered on its way.

Requests: `refresh` with nothing new 1 GET; `load` with a hint 2 GET, 1 LIST and 1 GET a change since
the checkpoint; `commit` 1 PUT, 1 more at a checkpoint.

Thread safety: `state` is an immutable value, read without a lock; every other call takes one.
Depends on manifest, manifest_codec, paths and the seams.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.clock import Bell
from tierdex.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptFileError,
    NotFoundError,
    UnavailableError,
)
from tierdex.lifecycle.manifest import (
    Change,
    Commit,
    ManifestState,
    NodeKind,
    Tombstone,
    apply,
    with_checkpoint,
)
from tierdex.lifecycle.manifest_codec import (
    decode_hint,
    decode_manifest,
    encode_commit,
    encode_hint,
    encode_tombstone,
)
from tierdex.lifecycle.paths import NODES_PREFIX, StorePaths, is_node_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Clock
    from tierdex.ids import IdSource
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

COMMIT_ATTEMPTS: Final = 50
_PAUSE_FIRST_S: Final = 0.01
_PAUSE_MAX_S: Final = 1.0


class Draft(NamedTuple):
    """What a caller wants to commit on top of the state that it was shown."""

    kind: NodeKind
    epoch: int
    owner: bytes
    change: Change


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
        self, store: Store, node: str, *, clock: Clock, ids: IdSource, checkpoint_every: int
    ) -> None:
        self.store = store
        self.paths = StorePaths(node)
        self._clock = clock
        self._ids = ids
        self._checkpoint_every = checkpoint_every
        self._lock = threading.Lock()
        self._state = ManifestState(node=node)
        self._is_loaded = False
        self._read_ms = 0

    @property
    def node(self) -> str:
        return self.paths.node

    @property
    def state(self) -> ManifestState:
        """Return the newest state read so far, without a request."""
        return self._state

    @property
    def read_ms(self) -> int:
        """Return when the store last said that `state` is the newest; 0 before the first load."""
        return self._read_ms

    def load(self) -> ManifestState:
        """Read the newest state. Raises CorruptFileError, StoreUnavailableError."""
        with self._lock:
            return self._load()

    def refresh(self) -> ManifestState:
        """Follow the history to its end: one request when nothing is new. Raises as `load`."""
        with self._lock:
            return self._advance() if self._is_loaded else self._load()

    def commit(
        self, build: Callable[[ManifestState], Draft | None], *, attempts: int = COMMIT_ATTEMPTS
    ) -> ManifestState:
        """Add the commit that `build` drafts for the newest state; return the state after it.

        `build` is called again with a newer state whenever somebody else took the number, so it
        holds the policy: it raises (FencedError, FloorError, ConflictError), drafts anew, or returns
        None when nothing is left to do, which is success. It must be free of side effects.

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
                commit = self._stamp(draft)
                if self._create(commit):
                    # Durable and visible to everybody from here on; our own state follows.
                    self._state = apply(self._state, commit)
                    self._read_ms = commit.time_ms
                    self._log_commit(commit)
                    if commit.checkpoint is not None:
                        self._put_hint(commit.number)
                    return self._state
                # The pause first: what is read after it is what the next attempt builds on. The other
                # way round, somebody who commits more often than we wake up would win every time.
                self._pause(attempt)
                self._advance()
        raise ConflictError(f"node {self.node}: {attempts} commits in a row lost against others")

    def bury(self, first: int, last: int) -> None:
        """Overwrite the manifest numbers first..last, all below the checkpoint, by tombstones.

        Harmless whoever does it and however late: the checkpoint that they name is durable.
        """
        base = self._state.base
        assert 0 < first <= last < base, (first, last, base)
        for number in range(first, last + 1):
            tombstone = Tombstone(self.node, number, base)
            self.store.put(self.paths.manifest(number), encode_tombstone(tombstone))

    # -- reading ------------------------------------------------------------------------------

    def _load(self) -> ManifestState:
        state = self._from_hint() or self._from_listing()
        # One LIST instead of a probe: it also shows a hole that a probe would take for the end.
        after = self.store.list(self.paths.manifest_prefix, self.paths.manifest(state.number))
        numbers = [self.paths.parse_manifest(found.key) for found in after]
        newest = max((number for number in numbers if number is not None), default=0)
        while state.number < newest:
            try:
                state = self._step(state)
            except NotFoundError as error:
                key = self.paths.manifest(state.number + 1)
                raise CorruptFileError(key, f"missing, though {newest} exists") from error
        if state.number >= self._state.number:
            self._state = state
        self._is_loaded = True
        self._read_ms = self._clock.now_ms()
        return self._state

    def _from_hint(self) -> ManifestState | None:
        """Return the state of the checkpoint that the hint names, None when it leads nowhere."""
        try:
            hinted = decode_hint(
                self.store.get(self.paths.hint), key=self.paths.hint, node=self.node
            )
            return self._checkpoint(hinted)
        except (NotFoundError, CorruptFileError) as error:
            # Not swallowed: the listing decides, and reads the same objects if they are damaged.
            logger.debug("no usable hint", extra={"node": self.node, "error": str(error)})
            return None

    def _from_listing(self) -> ManifestState:
        """Return the state of the newest checkpoint, found by listing; number 0 for a new node."""
        numbers = (
            self.paths.parse_manifest(found.key)
            for found in self.store.list(self.paths.manifest_prefix)
        )
        newest = max((number for number in numbers if number is not None), default=0)
        if newest == 0:
            return ManifestState(node=self.node)
        found = self._read(newest)
        if isinstance(found, Commit) and found.checkpoint is not None:
            return found.checkpoint
        base = found.newest if isinstance(found, Tombstone) else found.base
        return self._checkpoint(base) if base else ManifestState(node=self.node)

    def _checkpoint(self, number: int) -> ManifestState:
        """Return the state of the checkpoint `number`, or of a newer one if it was collected."""
        found = self._read_named(number)
        while isinstance(found, Tombstone):
            found = self._read_named(found.newest)  # strictly above: the codec refuses others
        if found.checkpoint is None:
            raise CorruptFileError(self.paths.manifest(found.number), "is not a checkpoint")
        return found.checkpoint

    def _advance(self) -> ManifestState:
        """Read on from `state` until a number is absent."""
        while True:
            try:
                self._state = self._step(self._state)
            except NotFoundError:
                self._read_ms = self._clock.now_ms()
                return self._state

    def _step(self, state: ManifestState) -> ManifestState:
        """Return the state after number + 1. Raises NotFoundError when there is none."""
        found = self._read(state.number + 1)
        if isinstance(found, Tombstone):  # we stalled for longer than the grace time
            return self._checkpoint(found.newest)
        return apply(state, found)

    def _read_named(self, number: int) -> Commit | Tombstone:
        """Return a commit that another object names; raises CorruptFileError when it is absent."""
        try:
            return self._read(number)
        except NotFoundError as error:
            raise CorruptFileError(self.paths.manifest(number), "named, but missing") from error

    def _read(self, number: int) -> Commit | Tombstone:
        """Return what lies under a number; what does not verify is read a second time."""
        try:
            return self._read_once(number)
        except CorruptFileError as error:
            # Altered on its way, perhaps: what the store itself holds damaged stays so.
            logger.warning("manifest read again", extra={"node": self.node, "error": str(error)})
            return self._read_once(number)

    def _read_once(self, number: int) -> Commit | Tombstone:
        key = self.paths.manifest(number)
        return decode_manifest(self.store.get(key), key=key, node=self.node, number=number)

    # -- writing ------------------------------------------------------------------------------

    def _stamp(self, draft: Draft) -> Commit:
        number = self._state.number + 1
        commit = Commit(
            node=self.node,
            number=number,
            kind=draft.kind,
            epoch=draft.epoch,
            owner=draft.owner,
            commit_id=self._ids.uuid(),
            time_ms=self._clock.now_ms(),
            base=self._state.base,
            change=draft.change,
        )
        if number - self._state.base < self._checkpoint_every:
            return commit
        return with_checkpoint(self._state, commit)

    def _create(self, commit: Commit) -> bool:
        """Create the commit's number; False when it is somebody else's (or was collected)."""
        try:
            self.store.put_if_absent(self.paths.manifest(commit.number), encode_commit(commit))
        except AlreadyExistsError:
            # The refusal may answer a retry of our own request whose first attempt took effect.
            try:
                found = self._read(commit.number)
            except NotFoundError:  # refused in favour of a request that then failed: try again
                return False
            return isinstance(found, Commit) and found.commit_id == commit.commit_id
        return True

    def _put_hint(self, checkpoint: int) -> None:
        try:
            self.store.put(self.paths.hint, encode_hint(self.node, checkpoint))
        except UnavailableError as error:
            # The commit above is durable; the hint only saves a listing, the next one mends it.
            logger.debug("hint not written", extra={"node": self.node, "error": str(error)})

    def _pause(self, attempt: int) -> None:
        """Wait a random time, longer after more lost races, so that racers part."""
        longest = min(_PAUSE_MAX_S, _PAUSE_FIRST_S * 2 ** min(attempt, 10))
        self._clock.wait(Bell(), longest * self._ids.random())

    def _log_commit(self, commit: Commit) -> None:
        fields = {"node": self.node, "number": commit.number, "epoch": commit.epoch}
        fields |= {"added": len(commit.change.add), "removed": len(commit.change.remove)}
        logger.info("committed", extra=fields)
