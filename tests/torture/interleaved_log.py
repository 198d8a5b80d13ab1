"""Every reader of a message log beside every change of the state of its files, changing places at any line.

::

    changes   append, roll, seal, compact, publish, drop, merge, expire, forget, deliver
    readers   read, read_many, reader, read by time, get by key and ID, timers, lists, verify
              the same in a log that another process follows, and in one that is mounted from the store

Nothing fails here: each call answers. A message at an offset is the one that was appended there, or it is
hidden because it was forgotten; what was acknowledged before a question and neither expired nor was
forgotten is in its answer.
"""

from __future__ import annotations

import random
from functools import cache, partial

from tests.log_service.log_world import DATA
from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.torture.interleaving import Interleaving
from tests.torture.preload import load_everything
from tierdex.clock import ManualClock
from tierdex.errors import NotFoundError, UnavailableError
from tierdex.ids import SeededIds
from tierdex.log_service.message_log import MessageLog
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

QUEUES = [("a", 0), ("a", 1), ("b", 7)]
KEYS = 4
HELD = "held"
BUSY = (UnavailableError,)  # a merge or a request to forget that finds another one at work


class InterleavedLog:
    """One log, its actors, and what they know."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.threads = Interleaving(seed, every=self.source.choice((8, 30, 100, 300)))
        self.expires = self.source.random() < 0.4
        self.forgets = self.source.random() < 0.5
        self.bodies = {queue: [] for queue in QUEUES}
        self.acknowledged = dict.fromkeys(QUEUES, 0)  # counts of messages
        self.gone = dict.fromkeys(QUEUES, 0)  # below it, messages may have expired
        self.forgotten = set()  # keys that may be hidden
        self.writing = len(QUEUES)
        self.asked = 0
        with self.threads.locks():
            self.clock = ManualClock()
            self.disk = SimulatedFileSystem(clock=self.clock)
            self.store = MemoryStore(clock=self.clock)
            self.settings = {
                "journal_bytes": 288 << 10,
                "max_message_bytes": 8 << 10,
                "slot_count": 16,
                "item_capacity": 100,
                "merge_min_files": 2,
                "roll_after": self.source.choice((20.0, 3600.0)),
                "page_arena_bytes": self.source.choice((0, 1 << 20)),
                "keep_local_bytes": self.source.choice((0, 1 << 20)),
                "grace_time": 1e6,  # what is read elsewhere by an older manifest stays
                "disk_reserve_bytes": 0,
                "max_staleness": 1e6,  # a question may take longer than two jumps of the clock
                "background": False,
                "node": "n",
            }
            self.log = self.open(seed + 1)
            self.follower = self.open(seed + 2, read_only=True)

    def open(self, seed, data=DATA, **more):
        return MessageLog.open(
            data, store=self.store, clock=self.clock, ids=SeededIds(seed), filesystem=self.disk,
            executor=InlineExecutor(), **{**self.settings, **more},
        )  # fmt: skip

    @property
    def is_over(self):
        return self.writing == 0

    def run(self):
        writing = components_of(self.log).writing
        workers = {
            "local": writing.local.step, "chores": writing.housekeeping.step,
            "scrub": writing.scrubber.step, "dispatch": self.log.catch_up,
            "index": self.log.index.run_compaction, "all": self.log.run_compaction,
        }  # fmt: skip
        with self.threads.locks():
            bodies = {
                **{f"append {q}": partial(self.append, q) for q in QUEUES},
                **{name: partial(self.work, step) for name, step in workers.items()},
                "read": self.read, "read many": self.read_many, "get": self.get,
                "look": self.look, "follow": self.follow, "operate": self.operate,
            }  # fmt: skip
            self.threads.run(bodies)
            self.settle()
        return self

    # -- changes ---------------------------------------------------------------------------------------

    def append(self, queue):
        source = random.Random(self.source.random())
        for _ in range(source.randrange(6, 14)):
            self.clock.advance(source.choice((0.0, 0.1, 30.0)))
            count = source.choice((1, 3, 20))
            numbers = range(len(self.bodies[queue]), len(self.bodies[queue]) + count)
            bodies = [b"%s %d %d" % (queue[0].encode(), queue[1], n) for n in numbers]
            self.bodies[queue] += bodies
            self.log.append_batch(
                topic=queue[0], queue_id=queue[1], body=bodies, durability="os",
                keys=[[f"k{n % KEYS}"] for n in numbers],
                message_id=[f"{queue[0]}{queue[1]}-{n}" for n in numbers],
            )  # fmt: skip
            self.acknowledged[queue] = numbers.stop
            if source.random() < 0.2:
                self.log.append(
                    topic=HELD, queue_id=0, body=b"later", deliver_at=self.clock.now_ms() + 60_000
                )
            if source.random() < 0.3:
                self.log.roll()
        self.writing -= 1

    def work(self, step):
        source = random.Random(self.source.random())
        while not self.is_over:
            is_idle = step()
            if not isinstance(is_idle, float) or is_idle > 0:
                self.threads.rest(source.randrange(40))
            self.threads.point()

    def operate(self):
        for source in self.questions():
            chosen = source.random()
            if chosen < 0.3:
                self.log.roll()
            elif chosen < 0.5:
                self.log.deliver_due()
            elif chosen < 0.7 and self.expires:
                self.expire()
            elif self.forgets:
                self.forget(source)

    def expire(self):
        for queue in QUEUES:
            self.gone[queue] = 1 << 40  # whatever is appended meanwhile may go as well
        self.log.expire(before=self.clock.now_ms() + 1)
        for queue in QUEUES:
            self.gone[queue] = len(self.bodies[queue])

    def forget(self, source):
        topic, key = source.choice(("a", "b")), f"k{source.randrange(KEYS)}"
        is_dry = source.random() < 0.3
        if not is_dry:
            self.forgotten.add((topic, key))
        try:
            self.log.forget(topic, key=key, dry_run=is_dry, now=source.random() < 0.5)
            for each in self.log.forgettings():
                self.log.resume_forgetting(each)
        except BUSY:
            return
        except NotFoundError:  # it has ended since it was listed
            return

    # -- readers ---------------------------------------------------------------------------------------

    def read(self):
        for source in self.questions():
            queue, least = self.chosen(source)
            offset = source.randrange(least + 1)
            if source.random() < 0.5:
                answer = self.log.read(
                    *queue, offset, max_count=source.choice((1, 5, 100)), visible="os"
                )
                self.check(queue, answer, offset, least)
            else:
                messages = list(self.log.reader(*queue, offset=offset))
                self.check_bodies(queue, messages)
            end = self.log.end_offset(*queue, level="os")
            assert end >= least, (queue, end, least)
            begin = self.log.begin_offset(*queue)
            assert begin <= self.gone[queue], (queue, begin)
            self.log.offset_at(*queue, self.clock.now_ms() - source.randrange(100_000))

    def read_many(self):
        for source in self.questions():
            places = []
            for _ in range(source.choice((1, 3, 8))):
                queue, least = self.chosen(source)
                places.append((*queue, source.randrange(least + 1)))
            answers = self.log.read_many(places, max_count=source.choice((1, 50)))
            for (*queue, offset), answer in zip(places, answers, strict=True):
                self.check(tuple(queue), answer, offset, 0)

    def get(self):
        for source in self.questions():
            queue, least = self.chosen(source)
            self.get_one(self.log, source, queue, least)

    def get_one(self, log, source, queue, least):
        if source.random() < 0.5 and least:
            number = source.randrange(least)
            found = log.get(message_id=f"{queue[0]}{queue[1]}-{number}", visible="os")
            self.check_found(found, queue, {number}, f"k{number % KEYS}")
        else:
            key = source.randrange(KEYS)
            wanted = set(range(key, least, KEYS))
            found = log.get(queue[0], key=f"k{key}", max_count=1000, visible="os")
            self.check_found(found, queue, wanted, f"k{key}")

    def look(self):
        for source in self.questions():
            chosen = source.random()
            if chosen < 0.2:
                self.log.timers()
            elif chosen < 0.4:
                for info in self.log.files()[:2]:
                    self.verify(self.log, info.file_id)
            elif chosen < 0.5:
                assert set(self.log.topics()) <= {"a", "b", HELD}
                self.log.queues("a")
            elif chosen < 0.6:
                self.log.compaction_status()
                self.log.waiting_bytes()
                self.log.unpublished_count()
            elif chosen < 0.7:
                self.log.forgettings()
            elif chosen < 0.8:
                self.log.health()
                self.log.index.files()
            else:
                topic, key = source.choice(("a", "b")), f"k{source.randrange(KEYS)}"
                answer = self.log.index.query(topic, key=key, max_count=1000)
                assert answer.complete, answer.missing

    @staticmethod
    def verify(log, file_id):
        try:
            problems = log.verify_file(file_id)
        except NotFoundError:  # it was merged, or expired
            return
        assert problems == [], (file_id, problems)

    def follow(self):
        """Another process: what it has shown it shows again, and what it reads is what was appended."""
        mounted = None
        for source in self.questions():
            queue, _ = self.chosen(source)
            self.follower.refresh()
            self.check_bodies(queue, list(self.follower.reader(*queue)))
            self.get_one(self.follower, source, queue, 0)
            self.follower.timers()
            for info in self.follower.files()[:1]:
                self.verify(self.follower, info.file_id)
            if mounted is None:
                try:
                    mounted = self.open(self.source.randrange(1 << 30), None, read_only=True)
                except NotFoundError:  # nothing is published yet
                    continue
            mounted.refresh()
            self.check_bodies(queue, list(mounted.reader(*queue)))
            self.get_one(mounted, source, queue, 0)
        if mounted is not None:
            mounted.close()

    # -- comparing -------------------------------------------------------------------------------------

    def questions(self):
        source = random.Random(self.source.random())
        while not self.is_over:
            yield source
            self.threads.point()

    def chosen(self, source):
        queue = source.choice(QUEUES)
        return queue, self.acknowledged[queue]

    def check(self, queue, answer, offset, least):
        """`least` messages were acknowledged before the question."""
        self.asked += 1
        assert not answer.missing, (queue, answer.missing)
        self.check_bodies(queue, answer.messages)
        assert answer.begin_offset <= max(self.gone[queue], 0), (queue, answer.begin_offset)
        if answer.begin_offset <= offset < least:
            assert answer.next_offset > offset, (queue, offset, least)

    def check_bodies(self, queue, messages):
        offsets = [message.offset for message in messages]
        assert offsets == sorted(set(offsets)), (queue, offsets)
        for message in messages:
            wanted = self.bodies[queue][message.offset]
            is_hidden = (queue[0], f"k{message.offset % KEYS}") in self.forgotten
            assert message.body == wanted or (is_hidden and message.body == b""), (
                queue, message.offset, message.body,
            )  # fmt: skip

    def check_found(self, found, queue, wanted, key):
        """`wanted` were acknowledged before, in one of the topic's queues."""
        self.asked += 1
        assert not found.missing, found.missing
        places = [(m.topic, m.queue_id, m.offset) for m in found]
        assert len(places) == len(set(places)), places
        for message in found:
            place = (message.topic, message.queue_id)
            assert message.body == self.bodies[place][message.offset], (place, message.offset)
        if (queue[0], key) in self.forgotten:
            return
        own = {offset for topic, queue_id, offset in places if (topic, queue_id) == queue}
        lost = {offset for offset in wanted - own if offset >= self.gone[queue]}
        assert not lost, (queue, key, "not found", sorted(lost))

    def settle(self):
        """Everything is done: exactly what was acknowledged, in its last state."""
        self.clock.advance(1000)
        self.log.roll()
        self.log.run_compaction()
        self.log.deliver_due()
        for queue in QUEUES:
            begin = self.log.begin_offset(*queue)
            assert begin <= self.gone[queue]
            messages = list(self.log.reader(*queue, offset=begin))
            self.check_bodies(queue, messages)
            assert self.log.end_offset(*queue) == len(self.bodies[queue])
            for key in range(KEYS):
                self.check_found(
                    self.log.get(queue[0], key=f"k{key}", max_count=1000),
                    queue, set(range(key, len(self.bodies[queue]), KEYS)), f"k{key}",
                )  # fmt: skip
        for info in self.log.files():
            assert self.log.verify_file(info.file_id) == [], info
        assert components_of(self.log).table.check() == []
        self.follower.close()
        self.log.close()


def interleave_log(seed):
    """Run one seed; return what was run."""
    _load_once()
    try:
        return InterleavedLog(seed).run()
    except BaseException as error:
        error.add_note(f"interleaved log, seed {seed}")
        raise


@cache
def _load_once():
    load_everything()  # a module that one actor loads would hold up another for real
    with MessageLog.open(
        DATA, store=MemoryStore(), filesystem=SimulatedFileSystem(), executor=InlineExecutor(),
        background=False, journal_bytes=288 << 10, max_message_bytes=8 << 10, slot_count=16,
        item_capacity=100, disk_reserve_bytes=0, merge_min_files=2, node="n",
    ) as log:  # fmt: skip
        for number in range(3):
            log.append_batch(topic="a", queue_id=0, body=[b"x"], keys=[["k0"]], message_id=["m"])
            log.append(topic="a", queue_id=0, body=b"y", key="k", deliver_at=1)
            log.roll()
            log.run_compaction()
            log.read("a", 0, 0)
            log.read_many([("a", 0, number)])
            list(log.reader("a", 0))
            log.get("a", key="k0")
            log.offset_at("a", 0, 0)
        log.forget("a", key="k0", now=True)
        for info in log.files():
            log.verify_file(info.file_id)
