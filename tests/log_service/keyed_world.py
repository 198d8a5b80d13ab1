"""A message log with its index on a simulated disk: what was handed over under which keys, and the judge."""

from __future__ import annotations

import copy
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from tests.log_service.log_world import DATA, everything, open_log
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.filesystem import make_durable_folder
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.levels import Level
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

if TYPE_CHECKING:
    from tierdex.log_service.message_log import MessageLog

TINY_INDEX = {"index": True, "item_capacity": 48, "slot_count": 16}
TIMED = ("timed", 3)
Queue = tuple[str, int]


def copy_of(store: MemoryStore) -> MemoryStore:
    """Return a store of its own with the same objects, as each way that a story may go on needs one."""
    copied = MemoryStore()
    copied.contents = copy.deepcopy(store.contents, {id(store.contents.lock): threading.Lock()})
    return copied


class KeyedWorld:
    """A disk, a store that outlives every crash, and the messages handed over, by queue."""

    def __init__(self) -> None:
        self.disk = SimulatedFileSystem()
        make_durable_folder(self.disk, DATA)
        self.store = MemoryStore()
        self.handed: dict[Queue, list[tuple[bytes, tuple[str, ...], str | None]]] = defaultdict(
            list
        )
        self.acknowledged: dict[Level, dict[Queue, int]] = {Level.OS: {}, Level.DISK: {}}
        self.now_ms = 0
        self.has_held = False  # anything, also what a lossy takeover gave up since
        self.held: list[tuple[int, bytes]] = []  # (due, body) of TIMED, in order of their appends
        self.held_acknowledged = dict.fromkeys((Level.OS, Level.DISK), 0)
        self.expired: dict[Queue, int] = {}  # below it a message may be gone
        self.settings: dict[str, object] = {}

    def elsewhere(self) -> KeyedWorld:
        """Return the world of the same log on another disk, which is empty, over the same store."""
        other = KeyedWorld()
        other.store, other.settings, other.now_ms = self.store, self.settings, self.now_ms
        other.handed.update({queue: list(held) for queue, held in self.handed.items()})
        other.expired, other.held = dict(self.expired), list(self.held)
        other.has_held = self.has_held
        other.held_acknowledged = dict(self.held_acknowledged)
        return other

    def open(self, **settings) -> MessageLog:
        log = open_log(self.disk, store=self.store, **(TINY_INDEX | self.settings | settings))
        self.advance(log, 0)
        return log

    def advance(self, log: MessageLog, ms: int) -> None:
        """Let so many milliseconds go by; no process finds the clock earlier than the one before."""
        clock = components_of(log).seams.clock
        clock.advance((max(0, self.now_ms - clock.now_ms()) + ms) / 1000)
        self.now_ms = clock.now_ms()

    def expire(self, log: MessageLog) -> None:
        """Let compacted files go, published or not: what they hold may be gone from here on, and is then."""
        compacted = [
            handle
            for handle in components_of(log).table.version.files.iterate()
            if handle.state in (FileState.COMPACTED, FileState.UPLOADED)
        ]
        for topic, queue_id in self.handed:
            for handle in compacted:
                extent = handle.reader.extent(topic.encode(), queue_id, Level.DISK)
                if extent is not None:
                    known = self.expired.get((topic, queue_id), 0)
                    self.expired[topic, queue_id] = max(known, extent.next_offset)
        log.expire(before=components_of(log).seams.clock.now_ms() + 1)
        for queue, end in self.expired.items():  # what waits for its hour keeps its file
            assert log.begin_offset(*queue) == end or self.has_held

    def open_after_a_kill(self) -> MessageLog:
        self.disk = self.disk.restart()
        return self.open()

    def append(self, log, queue, body, keys, message_id=None, durability="disk") -> int:
        held = self.handed[queue]
        held.append((body, tuple(keys), message_id))
        offset = log.append(
            topic=queue[0], queue_id=queue[1], body=body, keys=list(keys), message_id=message_id,
            durability=durability, expect_offset=len(held) - 1,
        )  # fmt: skip
        self.acknowledge(Level[durability.upper()], [queue])
        return offset

    def hold(self, log, delay_ms, body, durability) -> None:
        """Append a message to TIMED that is due in `delay_ms`."""
        due = self.now_ms + delay_ms
        self.has_held = True
        self.held.append((due, body))
        offset = log.append(
            topic=TIMED[0], queue_id=TIMED[1], body=body, keys=[body.decode()], deliver_at=due,
            durability=durability,
        )  # fmt: skip
        assert offset == -1
        for lower in (Level.OS, Level.DISK):
            if lower <= Level[durability.upper()]:
                self.held_acknowledged[lower] = len(self.held)

    def look_at_timed(self, log, level) -> None:
        """Let everything held be due: each message that there is comes once, in its turn."""
        self.advance(log, 10 * 3_600_000)
        log.deliver_due()
        assert log.timers() == []
        found = [m.body for m in log.reader(*TIMED)]
        begin = log.begin_offset(*TIMED)  # what was delivered before may have expired
        kept = self.held[: begin + len(found)]
        assert len(kept) >= self.held_acknowledged[level], "a held message is gone"
        delivered = [body for _, body in sorted(kept, key=lambda each: each[0])][begin:]
        assert found == delivered
        for body in delivered[-5:]:
            assert [m.body for m in log.get(TIMED[0], key=body.decode())] == [body]

    def acknowledge(self, level, queues=None) -> None:
        if queues is None and level > Level.RECEIVED:
            self.held_acknowledged.update(
                {lower: len(self.held) for lower in (Level.OS, Level.DISK) if lower <= level}
            )
        for lower in (Level.OS, Level.DISK):
            if lower <= level:
                for queue in self.handed if queues is None else queues:
                    self.acknowledged[lower][queue] = len(self.handed[queue])

    def look(self, log: MessageLog) -> dict[Queue, int]:
        """Compare every key and message ID with the messages that the log holds; return the end offsets."""
        log.refresh()  # a reader looks at the folder now and then only
        begins = {queue: log.begin_offset(*queue) for queue in self.handed}
        for queue, begin in begins.items():
            assert begin <= self.expired.get(queue, 0), (queue, "something is gone")
        bodies = everything(log, self.handed, gone=begins)
        held = {queue: self.handed[queue][: len(found)] for queue, found in bodies.items()}
        for queue, found in bodies.items():
            wanted = [body for body, _, _ in held[queue]][begins[queue] :]
            assert found[begins[queue] :] == wanted, (queue, "is no prefix")
        by_key, by_id = defaultdict(set), defaultdict(set)
        for (topic, queue_id), messages in held.items():
            for offset, (body, keys, message_id) in enumerate(messages):
                if offset < begins[topic, queue_id]:
                    continue
                for key in keys:
                    by_key[topic, key].add((topic, queue_id, offset, body))
                by_id[message_id].add((topic, queue_id, offset, body))
        every = {
            (queue[0], key) for queue, m in self.handed.items() for _, keys, _ in m for key in keys
        }
        for topic, key in every:
            self._compare(log.get(topic, key=key, max_count=999, visible="os"), by_key[topic, key])
            entries = [
                (e.topic, e.queue_id, e.offset)
                for e in log.index.query(topic, key=key, max_count=999).entries
                if e.node == log.node  # a log that was adopted has a node of its own
            ]
            kept = [place for place in entries if place[2] >= begins[place[:2]]]
            self._no_stranger(log, kept, by_key[topic, key])
        for message_id in {i for m in self.handed.values() for _, _, i in m if i is not None}:
            found = log.get(message_id=message_id, max_count=999, visible="os")
            self._compare(found, by_id[message_id])
        return {queue: len(found) for queue, found in bodies.items()}

    @staticmethod
    def _compare(found, expected) -> None:
        assert found.complete, found.missing
        places = [(m.topic, m.queue_id, m.offset, m.body) for m in found]
        assert len(places) == len(set(places)), "a message was given twice"
        assert set(places) == expected

    @staticmethod
    def _no_stranger(log, places, expected) -> None:
        """No entry of the index names an offset that the log does not hold, or another message."""
        found = set(places)
        assert found <= {place[:3] for place in expected}
        if (
            components_of(log).writing is not None
        ):  # else the writer may not have dispatched all of it
            assert len(found) == len(expected)

    def judge(self, disk: SimulatedFileSystem, level: Level) -> None:
        """Recover, compare; append under old keys to every queue; close, open, compare once more."""
        world = KeyedWorld()
        world.disk, world.store = disk, copy_of(self.store)
        world.handed.update({queue: list(held) for queue, held in self.handed.items()})
        world.expired, world.settings = dict(self.expired), self.settings
        log = world.open()
        world.now_ms, world.held = self.now_ms, list(self.held)
        world.held_acknowledged = dict(self.held_acknowledged)
        for queue, end in world.look(log).items():
            least = self.acknowledged[level].get(queue, 0)
            assert end >= least, (queue, "an acknowledged message is gone")
            del world.handed[queue][end:]
        for number, queue in enumerate(list(world.handed)):
            world.append(log, queue, b"later %d" % number, ["k0", "k1"], durability="os")
        world.look(log)
        log.close()
        again = world.open()
        world.look(again)
        world.look_at_timed(again, level)
        again.run_compaction()
        again.index.roll()
        again.run_compaction()
        world.look(again)
        again.close()
