"""The commits of a job's driver: files get their numbers and become visible, all at once.

Tasks have uploaded objects that no manifest lists; one commit of a shared node publishes them. The
commit is drafted again for the newest state whenever another job won the race, so numbers never
collide. An object whose name is below the floor of garbage collection is copied to a new name.

Depends on lifecycle, compactor, the store and snapshot.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tierdex.clock import SystemClock
from tierdex.compactor.collect import collect_node
from tierdex.errors import ConflictError, FloorError
from tierdex.ids import SystemIds
from tierdex.lifecycle.garbage import plan_forget_replaced
from tierdex.lifecycle.manifests import changes
from tierdex.lifecycle.manifests.manifest import Change
from tierdex.lifecycle.nodes.shared_node import SharedNode
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.jobs.snapshot import open_log
from tierdex.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.storage_layer.base import Store

logger = logging.getLogger(__name__)

_FLOOR_ATTEMPTS = 5

Merge = tuple["Sequence[FileRow]", "Sequence[bytes]"]
"""The files of one merge, and the uuids of its sources that the node itself lists."""


class JobNode:
    """A shared node, as the driver of one job writes it. For one thread."""

    def __init__(self, store: Store, node: str) -> None:
        """Open the node for writing. Raises OwnershipError for an owned one, StoreRefusedError."""
        self._store = store
        self.clock = SystemClock()
        self.shared = SharedNode.open(open_log(store, node), SystemIds())

    @property
    def name(self) -> str:
        return self.shared.log.node

    def publish(self, rows: Sequence[FileRow]) -> ManifestState:
        """List the files of a finished job by one commit. Raises what the store raises."""
        now_ms = self.clock.now_ms()
        return self._commit(
            rows,
            lambda state, current: changes.add_files(state, with_numbers(state, current, now_ms)),
        )

    def publish_batch(self, query_id: str, batch_id: int, rows: Sequence[FileRow]) -> ManifestState:
        """List a micro-batch exactly once, however often it is replayed."""
        now_ms = self.clock.now_ms()

        def build(state: ManifestState, current: Sequence[FileRow]) -> Change | None:
            numbered = with_numbers(state, current, now_ms)
            return changes.add_batch(state, query_id, batch_id, numbered)

        return self._commit(rows, build)

    def merge(self, merges: Sequence[Merge]) -> frozenset[bytes]:
        """List merged files in place of their sources, all by one commit.

        Before it the objects are there, and no reader sees them; after it every reader sees all files of a
        merge and none of its sources. What is forgotten meanwhile stays hidden in them (`forgets_through`).
        Returns the uuids that are listed now; a merge that lost a source meanwhile is left out, with all
        of its files.
        """
        if not self.shared.refresh().number:
            # From here on the node is one of those that are told when a request to forget ends.
            self.shared.commit(lambda state: None if state.number else Change(merge_floor=1))
        for _ in range(_FLOOR_ATTEMPTS):
            checked = self.shared.refresh().number
            kept = self._without_lost_sources(merges)
            every = [row for rows, _ in kept for row in rows]
            try:
                state = self._commit(every, partial(_merge_checked, kept, checked))
            except _CheckedTooEarlyError:
                continue  # what the sources held may be forgotten for good by now
            return frozenset(row.uuid for row in every if state.knows(row.uuid))
        logger.warning("merges left out: more was forgotten", extra={"node": self.name})
        return frozenset()

    def _without_lost_sources(self, merges: Sequence[Merge]) -> list[Merge]:
        """Leave out merges with a source that its own node no longer lists, or is about to remove.

        The commit checks the sources of this node only. One of another node that expires between this check
        and the commit raises this node's floor first (`lifecycle.nodes.expiry`).
        """
        owners = {ref.node for rows, _ in merges for ref in rows[0].replaces}
        states = {owner: open_log(self._store, owner).load() for owner in owners}
        listed = {owner: state.files.keys() - state.expiring for owner, state in states.items()}
        kept = []
        for rows, own in merges:
            replaces = rows[0].replaces  # all of its files replace the same
            lost = [ref.uuid.hex() for ref in replaces if ref.uuid not in listed[ref.node]]
            if lost:
                logger.warning("merge left out", extra={"node": self.name, "lost": lost})
            else:
                kept.append((rows, own))
        return kept

    def _commit(
        self,
        rows: Sequence[FileRow],
        build: Callable[[ManifestState, Sequence[FileRow]], Change | None],
    ) -> ManifestState:
        """Commit what `build` makes of the state and the rows; objects below the floor are renamed."""
        current = list(rows)
        for attempt in range(_FLOOR_ATTEMPTS):
            try:
                return self.shared.commit(partial(_build_with, build, tuple(current)))
            except FloorError:
                if attempt + 1 == _FLOOR_ATTEMPTS:
                    raise
                state = self.shared.refresh()
                current = [renamed(self._store, row, self.name, state) for row in current]
        raise AssertionError("unreachable")

    def collect(self, *, yes: bool = False) -> int:
        """Delete objects of failed tasks and dropped files, old numbers, and names of replaced files.

        Returns the number of deleted objects. Only garbage older than the grace time is deleted;
        objects that no manifest lists stay when they are more than half of the node's, unless
        `yes`.
        """
        grace_ms = round(load_settings().grace_time * 1000)
        found = collect_node(
            self.shared, self._store, now_ms=self.clock.now_ms(), grace_ms=grace_ms, yes=yes
        )
        self._forget_replaced()
        return found.done

    def _forget_replaced(self) -> None:
        """Forget replaced files whose owners forgot them; else the manifest grows for ever."""
        owners = sorted({ref.node for ref in self.shared.state.replaced})
        states = [open_log(self._store, owner).load() for owner in owners]
        seen = [state for state in states if state.number]  # else it says nothing of its files

        def build(state: ManifestState) -> Change | None:
            gone = plan_forget_replaced(state, seen)
            return Change(forget_replaced=gone) if gone else None

        self.shared.commit(build)

    def collect_now_and_then(self, state: ManifestState) -> None:
        """Collect garbage once a checkpoint. A failure is only logged: the files are published."""
        if state.number % load_settings().checkpoint_every:
            return
        try:
            self.collect()
        except Exception:
            logger.exception("garbage not collected", extra={"node": self.name})


def _build_with(
    build: Callable[[ManifestState, Sequence[FileRow]], Change | None],
    rows: Sequence[FileRow],
    state: ManifestState,
) -> Change | None:
    return build(state, rows)


class _CheckedTooEarlyError(Exception):
    """A request to forget has ended since the lists of the sources' nodes were read."""


