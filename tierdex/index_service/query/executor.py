"""One query: plan, ask newest file first, stop as soon as enough is found.

::

    snapshot -> plan (time, topics) -> local files inline, published ones by bounded look-ahead
             -> walk in file order: take what is of this page, count -> answer

Order: file number descending, then arrival descending within the file; the same before and after
compaction and upload. Files are asked in parallel but *consumed* in this order, and a file is only
asked ahead while the files before it could leave it something to answer: each of them holds at
least one entry or costs nothing, so at most `remaining` files are under way.

A file that cannot be read ends up in `missing`; it never looks like "not found". A listed object
that is gone means that the plan is old: refresh, plan again once.

Depends on lifecycle, indexfile (through readers), settings and seams.
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import CancelledError, Executor, Future
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import (
    CorruptFileError,
    IncompleteAnswerError,
    NotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.index_service.answer import Answer, Explain, FileExplain, Missing, Stage
from tierdex.index_service.query.paging import Page, WalkNeededError
from tierdex.index_service.query.plan import Plan
from tierdex.index_service.readers.entries import make_entry
from tierdex.index_service.readers.file_reader import Budget, BudgetExceededError, FileMeter
from tierdex.index_service.readers.local_file import query_reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierdex.clock import Clock
    from tierdex.index_service.answer import Entry
    from tierdex.index_service.readers.file_reader import Chunk, QueryReader
    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.index_service.view.read_view import ReadView
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.lifecycle.file_table import FileTable
    from tierdex.settings import Settings

logger = logging.getLogger(__name__)

# Errors that concern one file: the answer goes on without it and says so.
FILE_ERRORS = (
    CorruptFileError,
    UnavailableError,
    NotFoundError,
    StoreRefusedError,
    BudgetExceededError,
    OSError,
)


class QueryRunner:
    """Runs queries over the files of one table. Safe to share between threads."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        table: FileTable,
        read_view: ReadView,
        executor: Executor,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._table = table
        self._read_view = read_view
        self._executor = executor

    def run(
        self, request: QueryRequest, *, explain: bool, fail: bool, of_batch: Budget | None = None
    ) -> Answer:
        """Answer one query. Raises IncompleteAnswerError when `fail` and a file is missing.

        `of_batch` is the budget of the batch that the query belongs to.
        """
        manifest_requests = self._read_view.catch_up()
        attempt = self._attempt(request, of_batch, None, explain=explain)
        if attempt.plan_is_old:
            manifest_requests += self._read_view.refresh()
            attempt = self._attempt(request, of_batch, attempt, explain=explain)
        attempt.missing += self._read_view.missing()
        answer = Answer(
            entries=attempt.entries,
            complete=not attempt.missing,
            missing=attempt.missing,
            next_cursor=attempt.next_cursor(),
            as_of=attempt.as_of,
        )
        if explain:
            answer.explain = attempt.explain(self._settings)
            answer.explain.manifest_requests = manifest_requests
        if fail and attempt.missing:
            names = ", ".join(f"{name} ({reason})" for name, reason in attempt.missing[:3])
            raise IncompleteAnswerError(
                f"{len(attempt.missing)} files could not be asked: {names}", missing=attempt.missing
            )
        return answer

    def _attempt(
        self,
        request: QueryRequest,
        of_batch: Budget | None,
        after: _Attempt | None,
        *,
        explain: bool,
    ) -> _Attempt:
        """Plan and take one page; `after` is the attempt whose plan was old."""
        try:
            return self._attempt_once(request, of_batch, after, explain=explain, may_jump=True)
        except WalkNeededError:
            return self._attempt_once(request, of_batch, after, explain=explain, may_jump=False)

    def _attempt_once(
        self,
        request: QueryRequest,
        of_batch: Budget | None,
        after: _Attempt | None,
        *,
        explain: bool,
        may_jump: bool,
    ) -> _Attempt:
        as_of = self._read_view.as_of()  # before the snapshot: it must not promise more
        with self._table.snapshot() as snapshot:
            started = self._clock.monotonic()
            plan = Plan(snapshot.file_list, request)
            page = Page(request.cursor, snapshot.file_list, may_jump=may_jump)
            attempt = _Attempt(request, plan, page, self._read_view, self._clock, started, as_of)
            if after is not None:
                attempt.follow(after)
            budget = Budget(
                requests=self._settings.query_max_requests,
                items=self._settings.query_max_items,
                parent=of_batch,
            )
            reads = _Reads(
                page, plan.candidates(page.newest), request, budget, self._executor,
                self._settings.look_ahead, self._clock,
            )  # fmt: skip
            try:
                attempt.consume(reads)
            finally:
                budget.close()
                reads.cancel()
            attempt.note_unasked(reads)
            if explain:
                attempt.note_rest()
        return attempt


