"""The compactor: takes every file of the node one step further, in the background, for ever.

::

    unsealed (rolled) --seal--> sealed --compact--> compacted --publish--> uploaded
                                                                 merge, expire, collect

One *unit* is one file's step, or one round of merging, expiring or collecting. Seals come first, then
the oldest file's publication, then compaction, oldest file first: so files leave the disk however fast
puts are (docs/decisions/0012). Files are published strictly in order of their numbers, so that the
`remote` watermark of a queue is a prefix. Units that need the store wait out a backoff after a failure;
local ones go on. A file that turns out to be damaged is quarantined and named in answers; it does not
stop the others.

A fenced node publishes and deletes nothing any more. Depends on the other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, NamedTuple

from tierdex.compactor.backoff import Backoff
from tierdex.compactor.collect import collect_garbage
from tierdex.compactor.expire import (
    drop_replaced,
    due_for_expiry,
    expire,
    hiding_uuids,
    local_uuids,
)
from tierdex.compactor.merge import merge_published, plan_merge
from tierdex.compactor.publish import publish_file
from tierdex.compactor.rewrite import compact_file
from tierdex.compactor.seal import seal_file
from tierdex.errors import (
    ConflictError,
    CorruptFileError,
    FencedError,
    FloorError,
    NotFoundError,
    OwnershipError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.paths import LOCAL_STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tierdex.compactor.parts import CompactorParts
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.manifest import FileRow, ManifestState

logger = logging.getLogger(__name__)

_RETRYABLE = (
    UnavailableError, StoreRefusedError, ConflictError, FloorError, CorruptFileError, OSError,
)  # fmt: skip
_HOUSEKEEPING_S = 30.0  # between two looks for what to merge, expire and collect
_UNMERGEABLE_S = 3600.0  # a part that could not be read is left alone; it may be sound after all


class Unit(NamedTuple):
    """One bounded piece of work. `needs_store` units wait while the store is unwell."""

    job: str
    file_id: str
    total_items: int
    needs_store: bool
    run: Callable[[], int]  # returns how many things it did, for the totals
    handle: FileHandle | None = None


class Compactor:
    """Does the units. One thread (or the simulation) calls `step`; `run_all` is for no threads."""

    name = "compactor"

    def __init__(
        self,
        parts: CompactorParts,
        *,
        other_states: Callable[[], list[ManifestState]],
        on_fenced: Callable[[FencedError], None],
    ) -> None:
        """`other_states` returns what the manifests of the other nodes say, as far as known.

        `on_fenced` is called once, when another owner turns out to have the node.
        """
        self._parts = parts
        self._other_states = other_states
        self._on_fenced = on_fenced
        self._store_backoff = Backoff(parts.clock, parts.ids, parts.settings.backoff_max)
        self._local_backoff = Backoff(parts.clock, parts.ids, parts.settings.backoff_max)
        self._housekeeping_at = float("-inf")
        self._collect_at = float("-inf")
        self._unmergeable: dict[bytes, float] = {}  # uuid -> until when
        self._busy = threading.Lock()  # one unit at a time, whoever asks for it
        self._is_stopping = False
        self.fenced: FencedError | None = None

    # -- driving ---------------------------------------------------------------------------------

    def step(self) -> float:
        """Do the first unit that may be done now; return the seconds until the next look."""
        with self._busy:
            return self._parts.settings.compact_interval if self._is_stopping else self._step()

    def _step(self) -> float:
        for unit in self._units(publish_first=True):
            backoff = self._store_backoff if unit.needs_store else self._local_backoff
            if backoff.remaining_s() > 0:
                continue
            try:
                done = self._run(unit)
            except _RETRYABLE as error:
                extra = {"job": unit.job, "file_id": unit.file_id, "error": str(error)}
                logger.warning("will retry", extra=extra)
                backoff.fail()
                continue  # a unit of another kind may free what this one lacks
            except OwnershipError:
                continue  # noted by _run; local work goes on
            backoff.succeed()
            if done:
                return 0.0
        return self._pause()

    def run_all(self) -> int:
        """Do all that is due now, local work first; return the number of units, raise the first error."""
        with self._busy:
            self._housekeeping_at = self._collect_at = float("-inf")
            count = 0
            while not self._is_stopping and any(map(self._run, self._units(publish_first=False))):
                count += 1
            return count

    @property
    def alone(self) -> AbstractContextManager[object]:
        """Return what keeps every unit from running while it is entered."""
        return self._busy

    def stop(self, timeout_s: float) -> bool:
        """Begin no more units, and wait for the one under way; say whether it ended. -1: for ever."""
        self._is_stopping = True
        if not self._busy.acquire(timeout=timeout_s):
            return False
        self._busy.release()
        return True

    def _pause(self) -> float:
        waits = [self._store_backoff.remaining_s(), self._local_backoff.remaining_s()]
        longest = self._parts.settings.compact_interval
        return min([longest, *(wait for wait in waits if wait > 0)])

    def _run(self, unit: Unit) -> int:
        parts = self._parts
        parts.progress.begin(unit.job, unit.file_id, parts.clock.monotonic(), unit.total_items)
        try:
            done = unit.run()
        except FencedError as error:
            self.fenced = error
            self._on_fenced(error)
            parts.progress.fail(unit.job, unit.file_id, error, parts.clock.now_ms())
            raise
        except CorruptFileError as error:
            parts.progress.fail(unit.job, unit.file_id, error, parts.clock.now_ms())
            if unit.handle is None or error.path != str(unit.handle.path):
                raise  # the manifest, or what was just written: no fault of the file
            parts.quarantine(unit.handle, error.reason)
            parts.show_manifest()  # of a file that is published, too, that one answers from now on
            return 1
        except Exception as error:
            parts.progress.fail(unit.job, unit.file_id, error, parts.clock.now_ms())
            raise
        if not done:
            parts.progress.idle()
            return 0
        counts = {_COUNTED[unit.job]: done}
        if unit.job == "publish" and unit.handle is not None:
            counts |= {"items": unit.handle.item_count, "bytes": unit.handle.bytes}
        parts.progress.finish(parts.clock.now_ms(), **counts)
        logger.info(unit.job, extra={"file_id": unit.file_id})
        return done

    # -- what is due -----------------------------------------------------------------------------

    def _units(self, *, publish_first: bool) -> Iterator[Unit]:
        """Yield what may be done now; the taker asks anew after the first that did something."""
        local = self._local_files()
        for handle in local:
            if handle.state is FileState.UNSEALED:
                yield self._file_unit("seal", handle, needs_store=False)
        if publish_first and self.fenced is None:
            yield from self._publication(local)
        for handle in local:
            if handle.state is FileState.SEALED:
                yield self._file_unit("compact", handle, needs_store=False)
        if self.fenced is not None:
            return
        if not self._parts.claim.is_claimed:
            yield Unit("claim", "", 0, True, self._claim)
        if not publish_first:
            yield from self._publication(local)
        yield from self._housekeeping()

    def _publication(self, local: list[FileHandle]) -> Iterator[Unit]:
        if local and local[0].state is FileState.COMPACTED:
            yield self._file_unit("publish", local[0], needs_store=True)

    def _local_files(self) -> list[FileHandle]:
        """Return this node's local files that the writer has let go of, oldest first."""
        with self._parts.table.snapshot() as snapshot:
            return [
                handle
                for handle in reversed(snapshot.files)
                if handle.state in LOCAL_STATES
                and handle.node == self._parts.settings.node
                and not self._parts.is_active(handle)
            ]

    def _file_unit(self, job: str, handle: FileHandle, *, needs_store: bool) -> Unit:
        run = {"seal": seal_file, "compact": compact_file, "publish": publish_file}[job]

        def advance() -> int:
            run(self._parts, handle)
            return 1

        return Unit(job, handle.file_id, handle.item_count, needs_store, advance, handle)

    def _claim(self) -> int:
        """Claim the node as soon as the store can be reached; nothing to count."""
        self._parts.claim.get()
        return 0

    def _housekeeping(self) -> Iterator[Unit]:
        parts = self._parts
        now = parts.clock.monotonic()
        if now - self._housekeeping_at < _HOUSEKEEPING_S:
            return
        if parts.claim.is_claimed:
            rows = due_for_expiry(parts)
            if rows:
                yield Unit("expire", "", 0, True, lambda: expire(parts, rows))
            yield Unit("replace", "", 0, True, lambda: drop_replaced(parts, self._other_states()))
            # Not with a local copy that still answers: it has the number that the merge will have.
            waiting = self._unmergeable.items()
            self._unmergeable = {uuid: until for uuid, until in waiting if now < until}
            excluded = self._unmergeable.keys() | local_uuids(parts) | hiding_uuids(parts)
            group = plan_merge(parts.claim.get().state, parts.settings, excluded)
            if group:
                items = sum(row.item_count for row in group)
                yield Unit("merge", "", items, True, lambda: self._merge(group))
        if now >= self._collect_at:
            yield Unit("collect", "", 0, True, lambda: collect_garbage(parts))
            # Each look costs a listing, and nothing can be due sooner than the grace time allows.
            self._collect_at = now + max(_HOUSEKEEPING_S, parts.settings.grace_time / 8)
        self._housekeeping_at = now  # nothing was left to do

    def _merge(self, group: tuple[FileRow, ...]) -> int:
        parts = self._parts
        try:
            return merge_published(parts, group)
        except (CorruptFileError, NotFoundError) as error:
            manifests = parts.claim.get().log.paths.manifest_prefix
            if isinstance(error, CorruptFileError) and error.path.startswith(manifests):
                raise
            # Queries name the damaged or lost file; merging goes on without this group.
            until = parts.clock.monotonic() + _UNMERGEABLE_S
            self._unmergeable.update((row.uuid, until) for row in group)
            parts.progress.fail("merge", "", error, parts.clock.now_ms())
            logger.warning("merge", extra={"error": str(error)})
            return 0


_COUNTED = {
    "seal": "sealed",
    "compact": "compacted",
    "publish": "published",
    "merge": "merged",
    "expire": "expired",
    "replace": "expired",
    "collect": "collected",
}
