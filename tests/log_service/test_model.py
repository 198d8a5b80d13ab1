"""Any order of appends, rolls, compactions, publication, merges, expiry, deliveries, ends and takeovers.

The log answers as a model does. A message's keys follow from its body, so the model says which messages
each key has to find. What an end may take is what was not acknowledged at its level: `os` outlives a kill,
`disk` a power cut, `remote` the disk.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.log_service.keyed_world import TINY_INDEX
from tests.log_service.log_world import DATA, Model, everything, open_log
from tests.log_service.store_listing import published_files
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.errors import (
    FencedError,
    LossyTakeoverError,
    OffsetMismatchError,
    UnavailableError,
)
from tierdex.filesystem import make_durable_folder
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.levels import Level
from tierdex.logfile.layout import HOUR_MS, MARKS_QUEUE, TIMER_TOPIC
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

if TYPE_CHECKING:
    from tierdex.log_service.message_log import MessageLog

DAY_MS = 86_400_000
RETENTION_MS = 3 * DAY_MS  # of the node
TOPIC_RETENTION_MS = {"b": DAY_MS}
QUEUES = st.tuples(st.sampled_from(["a", "b", "größe"]), st.sampled_from([0, 1, 2**31 - 1]))
BODIES = st.binary(max_size=200) | st.integers(0, 8000).map(lambda size: b"\xff" * size)
LEVELS = st.sampled_from([Level.RECEIVED, Level.OS, Level.DISK, Level.REMOTE])
DELAYS = st.sampled_from([-7, 0, 1, 40, 41, 3_600_000, 9_000_000])  # ms


def keys_of(body: bytes) -> list[str]:
    return ["every", f"length-{len(body) % 4}"] if body else []


def names_of(handle) -> set[bytes]:
    topics = handle.reader.file.topics
    return {topics.name(number) for number in range(len(topics))}


def new_disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    return disk


class Held(NamedTuple):
    """A message for later. `level`: what was acknowledged for it; `offset`: where it was delivered."""

    due: int
    queue: tuple[str, int]
    body: bytes
    level: Level
    offset: int | None = None


class Stale(NamedTuple):
    """A log whose node another disk's took, what it held then, and from where on no other disk has it."""

    log: MessageLog
    disk: SimulatedFileSystem
    model: Model
    taken: dict[tuple[str, int], int]