class _Read(NamedTuple):
    """One file being asked: its first chunk is under way, the rest comes when it is wanted."""

    handle: FileHandle
    reader: QueryReader
    meter: FileMeter
    chunks: Iterator[Chunk]
    first: Future[Chunk | None] | None
    started: float


class _Reads:
    """The files of a plan in order, published ones asked a little ahead."""

    def __init__(
        self,
        page: Page,
        candidates: Iterator[FileHandle],
        request: QueryRequest,
        budget: Budget,
        executor: Executor,
        look_ahead: int,
        clock: Clock,
    ) -> None:
        self._page = page
        self._waiting = candidates
        self._under_way: deque[_Read] = deque()
        self._request = request
        self._budget = budget
        self._executor = executor
        self._look_ahead = look_ahead
        self._clock = clock

    def next(self, remaining: int) -> _Read | None:
        """Return the next file's read, asking at most `remaining` files ahead."""
        while len(self._under_way) < max(1, min(self._look_ahead, remaining)):
            handle = next(self._waiting, None)
            if handle is None:
                break
            self._under_way.append(self._start(handle))
            if self._under_way[0].first is None:
                break  # a local file is read when its turn comes: nothing to look ahead for
        return self._under_way.popleft() if self._under_way else None

    @property
    def under_way(self) -> Sequence[_Read]:
        """Return the reads that were begun and not returned by `next`."""
        return self._under_way

    def cancel(self) -> None:
        for read in self._under_way:
            if read.first is not None:
                read.first.cancel()

    def _start(self, handle: FileHandle) -> _Read:
        meter = FileMeter(self._budget)
        reader = query_reader(handle.reader)
        chunks = reader.chunks(self._request, meter, self._page.place_in(handle))
        first = None if reader.is_local else self._executor.submit(next, chunks, None)
        return _Read(handle, reader, meter, chunks, first, self._clock.monotonic())


