"""Any order of appends, rolls, compactions, merges, expiry, ends of any kind: the log answers as a model.

A message's keys follow from its body, so the model says which messages each key has to find.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.log_service.keyed_world import TINY_INDEX
from tests.log_service.log_world import DATA, Model, everything, open_log
from tierdex.errors import OffsetMismatchError
from tierdex.filesystem import make_durable_folder
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.levels import Level
from tierdex.logfile.layout import HOUR_MS, MARKS_QUEUE, TIMER_TOPIC
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.simulated_disk import SimulatedFileSystem

DAY_S = 86_400
QUEUES = st.tuples(st.sampled_from(["a", "b", "größe"]), st.sampled_from([0, 1, 2**31 - 1]))
BODIES = st.binary(max_size=200) | st.integers(0, 8000).map(lambda size: b"\xff" * size)
LEVELS = st.sampled_from([Level.RECEIVED, Level.OS, Level.DISK])
DELAYS = st.sampled_from([-7, 0, 1, 40, 41, 3_600_000, 9_000_000])  # ms


def keys_of(body: bytes) -> list[str]:
    return ["every", f"length-{len(body) % 4}"] if body else []


class Held(NamedTuple):
    """A message that waits. `level`: what was acknowledged for it."""

    due: int
    queue: tuple[str, int]
    body: bytes
    level: Level


class LogMachine(RuleBasedStateMachine):
    """A log beside its model. After an unclean end the model goes on with what was found."""

    @initialize()
    def begin(self):
        self.disk = SimulatedFileSystem()
        make_durable_folder(self.disk, DATA)
        self.model = Model()
        self.store = MemoryStore()
        self.now = 0
        self.held: list[Held] = []  # in order of their appends
        self.born: dict[tuple[tuple[str, int], int], int] = {}  # when each offset was given
        self.log = self.open()

    def open(self):
        settings = {
            "merge_min_files": 2,
            "keep_local_bytes": 20_000,
            "topic_retention": {"b": DAY_S},
            **TINY_INDEX,
        }
        log = open_log(self.disk, now_ms=self.now, store=self.store, **settings)
        self.now = log._components.seams.clock.now_ms()
        return log

    def hand_over(self, queue, body):
        offset = self.model.hand_over(queue, body)
        self.born[queue, offset] = self.now
        return offset

    def acknowledge(self, level):
        self.model.acknowledge(level)
        self.held = [each._replace(level=max(each.level, level)) for each in self.held]

    def everything(self):
        return everything(self.log, self.model.handed, gone=self.model.gone)

    def lose(self, files, queues):
        """Note that what these files have of the queues is gone."""
        for topic, queue_id in queues:
            parts = [file.reader.extent(topic.encode(), queue_id, Level.DISK) for file in files]
            ends = [part.next_offset for part in parts if part is not None]
            self.model.lose((topic, queue_id), max(ends, default=0))
        for queue in self.model.handed:
            assert self.log.begin_offset(*queue) == self.model.gone.get(queue, 0)

    @rule(queue=QUEUES, body=BODIES, level=LEVELS, delay=DELAYS)
    def append_for_later(self, queue, body, level, delay):
        offset = self.log.append(
            topic=queue[0], queue_id=queue[1], body=body, keys=keys_of(body),
            deliver_at=self.now + delay, durability=level.name.lower(),
        )  # fmt: skip
        if delay > 0:
            assert offset == -1
            self.held.append(Held(self.now + delay, queue, body, level))
        else:
            assert offset == self.hand_over(queue, body)
        self.acknowledge(level)

    @rule(ms=st.sampled_from([1, 39, 3_600_000]))
    def deliver(self, ms):
        self.advance(ms)
        due = [each for each in self.held if each.due <= self.now]
        assert self.log.deliver_due() == len(due)
        self.held = [each for each in self.held if each.due > self.now]
        for each in sorted(due, key=lambda each: each.due):  # stable: as they were appended
            self.hand_over(each.queue, each.body)
        if due:
            self.acknowledge(Level.DISK)

    @rule(queue=QUEUES, body=BODIES, level=LEVELS)
    def append(self, queue, body, level):
        offset = self.hand_over(queue, body)
        found = self.log.append(
            topic=queue[0], queue_id=queue[1], body=body, durability=level.name.lower(),
            keys=keys_of(body), expect_offset=offset,
        )  # fmt: skip
        assert found == offset
        self.acknowledge(level)  # what was appended before is written and synced with it

    @rule(queue=QUEUES, wrong=st.integers(1, 3))
    def expect_another_offset(self, queue, wrong):
        held = len(self.model.handed.get(queue, ()))
        with pytest.raises(OffsetMismatchError) as told:
            self.log.append(topic=queue[0], queue_id=queue[1], body=b"", expect_offset=held + wrong)
        assert told.value.next_offset == held
        self.acknowledge(Level.DISK)

    @rule(rows=st.lists(st.tuples(QUEUES, BODIES), max_size=60), level=LEVELS)
    def append_batch(self, rows, level):
        offsets = [self.hand_over(queue, body) for queue, body in rows]
        receipt = self.log.append_batch(
            topic=[queue[0] for queue, _ in rows], queue_id=[queue[1] for queue, _ in rows],
            body=[body for _, body in rows], keys=[keys_of(body) for _, body in rows],
            durability=level.name.lower(),
        )  # fmt: skip
        assert receipt.offsets.tolist() == offsets
        if rows:
            self.acknowledge(level)

    @rule(level=LEVELS)
    def flush(self, level):
        self.log.flush(level.name.lower())
        self.acknowledge(level)

    @rule()
    def roll(self):
        self.log.roll()
        self.acknowledge(Level.OS)

    @rule()
    def compact(self):
        self.log.run_compaction()

    @rule()
    def a_day_goes_by(self):
        self.advance(1000 * DAY_S)

    def advance(self, ms):
        """What was sealed a day ago of the topic with a retention is hidden; housekeeping takes it later."""
        clock = self.log._components.seams.clock
        clock.advance(ms / 1000)
        self.now = clock.now_ms()
        old = self.now - 1000 * DAY_S
        sealed = [h for h in self.files() if h.sealed_at_ms is not None and h.sealed_at_ms <= old]
        self.lose(sealed, [queue for queue in self.model.handed if queue[0] == "b"])

    @rule()
    def expire(self):
        self.log.run_compaction()
        states = (FileState.COMPACTED, FileState.UPLOADED)
        compacted = [h for h in self.files() if h.state in states]
        held = [handle.acquire() for handle in compacted]
        now_ms = self.log._components.seams.clock.now_ms()
        gone = self.log.expire(before=now_ms + 1)
        ids = {file.file_id for file in gone}
        left = [handle for handle in compacted if handle.file_id not in ids]
        marks = [h for h in left if h.reader.extent(TIMER_TOPIC, MARKS_QUEUE, Level.DISK)]
        assert self.held or left == marks, (
            "what waits keeps its file, and marks outlive what is delivered"
        )
        self.lose([h for h in compacted if h.file_id in ids], list(self.model.handed))
        for handle in held:
            handle.release()

    def files(self):
        return list(self.log._components.table.version.files.iterate())

    @rule()
    def roll_index(self):
        self.log.index.roll()

    @rule()
    def sync_index(self):
        """It may be durable before the log is."""
        self.log.get("a", key="every")
        self.log.index.flush("disk")

    @rule(topic=st.sampled_from(["a", "b", "größe"]), length=st.integers(0, 4))
    def get(self, topic, length):
        key = "every" if length == 4 else f"length-{length}"
        answer = self.log.get(topic, key=key, max_count=1000, visible="received")
        self.acknowledge(Level.OS)  # what was staged was written for it
        assert answer.complete, answer.missing
        found = sorted((m.queue_id, m.offset, m.body) for m in answer)
        wanted = sorted(
            (queue_id, offset, body)
            for (name, queue_id), held in self.model.handed.items()
            if name == topic
            for offset, body in enumerate(held)
            if body is not None and key in keys_of(body)
        )
        if topic == "b":  # a published index file may go as soon as its own retention is over
            old = self.log._components.seams.clock.now_ms() - 1000 * DAY_S
            wanted = [m for m in wanted if m in found or self.born[("b", m[0]), m[1]] > old]
        assert found == wanted
        gone = self.model.gone
        assert all(place.offset < gone[topic, place.queue_id] for place in answer.expired)
        entries = self.log.index.query(topic, key=key, max_count=1000).entries
        named = sorted((e.queue_id, e.offset) for e in entries)
        kept = [place for place in named if place[1] >= gone.get((topic, place[0]), 0)]
        assert kept == [place[:2] for place in found]

    @rule()
    def close_and_open(self):
        self.log.close()
        self.acknowledge(Level.DISK)
        self.log = self.open()
        assert self.everything() == self.model.handed

    @rule()
    def kill(self):
        self.recover(self.disk.restart(), Level.OS)

    @rule(seed=st.integers(0, 1 << 30))
    def cut_power(self, seed):
        *_, survivor = self.disk.crash_states(limit=3, seed=seed)
        self.recover(survivor, Level.DISK)

    def recover(self, disk, level):
        self.disk = disk
        self.log = self.open()
        found = self.everything()
        for queue, bodies in found.items():
            assert bodies == self.model.handed[queue][: len(bodies)]
            assert len(bodies) >= self.model.acknowledged[level].get(queue, 0)
        self.model.adopt(found)
        count = sum(hour.message_count for hour in self.log.timers())
        assert count >= sum(each.level >= level for each in self.held)
        self.held = [each._replace(level=Level.DISK) for each in self.held[:count]]

    @invariant()
    def hours_tell_what_waits(self):
        counted = Counter(each.due // HOUR_MS * HOUR_MS for each in self.held)
        assert self.log.timers() == sorted(counted.items())

    @invariant()
    def every_level_answers_what_it_acknowledged(self):
        for level in Level:
            for (topic, queue_id), held in self.model.handed.items():
                end = self.log.end_offset(topic, queue_id, level=level.name.lower())
                if level is Level.RECEIVED:
                    assert end == len(held)
                else:
                    acknowledged = self.model.acknowledged.get(level, {})  # none at `remote`
                    least = acknowledged.get((topic, queue_id), 0)
                    assert least <= end <= len(held)

    def teardown(self):
        if hasattr(self, "log"):
            assert self.everything() == self.model.handed
            topics = {topic for (topic, _), held in self.model.handed.items() if held}
            assert self.log.topics() == sorted(topics)
            self.log.close()


LogMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
TestLog = LogMachine.TestCase
