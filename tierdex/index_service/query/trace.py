"""What a query did, file by file: the source of `explain`.

Depends on answer, stages and lifecycle; on readers and indexfile for their types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tierdex.index_service.answer import Explain, FileExplain, Stage
from tierdex.index_service.query.stages import STAGES, Stopwatch
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.clock import Clock
    from tierdex.index_service.readers.file_reader import FileMeter
    from tierdex.indexfile.lookup import Lookup
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.lifecycle.table.file_table import FileList
    from tierdex.settings import Settings


class SearchedFile(Protocol):
    """The search of one file, as far as explain tells of it."""

    handle: FileHandle
    meter: FileMeter
    started: float  # monotonic, s


class Trace:
    """The files that a query searched and left out, and what that took. One thread."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.monotonic
        self._clock = clock
        self.stages = Stopwatch(clock.monotonic)
        self._files: list[FileExplain] = []
        self._pruned: list[FileExplain] = []
        self._meters: list[FileMeter] = []

    def again(self) -> Trace:
        """Return the trace of a second plan: what the first one spent counts, its time too."""
        trace = Trace(self._clock)
        trace.stages = self.stages
        trace._meters = self._meters
        return trace

    def forget_files(self) -> None:
        """Begin anew: a page that could not be taken by a jump is taken by a walk."""
        self._files, self._meters = [], []

    def forget_memory(self) -> None:
        """Begin anew: the files have changed since memory was searched, which costs nothing."""
        self._files, self._pruned = [], []

    def note(self, search: SearchedFile, outcome: str, taken: int, matched: int) -> None:
        """Note one file, of whose `matched` rows `taken` are entries of the answer."""
        line, meter = _line(search.handle, outcome), search.meter
        line.start_ms = (search.started - self.stages.started) * 1000
        line.ms = (self.now() - search.started) * 1000
        line.requests = meter.requests + meter.sidecar_requests
        line.bytes, line.items, line.entries = meter.bytes, meter.items, taken
        line.false_positive = outcome == "read" and meter.requests > 0 and not matched
        self._files.append(line)
        self._meters.append(meter)

    def note_memory(
        self, handle: FileHandle, outcome: str, items: int, entries: int, begun: float
    ) -> None:
        """Note one file that was searched in memory, by a call that began at `begun` (monotonic, s)."""
        start = self.stages.started
        line = FileExplain(
            handle.file_id, handle.state.value, handle.node, outcome,
            (begun - start) * 1000, (self.now() - begun) * 1000, 0, 0, items, entries,
        )  # fmt: skip
        (self._pruned if outcome == "pruned_by_time" else self._files).append(line)

    def note_all_others(self, files: FileList, lookup: Lookup, begin: int, end: int) -> None:
        """List the files that were not searched, with the reason, once one lookup is answered."""
        if len(files) == len(self._files) + len(self._pruned):
            return
        known = {line.file_id for line in (*self._files, *self._pruned)}
        for handle in files:
            if handle.file_id in known:
                continue
            if not handle.overlaps(begin, end):
                self._pruned.append(_line(handle, "pruned_by_time"))
            elif lookup.topic is not None and not may_hold(handle.topics, lookup.topic):
                self._pruned.append(_line(handle, "pruned_by_topic"))
            else:
                self._files.append(_line(handle, "skipped"))

    def file_ids(self) -> set[str]:
        """Return the files that were noted so far."""
        return {line.file_id for line in (*self._files, *self._pruned)}

    def note_rest(self, rest: Iterable[tuple[FileHandle, str]]) -> None:
        """List the files that were not searched, with the reason."""
        for handle, reason in rest:
            lines = self._files if reason == "skipped" else self._pruned
            lines.append(_line(handle, reason))

    def explain(self, settings: Settings, manifest_requests: int) -> Explain:
        """Return the plan that really ran, and its bill."""
        files, pruned = self._files, self._pruned
        requests = sidecar_requests = total_bytes = 0
        for meter in self._meters:
            requests += meter.requests
            sidecar_requests += meter.sidecar_requests
            total_bytes += meter.bytes
        outcomes = [line.outcome for line in files]
        self.stages.enter("answer")  # counts what it took so far
        seconds = self.stages.seconds
        cost = (requests + sidecar_requests) * settings.cost_per_get_usd
        return Explain(
            files_considered=len(files) + len(pruned),
            files_pruned_by_time=[line.outcome for line in pruned].count("pruned_by_time"),
            files_pruned_by_filter=outcomes.count("pruned_by_filter"),
            files_read=outcomes.count("read"),
            requests=requests,
            bytes=total_bytes,
            false_positives=[line.false_positive for line in files].count(True),
            cost_usd=cost + total_bytes / (1 << 30) * settings.cost_per_gib_usd,
            manifest_requests=manifest_requests,
            sidecar_requests=sidecar_requests,
            milliseconds=sum(seconds.values()) * 1000,
            stages=[Stage(name, seconds[name] * 1000) for name in STAGES if name in seconds],
            files=files + pruned,
        )


def _line(handle: FileHandle, outcome: str) -> FileExplain:
    return FileExplain(handle.file_id, handle.state.value, handle.node, outcome)
