"""Hands a log over: publishes everything, then releases the node; the log takes no more appends.

::

    refuse appends     visible at once; the timer delivers nothing more
    publish            the log, then the index that covers it: durable in the store. What the store refuses is
                       tried again until the timeout
    release            one commit with the folder's notes: the next owner of the node goes on without a gap

An error before the release takes appends again. Whether a release whose answer was lost took effect is not
known: appends stay refused until the call is made again, or the log is opened anew, which claims the node.

Depends on clock, errors, lifecycle and the rest of log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierdex.clock import Bell
from tierdex.errors import CorruptFileError, UnavailableError
from tierdex.log_service.log_components import HandedOverError

if TYPE_CHECKING:
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileTable
    from tierdex.log_service.log_components import LogComponents, LogWriting

_LOOK_EVERY_S: Final = 0.02
_RETRY_S: Final = 0.25


def hand_over(components: LogComponents, writing: LogWriting, timeout_s: float) -> None:
    """Publish everything, and release the node. Raises UnavailableError, CorruptFileError, FencedError."""
    log_index = writing.asked_index()
    if not isinstance(components.fenced, HandedOverError):
        components.check_accepts()
    refusal = HandedOverError(
        f"the log of node {log_index.node} was handed over: append where it is open now. To go on here, "
        "close it and open it again"
    )
    before, components.fenced = components.fenced, refusal
    try:
        with writing.committer.append_lock:
            pass  # appends under way have ended
        _publish(components, writing, timeout_s)
    except BaseException:
        components.fenced = before if components.fenced is refusal else components.fenced
        raise
    writing.kind.release()


def _publish(components: LogComponents, writing: LogWriting, timeout_s: float) -> None:
    log_index, clock = writing.asked_index(), components.seams.clock
    deadline = clock.monotonic() + timeout_s
    while True:
        if components.reads.quarantined():
            damaged = components.reads.quarantined()[0]
            raise CorruptFileError(damaged.file, _cannot(damaged.reason))
        writing.appender.roll_active("handed over")
        log_index.catch_up()
        log_index.index.roll()
        failed = None
        try:
            writing.run_all(components.table)
        except (
            UnavailableError
        ) as error:  # the store may take it yet; what else failed is tried later
            failed = error
        left = [*waiting_files(components.table), *waiting_files(log_index.index_table)]
        if not left:
            return
        for handle in left:
            if handle.uuid in writing.kind.damaged:
                raise CorruptFileError(handle.path, _cannot(writing.kind.damaged[handle.uuid]))
        if clock.monotonic() > deadline:
            raise UnavailableError(
                f"{len(left)} files are not published after {timeout_s:g} s: the log goes on here; hand it "
                "over once the store takes them",
                retry_after_s=5.0,
            ) from failed
        # For a worker that has one of them in hand, or for the store.
        clock.wait(Bell(), _LOOK_EVERY_S if failed is None else _RETRY_S)


def _cannot(reason: str) -> str:
    return (
        f"{reason}: it cannot be published, so the log is not handed over. Bring it back from a copy, or "
        "take it out of the folder, which gives its messages up"
    )


def waiting_files(table: FileTable) -> list[FileHandle]:
    """Return the local files that hold anything: they are published nowhere, as far as was seen."""
    with table.snapshot() as snapshot:
        return [each for each in snapshot.file_list.local() if each.item_count]
