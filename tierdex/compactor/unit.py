"""Units of work, and the worker that does them one after the other.

A unit of a file claims the file's number first, so that two workers never work on one file. A
failed unit is tried again after a backoff. A damaged file is quarantined and named in answers, and
does not stop the others.

Depends on lifecycle and the other modules of this folder.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tierdex.compactor.rounds import Backoff
from tierdex.errors import (
    ConflictError,
    CorruptFileError,
    FencedError,
    FloorError,
    OwnershipError,
    StoreRefusedError,
    UnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tierdex.compactor.kind import Work
    from tierdex.lifecycle.table.file_handle import FileHandle

logger = logging.getLogger(__name__)

_RETRYABLE = (
    UnavailableError, StoreRefusedError, ConflictError, FloorError, CorruptFileError, OSError,
)  # fmt: skip
_COUNTED = {
    "seal": "sealed",
    "compact": "compacted",
    "publish": "published",
    "merge": "merged",
    "forget": "merged",  # one file written anew
    "remember": "collected",
    "expire": "expired",
    "replace": "expired",
    "collect": "collected",
}


class FileClaims:
    """The numbers of the files being worked on. Safe to share between threads; no call waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: set[int] = set()

    @contextmanager
    def hold(self, number: int | None) -> Iterator[bool]:
        """Claim a file during the scope; False when another worker has it. None: no file, always True."""
        with self._lock:
            is_ours = number not in self._numbers
            if is_ours and number is not None:
                self._numbers.add(number)
        try:
            yield is_ours
        finally:
            if is_ours and number is not None:
                with self._lock:
                    self._numbers.remove(number)


class LocalPlace(NamedTuple):
    """A local file, and the files among which it lies."""

    work: Work
    handle: FileHandle

    @property
    def is_current(self) -> bool:
        """Whether the table has no other handle of the file."""
        return self.work.table.get(*self.handle.key) is self.handle


class Unit(NamedTuple):
    """One bounded piece of work."""

    job: str
    file_id: str
    total_items: int
    run: Callable[[], int]  # returns how many things it did, for the totals
    number: int | None = None  # of the file that it works on or writes
    place: LocalPlace | None = None  # of a local file; stale once the table has another handle


class UnitWorker:
    """Does units of one kind. One thread (or the simulation) calls `step`."""

    def __init__(
        self,
        name: str,
        components: Work,
        claims: FileClaims,
        units: Callable[[], Iterable[Unit]],
        on_fenced: Callable[[FencedError], None],
    ) -> None:
        """`units` yields what may be done now; it is called again after each unit that did something."""
        self.name = name
        self.busy = threading.Lock()  # one unit at a time, for every caller
        self.is_stopping = False
        self._components = components
        self._claims = claims
        self._units = units
        self._on_fenced = on_fenced
        self._backoff = Backoff(components.clock, components.ids, components.settings.backoff_max)

    def step(self) -> float:
        """Do the first unit that may be done now; return the seconds until the next look."""
        longest = self._components.settings.compact_interval
        with self.busy:
            if self.is_stopping:
                return longest
            for unit in self._units():
                if self._backoff.remaining_s() > 0:
                    break
                try:
                    done = self.run(unit)
                except _RETRYABLE as error:
                    extra = {"job": unit.job, "file_id": unit.file_id, "error": str(error)}
                    logger.warning("will retry", extra=extra)
                    self._backoff.fail()
                    continue
                except OwnershipError:
                    continue  # noted by `run`
                self._backoff.succeed()
                if done:
                    return 0.0
            return min(longest, self._backoff.remaining_s() or longest)

    def run_first(self, units: Iterable[Unit]) -> bool:
        """Do the first of `units` that has something to do, despite a backoff; False when none had.

        Waits for a unit that is under way. Raises the first error.
        """
        with self.busy:
            return not self.is_stopping and any(map(self.run, units))

    def run(self, unit: Unit) -> int:
        """Do a unit; return how many things it did, 0 when another worker has its file."""
        with self._claims.hold(unit.number) as is_ours:
            # The previous holder of the claim may have done what was planned before it.
            if not is_ours or not (unit.place is None or unit.place.is_current):
                return 0
            return self._run(unit)

    def _run(self, unit: Unit) -> int:
        components = self._components
        components.progress.begin(
            unit.job, unit.file_id, components.clock.monotonic(), unit.total_items
        )
        try:
            done = unit.run()
        except OwnershipError as error:
            # A late claim that is refused means the same: another owner has the node.
            fenced = error if isinstance(error, FencedError) else FencedError(str(error))
            self._on_fenced(fenced)
            components.progress.fail(unit.job, unit.file_id, fenced, components.clock.now_ms())
            if fenced is error:
                raise
            raise fenced from error
        except CorruptFileError as error:
            components.progress.fail(unit.job, unit.file_id, error, components.clock.now_ms())
            if unit.place is None or error.path != str(unit.place.handle.path):
                raise  # the damage is in the manifest or in a new file, not in this one
            work, handle = unit.place
            work.quarantine(handle, error.reason)
            work.show_manifest()  # if the file is published, the published one answers from now on
            return 1
        except Exception as error:
            components.progress.fail(unit.job, unit.file_id, error, components.clock.now_ms())
            raise
        if not done:
            components.progress.idle()
            return 0
        counts = {_COUNTED[unit.job]: done}
        if unit.job == "publish" and unit.place is not None:
            handle = unit.place.handle
            counts |= {"items": handle.item_count, "bytes": handle.bytes}
        clock = components.clock
        components.progress.finish(clock.now_ms(), clock.monotonic(), **counts)
        logger.info(unit.job, extra={"file_id": unit.file_id})
        return done
