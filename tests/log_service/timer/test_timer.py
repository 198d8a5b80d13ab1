"""Messages with a `deliver_at` wait in the log, and go to their queues when due: each once, in order."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from tests.log_service.keyed_world import KeyedWorld
from tests.log_service.log_world import DATA, open_log
from tests.simulation.simulated_disk import SimulatedCrash, SimulatedFileSystem
from tierdex.errors import InvalidRequestError, UnavailableError
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.message_log import MessageLog
from tierdex.testing.components import components_of

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR + 17 * 60_000


class World:
    """A log without threads whose clock stands until it is moved."""

    def __init__(self, **settings) -> None:
        self.keyed = KeyedWorld()
        self.settings = settings
        self.log = self.open()
        self.set(T0)

    def open(self, now_ms=None):
        log = self.keyed.open(**self.settings)
        if now_ms is not None:
            self.log = log
            self.set(now_ms)
        return log

    @property
    def clock(self):
        return components_of(self.log).seams.clock

    def set(self, now_ms) -> None:
        self.clock.advance((now_ms - self.clock.now_ms()) / 1000)

    def hold(self, body, deliver_at, topic="t", queue_id=0, **more) -> int:
        return self.log.append(
            topic=topic, queue_id=queue_id, body=body, deliver_at=deliver_at, **more
        )

    def bodies(self, topic="t", queue_id=0, visible="disk"):
        return [m.body for m in self.log.reader(topic, queue_id, visible=visible)]


def test_message_is_delivered_when_it_is_due_and_not_before():
    world = World()
    assert world.hold(b"later", T0 + 1000, keys=["K"], message_id="M", headers=[("h", b"v")]) == -1
    assert world.log.deliver_due() == 0
    assert world.bodies() == []
    assert not len(world.log.get("t", key="K"))
    assert world.log.topics() == []
    world.set(T0 + 999)
    assert world.log.deliver_due() == 0
    world.set(T0 + 1000)
    assert world.log.deliver_due() == 1
    (message,) = world.log.read("t", 0, 0).messages
    assert (message.body, message.timestamp, message.deliver_at) == (b"later", T0 + 1000, T0 + 1000)
    assert (message.keys, message.message_id, message.headers) == (("K",), "M", (("h", b"v"),))
    assert world.log.get("t", key="K").messages == world.log.get(message_id="M").messages
    assert [m.offset for m in world.log.get("t", key="K")] == [0]
    assert world.log.deliver_due() == 0
    assert world.log.topics() == ["t"]


def test_messages_come_in_the_order_in_which_they_are_due_across_queues_and_hours():
    world = World()
    due = [
        (b"%d" % n, T0 + int(ms))
        for n, ms in enumerate(np.random.default_rng(1).integers(1, 5 * HOUR, 500))
    ]
    for n, (body, at) in enumerate(due):
        assert world.hold(body, at, queue_id=n % 3) == -1
    world.set(T0 + HOUR)
    world.log.deliver_due()
    world.set(T0 + 5 * HOUR)
    world.log.deliver_due()
    for queue_id in range(3):
        expected = [body for body, _ in sorted(due[queue_id::3], key=lambda each: each[1])]
        assert world.bodies(queue_id=queue_id) == expected


def test_messages_due_together_come_in_the_order_in_which_they_were_appended():
    world = World()
    world.log.append_batch(
        topic="t", queue_id=0, body=[b"%d" % n for n in range(9000)], deliver_at=T0 + 5,
    )  # fmt: skip
    world.set(T0 + 5)
    assert world.log.deliver_due() == 9000  # more than two batches
    assert world.bodies() == [b"%d" % n for n in range(9000)]


def test_late_message_goes_straight_to_its_queue():
    world = World()
    assert world.hold(b"late", T0 - 5) == 0
    assert world.hold(b"now", T0) == 1
    assert world.hold(b"ancient", -5) == 2
    found = world.log.read("t", 0, 0).messages
    assert [(m.body, m.timestamp, m.deliver_at) for m in found] == [
        (b"late", T0, T0 - 5), (b"now", T0, T0), (b"ancient", T0, -5),
    ]  # fmt: skip
    assert world.log.timers() == []


def test_nothing_is_held_that_is_due_before_what_was_delivered_though_the_clock_goes_back():
    world = World()
    world.hold(b"a", T0 + 1000)
    world.set(T0 + 1000)
    world.log.deliver_due()
    world.clock.advance(-10)
    assert world.hold(b"b", T0 + 500) == 1, "no mark stands behind it"
    world.log.close()
    world.open(T0 - 9000)
    assert world.hold(b"c", T0 + 1000) == 2
    assert world.hold(b"d", T0 + 1001) == -1
    world.set(T0 + 1001)
    assert world.log.deliver_due() == 1
    assert world.bodies() == [b"a", b"b", b"c", b"d"]


def test_batch_holds_what_is_later_and_appends_the_rest_in_its_place():
    world = World()
    receipt = world.log.append_batch(
        topic=["t", "u", "t", "t"], queue_id=[0, 1, 0, 0], body=[b"a", b"b", b"c", b"d"],
        keys=pa.array(["ka", "kb", "kc", "kd"]), deliver_at=[None, T0 + 1, T0 - 1, T0 + 2],
        timestamp=[1, 2, 3, 4],
    )  # fmt: skip
    assert receipt.offsets.tolist() == [0, -1, 1, -1]
    world.set(T0 + 2)
    assert world.log.deliver_due() == 2
    assert [(m.body, m.timestamp) for m in world.log.reader("t", 0)] == [
        (b"a", 1),
        (b"c", 3),
        (b"d", 4),
    ]
    assert [(m.body, m.timestamp) for m in world.log.get("u", key="kb")] == [(b"b", 2)]
    table = world.log.read_arrow("t", 0, 0)
    assert table["deliver_at"].to_pylist() == [None, T0 - 1, T0 + 2]


@pytest.mark.parametrize("state", ["unsealed", "sealed", "compacted"])
def test_delayed_messages_go_through_every_state_of_a_file_and_over_an_opening(state):
    world = World()
    for n in range(50):
        world.hold(b"%d" % n, T0 + n + 1, keys=[f"K{n}"])
    if state != "unsealed":
        world.log.roll()
    if state == "compacted":
        world.log.run_compaction()
    world.set(T0 + 20)
    assert world.log.deliver_due() == 20
    world.log.close()
    world.open(T0 + 20)
    assert world.log.timers() == [(T0 // HOUR * HOUR, 30)]
    world.set(T0 + HOUR)
    assert world.log.deliver_due() == 30
    assert world.bodies() == [b"%d" % n for n in range(50)]
    assert world.log.timers() == []
    assert [m.body for m in world.log.get("t", key="K33")] == [b"33"]
    assert len(world.log.index.query("t", key="K33").entries) == 1


def test_timers_tell_how_many_messages_wait_in_each_hour(tmp_path):
    settings = {
        "journal_bytes": 1 << 20,
        "max_message_bytes": 64 << 10,
        "disk_reserve_bytes": 0,
        "node": "n",
    }
    with MessageLog.open(tmp_path, background=False, **settings) as log:
        now = components_of(log).seams.clock.now_ms() // HOUR * HOUR
        at = [now + hours * HOUR + 1 for hours in (1, 9, 9, 1000)]
        log.append_batch(topic="t", queue_id=0, body=[b"x"] * 4, deliver_at=at)
        expected = [(now + HOUR, 1), (now + 9 * HOUR, 2), (now + 1000 * HOUR, 1)]
        assert log.timers() == expected
        with MessageLog.open(tmp_path, read_only=True, **settings) as reader:
            assert reader.timers() == expected


def test_large_messages_are_delivered_a_batch_each():
    world = World()
    bodies = [bytes([n]) * 8192 for n in range(40)]
    for n, body in enumerate(bodies):
        world.hold(body, T0 + 1 + n // 7)
    world.set(T0 + HOUR)
    assert world.log.deliver_due() == 40
    assert world.bodies() == bodies


def test_failed_sync_delivers_nothing_twice_and_nothing_never():
    world = World()
    for n in range(10):
        world.hold(b"%d" % n, T0 + 1 + n)
    world.set(T0 + 5)
    world.keyed.disk.fail("sync")
    with pytest.raises(UnavailableError):
        world.log.deliver_due()
    world.log.append(topic="t", queue_id=1, body=b"mends")
    world.log.deliver_due()
    world.set(T0 + HOUR)
    world.log.deliver_due()
    assert world.bodies() == [b"%d" % n for n in range(10)]


def test_background_delivers_in_time(tmp_path):
    settings = {"journal_bytes": 1 << 20, "max_message_bytes": 64 << 10, "disk_reserve_bytes": 0}
    with MessageLog.open(tmp_path, node="n", **settings) as log:
        now = components_of(log).seams.clock.now_ms()
        assert log.append(topic="t", queue_id=0, body=b"second", deliver_at=now + 400) == -1
        assert log.append(topic="t", queue_id=0, body=b"first", deliver_at=now + 200) == -1
        assert [m.body for m in log.read("t", 0, 0, wait=60).messages] == [b"first"]
        assert [m.body for m in log.read("t", 0, 1, wait=60).messages] == [b"second"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"deliver_at": "soon"}, "deliver_at"),
        ({"deliver_at": 1.5}, "deliver_at"),
        ({"deliver_at": 1_700_000_000}, "deliver_at"),  # seconds
        ({"deliver_at": (1 << 31) * HOUR}, "deliver_at"),
        ({"deliver_at": 1 << 70}, "deliver_at"),
        ({"deliver_at": T0 + 1, "expect_offset": 0}, "expect_offset"),
        ({"topic": "\0timer"}, "topic"),
    ],
)
def test_bad_times_are_refused(given, field):
    world = World()
    world.hold(b"x", T0 + 1)
    with pytest.raises(InvalidRequestError) as told:
        world.log.append(**{"topic": "t", "queue_id": (T0 // HOUR), "body": b"x", **given})
    assert told.value.field == field
    assert world.bodies() == []


class Story:
    """Twelve messages are held and delivered by two processes, on a disk that may stop at any call."""

    BODIES = tuple(b"%d" % n for n in range(12))

    def __init__(self) -> None:
        self.disk = SimulatedFileSystem()
        make_durable_folder(self.disk, DATA)
        self.acknowledged = 0
        self.calls: list[int] = []  # of the disk that deliver

    def deliver(self, log) -> int:
        first = len(self.disk.trace)
        count = log.deliver_due()
        self.calls += range(first, len(self.disk.trace) + 1)
        return count

    def run(self) -> None:
        log = open_log(self.disk)
        clock = components_of(log).seams.clock
        now = clock.now_ms()
        for n, body in enumerate(self.BODIES):
            log.append(topic="t", queue_id=n % 2, body=body, deliver_at=now + 1000 * (1 + n // 2))
            self.acknowledged += 1
            if n == 5:
                log.roll()
                clock.advance(2)
                assert self.deliver(log) == 4
                log.run_compaction()
        clock.advance(2)
        assert self.deliver(log) == 4
        log.close()
        log = open_log(self.disk)
        components_of(log).seams.clock.advance(5)
        self.deliver(log)
        log.close()

    def judge(self, disk) -> None:
        log = open_log(disk)
        components_of(log).seams.clock.advance(3600)
        log.deliver_due()
        found = [[m.body for m in log.reader("t", queue_id)] for queue_id in (0, 1)]
        count = sum(map(len, found))
        assert found == [list(self.BODIES[queue_id:count:2]) for queue_id in (0, 1)]
        assert count >= self.acknowledged
        log.close()


def test_killed_or_cut_at_any_call_of_a_delivery_each_message_comes_once_and_in_order():
    story = Story()
    story.run()
    story.judge(story.disk)
    assert len(story.calls) > 10
    for nth in story.calls:
        story = Story()
        story.disk.crash_at(nth)
        with suppress(SimulatedCrash):
            story.run()
        for survivor in story.disk.crash_states(limit=2, seed=nth):
            story.judge(survivor)
        story.judge(story.disk.restart())


def publish(log):
    log.roll()
    log.run_compaction()


def test_messages_that_outlive_the_mark_of_their_delivery_are_not_delivered_again():
    world = World(retention=18_000.0, topic_retention={"kept": 3_000_000.0})
    world.log.append(topic="kept", queue_id=0, body=b"keeps the first file")
    world.hold(b"one", T0 + HOUR)
    publish(world.log)
    world.log.append(topic="t", queue_id=0, body=b"lets its file go")
    world.hold(b"two", T0 + 2 * HOUR)
    publish(world.log)
    world.set(T0 + 3 * HOUR)
    assert world.log.deliver_due() == 2
    publish(world.log)
    world.set(T0 + 20 * HOUR)
    for _ in range(3):
        world.log.expire(before=0)  # what the rules say
    assert len(world.log.files()) == 2  # the first, and the one with the mark
    world.log.close()
    world.open(T0 + 21 * HOUR)
    assert world.log.deliver_due() == 0
    assert world.log.end_offset("t", 0) == 3


def test_files_with_old_marks_go_although_messages_wait():
    world = World(merge_min_files=50)
    for n in range(4):
        world.log.append(topic="t", queue_id=0, body=b"plain %d" % n)
        world.hold(b"%d" % n, T0 + n * HOUR + 1000)
        world.set(T0 + n * HOUR + 2000)
        assert world.log.deliver_due() == 1
        publish(world.log)
    world.hold(b"waits", T0 + 100 * HOUR)
    publish(world.log)
    assert len(world.log.files()) == 8
    world.log.expire(before=world.clock.now_ms() + 1)
    assert len(world.log.files()) == 2  # the last mark, and what waits
    world.log.close()
    world.open(T0 + 101 * HOUR)
    assert world.log.deliver_due() == 1