class LogMachine(RuleBasedStateMachine):
    """A log beside its model. After an unclean end the model goes on with what was found."""

    @initialize()
    def begin(self):
        self.disk = new_disk()
        self.former: SimulatedFileSystem | None = (
            None  # had the node before, and gave all of it away
        )
        self.stale: Stale | None = None
        self.adopted = 0
        self.model = Model()
        self.store = FaultyStore(MemoryStore())
        self.now = 0
        self.held: list[Held] = []  # in order of their appends
        self.born: dict[tuple[tuple[str, int], int], int] = {}  # when each offset was given
        self.seen: dict[tuple[tuple[str, int], int, int], bytes] = {}
        self.log = self.open()

    def open(self, **claim):
        settings = {
            "merge_min_files": 2,
            "keep_local_bytes": 20_000,
            "retention": RETENTION_MS / 1000,
            "topic_retention": {topic: ms / 1000 for topic, ms in TOPIC_RETENTION_MS.items()},
            **TINY_INDEX,
            **claim,
        }
        log = open_log(self.disk, now_ms=self.now, store=self.store, **settings)
        self.now = components_of(log).seams.clock.now_ms()
        return log

    def hand_over(self, queue, body):
        offset = self.model.hand_over(queue, body)
        self.born[queue, offset] = self.now
        return offset

    def acknowledge(self, level):
        self.model.acknowledge(level)
        self.held = [each._replace(level=max(each.level, level)) for each in self.held]

    def waiting(self):
        return [each for each in self.held if each.offset is None]

    def everything(self):
        return everything(self.log, self.model.handed, gone=self.model.gone)

    def remember(self):
        """Note what is read now: an offset shows one message under one generation, for ever."""
        for queue in self.model.handed:
            offset = self.log.begin_offset(*queue)
            while len(answer := self.log.read(*queue, offset, visible="received")):
                for message in answer.messages:
                    place = queue, message.offset, answer.generation
                    assert self.seen.setdefault(place, message.body) == message.body
                offset = answer.next_offset

    def least(self, level, queue):
        """Return where a queue ends at least: what expired before it was published is not `remote`."""
        acknowledged = self.model.acknowledged[level].get(queue, 0)
        is_gone = level is Level.REMOTE and acknowledged <= self.model.gone.get(queue, 0)
        return 0 if is_gone else acknowledged

    def lose(self, files, queues):
        """Note that what these files have of the queues is gone."""
        for topic, queue_id in queues:
            parts = [file.reader.extent(topic.encode(), queue_id, Level.DISK) for file in files]
            ends = [part.next_offset for part in parts if part is not None]
            self.model.lose((topic, queue_id), max(ends, default=0))

    def look_at_begins(self):
        for queue in self.model.handed:
            assert self.log.begin_offset(*queue) == self.model.gone.get(queue, 0)

    @rule(queue=QUEUES, body=BODIES, level=LEVELS, delay=DELAYS)
    def append_for_later(self, queue, body, level, delay):
        due = self.now + delay
        offset = self.log.append(
            topic=queue[0], queue_id=queue[1], body=body, keys=keys_of(body),
            deliver_at=due, durability=level.name.lower(),
        )  # fmt: skip
        if delay > 0:
            assert offset == -1
            self.held.append(Held(due, queue, body, level))
        else:
            assert offset == self.hand_over(queue, body)
        self.acknowledge(level)
        self.advance(0)

    @rule(ms=st.sampled_from([1, 39, 3_600_000]))
    def deliver(self, ms):
        self.advance(ms)
        due = [each for each in self.waiting() if each.due <= self.now]
        assert self.log.deliver_due() == len(due)
        for each in sorted(due, key=lambda each: each.due):  # stable: as they were appended
            offset = self.hand_over(each.queue, each.body)
            self.held[self.held.index(each)] = each._replace(offset=offset)
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
        self.advance(0)

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
        self.advance(0)

    @rule(level=LEVELS)
    def flush(self, level):
        self.log.flush(level.name.lower())
        self.acknowledge(level)
        self.advance(0)

    @rule(queue=QUEUES, body=BODIES)
    def append_while_the_store_is_away(self, queue, body):
        offset = self.hand_over(queue, body)
        with self.store.outage(), pytest.raises(UnavailableError):
            self.log.append(topic=queue[0], queue_id=queue[1], body=body, keys=keys_of(body),
                            durability="remote")  # fmt: skip
        self.log.index.refresh()
        assert self.log.end_offset(*queue, level="remote") <= offset
        self.acknowledge(Level.DISK)
        self.advance(0)

    @rule()
    def read_what_is_published(self):
        """Its end is said as it is read, for each queue at `remote`."""
        for queue, held in self.model.handed.items():
            end = self.log.end_offset(*queue, level="remote")
            answer = self.log.read(
                *queue, 0, visible="remote", max_count=1_000_000, max_bytes=1 << 29
            )
            assert answer.complete, answer.missing
            begin = answer.begin_offset
            assert [message.body for message in answer.messages] == held[begin:end]

    @rule()
    def roll(self):
        self.log.roll()
        self.acknowledge(Level.OS)

    @rule()
    def compact(self):
        self.log.run_compaction()

    @rule(days=st.sampled_from([1, 3]))
    def days_go_by(self, days):
        self.advance(days * DAY_MS)

    def advance(self, ms):
        """Let time go by: what was sealed too long ago for its topic is hidden; it goes later."""
        clock = components_of(self.log).seams.clock
        clock.advance(ms / 1000)
        self.now = clock.now_ms()
        for topic in {topic for topic, _ in self.model.handed}:
            old = self.now - TOPIC_RETENTION_MS.get(topic, RETENTION_MS)
            sealed = [
                h for h in self.files() if h.sealed_at_ms is not None and h.sealed_at_ms <= old
            ]
            self.lose(sealed, [queue for queue in self.model.handed if queue[0] == topic])
        self.look_at_begins()

    @rule()
    def expire(self):
        self.log.run_compaction()
        states = (FileState.COMPACTED, FileState.UPLOADED)
        compacted = [h for h in self.files() if h.state in states]
        held = [handle.acquire() for handle in compacted]
        now_ms = components_of(self.log).seams.clock.now_ms()
        gone = self.log.expire(before=now_ms + 1)
        ids = {file.file_id for file in gone}
        left = [handle for handle in compacted if handle.file_id not in ids]
        assert all(TIMER_TOPIC in names_of(h) for h in left), "what waits keeps its file"
        marks = [h for h in left if h.reader.extent(TIMER_TOPIC, MARKS_QUEUE, Level.DISK)]
        if not self.waiting() and not self.log.unpublished_count():
            assert left == marks, "marks outlive what is delivered"
        self.lose([h for h in compacted if h.file_id in ids], list(self.model.handed))
        self.look_at_begins()
        for handle in held:
            handle.release()

    def files(self):
        return list(components_of(self.log).table.version.files.iterate())

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
        # A published index file may go as soon as its own retention is over.
        old = self.now - TOPIC_RETENTION_MS.get(topic, RETENTION_MS)
        wanted = [m for m in wanted if m in found or self.born[(topic, m[0]), m[1]] > old]
        assert found == wanted
        gone = self.model.gone
        assert all(place.offset < gone[topic, place.queue_id] for place in answer.expired)
        entries = self.log.index.query(topic, key=key, max_count=1000).entries
        named = sorted((e.queue_id, e.offset) for e in entries if e.node == self.log.node)
        kept = [place for place in named if place[1] >= gone.get((topic, place[0]), 0)]
        assert kept == [place[:2] for place in found]

    # -- ends --------------------------------------------------------------------------------------------

    @rule()
    def close_and_open(self):
        self.log.close()
        self.acknowledge(Level.DISK)
        self.log = self.open()
        assert self.everything() == self.model.handed

    @rule()
    def kill(self):
        self.remember()
        self.disk = self.disk.restart()
        self.recover(Level.OS)

    @rule(seed=st.integers(0, 1 << 30))
    def cut_power(self, seed):
        self.remember()
        *_, self.disk = self.disk.crash_states(limit=3, seed=seed)
        self.recover(Level.DISK)

    def recover(self, level, **claim):
        """Open what is left after an end that `level` outlives; go on with what is found."""
        self.log = self.open(**claim)
        for (
            queue,
            begin,
        ) in self.model.gone.items():  # of what is lost it may also be lost that it expired
            self.model.gone[queue] = min(begin, self.log.end_offset(*queue, level="received"))
        found = self.everything()
        for queue, bodies in found.items():
            held = [None] * self.model.gone.get(queue, 0)
            held += self.model.handed[queue][len(held) :]
            assert bodies == held[: len(bodies)]
            assert len(bodies) >= self.least(level, queue)
        self.model.adopt(found)
        self.keep_held(level)
        self.acknowledge(level)
        self.remember()

    def keep_held(self, level):
        """Go on with the messages for later that are left: the first so many of those not delivered."""
        lasting = [each for each in self.held if self.is_delivered(each)]
        others = [each._replace(offset=None) for each in self.held if not self.is_delivered(each)]
        count = sum(hour.message_count for hour in self.log.timers())
        assert count >= sum(each.level >= level for each in others)
        left = [each._replace(level=max(each.level, Level.DISK)) for each in others[:count]]
        self.held = lasting + left

    def is_delivered(self, held):
        return held.offset is not None and held.offset < len(self.model.handed[held.queue])

    # -- takeovers ---------------------------------------------------------------------------------------

    @rule(goes_back=st.booleans())
    def hand_over_to_another_disk(self, goes_back):
        self.remember()
        self.log.hand_over()
        with pytest.raises(FencedError):
            self.log.append(topic="a", queue_id=0, body=b"too late")
        assert self.log.unpublished_count() == 0
        self.advance(0)
        self.acknowledge(Level.REMOTE)
        assert self.everything() == self.model.handed
        self.log.close()
        there = self.former if goes_back and self.former is not None else new_disk()
        self.former, self.disk = self.disk, there
        self.log = self.open(takeover=True)
        assert self.everything() == self.model.handed
        self.remember()

    @rule()
    def lose_the_disk(self):
        """Its owner lives on, as `stale`, and does not know yet."""
        self.remember()
        self.let_stale_go()
        old, disk = self.log, self.disk
        told = Model({queue: list(held) for queue, held in self.model.handed.items()},
                     dict(self.model.gone))  # fmt: skip
        self.disk = new_disk()
        with pytest.raises(LossyTakeoverError):
            self.open(takeover=True)
        self.recover(Level.REMOTE, takeover="lossy")
        taken = {queue: len(held) for queue, held in self.model.handed.items()}
        self.stale = Stale(old, disk, told, taken)

    @precondition(lambda self: self.stale is not None)
    @rule(queue=QUEUES, body=BODIES)
    def stale_owner_goes_on(self, queue, body):
        log, _, model, _ = self.stale
        before = published_files(self.store)
        if not components_of(log).fenced:
            model.hand_over(queue, body)
            log.append(topic=queue[0], queue_id=queue[1], body=body, keys=keys_of(body))
            log.roll()
            with pytest.raises(FencedError):
                log.run_compaction()
        with pytest.raises(FencedError):
            log.append(topic=queue[0], queue_id=queue[1], body=body)
        assert log.unpublished_count() > 0
        assert published_files(self.store) == before

    @precondition(lambda self: self.stale is not None)
    @rule()
    def adopt_what_the_stale_owner_has(self):
        """Its own part of each queue is a log of another node: nothing between that and ours is lost."""
        _, disk, model, taken = self.stale
        self.let_stale_go()
        here, self.disk = self.disk, disk
        self.adopted += 1
        node = f"rescued-{self.adopted}"
        adopted = self.open(adopt=True, node=node, retention=None, topic_retention={})
        for queue, held in model.handed.items():
            begin, end = adopted.begin_offset(*queue), adopted.end_offset(*queue)
            known = max(taken.get(queue, 0), model.gone.get(queue, 0))
            assert end == len(held) or (end == 0 and len(held) <= known), "given anew"
            assert begin <= known, "a message is neither there nor here"
            answer = adopted.read(*queue, begin, max_count=1_000_000, max_bytes=1 << 29)
            assert answer.complete, answer.missing
            told = [held[message.offset] or message.body for message in answer.messages]
            assert [message.body for message in answer.messages] == told
            assert answer.next_offset == end
        adopted.close()
        self.disk = here

    def let_stale_go(self):
        if self.stale is not None:
            with contextlib.suppress(FencedError):
                self.stale.log.close()
            self.stale = None

    # -- always ------------------------------------------------------------------------------------------

    @invariant()
    def hours_tell_what_waits(self):
        counted = Counter(each.due // HOUR_MS * HOUR_MS for each in self.waiting())
        assert self.log.timers() == sorted(counted.items())

    @invariant()
    def every_level_answers_what_it_acknowledged(self):
        for level in Level:
            for queue, held in self.model.handed.items():
                end = self.log.end_offset(*queue, level=level.name.lower())
                if level is Level.RECEIVED:
                    assert end == len(held)
                else:
                    assert self.least(level, queue) <= end <= len(held)

    def teardown(self):
        if hasattr(self, "log"):
            assert self.everything() == self.model.handed
            topics = {topic for (topic, _), held in self.model.handed.items() if held}
            assert self.log.topics() == sorted(topics)
            self.let_stale_go()
            self.log.close()


LogMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=25, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
TestLog = LogMachine.TestCase
