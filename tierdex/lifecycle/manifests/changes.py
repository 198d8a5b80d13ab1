"""The changes that a commit may make, as pure functions of the newest state: Change, or None.

None means that nothing is left to do. Every function is idempotent, so a commit whose answer was
lost is simply tried again. After a lost race the functions are called with a newer state; a change
that is no longer possible then is an error, never silently another change.

Raises FloorError and ConflictError.

Depends on file_row, manifest and paths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tierdex.errors import ConflictError, FloorError
from tierdex.lifecycle.manifests.manifest import NO_CHANGE, Change, ManifestState, RemoveReason
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.lifecycle.manifests.manifest import QueueTableRef


class TableDraft(NamedTuple):
    """An uploaded queue table: it holds the ends of `before` and of the files `covers`."""

    ref: QueueTableRef
    before: QueueTableRef | None
    covers: frozenset[bytes]


def add_files(
    state: ManifestState,
    rows: Sequence[FileRow],
    *,
    table: TableDraft | None = None,
) -> Change | None:
    """List `rows`, except those known already. Raises FloorError.

    `table` holds the ends of these rows too; see `cover_ends`. Raises ConflictError with it.
    """
    fresh = tuple(row for row in rows if not state.knows(row.uuid))
    if not fresh:
        return None
    check_floor(state, fresh)
    if table is None:
        return Change(add=fresh)
    covered = cover_ends(state, table)
    told = (row.uuid for row in fresh if row.tells)
    return replace(covered, add=fresh, covers=(*covered.covers, *told))


def cover_ends(state: ManifestState, table: TableDraft) -> Change:
    """Make an uploaded table the newest one.

    Raises FloorError, and ConflictError when it was not made from the newest one.
    """
    if table.ref == state.queue_table:
        return NO_CHANGE
    if table.before != state.queue_table:
        raise ConflictError(f"node {state.node} has another queue table by now")
    _check_floor_of(state, table.ref.object_key, table.ref.uuid)
    return Change(queue_table=table.ref, covers=tuple(sorted(table.covers)))


def merge_files(state: ManifestState, row: FileRow, merged: Iterable[bytes] = ()) -> Change | None:
    """List `row` in place of this node's files `merged` and, by `row.replaces`, those of others.

    Raises ConflictError when one of them is no longer listed, or was replaced by another merge:
    listing `row` all the same would bring expired entries back; FloorError.
    """
    if state.knows(row.uuid):
        return None
    merged = tuple(merged)
    gone = [uuid.hex() for uuid in merged if uuid not in state.files]
    if gone:
        raise ConflictError(f"node {state.node} no longer lists {', '.join(gone)}")
    twice = [ref.uuid.hex() for ref in row.replaces if ref in state.replaced]
    if twice:
        raise ConflictError(f"node {state.node} already replaces {', '.join(twice)}")
    check_floor(state, (row,))
    uncovered = state.uncovered.intersection(merged)
    if not row.tells:
        _check_covered(state, uncovered)
    return Change(
        add=(row,),
        remove=dict.fromkeys(merged, RemoveReason.MERGED),
        covers=() if uncovered else (row.uuid,) if row.tells else (),
    )


def mark_expiring(state: ManifestState, uuids: Iterable[bytes]) -> Change | None:
    """Mark those of `uuids` that are listed: they are about to be removed, and no merge may take them."""
    fresh = tuple(u for u in uuids if u in state.files and u not in state.expiring)
    return Change(expires=fresh) if fresh else None


def remove_files(
    state: ManifestState, uuids: Iterable[bytes], reason: RemoveReason
) -> Change | None:
    """Remove those of `uuids` that are listed.

    Raises ConflictError when a watermark would fall: their ends belong in a queue table first.
    Files that the operator gives up as lost have no ends to keep.
    """
    listed = [uuid for uuid in uuids if uuid in state.files]
    if reason is not RemoveReason.LOST:
        _check_covered(state, state.uncovered.intersection(listed))
    return Change(remove=dict.fromkeys(listed, reason)) if listed else None


def carry_notes(state: ManifestState, row: FileRow, gone: Iterable[bytes] = ()) -> Change | None:
    """List a log's notes in place of those before, and remove the expired files `gone` with it.

    Raises FloorError.
    """
    if state.knows(row.uuid):
        return None
    check_floor(state, (row,))
    before = dict.fromkeys(state.files_of(row.kind), RemoveReason.MERGED)
    listed = (uuid for uuid in gone if uuid in state.files)
    return Change(add=(row,), remove={**before, **dict.fromkeys(listed, RemoveReason.EXPIRED)})


def add_batch(
    state: ManifestState, query_id: str, batch_id: int, rows: Sequence[FileRow]
) -> Change | None:
    """List a streaming query's micro-batch once: a batch id at or below the last is a no-op.

    An empty batch is recorded as well. Raises FloorError.
    """
    if batch_id <= state.streams.get(query_id, -1):
        return None
    added = add_files(state, rows) or Change()
    return Change(add=added.add, streams={query_id: batch_id})


def check_floor(state: ManifestState, rows: Iterable[FileRow]) -> None:
    """Raise FloorError when garbage collection may have deleted the object of one of `rows`.

    An object unlisted and named below the committed floor may be gone at any moment.
    """
    for row in rows:
        _check_floor_of(state, row.object_key, row.uuid)


def _check_floor_of(state: ManifestState, key: str, uuid: bytes) -> None:
    name = StorePaths(state.node).parse_object(key)
    assert name is not None, key
    assert name.uuid == uuid, key
    if name.read_number < state.floor:
        raise FloorError(f"{key} is named below the floor {state.floor}")


def _check_covered(state: ManifestState, uuids: Iterable[bytes]) -> None:
    names = ", ".join(uuid.hex() for uuid in uuids)
    if names:
        raise ConflictError(f"no queue table of node {state.node} holds the ends of {names} yet")
