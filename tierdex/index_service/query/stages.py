"""The time of a lookup by stage, from its begin to its end.

::

    manifests   read and followed, before anything else, when they are old or were never read
    plan        which files, their filters; sorting, counting, all that is no other stage
    local       searching files on this machine: unsealed, sealed, compacted
    store       searching published files, and waiting for what the store was asked ahead
    peers       waiting for live owners, once our own files are searched
    answer      making entries, or the rows of a table, of what was found

The stages of a lookup add up to its time: `Stopwatch` is in one of them at each moment. `StageTimes` keeps
the times of all lookups for `/metrics`. A lookup that memory answers in microseconds
(`Index.begin_query`) is in neither: to look at the clock would cost a tenth of it.

Depends on histogram.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Literal, get_args

from tierdex.histogram import SHORT, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable

StageName = Literal["manifests", "plan", "local", "store", "peers", "answer"]
STAGES: Final[tuple[StageName, ...]] = get_args(StageName)


class Stopwatch:
    """The stages of one lookup, or of one batch. One thread."""

    __slots__ = ("_now", "_since", "_stage", "seconds", "started")

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock. A lookup begins with its plan."""
        self._now = now
        self._stage: StageName = "plan"
        self.started = self._since = now()
        self.seconds: dict[StageName, float] = {}

    def enter(self, stage: StageName) -> None:
        """Count what has passed to the stage that was, and go over to another."""
        now = self._now()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = stage, now


class StageTimes:
    """The times of all lookups by stage. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times = {stage: Histogram(SHORT) for stage in STAGES}

    def add(self, seconds: dict[StageName, float]) -> None:
        """Count the stages that a lookup was in."""
        with self._lock:
            for stage, time in seconds.items():
                self._times[stage].observe(time)

    def totals(self) -> dict[StageName, Histogram]:
        """Return what was counted so far."""
        with self._lock:
            return {stage: times.copy() for stage, times in self._times.items()}
