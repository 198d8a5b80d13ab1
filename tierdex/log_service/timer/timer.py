"""The timer: messages with a `deliver_at` wait in the log and go to their queues in order when they are due.

::

    append    after the gate: into the hour's queue (`delayed_rows`); before it: straight to its queue
    gate      raised to now, under the lock under which rows are staged: what is due by then lies in the
              hours' queues, and no more of it comes
    deliver   the hour's queue is read up to its end -> what is due by the gate, in order of (deliver_at,
              offset) -> one batch with a mark: up to here

A batch and its mark are one batch record of the journal, there together or not at all, behind the messages
that it delivers: so each is delivered once, whatever crashes. An opening goes on behind the last mark. After
an error, and after a failed sync that took messages, the timer forgets what it knew and reads the mark anew.

Hours to come cost no memory: an hour's queue is read from a few minutes before it begins, and then 16 bytes a
message are kept (`due_hour`). Depends on errors, logfile and the
rest of log_service.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.errors import (
    ClosedError,
    CorruptFileError,
    FencedError,
    TierdexError,
    UnavailableError,
)
from tierdex.log_service.answer import TimerHour
from tierdex.log_service.append.appender import Appended
from tierdex.log_service.levels import Level
from tierdex.log_service.recovery.repair import ends_of
from tierdex.log_service.timer.delayed_rows import (
    NO_OFFSET,
    NOTHING_DELIVERED,
    TIMER_TOPIC,
    Mark,
    delivered,
    hold,
    hold_one,
)
from tierdex.log_service.timer.due_hour import DeliveryPosition, DueHour
from tierdex.log_service.timer.timer_hours import TimerQueues
from tierdex.logfile.layout import HOUR_MS, MARKS_QUEUE
from tierdex.logfile.layout import TIMER_TOPIC as TOPIC_BYTES
from tierdex.value_rules import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tierdex.clock import Clock
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.appender import Appender, AppendRows
    from tierdex.log_service.append.commit import Commit
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.append.given_messages import GivenMessages
    from tierdex.log_service.append.single_appends import SingleAppends
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.read.reads import LogReads
    from tierdex.log_service.timer.delayed_rows import DelayedOne, DelayedRows

logger = logging.getLogger(__name__)

_AHEAD_MS: Final = 300_000  # an hour is read from so long before it begins
_BATCH_MESSAGES: Final = 4096
_BATCH_BYTES: Final = 1 << 20  # of its rows; or one message
_BATCHES_AT_ONCE: Final = 16  # of one step of the thread
_GATHER_S: Final = 0.02
_IDLE_S: Final = 60.0
_AFTER_ERROR_S: Final = 1.0


class _GateMovedError(Exception):
    """What was to be held is due meanwhile. Nothing was applied."""


class TimerLog(NamedTuple):
    """The parts of an open log that its timer works with."""

    clock: Clock
    queues: QueueTable
    active: ActiveJournal
    committer: Committer
    appender: Appender
    singles: SingleAppends
    reads: LogReads


class Timer:
    """Holds messages and delivers them. Safe to share between threads; also the worker that delivers."""

    name = "log-timer"

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._timer_queues = TimerQueues(log.reads)
        self._batch_bytes = min(_BATCH_BYTES, log.appender.batch_bytes // 2)
        self.wake: Callable[[], None] = lambda: None
        self.trouble: str | None = None  # why the last delivery failed
        # Guarded by `append_lock`. What is due by the gate goes straight to its queue.
        self._gate = INT64_MIN
        self._hours: set[int] = set()  # that may have messages to be delivered
        # Guarded by `_lock`, as is all delivery. None: to be read from the log.
        self._lock = threading.Lock()
        self._position: DeliveryPosition | None = None
        self._is_open = False
        self._sleeps_until = INT64_MAX

    # -- append ----------------------------------------------------------------------------------------

    def append(self, rows: AppendRows, deliver_at: np.ndarray, level: Level) -> Appended:
        """Stage rows, those that are due later in the timer's queues: these have no offset (NO_OFFSET) yet.

        `deliver_at` i8, one a row. Raises as `Appender.append`, and CorruptFileError, UnavailableError
        where it cannot be read up to where messages were delivered.
        """
        self._open()
        while True:
            held = hold(rows, deliver_at, max(self._gate, self._log.clock.now_ms()))
            with suppress(_GateMovedError):
                appended = self._log.appender.append(
                    held.rows, level, guard=partial(self._admit, held)
                )
                break
        if held.first_due < self._sleeps_until:
            self.wake()
        return Appended(np.where(held.is_held, NO_OFFSET, appended.offsets), appended.commit)

    def append_one(
        self, message: GivenMessages, deliver_at: int, level: Level
    ) -> tuple[int, Commit]:
        """Stage one message that `check_message` returned, as `append` stages rows.

        Returns its offset, NO_OFFSET while it waits, and the commit that brings it to `level`.
        """
        self._open()
        while True:
            held = hold_one(message, deliver_at, max(self._gate, self._log.clock.now_ms()))
            guard = partial(self._admit, held) if held.hours else lambda: None
            with suppress(_GateMovedError):
                offset, commit = self._log.singles.append_checked(
                    held.message, None, level, delivery=held.delivery, guard=guard
                )
                break
        if not held.hours:
            return offset, commit
        if deliver_at < self._sleeps_until:
            self.wake()
        return NO_OFFSET, commit

    def _admit(self, held: DelayedRows | DelayedOne) -> None:
        """Accept delayed rows. Holding `append_lock`."""
        if held.first_due <= self._gate:
            raise _GateMovedError
        self._hours.update(held.hours)

    # -- delivery --------------------------------------------------------------------------------------

    def deliver_due(self) -> int:
        """Deliver everything that is due; return how many messages. Raises TierdexError: some is not."""
        count = 0
        while taken := self._deliver(_BATCHES_AT_ONCE):
            count += taken
        return count

    def step(self) -> float:
        """Deliver what is due; return the seconds until the next look."""
        try:
            if self._deliver(_BATCHES_AT_ONCE):
                return _GATHER_S
        except (ClosedError, FencedError):  # the owner of the node delivers
            return _IDLE_S
        except TierdexError as error:
            logger.warning("not delivered", extra={"error": str(error)})
            self.trouble = str(error)
            return _AFTER_ERROR_S
        self.trouble = None
        return self._pause()

    def hours(self) -> list[TimerHour]:
        """Return the hours that have messages to be delivered, in order. Raises as `deliver_due`."""
        with self._delivering() as position:
            with self._log.committer.append_lock:
                ends = self._ends(sorted(self._hours))
            if position.mark.hour in ends:  # some of it is delivered
                self._read(position, position.due(position.mark.hour), ends[position.mark.hour])
            waiting = []
            for hour, end in ends.items():
                due = position.hours.get(hour)
                left = end if due is None else len(due) + end - due.read_to
                waiting.append(TimerHour(hour * HOUR_MS, left))
        return [hour for hour in waiting if hour.message_count]

    def needs(self, handle: FileHandle) -> bool:
        """Return whether a file holds messages to be delivered, or the last mark: it may not go.

        What is published counts as delivered by what is published too: else a disk that is lost takes the
        delivered messages, and the store has those that wait no more. What goes here hides them as well.
        """
        try:
            queues, ends = ends_of(handle.reader)
            names = [queues.topics.value(number) for number in range(len(queues.topics))]
            if TOPIC_BYTES not in names:
                return False
            is_held = queues.topic_index == names.index(TOPIC_BYTES)
            held = dict(
                zip(queues.queue_ids[is_held].tolist(), ends[is_held].tolist(), strict=True)
            )
            marks_end = held.pop(MARKS_QUEUE, -1)
            with self._delivering() as position:
                count, _ = self._kept_mark(position, handle, MARKS_QUEUE)
                if marks_end >= count and self._timer_queues.has_any(self._log.queues):
                    return True
                return any(self._needs(position, handle, each) for each in held)
        except TierdexError as error:  # not known: it stays
            logger.warning("kept", extra={"file_id": handle.file_id, "error": str(error)})
            return True

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Deliver nothing in the scope: no message goes from the timer's queues to its own."""
        with self._lock:
            yield

    # -- private ---------------------------------------------------------------------------------------

    def _kept_mark(
        self, position: DeliveryPosition, handle: FileHandle, queue_id: int
    ) -> tuple[int, Mark]:
        """Return how many marks are as safe as what a file has of a queue; the last of them."""
        bounds = partial(self._log.reads.bounds, TIMER_TOPIC)
        is_published = handle.row is not None
        if not is_published:  # a part of the queue may be, and would be hidden with the file's
            begin, end = bounds(queue_id, Level.REMOTE)
            is_published = begin < end
        begin, count = bounds(MARKS_QUEUE, Level.REMOTE if is_published else Level.DISK)
        if count == position.marks:
            return count, position.mark
        return count, self._timer_queues.mark(count) if begin < count else NOTHING_DELIVERED

    def _needs(self, position: DeliveryPosition, handle: FileHandle, hour: int) -> bool:
        """Return whether an hour has, or may have, messages that wait behind the mark that counts."""
        _, mark = self._kept_mark(position, handle, hour)
        if hour == mark.hour and mark == position.mark:
            due = position.due(hour)
            self._read(position, due, self._end(hour))
            return bool(due)
        return hour >= mark.hour

    def _open(self) -> None:
        """Know up to where messages were delivered: nothing may be held that is due before."""
        if not self._is_open:
            with self._delivering():
                pass

    @contextmanager
    def _delivering(self) -> Iterator[DeliveryPosition]:
        """Hold `_lock`, with how far delivery is; after an error that is read from the log again."""
        with self._lock:
            try:
                yield self._known()
            except BaseException:
                self._position = None  # what was staged may be gone
                raise

    def _known(self) -> DeliveryPosition:
        """Return how far delivery is, read from the log where it must be. Holding `_lock`."""
        log = self._log
        with log.committer.append_lock:
            generation, marks = (
                log.active.generation,
                log.queues.next_offset(TOPIC_BYTES, MARKS_QUEUE),
            )
        position = self._position
        if position is not None and (position.generation, position.marks) == (generation, marks):
            return position
        position = DeliveryPosition(generation, marks, self._timer_queues.mark(marks))
        hours = self._timer_queues.hours(log.queues, position.mark)
        with log.committer.append_lock:
            self._gate = max(self._gate, position.mark.deliver_at)
            self._hours.update(hours)
        self._position, self._is_open = position, True
        return position

    def _close_gate(self) -> tuple[int, dict[int, int]]:
        """Raise the gate to now; return it, the hours that begin soon after, and where their queues end."""
        now_ms = self._log.clock.now_ms()
        with self._log.committer.append_lock:
            gate = self._gate = max(self._gate, now_ms)
            return gate, self._ends(
                h for h in sorted(self._hours) if h * HOUR_MS <= gate + _AHEAD_MS
            )

    def _ends(self, hours: Iterable[int]) -> dict[int, int]:
        return {hour: self._end(hour) for hour in hours}

    def _end(self, hour: int) -> int:
        return self._log.queues.next_offset(TOPIC_BYTES, hour)

    def _deliver(self, batches: int) -> int:
        """Deliver what is due, at most so many batches; return how many messages."""
        with self._delivering() as position:
            gate, ends = self._close_gate()
            count = 0
            for hour, end in ends.items():
                due = position.due(hour)
                if hour * HOUR_MS > gate:
                    self._read(position, due, end, windows=1)
                    continue
                self._read(position, due, end)
                while batches:
                    times, offsets = due.peek(gate, _BATCH_MESSAGES)
                    if not len(times):
                        break
                    count += self._deliver_batch(position, due, times, offsets)
                    batches -= 1
                if not batches:
                    break
                if (hour + 1) * HOUR_MS <= gate:  # nothing more can come
                    self._forget(position, hour)
            return count

    def _forget(self, position: DeliveryPosition, hour: int) -> None:
        position.hours.pop(hour, None)
        with self._log.committer.append_lock:
            self._hours.discard(hour)

    def _read(
        self, position: DeliveryPosition, due: DueHour, end: int, windows: int | None = None
    ) -> None:
        """Read on in an hour's queue up to `end`, by at most so many windows."""
        while due.read_to < end and windows != 0:
            found = self._timer_queues.left(due.hour, due.read_to, position.mark)
            times, offsets, due.read_to = found
            due.add(times, offsets)
            if windows is not None:
                windows -= 1

    def _deliver_batch(
        self, position: DeliveryPosition, due: DueHour, times: np.ndarray, offsets: np.ndarray
    ) -> int:
        """Deliver the first of these messages in one batch; return how many. It is durable then."""
        log = self._log
        messages = self._timer_queues.messages(due.hour, offsets.tolist(), self._batch_bytes)
        count = len(messages)
        mark = Mark(int(times[count - 1]), int(offsets[count - 1]))
        try:
            rows = delivered(messages, mark, log.clock.now_ms())
        except ValueError as error:
            raise CorruptFileError("log", f"hour {due.hour} of the timer: {error}") from error
        assert log.appender.is_one_batch(rows), "messages and their mark in one record"
        # Durable before: nothing. Visible after: messages and mark, there together or not at all.
        appended = log.appender.append(
            rows, Level.DISK, guard=partial(self._refuse_moved, position)
        )
        due.drop(count)
        position.marks, position.mark = position.marks + 1, mark
        log.committer.wait(appended.commit, Level.DISK)
        return count

    def _refuse_moved(self, position: DeliveryPosition) -> None:
        """Refuse a batch when a failed sync took messages that it delivers, or the mark before it."""
        log = self._log
        marks = log.queues.next_offset(TOPIC_BYTES, MARKS_QUEUE)
        if (log.active.generation, marks) != (position.generation, position.marks):
            raise UnavailableError("the log went back while messages were delivered: tried again")

    def _pause(self) -> float:
        """Return the seconds until something is due, or an hour is to be read."""
        with self._delivering() as position, self._log.committer.append_lock:
            next_ms = INT64_MAX
            for hour in sorted(self._hours):
                due = position.due(hour)
                if due.read_to < self._end(hour):  # read when its time has come, later ones later
                    next_ms = min(next_ms, hour * HOUR_MS - _AHEAD_MS)
                    break
                if due.first_due is not None:
                    next_ms = min(next_ms, due.first_due)
            self._sleeps_until = next_ms
        left_s = (next_ms - self._log.clock.now_ms()) / 1000
        return min(max(left_s, _GATHER_S), _IDLE_S)
