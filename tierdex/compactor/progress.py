"""The numbers behind the compaction status: running jobs, totals, times, the last error, the backlog.

The compactor's threads write them, each with one job at a time; any thread reads them. Every update
replaces whole values under a lock.

Depends on histogram and lifecycle.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tierdex.histogram import LONG, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.lifecycle.table.file_handle import FileHandle


@dataclass(frozen=True, slots=True)
class RunningJob:
    """The unit of work under way."""

    job: str  # seal | compact | publish | merge | expire | replace | collect | claim
    file_id: str
    started_s: float
    total_items: int = 0
    done_items: int = 0
    done_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure: the job, its file, the error, and the time (ms)."""

    job: str
    file_id: str
    error: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the index was opened."""

    sealed: int = 0
    compacted: int = 0
    published: int = 0
    merged: int = 0
    expired: int = 0
    collected: int = 0
    scrubbed: int = 0
    failures: int = 0
    items: int = 0  # of published files
    bytes: int = 0
    merged_bytes: int = 0  # written by merges
    given_back_bytes: int = 0  # storage that merges and expiry made free


@dataclass(slots=True)
class Progress:
    """Live progress of the compactor. Safe to share between threads."""

    last_done_ms: int | None = None
    last_error: Failure | None = None
    totals: Totals = field(default_factory=Totals)
    _times: dict[str, Histogram] = (
        field(  # of finished units, by job; these are there from the start
            default_factory=lambda: {job: Histogram(LONG) for job in ("seal", "compact", "publish")}
        )
    )
    _jobs: dict[int, RunningJob] = field(default_factory=dict)  # by thread, oldest first
    refused: str = ""  # why garbage collection keeps orphans
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def jobs(self) -> list[RunningJob]:
        """The units under way, oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def begin(self, job: str, file_id: str, now_s: float, total_items: int = 0) -> None:
        with self._lock:
            self._jobs[threading.get_ident()] = RunningJob(job, file_id, now_s, total_items)

    def advance(self, items: int, size: int) -> None:
        with self._lock:
            job = self._jobs.get(threading.get_ident())
            if job is not None:
                self._jobs[threading.get_ident()] = replace(
                    job, done_items=job.done_items + items, done_bytes=job.done_bytes + size
                )

    def finish(self, now_ms: int, now_s: float, **counts: int) -> None:
        """End the caller's job, and keep its time; `counts` are added to the totals."""
        with self._lock:
            job = self._end()
            if job is not None:
                times = self._times.setdefault(job.job, Histogram(LONG))
                times.observe(max(0.0, now_s - job.started_s))
            self.last_done_ms = now_ms
            self._add(counts)

    def idle(self) -> None:
        """End the caller's job, which had nothing to do."""
        with self._lock:
            self._end()

    def count(self, **counts: int) -> None:
        """Add to the totals without touching a job."""
        with self._lock:
            self._add(counts)

    def refuse(self, reason: str) -> None:
        """Note why orphans are kept; empty when they are not."""
        with self._lock:
            self.refused = reason

    def fail(self, job: str, file_id: str, error: BaseException, now_ms: int) -> None:
        with self._lock:
            self._end()
            self.last_error = Failure(job, file_id, str(error) or type(error).__name__, now_ms)
            self._add({"failures": 1})

    def _end(self) -> RunningJob | None:
        return self._jobs.pop(threading.get_ident(), None)

    def _add(self, counts: dict[str, int]) -> None:
        self.totals = replace(
            self.totals, **{name: getattr(self.totals, name) + n for name, n in counts.items()}
        )

    def describe(self, now_s: float) -> dict[str, Any]:
        """Return the jobs with their rates, the last error, the totals and the times, for the status.

        `jobs` has all of them, oldest first; `running` is the first. `times` has, for each job, how long its
        units took: their sum and number, and how many took at most so many seconds.
        """
        jobs = [_describe_job(job, now_s) for job in self.jobs]
        shown: dict[str, Any] = {
            "running": jobs[0] if jobs else None,
            "jobs": jobs,
            "last_done_ms": self.last_done_ms,
        }
        failure = self.last_error
        shown["last_error"] = (
            None
            if failure is None
            else {
                "job": failure.job,
                "file_id": failure.file_id,
                "error": failure.error,
                "at_ms": failure.at_ms,
            }
        )
        shown["orphans_kept"] = self.refused or None
        totals = self.totals
        shown["totals"] = {name: getattr(totals, name) for name in Totals.__dataclass_fields__}
        with self._lock:
            shown["times"] = {job: _describe_times(own) for job, own in sorted(self._times.items())}
        return shown


def _describe_times(times: Histogram) -> dict[str, Any]:
    buckets = times.buckets()
    return {"sum_s": times.sum, "count": buckets[-1][1], "at_most_s": dict(buckets)}


def _describe_job(job: RunningJob, now_s: float) -> dict[str, Any]:
    elapsed = max(now_s - job.started_s, 1e-9)
    return {
        "job": job.job,
        "file_id": job.file_id,
        "stage": job.job,
        "done_items": job.done_items,
        "total_items": job.total_items,
        "done_bytes": job.done_bytes,
        "rate_items_s": round(job.done_items / elapsed),
    }


def describe_backlog(
    local: Iterable[FileHandle], is_active: Callable[[FileHandle], bool], now_ms: int
) -> dict[str, Any]:
    """Return the backlog of local files, for the compaction status.

    The file that is being written is not part of the backlog, but its oldest entry waits, too.
    """
    filled = [handle for handle in local if handle.item_count]
    waiting = [handle for handle in filled if not is_active(handle)]
    oldest = min((handle.begin_ms for handle in filled), default=None)
    return {
        "backlog_files": len(waiting),
        "backlog_bytes": sum(handle.bytes for handle in waiting),
        "oldest_unpublished_age_s": 0.0 if oldest is None else max(0, now_ms - oldest) / 1000,
    }
