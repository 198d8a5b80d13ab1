"""Messages with a `deliver_at` as rows: how they wait in the timer's queues and how they are delivered.

::

    append    ("orders", 3), deliver_at 17:05  ->  (timer's topic, hour 17), time 17:05, extra + target
    deliver   when it is due                   ->  ("orders", 3), its own timestamp, extra without target
                                                   and a mark, in the same batch: delivered up to there

What is due already goes straight to its queue. Depends on logfile and the rest of log_service.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.log_service.append.appender import AppendRows
from tierdex.log_service.append.message_columns import AT_ONCE
from tierdex.log_service.files.queue_table import RowQueues
from tierdex.logfile import layout
from tierdex.logfile.columns import BinaryColumn
from tierdex.logfile.extras import Target, deliver_at_item, split_target, target_item
from tierdex.value_rules import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.log_service.append.given_messages import GivenMessages

TIMER_TOPIC: Final = layout.TIMER_TOPIC.decode()
NO_OFFSET: Final = -1  # of a held message: it gets one when it is delivered


class Mark(NamedTuple):
    """Messages are delivered up to here: those due before `deliver_at`; of those due then, up to `offset`."""

    deliver_at: int
    offset: int

    @property
    def hour(self) -> int:
        return self.deliver_at // layout.HOUR_MS

    def to_bytes(self) -> bytes:
        return np.array([tuple(self)], layout.MARK).tobytes()

    @classmethod
    def from_bytes(cls, body: bytes) -> Mark:
        """Raises ValueError for a body that is no mark."""
        return cls(*np.frombuffer(body, layout.MARK, 1)[0].item())


NOTHING_DELIVERED: Final = Mark(INT64_MIN, -1)


class DelayedRows(NamedTuple):
    """Rows as they are appended: those of `is_held` wait, the first one until `first_due`."""

    rows: AppendRows
    is_held: np.ndarray  # bool
    first_due: int
    hours: tuple[int, ...]


class DelayedOne(NamedTuple):
    """One message as it is appended, and the items of its extra that tell of its delivery.

    It waits in the timer's queue of `hours`; without any it is due already.
    """

    message: GivenMessages
    delivery: bytes
    first_due: int
    hours: tuple[int, ...]


class DelayedMessage(NamedTuple):
    """A held message as its hour's queue has it."""

    body: bytes
    extra: bytes


def hold(rows: AppendRows, deliver_at: np.ndarray, now_ms: int) -> DelayedRows:
    """Return the rows with those that are due after `now_ms` in the timer's queues.

    `deliver_at` i8, one a row, AT_ONCE where there is none.
    """
    is_held = deliver_at > now_ms
    count, queues = rows.row_count, rows.queues
    topics = [queues.topics.value(number) for number in range(len(queues.topics))]
    topic_index = np.broadcast_to(queues.topic_index, count)
    queue_ids = np.broadcast_to(queues.queue_ids, count)
    times = np.broadcast_to(rows.times, count)
    hours = np.where(is_held, deliver_at, 0) // layout.HOUR_MS
    held_queues = RowQueues(
        BinaryColumn.from_values([*topics, layout.TIMER_TOPIC], field="topic"),
        np.where(is_held, len(topics), topic_index).astype(np.uint32),
        np.where(is_held, hours, queue_ids).astype(np.int32),
        count,
    )
    due = deliver_at[is_held]
    return DelayedRows(
        AppendRows(
            held_queues,
            rows.bodies,
            np.where(is_held, deliver_at, times),
            _with_delivery(
                rows, deliver_at, is_held, _Targets(topics, topic_index, queue_ids, times)
            ),
            is_held.astype(np.uint8),
        ),
        is_held,
        int(due.min()) if len(due) else INT64_MAX,
        tuple(np.unique(hours[is_held]).tolist()),
    )


def hold_one(message: GivenMessages, deliver_at: int, now_ms: int) -> DelayedOne:
    """Return one checked message as `hold` does rows."""
    delivery = b"" if deliver_at == AT_ONCE else deliver_at_item(deliver_at)
    if deliver_at <= now_ms:
        return DelayedOne(message, delivery, deliver_at, ())
    delivery += target_item(Target(message.topic, message.queue_id, message.timestamp))
    hour = deliver_at // layout.HOUR_MS
    held = message._replace(topic=TIMER_TOPIC, queue_id=hour, timestamp=deliver_at)
    return DelayedOne(held, delivery, deliver_at, (hour,))


class _Targets(NamedTuple):
    """Where rows go when they are delivered, by row but the names."""

    topics: list[bytes]
    topic_index: np.ndarray
    queue_ids: np.ndarray
    times: np.ndarray

    def listed(self) -> list[Target]:
        names = [name.decode() for name in self.topics]
        columns = (self.topic_index.tolist(), self.queue_ids.tolist(), self.times.tolist())
        return [
            Target(names[topic], queue_id, time)
            for topic, queue_id, time in zip(*columns, strict=True)
        ]


def _with_delivery(
    rows: AppendRows, deliver_at: np.ndarray, is_held: np.ndarray, targets: _Targets
) -> BinaryColumn:
    """Return the rows' extras, with the time of those that have one, and the target of held ones."""
    extras = _values(rows.extras, rows.row_count)
    columns = zip(extras, deliver_at.tolist(), is_held.tolist(), targets.listed(), strict=True)
    return BinaryColumn.from_values(
        extra
        + (b"" if due == AT_ONCE else deliver_at_item(due))
        + (target_item(target) if held else b"")
        for extra, due, held, target in columns
    )


def _values(column: BinaryColumn | None, count: int) -> list[bytes]:
    if column is None:
        return [b""] * count
    data, ends = column.data.tobytes(), column.offsets.tolist()
    return [data[begin:end] for begin, end in pairwise(ends)]


def delivered(messages: Sequence[DelayedMessage], mark: Mark, now_ms: int) -> AppendRows:
    """Return held messages as rows of their queues, in order, and behind them the mark.

    A message that was forgotten has no extra, and is left out. Raises ValueError for what is no held one.
    """
    numbers = {layout.TIMER_TOPIC: 0}
    topics, ids, times, bodies, extras = [], [], [], [], []
    for body, extra in messages:
        if not extra:
            continue
        kept, target = split_target(extra)
        topics.append(numbers.setdefault(target.topic.encode(), len(numbers)))
        ids.append(target.queue_id)
        times.append(target.timestamp)
        bodies.append(body)
        extras.append(kept)
    bodies.append(mark.to_bytes())
    queues = RowQueues(
        BinaryColumn.from_values(numbers, field="topic"),
        np.array([*topics, 0], np.uint32),
        np.array([*ids, layout.MARKS_QUEUE], np.int32),
        len(bodies),
    )
    return AppendRows(
        queues,
        BinaryColumn.from_values(bodies),
        np.array([*times, now_ms], np.int64),
        BinaryColumn.from_values([*extras, b""]),
    )
