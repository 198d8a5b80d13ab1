"""The objects of a node that may be deleted now. Pure: a decision over a state and a listing.

Three kinds of garbage:

* *dropped*: removed from the list by a commit older than the grace time -> delete, then forget
* *orphans*: in the store and in no list (an upload that was never published). An upload may still
  be about to be listed, so a floor is committed first; an object named below the committed floor
  can never be listed again -> delete. Forgetting a dropped file raises the floor above its name. An
  orphan may also be a file whose row was lost: none is deleted while the manifest has a hole, nor
  when more than half of the node's objects are orphans, unless the operator says so
* *numbers*: manifest objects below the newest checkpoint that is older than the grace time ->
  tombstones

A deletion is safe however late and by whichever process (a stalled one, a former owner): a dropped
file is never listed again, and the floor and the checkpoint's number only rise. So garbage in any
durable state is garbage in every later one. Still, only the owner collects, after a refresh.

::

    state, listing -> plan_garbage -> delete objects, bury numbers -> commit plan.change

Depends on manifest and paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tierdex.lifecycle.manifests.manifest import (
    NO_CHANGE,
    Change,
    Checkpoint,
    is_replaced,
    replaced_by,
)
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from tierdex.lifecycle.manifests.file_row import FileRef, FileRow
    from tierdex.lifecycle.manifests.manifest import ManifestState
    from tierdex.storage_layer.base import StoredObject

NUMBERS_A_STEP: Final = 256


@dataclass(frozen=True, slots=True)
class GarbagePlan:
    """The plan, in this order: `delete`, bury the numbers `bury`, commit `change`.

    A floor in `change` makes orphans deletable by the next plan, not by this one.
    """

    delete: tuple[str, ...] = ()
    bury: range = range(0)
    change: Change = NO_CHANGE
    refused: str = ""  # why orphans stay, for the operator

    @property
    def is_empty(self) -> bool:
        return not self.delete and not self.bury and self.change.is_empty


def plan_garbage(
    state: ManifestState,
    objects: Iterable[StoredObject],
    *,
    now_ms: int,
    grace_ms: int,
    missing: Collection[int] = (),
    yes: bool = False,
) -> GarbagePlan:
    """Plan over a listing of `files/` and `queues/`, taken before or after `state` was read.

    `missing` are manifest numbers that should exist and do not. `yes` permits the deletion of
    orphans even if they are more than half of all objects. Foreign names are left alone. The grace
    time, counted from the object's modification, protects an upload in progress; the floor protects
    it in any case.
    """
    due = [dropped for dropped in state.dropped.values() if now_ms - dropped.dropped_ms >= grace_ms]
    objects = list(objects)
    orphans, orphan_floor = _plan_orphans(state, objects, now_ms - grace_ms)
    refused = _refuse_orphans(state, objects, now_ms - grace_ms, missing, yes=yes)
    if refused:
        orphans, orphan_floor = [], None
    # A forgotten file is no longer known: only the floor keeps a job that stalled after its upload
    # from listing the deleted object again.
    floors = [orphan_floor, *(_above(state, dropped.object_key) for dropped in due)]
    floor = max((floor for floor in floors if floor is not None), default=0)
    numbers = _plan_numbers(state, now_ms - grace_ms)
    change = Change(
        forget=tuple(dropped.uuid for dropped in due),
        floor=floor if floor > state.floor else None,
        collected=numbers[-1] if numbers else None,
    )
    delete = (*(dropped.object_key for dropped in due), *orphans)
    return GarbagePlan(delete, numbers, change, refused)


def find_orphans(
    state: ManifestState, objects: Iterable[StoredObject], old_ms: int
) -> list[StoredObject]:
    """Return the objects older than `old_ms` that the manifest does not name."""
    paths, kept = StorePaths(state.node), _kept_keys(state)
    return [
        found
        for found in objects
        if found.modified_ms <= old_ms
        and found.key not in kept
        and paths.parse_object(found.key) is not None
    ]


def _refuse_orphans(
    state: ManifestState,
    objects: Iterable[StoredObject],
    old_ms: int,
    missing: Collection[int],
    *,
    yes: bool,
) -> str:
    """Return the reason why no orphan may be deleted, empty when they may be."""
    orphans = find_orphans(state, objects, old_ms)
    if orphans and missing:
        return (
            f"{len(orphans)} objects that no manifest lists are kept: manifest {min(missing)} of "
            f"node {state.node} is missing. Restore it; else they are deleted once its number is collected"
        )
    # Queue tables do not count: every replaced one is an orphan.
    paths = StorePaths(state.node)
    files = [
        found
        for found in objects
        if found.key.startswith(paths.files_prefix) and paths.parse_object(found.key) is not None
    ]
    unlisted = set(files).intersection(orphans)
    if 2 * len(unlisted) > len(files) and not yes:
        return (
            f"{len(unlisted)} of the {len(files)} objects of node {state.node} are in no manifest: they are "
            "kept. Was an old manifest restored? To delete them run `tierdex compact --yes`"
        )
    return ""


def _kept_keys(state: ManifestState) -> set[str]:
    kept = {row.object_key for row in state.files.values()}
    if state.queue_table is not None:
        kept.add(state.queue_table.object_key)
    kept.update(dropped.object_key for dropped in state.dropped.values())
    return kept


def _plan_orphans(
    state: ManifestState, objects: Iterable[StoredObject], old_ms: int
) -> tuple[list[str], int | None]:
    """Return (keys that may be deleted, the floor to commit for those that may not yet)."""
    paths = StorePaths(state.node)
    kept = _kept_keys(state)
    deletable: list[str] = []
    old: list[int] = []
    young: list[int] = []
    for found in objects:
        name = paths.parse_object(found.key)
        if name is None or found.key in kept:
            continue
        if name.read_number < state.floor:
            deletable.append(found.key)
        elif name.read_number <= state.number:  # else the listing is newer than the state
            (old if found.modified_ms <= old_ms else young).append(name.read_number)
    # Not above the names of young uploads, which are about to be listed: a higher floor would make
    # their writers upload again.
    ceiling = min(young, default=state.number + 1)
    reachable = [number + 1 for number in old if number < ceiling]
    return deletable, max(reachable, default=None)


def _above(state: ManifestState, object_key: str) -> int | None:
    name = StorePaths(state.node).parse_object(object_key)
    return None if name is None else name.read_number + 1


def _plan_numbers(state: ManifestState, old_ms: int) -> range:
    """Return the manifest numbers to bury: below the newest checkpoint older than the grace time."""
    known = (*state.checkpoints, Checkpoint(state.base, state.base_ms))
    old = max((found.number for found in known if found.time_ms <= old_ms), default=0)
    first = state.collected + 1
    return range(first, min(old, first + NUMBERS_A_STEP))


def plan_replaced(state: ManifestState, others: Iterable[ManifestState]) -> list[FileRow]:
    """Return this node's files that merges of other nodes contain: their owner removes them."""
    replaced = replaced_by(others)
    return [row for row in state.files.values() if is_replaced(row, state.node, replaced)]


def plan_forget_replaced(
    state: ManifestState, others: Iterable[ManifestState]
) -> tuple[FileRef, ...]:
    """Return the refs in `state.replaced` that their nodes, among `others`, no longer know.

    The refs of a node that is not among them stay: it may only be unreachable.
    """
    by_node = {other.node: other for other in others}
    return tuple(
        ref
        for ref in sorted(state.replaced)
        if (other := by_node.get(ref.node)) is not None and not other.knows(ref.uuid)
    )
