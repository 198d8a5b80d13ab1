"""The state of the timer's queues without the timer: the last delivery, and what is left by hour.

A log that is only read has no timer; the one that writes begins with the same mark.
Depends on errors, logfile and the rest of log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError, IncompleteAnswerError
from tierdex.log_service.answer import TimerHour
from tierdex.log_service.levels import Level
from tierdex.log_service.read.reads import QueuePosition
from tierdex.log_service.read_policy import ReadLimits
from tierdex.log_service.timer.delayed_rows import (
    NOTHING_DELIVERED,
    TIMER_TOPIC,
    DelayedMessage,
    Mark,
)
from tierdex.logfile.columns import ROW_BYTES_MOST
from tierdex.logfile.layout import HOUR_MS, MARKS_QUEUE
from tierdex.logfile.layout import TIMER_TOPIC as TOPIC_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tierdex.log_service.answer import ReadAnswer
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.read.reads import LogReads

_NOTHING: Final = np.zeros(0, np.int64)
_WINDOW: Final = ReadLimits(65_536, 8 << 20, Level.RECEIVED)


class TimerQueues:
    """The timer's queues: one an hour, and that of the marks. Raises IncompleteAnswerError."""

    def __init__(self, reads: LogReads) -> None:
        self._reads = reads

    def read(self, queue_id: int, offset: int, limits: ReadLimits = _WINDOW) -> ReadAnswer:
        """Return at least one message from `offset` on."""
        answer = self._reads.read(QueuePosition(TIMER_TOPIC, queue_id, offset), limits)
        if not len(answer) or (answer.from_begin and offset):
            why = answer.missing[0].reason if answer.missing else "it is gone"
            raise IncompleteAnswerError(
                f"held message {offset} of hour {queue_id} cannot be read: {why}",
                missing=answer.missing,
            )
        return answer

    def mark(self, count: int) -> Mark:
        """Return the last of `count` marks. It goes after all that it is of. Raises CorruptFileError."""
        if not self.has_messages(MARKS_QUEUE):
            return NOTHING_DELIVERED
        answer = self.read(MARKS_QUEUE, count - 1)
        try:
            return Mark.from_bytes(answer.batch.body(0))
        except ValueError as error:
            raise CorruptFileError(
                "log", f"mark {count - 1} of the timer is none: {error}"
            ) from error

    def hours(self, queues: QueueTable, mark: Mark) -> list[int]:
        """Return the hours that may have messages to be delivered."""
        hours = self._listed(queues, max(mark.hour, 0))
        if mark == NOTHING_DELIVERED:  # or everything before the marks is gone, and these are
            return [hour for hour in hours if self.has_messages(hour)]
        return hours

    def has_any(self, queues: QueueTable) -> bool:
        """Return whether files hold messages of any hour; without a mark they are delivered again."""
        return any(map(self.has_messages, reversed(self._listed(queues, 0))))  # old ones are gone

    def _listed(self, queues: QueueTable, first: int) -> list[int]:
        return [each for each in queues.queues(TOPIC_BYTES, first) if each != MARKS_QUEUE]

    def has_messages(self, queue_id: int) -> bool:
        """Return whether files hold messages of a queue, delivered or not."""
        begin, end = self._reads.bounds(TIMER_TOPIC, queue_id, Level.RECEIVED)
        return begin < end

    def left(self, hour: int, offset: int, mark: Mark) -> tuple[np.ndarray, np.ndarray, int]:
        """Return (times, offsets) of messages from `offset` on that are not delivered; where to read on."""
        begin, end = self._reads.bounds(TIMER_TOPIC, hour, Level.RECEIVED)
        if offset < end == begin:  # all of it was delivered, and is gone
            return _NOTHING, _NOTHING, end
        answer = self.read(hour, offset)
        times = answer.batch.times
        offsets = np.arange(answer.first_offset, answer.next_offset)
        is_left = (times > mark.deliver_at) | ((times == mark.deliver_at) & (offsets > mark.offset))
        return times[is_left], offsets[is_left], answer.next_offset

    def messages(self, hour: int, offsets: list[int], most_bytes: int) -> list[DelayedMessage]:
        """Return the messages at these offsets, in this order: the first, and what fits a batch with it.

        A batch has `most_bytes` of rows.
        """
        found: list[DelayedMessage] = []
        left = most_bytes
        for first, count in _runs(offsets):
            end = first + count
            while first < end:
                limits = ReadLimits(end - first, max(1, left), Level.RECEIVED)
                answer = self.read(hour, first, limits)
                for message in _delayed_messages(answer):
                    left -= ROW_BYTES_MOST + len(message.body) + len(message.extra)
                    if found and left < 0:
                        return found
                    found.append(message)
                first = answer.next_offset
        return found


def read_hours(reads: LogReads, queues: QueueTable) -> list[TimerHour]:
    """Return the hours in which messages are to be delivered, from the files alone."""
    timer_queues = TimerQueues(reads)
    mark = timer_queues.mark(queues.next_offset(TOPIC_BYTES, MARKS_QUEUE))
    found = []
    for hour in timer_queues.hours(queues, mark):
        count = queues.next_offset(TOPIC_BYTES, hour)
        if hour == mark.hour:
            at, end, count = 0, count, 0
            while at < end:
                times, _, at = timer_queues.left(hour, at, mark)
                count += len(times)
        if count:
            found.append(TimerHour(hour * HOUR_MS, count))
    return found


def _runs(offsets: list[int]) -> Iterable[tuple[int, int]]:
    """Yield (first, count) of offsets that follow each other."""
    begin = 0
    for place in range(1, len(offsets) + 1):
        if place == len(offsets) or offsets[place] != offsets[place - 1] + 1:
            yield offsets[begin], place - begin
            begin = place


def _delayed_messages(answer: ReadAnswer) -> Iterable[DelayedMessage]:
    batch = answer.batch
    bodies, body_ends = batch.bodies.tobytes(), batch.body_offsets.tolist()
    extras, extra_ends = batch.extras.tobytes(), batch.extra_offsets.tolist()
    for i in range(len(batch)):
        yield DelayedMessage(
            bodies[body_ends[i] : body_ends[i + 1]], extras[extra_ends[i] : extra_ends[i + 1]]
        )
