"""Reads the objects of one node's manifest: single commits, the newest state, the hint.

It holds no state. An object that does not verify is read a second time, since its first answer may
have been altered in transit. An absent number is NotFoundError where it may be the end of the
history, and CorruptFileError where another object names it.

Depends on manifest, applied_commit, manifest_codec, paths and the store.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tierdex.errors import (
    CorruptFileError,
    LostManifestError,
    NotFoundError,
    UnsupportedFormatError,
)
from tierdex.lifecycle.manifests.applied_commit import apply
from tierdex.lifecycle.manifests.manifest import Commit, Hint, ManifestState, Tombstone
from tierdex.lifecycle.manifests.manifest_codec import decode_hint, decode_manifest
from tierdex.lifecycle.paths import StorePaths, format_number

if TYPE_CHECKING:
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)


class ManifestReader:
    """The manifest objects of one node. Safe to share between threads."""

    def __init__(self, store: Store, paths: StorePaths) -> None:
        self._store = store
        self._paths = paths

    def hint(self) -> Hint | None:
        """Return the hint; None when there is none, or it cannot be decoded."""
        try:
            data = self._store.get(self._paths.hint)
            return decode_hint(data, key=self._paths.hint, node=self._paths.node)
        except (NotFoundError, CorruptFileError) as error:
            # Not swallowed: without a hint the listing decides.
            logger.debug("no usable hint", extra={"node": self._paths.node, "error": str(error)})
            return None

    def newest_named(self, state: ManifestState) -> int:
        """Return the highest manifest number in the name of a file object above the state's, else 0.

        The object's writer had read that number, so it existed.
        """
        above = self._paths.files_prefix + format_number(state.number + 1)
        names = (
            self._paths.parse_object(found.key)
            for found in self._store.list(self._paths.files_prefix, above)
        )
        return max((name.read_number for name in names if name is not None), default=0)

    def numbers(self) -> list[int]:
        """Return every manifest number that exists, in order."""
        found = self._store.list(self._paths.manifest_prefix)
        numbers = (self._paths.parse_manifest(each.key) for each in found)
        return [number for number in numbers if number is not None]

    def newest_readable(self, numbers: list[int]) -> ManifestState:
        """Return the newest state that can be read whole; number 0 if there is none.

        A commit that is missing or damaged is not, if a later one repeats it.
        """
        for number in reversed(numbers):
            try:
                return self.follow(ManifestState(node=self._paths.node), number)
            except UnsupportedFormatError:
                raise
            except (NotFoundError, CorruptFileError) as error:
                logger.warning("given up", extra={"node": self._paths.node, "error": str(error)})
        return ManifestState(node=self._paths.node)

    def newest_checkpoint(self) -> ManifestState:
        """Return the state of the newest checkpoint, found by listing; number 0 for a new node."""
        newest = max(self.numbers(), default=0)
        if newest == 0:
            return ManifestState(node=self._paths.node)
        found = self.read(newest)
        if isinstance(found, Commit) and found.checkpoint is not None:
            return found.checkpoint
        base = found.newest if isinstance(found, Tombstone) else found.base
        return self.checkpoint(base) if base else ManifestState(node=self._paths.node)

    def checkpoint(self, number: int) -> ManifestState:
        """Return the state of the checkpoint `number`, or of a newer one if it was collected."""
        found = self._read_named(number)
        while isinstance(found, Tombstone):
            found = self._read_named(found.newest)  # strictly above: the codec refuses every other
        if found.checkpoint is None:
            raise CorruptFileError(self._paths.manifest(found.number), "is not a checkpoint")
        return found.checkpoint

    def follow(self, state: ManifestState, newest: int) -> ManifestState:
        """Return the state after `newest`, a number that exists, from `state` or a checkpoint behind it.

        Reads the newest commit, then from the end back what no commit read so far repeats. Raises
        NotFoundError when one of these is absent.
        """
        later: list[Commit] = []  # newest first, the oldest follows `number`
        number = newest
        while number > state.number:
            found = self.read(number)
            if isinstance(found, Tombstone):  # of a history that is longer than we were told
                state = self.checkpoint(found.newest)
                break
            later += (found, *reversed(found.repeats))
            if found.base > state.number:
                state = found.checkpoint or self.checkpoint(found.base)
            number -= 1 + len(found.repeats)
        for commit in reversed(later):
            if commit.number > state.number:
                state = apply(state, commit)
        return state

    def step(self, state: ManifestState) -> ManifestState:
        """Return the state after the next number. Raises NotFoundError when it is absent."""
        found = self.read(state.number + 1)
        if isinstance(found, Tombstone):  # this process stalled for longer than the grace time
            return self.checkpoint(found.newest)
        return apply(state, found)

    def from_hint(self, hint: Hint | None) -> ManifestState | None:
        """Return the state of the hint's checkpoint, None when it cannot be read."""
        if hint is None:
            return None
        if not hint.checkpoint:
            return ManifestState(node=self._paths.node)
        try:
            return self.checkpoint(hint.checkpoint)
        except CorruptFileError as error:
            # Not swallowed: the listing reads the same objects if they are damaged.
            logger.debug("no usable hint", extra={"node": self._paths.node, "error": str(error)})
            return None

    def reach(self, state: ManifestState, number: int) -> ManifestState:
        """Return the state after `number`, which is known to exist. Raises LostManifestError."""
        while state.number < number:
            try:
                state = self.step(state)  # it may have been committed after the listing
            except NotFoundError as error:
                known = f"though the history reached {number}"
                if not state.number:
                    known += (
                        f", and the store has nothing else of node {self._paths.node}: is it the store "
                        "of this folder? Name that with --store (store=). If it is"
                    )
                raise self.lost(state.number + 1, known) from error
        return state

    def lost(self, number: int, known: str) -> LostManifestError:
        """Return the error for a number that is absent and must be there: `known` says why."""
        return LostManifestError(
            self._paths.manifest(number),
            f"missing, {known}: restore the objects below manifest/; if this is an older copy of the "
            "store on purpose, let the owner open it with --accept-rollback (accept_rollback=True)",
        )

    def absent_of(self, state: ManifestState) -> list[int]:
        """Return the absent numbers, of those that a state has not collected, below its own.

        One LIST over these, beside other calls; raises what the store does.
        """
        found = self._store.list(self._paths.manifest_prefix, self._paths.manifest(state.collected))
        numbers = {self._paths.parse_manifest(each.key) for each in found}
        return sorted(set(range(state.collected + 1, state.number + 1)) - numbers)

    def _read_named(self, number: int) -> Commit | Tombstone:
        """Return a commit that another object names; raises CorruptFileError when it is absent."""
        try:
            return self.read(number)
        except NotFoundError as error:
            raise CorruptFileError(self._paths.manifest(number), "named, but missing") from error

    def read(self, number: int) -> Commit | Tombstone:
        """Return the object of a number; one that does not verify is read a second time."""
        try:
            return self._read_once(number)
        except CorruptFileError as error:
            # It may have been altered in transit; an object damaged in the store stays damaged.
            logger.warning(
                "manifest read again", extra={"node": self._paths.node, "error": str(error)}
            )
            return self._read_once(number)

    def _read_once(self, number: int) -> Commit | Tombstone:
        key = self._paths.manifest(number)
        return decode_manifest(self._store.get(key), key=key, node=self._paths.node, number=number)
