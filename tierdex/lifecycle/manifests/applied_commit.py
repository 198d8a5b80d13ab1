"""The state of a manifest after a commit: what each part of a change does to what is listed.

Pure, and defined for every commit, so that readers who read the same commits have the same state. A known
uuid is not added again, an unlisted one not removed; floors, watermarks and batches of streams only rise.

Depends on manifest.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tierdex.lifecycle.manifests.manifest import (
    NOTHING,
    Change,
    Checkpoint,
    Commit,
    Dropped,
    ManifestState,
    RemoveReason,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tierdex.lifecycle.manifests.file_row import FileRow, Uuid
    from tierdex.lifecycle.manifests.forgotten import Forgetting

CHECKPOINTS_REMEMBERED_MAX: Final = 64


def apply(state: ManifestState, commit: Commit) -> ManifestState:
    """Return the state after `commit`. Pure, and defined for every commit.

    A known uuid is not added again, an unlisted one not removed; floor, collected, watermarks and
    stream batches only rise. Rows are removed before rows are added (a merge may keep a number).
    """
    if commit.checkpoint is not None:
        return commit.checkpoint
    change = commit.change
    files, dropped = dict(state.files), dict(state.dropped)
    added = [row for row in change.add if not state.knows(row.uuid)]
    for uuid, reason in change.remove.items():
        row = files.pop(uuid, None)
        if row is not None:
            dropped[uuid] = Dropped(row.object_key, uuid, row.number, reason, commit.time_ms)
    files.update((row.uuid, row) for row in added)
    collected = max(state.collected, change.collected or 0)
    before = state.queue_table
    if change.queue_table is not None and before is not None:
        # From here on a dropped object: it keeps its grace time, for its readers.
        dropped[before.uuid] = Dropped(
            before.object_key, before.uuid, 0, RemoveReason.MERGED, commit.time_ms
        )
    for uuid in change.forget:
        dropped.pop(uuid, None)
    replaced = state.replaced.union(*(row.replaces for row in added))
    return ManifestState(
        node=state.node,
        number=commit.number,
        kind=commit.kind,
        epoch=commit.epoch,
        owner=commit.owner,
        time_ms=commit.time_ms,
        base=commit.base,
        base_ms=commit.time_ms if commit.base == commit.number else state.base_ms,
        checkpoints=_checkpoints_before(state, commit, collected),
        collected=collected,
        rollback=max(state.rollback, change.rollback or 0),
        floor=max(state.floor, change.floor or 0),
        highest_number=max(state.highest_number, *(row.number for row in added), 0),
        files=MappingProxyType(files),
        dropped=MappingProxyType(dropped),
        replaced=replaced.difference(change.forget_replaced),
        retention=state.retention if change.retention is None else change.retention,
        queue_table=change.queue_table or state.queue_table,
        uncovered=_uncovered(state, files, added, change),
        streams=_highest(state.streams, change.streams),
        published_through=_published_through(state, commit),
        outstanding=_outstanding(state, change),
        is_retired=change.retires
        or (state.is_retired and _says_nothing_of_its_owner(state, commit)),
        adopted=state.adopted.union(change.adopts),
        forgettings=_forgettings(state, commit),
        expiring=state.expiring.union(change.expires).intersection(files),
        merge_floor=max(state.merge_floor, change.merge_floor or 0),
        since=() if commit.base == commit.number else (*state.since, replace(commit, repeats=())),
    )


def with_checkpoint(state: ManifestState, commit: Commit) -> Commit:
    """Return `commit` (on top of `state`) as a checkpoint: with the state after it."""
    as_base = replace(commit, base=commit.number, checkpoint=None)
    return replace(as_base, checkpoint=apply(state, as_base))


def _forgettings(state: ManifestState, commit: Commit) -> Mapping[Uuid, Forgetting]:
    change = commit.change
    if not change.forgettings and not change.ends:
        return state.forgettings
    fresh = {}
    for record in change.forgettings:
        known = state.forgettings.get(record.uuid)
        begun = commit.number if known is None else known.begun
        fresh[record.uuid] = replace(record, number=commit.number, begun=begun)
    listed = {**state.forgettings, **fresh}
    return MappingProxyType({uuid: r for uuid, r in listed.items() if uuid not in change.ends})


def _published_through(state: ManifestState, commit: Commit) -> int | None:
    return (
        state.published_through
        if _says_nothing_of_its_owner(state, commit)
        else commit.published_through
    )


def _says_nothing_of_its_owner(state: ManifestState, commit: Commit) -> bool:
    """Return whether another process made the commit, in the owner's name: an operator's `retire`."""
    return commit.published_through is None and commit.owner == state.owner


def _outstanding(state: ManifestState, change: Change) -> Mapping[Uuid, int]:
    if change.retires:
        return NOTHING
    return state.outstanding if change.outstanding is None else change.outstanding


def _uncovered(
    state: ManifestState, files: Mapping[Uuid, FileRow], added: Iterable[FileRow], change: Change
) -> frozenset[Uuid]:
    """Return the listed files that tell end offsets and are in no queue table yet."""
    told = (row.uuid for row in added if row.tells)
    return frozenset(uuid for uuid in state.uncovered.union(told) if uuid in files).difference(
        change.covers
    )


def _checkpoints_before(
    state: ManifestState, commit: Commit, collected: int
) -> tuple[Checkpoint, ...]:
    """Return the checkpoints to remember below the newest: numbers below one of them can be buried.

    When there are many, every second one is dropped, so the gap behind one is a fraction of its
    age: a node remembers few of them, and one of these is only somewhat older than the grace time.
    """
    known = state.checkpoints
    if commit.base == commit.number and state.base:
        known = (*known, Checkpoint(state.base, state.base_ms))
    elif collected == state.collected:
        return known
    known = tuple(found for found in known if found.number > collected + 1)
    return known[::2] if len(known) > CHECKPOINTS_REMEMBERED_MAX else known


def _highest(before: Mapping[Any, int], change: Mapping[Any, int]) -> Mapping[Any, int]:
    """Return both mappings as one; a value only rises."""
    if not change:
        return before
    merged = dict(before)
    for name, value in change.items():
        merged[name] = max(value, merged.get(name, value))
    return MappingProxyType(merged)
