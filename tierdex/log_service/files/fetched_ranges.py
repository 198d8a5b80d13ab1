"""Byte ranges of published files: fetched once for all readers, and ahead of sequential ones.

::

    read     what is here or under way is not fetched again; what is not, in GETs of at most 4 MiB: the
             caller waits for what it needs, threads beside it fetch what comes next, if there is room.
             While nothing is needed, only what is worth a GET: 4 MiB, or all that is left of a file's part
    goes     what was read to its end, 10 s after its last use; all else 180 s after it came or was used;
             over the budget the oldest, first those that were read to their end

A range that goes with a part unread halves the window of the reader for whom it was fetched. One that could
not be fetched is not kept: the next who wants it asks anew.

4 MiB is the unit: a replay of b bytes sends 1 + b / 4 MiB requests, however many readers follow.

Depends on clock, errors, index_service and read_ahead.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tierdex.errors import CorruptFileError
from tierdex.index_service.readers.read_threads import ReadThreads, Task
from tierdex.log_service.files.read_ahead import STEP_BYTES, UNREAD_S

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tierdex.clock import Clock
    from tierdex.lifecycle.manifests.file_row import FileRow
    from tierdex.log_service.files.read_ahead import Window

SIDE_BY_SIDE: Final = 4  # requests of one read at a time
# What was read is of use only to another group that follows close behind. A reader polls within seconds, or
# within minutes when it is busy (UNREAD_S).
READ_S: Final = 10.0


class ObjectRange(NamedTuple):
    """Bytes [begin, end) of a published file."""

    row: FileRow
    begin: int
    end: int

    @property
    def length(self) -> int:
        return self.end - self.begin


class RangeRead(NamedTuple):
    """Bytes of a range; the requests sent, also for what comes next; whether all was asked for before."""

    data: bytes | memoryview
    requests: int
    was_here: bool


class Next(NamedTuple):
    """What a reader wants after what it reads now: parts of files, whole, and how many bytes of them."""

    ranges: Sequence[ObjectRange] = ()
    most_bytes: int = 0

    def within(self) -> Iterator[ObjectRange]:
        """Yield the first `most_bytes` of the parts."""
        return _first_bytes(self.ranges, self.most_bytes)


Ahead = Callable[[bool], Next]  # is told whether the reader has to wait


def _nothing_ahead(is_late: bool) -> Next:
    return Next()


class _Fetched:
    """A range that is here or under way."""

    __slots__ = (
        "begin",
        "end",
        "is_here",
        "read_to",
        "runner",
        "seen_at",
        "task",
        "uuid",
        "window",
    )

    def __init__(self, wanted: ObjectRange, window: Window | None, now: float) -> None:
        self.uuid = wanted.row.uuid
        self.begin, self.end = wanted.begin, wanted.end
        self.read_to = wanted.begin
        self.seen_at = now
        self.window = window
        self.is_here = False
        self.runner = 0  # the thread that fetches it
        self.task: Task[bytes]


class FetchedRanges:
    """Safe to share between threads."""

    def __init__(
        self,
        clock: Clock,
        budget_bytes: int,
        get: Callable[[FileRow, int, int], bytes],
        executor: Executor | None = None,
    ) -> None:
        """`get(row, position, length)` sends one request; None: threads of its own fetch ahead."""
        self._clock = clock
        self._budget = budget_bytes
        self._get = get
        self._lock = threading.Lock()
        self._files: dict[bytes, list[_Fetched]] = {}  # by `begin`; those of a file do not overlap
        self._unread: OrderedDict[_Fetched, None] = OrderedDict()  # both: longest unused first
        self._read: OrderedDict[_Fetched, None] = OrderedDict()
        self._executor = executor
        self._threads: ReadThreads | None = None
        self.held_bytes = 0  # that are here or under way

    def read(
        self, wanted: ObjectRange, ahead: Ahead = _nothing_ahead, window: Window | None = None,
    ) -> RangeRead:  # fmt: skip
        """Return the bytes of a range, and see that what `ahead` returns is under way.

        Raises what the store raises, and CorruptFileError for an object that is too short.
        """
        requests, was_here = 0, True
        while True:
            with self._lock:
                self._let_old_go()
                holes, held = list(self._holes(wanted)), self._within(wanted)
                is_late = bool(holes) or not all(each.is_here for each in held)
                begun = self._begin(holes, ahead(is_late), window)
                # What was held may have gone for what was begun; here it is needed all the same.
                found = sorted({*held, *self._within(wanted)}, key=lambda each: each.begin)
            requests += len(begun)
            was_here = was_here and not holes
            for each in begun[1:] if holes else begun:
                self._beside().submit(each.task.run)
            parts = [_wait_for(each, wanted) for each in found]
            if None in parts:  # another's thread was interrupted: what it began is asked for anew
                continue
            with self._lock:
                for each in found:
                    self._note_use(each, min(each.end, wanted.end))
            whole = [part for part in parts if part is not None]
            data = whole[0] if len(whole) == 1 else b"".join(whole)
            return RangeRead(data, requests, was_here)

    def discard(self, wanted: ObjectRange) -> None:
        """Forget what was fetched of a range: it arrived damaged."""
        with self._lock:
            for each in self._within(wanted):
                self._forget(each)

    def forget(self, uuid: bytes) -> None:
        """Forget a file that is gone."""
        with self._lock:
            for each in list(self._files.get(uuid, ())):
                self._forget(each)

    def let_old_go(self) -> None:
        """Release what was not used for its time."""
        with self._lock:
            self._let_old_go()

    def close(self) -> None:
        """End the threads, once their requests have ended."""
        if self._threads is not None:
            self._threads.shutdown()

    # -- requests ----------------------------------------------------------------------------------------

    def _beside(self) -> Executor:
        if self._executor is not None:
            return self._executor
        if self._threads is None:
            self._threads = ReadThreads(SIDE_BY_SIDE)
        return self._threads

    def _fetch(self, wanted: ObjectRange, fetched: _Fetched) -> bytes:
        """Send the request of a range. One that fails leaves nothing behind."""
        fetched.runner = threading.get_ident()
        try:
            data = self._get(wanted.row, wanted.begin, wanted.length)
            if len(data) != wanted.length:  # cut on its way
                data = self._get(wanted.row, wanted.begin, wanted.length)
            if len(data) != wanted.length:
                reason = f"{len(data)} bytes came, {wanted.length} were asked for"
                raise CorruptFileError(wanted.row.object_key, reason)
        except BaseException:
            with self._lock:
                self._forget(fetched)
            raise
        fetched.is_here = True
        return data

    # -- ranges; the caller holds the lock ---------------------------------------------------------------

    def _within(self, wanted: ObjectRange) -> list[_Fetched]:
        """Return the ranges that hold a part of `wanted`, in order."""
        ranges = self._files.get(wanted.row.uuid, [])
        first = bisect_right(ranges, wanted.begin, key=lambda each: each.end)
        return list(takewhile(lambda each: each.begin < wanted.end, islice(ranges, first, None)))

    def _holes(self, wanted: ObjectRange) -> Iterator[ObjectRange]:
        """Yield what of a range is neither here nor under way."""
        at = wanted.begin
        for each in self._within(wanted):
            if at < each.begin:
                yield wanted._replace(begin=at, end=each.begin)
            at = each.end
        if at < wanted.end:
            yield wanted._replace(begin=at)

    def _begin(
        self, holes: list[ObjectRange], next_ones: Next, window: Window | None
    ) -> list[_Fetched]:
        """Note as under way all `holes`, and what comes next as there is room; return them in order."""
        needed = sum(hole.length for hole in holes)
        self._make_room(needed)
        later = [
            hole
            for each, rest in zip(next_ones.within(), next_ones.ranges, strict=False)
            for hole in self._holes(each)
            if holes or hole.length >= STEP_BYTES or hole.end == rest.end
        ]
        later = _in_whole_gets(
            holes, later, {(rest.row.uuid, rest.end) for rest in next_ones.ranges}
        )
        if not holes and not later:
            return []
        self._make_room(needed + sum(hole.length for hole in later), also_unread=False)
        room = self._budget - self.held_bytes - needed
        if not holes and room < sum(hole.length for hole in later):
            return []  # what there is no room for yet would be cut into more requests
        begun = []
        for piece in _in_gets(holes, _first_bytes(later, room)):
            fetched = _Fetched(piece, window, self._clock.monotonic())
            fetched.task = Task(partial(self._fetch, piece, fetched))
            ranges = self._files.setdefault(fetched.uuid, [])
            ranges.insert(bisect_right(ranges, piece.begin, key=lambda each: each.begin), fetched)
            self._unread[fetched] = None
            self.held_bytes += piece.length
            begun.append(fetched)
        return begun

    def _make_room(self, length: int, *, also_unread: bool = True) -> None:
        """Drop the oldest ranges, those that were read first, until there is room for `length` bytes."""
        for order in (self._read, self._unread) if also_unread else (self._read,):
            if self.held_bytes + length <= self._budget:
                return
            while (oldest := next(filter(attrgetter("is_here"), order), None)) is not None:
                self._let_go(oldest)
                if self.held_bytes + length <= self._budget:
                    return

    def _let_old_go(self) -> None:
        now = self._clock.monotonic()
        for order, seconds in ((self._read, READ_S), (self._unread, UNREAD_S)):
            while order and (oldest := next(iter(order))).seen_at < now - seconds:
                self._let_go(oldest)

    def _let_go(self, fetched: _Fetched) -> None:
        if fetched.read_to < fetched.end and fetched.window is not None:
            fetched.window.halve()
        self._forget(fetched)

    def _forget(self, fetched: _Fetched) -> None:
        ranges = self._files.get(fetched.uuid, [])
        if fetched in ranges:
            ranges.remove(fetched)
            self.held_bytes -= fetched.end - fetched.begin
            if not ranges:
                del self._files[fetched.uuid]
        self._unread.pop(fetched, None)
        self._read.pop(fetched, None)

    def _note_use(self, fetched: _Fetched, end: int) -> None:
        fetched.seen_at = self._clock.monotonic()
        fetched.read_to = max(fetched.read_to, end)
        if self._unread.pop(fetched, self) is None or self._read.pop(fetched, self) is None:
            order = self._read if fetched.read_to >= fetched.end else self._unread
            order[fetched] = None


def _wait_for(fetched: _Fetched, wanted: ObjectRange) -> memoryview | None:
    """Return what is wanted of a range, once it is here; None when its thread was interrupted."""
    fetched.task.run()  # unless another thread does
    try:
        data = fetched.task.result()
    except Exception:
        raise
    except BaseException:
        if fetched.runner == threading.get_ident():
            raise
        return None
    begin = max(wanted.begin, fetched.begin) - fetched.begin
    return memoryview(data)[begin : wanted.end - fetched.begin]


def _first_bytes(ranges: Iterable[ObjectRange], length: int) -> Iterator[ObjectRange]:
    """Yield the first `length` bytes of some ranges."""
    for each in ranges:
        if length <= 0:
            return
        yield each._replace(end=min(each.end, each.begin + length))
        length -= each.length


def _in_whole_gets(
    holes: Sequence[ObjectRange], later: list[ObjectRange], ends: Collection[tuple[bytes, int]]
) -> list[ObjectRange]:
    """Return `later` without the last part that would be a GET of less than 4 MiB behind whole ones.

    It belongs to the GET that comes next, unless all that is left of a file's part ends with it (`ends`).
    """
    if not later or (later[-1].row.uuid, later[-1].end) in ends:
        return later
    last = later[-1]
    begin = last.begin
    for each in reversed([*holes, *later[:-1]]):
        if each.row is not last.row or each.end != begin:
            break
        begin = each.begin
    end = last.end - (last.end - begin) % STEP_BYTES
    if end == begin:  # less than a whole one in all
        return later
    return [*later[:-1], *([last._replace(end=end)] if end > last.begin else [])]


def _in_gets(holes: Sequence[ObjectRange], ahead: Iterable[ObjectRange]) -> Iterator[ObjectRange]:
    """Yield ranges of at most one request each: all of `holes`, and as many of `ahead` as go side by side."""
    runs: list[ObjectRange] = []
    for each in (*holes, *ahead):
        if runs and runs[-1].row is each.row and runs[-1].end == each.begin:
            runs[-1] = runs[-1]._replace(end=each.end)
        else:
            runs.append(each)
    needed, count = sum(hole.length for hole in holes), 0
    for run in runs:
        for begin in range(run.begin, run.end, STEP_BYTES):
            if needed <= 0 and count >= SIDE_BY_SIDE:
                return
            piece = run._replace(begin=begin, end=min(begin + STEP_BYTES, run.end))
            needed, count = needed - piece.length, count + 1
            yield piece