class _Attempt:
    """The walk over one plan: what was found, what is missing, where it stopped."""

    def __init__(
        self,
        request: QueryRequest,
        plan: Plan,
        page: Page,
        read_view: ReadView,
        clock: Clock,
        started: float,
        as_of: int,
    ) -> None:
        self.entries: list[Entry] = []
        self.missing: list[Missing] = []
        self.as_of = as_of
        self.plan_is_old = False  # a listed object is gone: refresh, and plan again
        self._may_replan = True
        self._request = request
        self._plan = plan
        self._page = page
        self._read_view = read_view
        self._clock = clock
        self._started = started
        self._planned = clock.monotonic()
        self._files: list[FileExplain] = []
        self._pruned: list[FileExplain] = []
        self._meters: list[FileMeter] = []
        self._stopped = False

    def follow(self, before: _Attempt) -> None:
        """Replace an attempt whose plan was old: what it spent counts, another one is not made."""
        self._may_replan = False
        self._meters += before._meters

    def consume(self, reads: _Reads) -> None:
        while not self._stopped:
            read = reads.next(self._request.max_count - len(self.entries))
            if read is None:
                break
            self._consume_file(read)
        if not self._stopped:
            self._page.check_begun()  # else the cursor's file no longer answers this query

    def note_unasked(self, reads: _Reads) -> None:
        """List the files that were asked ahead and not needed: each may have cost a request."""
        for read in reads.under_way:
            self._note(read, _line(read.handle, "skipped"))

    def note_rest(self) -> None:
        """List all other files, with the reason why they were not asked; while the snapshot is held."""
        rest = self._plan.rest({line.file_id for line in self._files})
        self._files += [_line(handle, "skipped") for handle in rest.skipped]
        self._pruned += [_line(handle, "pruned_by_time") for handle in rest.pruned_by_time]
        self._pruned += [_line(handle, "pruned_by_topic") for handle in rest.pruned_by_topic]

    def _consume_file(self, read: _Read) -> None:
        line = _line(read.handle, "read")
        found_before = len(self.entries)
        matched = 0
        try:
            if read.first is not None and (chunk := read.first.result()) is not None:
                matched += self._take(read, chunk)
            while not self._stopped and (chunk := next(read.chunks, None)) is not None:
                matched += self._take(read, chunk)
            self._page.check_begun(read.handle)
        except FILE_ERRORS as error:
            self._note_missing(read.handle, error)
            line.outcome = "missing"
        except CancelledError:
            line.outcome = "skipped"
        if read.meter.filtered:
            line.outcome = "pruned_by_filter"
        line.entries = len(self.entries) - found_before
        line.false_positive = line.outcome == "read" and read.meter.requests > 0 and not matched
        self._note(read, line)

    def _note(self, read: _Read, line: FileExplain) -> None:
        line.start_ms = (read.started - self._started) * 1000
        line.ms = (self._clock.monotonic() - read.started) * 1000
        line.requests = read.meter.requests + read.meter.sidecar_requests
        line.bytes, line.items = read.meter.bytes, read.meter.items
        self._files.append(line)
        self._meters.append(read.meter)

    def _take(self, read: _Read, chunk: Chunk) -> int:
        """Add a chunk's entries until there are enough; return how many items matched."""
        handle, reader, request = read.handle, read.reader, self._request
        rows, places = chunk
        matched = len(rows)
        if not self._page.is_begun:
            hidden = self._hidden(handle, reader, rows)
            begin = self._page.pass_over(handle, reader.fingerprints(rows), hidden)
            rows, places = rows[begin:], places[begin:]
        # A chunk may hold much more than is wanted; what is decoded for nothing costs as much.
        step = request.max_count - len(self.entries)
        while len(rows) and not self._stopped:
            for candidate, place in zip(reader.candidates(rows[:step]), places[:step], strict=True):
                location, timestamp = candidate
                is_hidden = self._read_view.hides(handle, location[0])
                if not self._page.takes(candidate, int(place), is_hidden=is_hidden):
                    continue
                names, function = reader.location_names(), reader.hash_function
                self.entries.append(make_entry(handle, names, location, timestamp, function))
            self._stopped = len(self.entries) >= request.max_count
            rows, places = rows[step:], places[step:]
            step = request.max_count - len(self.entries)
        return matched

    def _hidden(self, handle: FileHandle, reader: QueryReader, rows: Any) -> np.ndarray:
        """Return which rows (b1[n]) retention hides."""
        if self._request.topic is not None:
            is_hidden = self._read_view.hides(handle, self._request.topic)
            return np.full(len(rows), is_hidden)
        topics = [location[0] for location, _ in reader.candidates(rows)]
        hides = {topic: self._read_view.hides(handle, topic) for topic in set(topics)}
        return np.array([hides[topic] for topic in topics], bool)

    def _note_missing(self, handle: FileHandle, error: Exception) -> None:
        if isinstance(error, NotFoundError) and self._may_replan:
            self.plan_is_old = self._stopped = True  # what was found is thrown away
            return
        if self._page.begins_in(handle):
            # Without this file nobody knows where the page begins: neither skip nor repeat.
            raise UnavailableError(
                f"the file {handle.file_id}, in which the cursor points, cannot be read ({error}); "
                "try again"
            ) from error
        logger.warning("file not asked", extra={"file_id": handle.file_id, "error": str(error)})
        self.missing.append(Missing(handle.file_id, str(error) or type(error).__name__))

    def next_cursor(self) -> str | None:
        if not self._stopped or not self.entries:
            return None
        return self._page.next_cursor(self._request.digest(), self.entries[-1].file_id)

    def explain(self, settings: Settings) -> Explain:
        files, pruned = self._files, self._pruned
        requests = sum(meter.requests for meter in self._meters)
        sidecar_requests = sum(meter.sidecar_requests for meter in self._meters)
        total_bytes = sum(meter.bytes for meter in self._meters)
        finished = self._clock.monotonic()
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
            sidecar_requests=sidecar_requests,
            milliseconds=(finished - self._started) * 1000,
            stages=[
                Stage("plan", (self._planned - self._started) * 1000),
                Stage("read", (finished - self._planned) * 1000),
            ],
            files=files + pruned,
        )


def _line(handle: FileHandle, outcome: str) -> FileExplain:
    return FileExplain(handle.file_id, handle.state.value, handle.node, outcome)
