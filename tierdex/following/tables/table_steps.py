"""From a snapshot of a table to records of its state: which files are new, which begin and end to be live.

A follower and a Spark job write them, each to its own place. Pure.

Depends on errors, table_source and index_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np

    from tierdex.following.tables.table_source import LiveFile, TableStep
    from tierdex.index_service.tables.table_state import DeletesPlace, TableHead, TableState


def files_record(state: TableState, step: TableStep) -> dict[str, Any] | None:
    """Return the record that numbers the files which were never seen; None where there are none."""
    first = len(state.files)
    new = [file for path, file in step.files.items() if state.number_of(path) is None]
    rows = [[first + n, f.path, f.size, None, dict(f.partition)] for n, f in enumerate(new)]
    return {"kind": "files", "files": rows} if rows else None


def step_record(
    state: TableState,
    step: TableStep,
    counts: Mapping[int, int],
    write_deletes: Callable[[int, list[np.ndarray]], list[DeletesPlace]],
) -> dict[str, Any]:
    """Return the record of a snapshot whose files are numbered; `counts` are the rows of new ones.

    `write_deletes` writes the deleted rows of the step, durably. Raises what reading them raises.
    """
    number = state.last_step + 1
    live = state.live_paths()
    ended = [state.number_of(path) for path in live if path not in step.files]
    changed: list[tuple[int, LiveFile]] = []
    for path, file in step.files.items():
        life = live.get(path)
        if life is not None and life.mark == file.mark:
            continue
        own = state.number_of(path)
        assert own is not None
        if life is not None:
            ended.append(own)
        changed.append((own, file))
    parts = [file.deletes() for _, file in changed if file.deletes is not None]
    places = iter(write_deletes(number, parts))
    begun = [
        [own, counts.get(own, state.files[own].rows), file.mark,
         None if file.deletes is None else next(places)]
        for own, file in changed
    ]  # fmt: skip
    known = state.columns_at(number) if state.snapshots else ""
    return {
        "kind": "step",
        "step": number,
        "snapshot": step.snapshot,
        "version": step.version,
        "time_ms": step.time_ms,
        "columns": "" if step.columns == known else step.columns,
        "ended": ended,
        "begun": begun,
    }


def check_head(state: TableState | None, head: TableHead, *, accept_other_log: bool) -> None:
    """Refuse to follow a table into a topic of another one. Raises InvalidRequestError."""
    if state is None or state.newest is None:
        return
    known = state.head
    if known.identity != head.identity and not accept_other_log:
        raise InvalidRequestError(
            f"topic {head.topic!r} was made from {known.table} ({known.identity}), and {head.table} is "
            f"another table ({head.identity}): give another topic, or accept it (--accept-other-log), and "
            "nothing of the first one is found any more",
            field="source",
        )
    if known.identity != head.identity:
        return
    if known.partitions != head.partitions:
        raise InvalidRequestError(
            f"topic {head.topic!r} was indexed of {', '.join(known.partitions) or 'all partitions'}: give "
            "the same, or another topic",
            field="partitions",
        )
    if (known.keys, known.message_id) != (head.keys, head.message_id):
        raise InvalidRequestError(
            f"topic {head.topic!r} was indexed by {', '.join(known.keys)}: give the same keys, or another "
            "topic",
            field="key",
        )
