"""What a commit may do, as pure functions of the newest state: `(state, wish) -> Change or None`.

None means that the wish is fulfilled already: every function here is idempotent, so a commit whose
answer was lost is simply wished again. The functions are called again with a newer state after a
lost race; what is no longer possible then is an error, never silently something else.

Raises FloorError and ConflictError. Depends on manifest and paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.errors import ConflictError, FloorError
from tierdex.lifecycle.manifest import NOTHING, Change, FileRow, ManifestState, RemoveReason
from tierdex.lifecycle.paths import StorePaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def add_files(
    state: ManifestState,
    rows: Sequence[FileRow],
    *,
    end_offsets: Mapping[tuple[str, int], int] = NOTHING,
) -> Change | None:
    """List `rows`; those known already are left as they are. Raises FloorError."""
    fresh = tuple(row for row in rows if not state.knows(row.uuid))
    rising = {
        queue: end for queue, end in end_offsets.items() if end > state.end_offsets.get(queue, -1)
    }
    if not fresh and not rising:
        return None
    check_floor(state, fresh)
    return Change(add=fresh, end_offsets=rising, topics=_new_topics(state, fresh, rising))


def merge_files(
    state: ManifestState, row: FileRow, merged: Iterable[bytes] = (), *, topics: Iterable[str] = ()
) -> Change | None:
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
    return Change(
        add=(row,),
        remove=dict.fromkeys(merged, RemoveReason.MERGED),
        topics=_new_topics(state, (row,)) | (frozenset(topics) - state.topics),
    )


def remove_files(
    state: ManifestState, uuids: Iterable[bytes], reason: RemoveReason
) -> Change | None:
    """Drop those of `uuids` that are listed."""
    listed = [uuid for uuid in uuids if uuid in state.files]
    return Change(remove=dict.fromkeys(listed, reason)) if listed else None


def add_batch(
    state: ManifestState, query_id: str, batch_id: int, rows: Sequence[FileRow]
) -> Change | None:
    """List a streaming query's micro-batch once: a batch id at or below the last is a no-op.

    An empty batch is recorded as well. Raises FloorError.
    """
    if batch_id <= state.streams.get(query_id, -1):
        return None
    added = add_files(state, rows) or Change()
    return Change(add=added.add, topics=added.topics, streams={query_id: batch_id})


def check_floor(state: ManifestState, rows: Iterable[FileRow]) -> None:
    """Raise FloorError when garbage collection may have deleted the object of one of `rows`.

    An object unlisted and named below the committed floor may be gone at any moment.
    """
    paths = StorePaths(state.node)
    for row in rows:
        name = paths.parse_file_object(row.object_key)
        assert name is not None, row.object_key
        assert name.uuid == row.uuid, row.object_key
        if name.read_number < state.floor:
            raise FloorError(f"{row.object_key} is named below the floor {state.floor}")


def _new_topics(
    state: ManifestState,
    rows: Iterable[FileRow],
    end_offsets: Mapping[tuple[str, int], int] = NOTHING,
) -> frozenset[str]:
    named = {topic for row in rows for topic in row.topics or ()}
    return frozenset(named.union(topic for topic, _ in end_offsets)) - state.topics
