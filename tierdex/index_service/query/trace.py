"""What a query did, file by file: the source of `explain`.

Depends on answer and stages; on single_search, readers and lifecycle for their types only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.index_service.answer import Explain, FileExplain, Stage
from tierdex.index_service.query.stages import STAGES, Stopwatch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.clock import Clock
    from tierdex.index_service.query.single_search import SingleSearch
    from tierdex.index_service.readers.file_reader import FileMeter
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.settings import Settings


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

    def note(self, search: SingleSearch, outcome: str, taken: int, matched: int) -> None:
        """Note one file, of whose `matched` rows `taken` are entries of the answer."""
        line, meter = _line(search.handle, outcome), search.meter
        line.start_ms = (search.started - self.stages.started) * 1000
        line.ms = (self.now() - search.started) * 1000
        line.requests = meter.requests + meter.sidecar_requests
        line.bytes, line.items, line.entries = meter.bytes, meter.items, taken
        line.false_positive = outcome == "read" and meter.requests > 0 and not matched
        self._files.append(line)
        self._meters.append(meter)

    def file_ids(self) -> set[str]:
        """Return the files that were noted so far."""
        return {line.file_id for line in self._files}

    def note_rest(self, rest: Iterable[tuple[FileHandle, str]]) -> None:
        """List the files that were not searched, with the reason."""
        for handle, reason in rest:
            lines = self._files if reason == "skipped" else self._pruned
            lines.append(_line(handle, reason))

    def explain(self, settings: Settings, manifest_requests: int) -> Explain:
        """Return the plan that really ran, and its bill."""
        files, pruned = self._files, self._pruned
        requests = sum(meter.requests for meter in self._meters)
        sidecar_requests = sum(meter.sidecar_requests for meter in self._meters)
        total_bytes = sum(meter.bytes for meter in self._meters)
        self.stages.enter("answer")  # counts what it took so far
        seconds = self.stages.seconds
        cost = (requests + sidecar_requests) * settings.cost_per_get_usd
        return Explain(
            files_considered=len(files) + len(pruned),
            files_pruned_by_time=sum(line.outcome == "pruned_by_time" for line in pruned),
            files_pruned_by_filter=sum(line.outcome == "pruned_by_filter" for line in files),
            files_read=sum(line.outcome == "read" for line in files),
            requests=requests,
            bytes=total_bytes,
            false_positives=sum(line.false_positive for line in files),
            cost_usd=cost + total_bytes / (1 << 30) * settings.cost_per_gib_usd,
            manifest_requests=manifest_requests,
            sidecar_requests=sidecar_requests,
            milliseconds=sum(seconds.values()) * 1000,
            stages=[Stage(name, seconds[name] * 1000) for name in STAGES if name in seconds],
            files=files + pruned,
        )


def _line(handle: FileHandle, outcome: str) -> FileExplain:
    return FileExplain(handle.file_id, handle.state.value, handle.node, outcome)
