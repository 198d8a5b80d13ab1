"""A message log on a simulated disk, and a model of lists of what it must answer."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.log_service.levels import Level
from tierdex.log_service.message_log import MessageLog
from tierdex.testing.components import components_of

if TYPE_CHECKING:
    from tests.simulation.simulated_disk import SimulatedFileSystem

DATA = Path("/data")
SMALL = {
    "journal_bytes": 288 << 10,
    "max_message_bytes": 8 << 10,
    "background": False,
    "index": False,
}
LEVELS = (Level.OS, Level.DISK, Level.REMOTE)  # that outlive a kill, a power cut, the disk
Queue = tuple[str, int]
_PROCESSES = itertools.count()  # no two of them make the same uuids


def open_log(disk: SimulatedFileSystem, *, now_ms=0, **settings) -> MessageLog:
    """Open the log in the simulated folder; no thread runs, so the same calls give the same trace.

    It is `now_ms` at the earliest.
    """
    return MessageLog.open(
        DATA, filesystem=disk, clock=disk_clock(disk, now_ms), ids=SeededIds(next(_PROCESSES)),
        disk_reserve_bytes=0, **({"node": "n"} | SMALL | settings),
    )  # fmt: skip


def seal_rolled(log: MessageLog) -> int:
    """Seal every journal that was rolled, and compact none; return how many were."""
    writing, count = components_of(log).writing, 0
    while True:
        seals = [unit for unit in writing.units() if unit.job == "seal"]
        if not seals:
            return count
        count += writing.local.run_first(seals)


def disk_clock(disk: SimulatedFileSystem, now_ms: int = 0) -> ManualClock:
    """Return a clock that is later with every process on the disk."""
    return ManualClock(max(now_ms, 1_700_000_000_000 + len(disk.trace)))


@dataclass
class Model:
    """Bodies by queue: what was handed over, and how many of them each level has acknowledged.

    Of what is `gone`, the first so many of a queue, the body is None.
    """

    handed: dict[Queue, list[bytes | None]] = field(default_factory=dict)
    gone: dict[Queue, int] = field(default_factory=dict)
    acknowledged: dict[Level, dict[Queue, int]] = field(
        default_factory=lambda: {level: {} for level in LEVELS}
    )

    def hand_over(self, queue: Queue, body: bytes) -> int:
        """Note that a message is on its way; return the offset that it must get."""
        held = self.handed.setdefault(queue, [])
        held.append(body)
        return len(held) - 1

    def acknowledge(self, level: Level) -> None:
        """Note that everything handed over so far has a level."""
        for lower in LEVELS:
            if lower <= level:
                self.acknowledged[lower] = {queue: len(held) for queue, held in self.handed.items()}

    def acknowledge_queues(self, level: Level, queues) -> None:
        """Note that everything of these queues has a level."""
        for lower in LEVELS:
            if lower <= level:
                for queue in queues:
                    self.acknowledged[lower][queue] = len(self.handed[queue])

    def lose(self, queue: Queue, begin: int) -> None:
        """Note that what is before `begin` is gone by its age."""
        self.gone[queue] = max(begin, self.gone.get(queue, 0))
        self.handed[queue][: self.gone[queue]] = [None] * self.gone[queue]

    def adopt(self, found: dict[Queue, list[bytes]]) -> None:
        """Go on with what a log was found to hold, all of it durable."""
        self.handed = {queue: list(held) for queue, held in found.items()}
        self.acknowledge(Level.DISK)


def everything(log: MessageLog, queues, visible="received", gone=None) -> dict[Queue, list]:
    """Return the bodies of these queues, read a few at a time; every answer must be whole.

    `gone` is where queues begin that do not begin at 0; None stands for what is before.
    """
    found = {}
    for topic, queue_id in queues:
        begin = (gone or {}).get((topic, queue_id), 0)
        if begin:
            assert log.read(topic, queue_id, 0, visible=visible).first_offset == begin
        bodies: list[bytes | None] = [None] * begin
        while True:
            answer = log.read(
                topic, queue_id, len(bodies), max_count=7, max_bytes=3000, visible=visible
            )
            assert answer.complete, answer.missing
            assert answer.begin_offset == begin
            assert answer.first_offset == len(bodies)
            bodies += [message.body for message in answer.messages]
            assert answer.next_offset == len(bodies)
            if not len(answer):
                break
        assert log.end_offset(topic, queue_id, level=visible) == len(bodies)
        found[topic, queue_id] = bodies
    return found


def judge(disk: SimulatedFileSystem, model: Model, level: Level) -> None:
    """Recover; compare with the model; append to every queue; close, open again, compare once more.

    What `level` had acknowledged must be there, and what is there must be a prefix of each queue.
    """
    log = open_log(disk)
    found = everything(log, model.handed)
    for queue, bodies in found.items():
        assert bodies == model.handed[queue][: len(bodies)], (queue, "is no prefix")
        least = model.acknowledged[level].get(queue, 0)
        assert len(bodies) >= least, (queue, "an acknowledged message is gone")
    for number, (topic, queue_id) in enumerate(model.handed):
        body = b"later %d" % number
        offset = log.append(topic=topic, queue_id=queue_id, body=body, durability="os")
        assert offset == len(found[topic, queue_id])
        found[topic, queue_id].append(body)
    log.close()
    again = open_log(disk)
    assert everything(again, model.handed, "disk") == found
    again.close()