def _merge_checked(
    merges: Sequence[Merge], checked: int, state: ManifestState, current: Sequence[FileRow]
) -> Change | None:
    """Return the change for merges whose sources were all listed when `checked` was the newest number."""
    if state.merge_floor > checked and any(rows[0].replaces for rows, _ in merges):
        raise _CheckedTooEarlyError
    named = {row.uuid: row for row in current}  # objects may have other names by now
    return _merge_all(state, [([named[row.uuid] for row in rows], own) for rows, own in merges])


def _merge_all(state: ManifestState, merges: Sequence[Merge]) -> Change | None:
    """Return one change for all merges whose sources are still listed; None when there is none."""
    found: list[Change] = []
    numbers = {row.number for row in state.files.values()}
    for rows, own in merges:
        numbers -= {state.files[uuid].number for uuid in own if uuid in state.files}
        try:
            changed = [changes.merge_files(state, row, own) for row in rows]
        except ConflictError as error:
            logger.warning("merge left out", extra={"node": state.node, "error": str(error)})
            continue
        for change in changed:
            if change is not None:
                number = change.add[0].number
                while number in numbers:  # a merge of other nodes may have one that is taken here
                    number += 1
                numbers.add(number)
                found.append(replace(change, add=(replace(change.add[0], number=number),)))
    if not found:
        return None
    return Change(
        add=tuple(row for change in found for row in change.add),
        remove={uuid: why for change in found for uuid, why in change.remove.items()},
    )


def with_numbers(state: ManifestState, rows: Sequence[FileRow], now_ms: int) -> list[FileRow]:
    """Return rows with numbers above all others of the node, in their order; known ones as they are."""
    first = max(now_ms, state.highest_number + 1)
    return [replace(row, number=first + place) for place, row in enumerate(rows)]


def renamed(store: Store, row: FileRow, node: str, state: ManifestState) -> FileRow:
    """Copy a row's object to a name above the node's floor; return the row of the copy."""
    name = StorePaths(node).parse_object(row.object_key)
    assert name is not None, row.object_key
    if name.read_number >= state.floor:
        return row
    key = StorePaths(node).file_object(state.number, row.uuid)
    store.upload(key, _StoredSource(store, row.object_key), row.bytes)
    return replace(row, object_key=key)


class _StoredSource:
    """An object of the store as the source of an upload."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    def read_at(self, position: int, length: int) -> bytes:
        return self._store.get(self._key, position, length)
