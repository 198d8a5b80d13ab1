"""Writers, readers, a second process and all background work on one index, changing places at any line.

Each writer puts its messages in order and notes what it began and what was acknowledged. A reader that asks
notes both before and after, so that every answer has a least and a most: nothing acknowledged before
the question may be missing, nothing begun after it may be there, and without faults every answer is
complete.
"""

from __future__ import annotations

import random
from functools import cache, partial
from pathlib import Path

from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.stateful.world import SMALL, UNWELL
from tests.torture.interleaving import Interleaving
from tests.torture.preload import load_everything
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.heartbeat import Heartbeat
from tierdex.compactor.scrub import Scrubber
from tierdex.errors import ClosedError, CorruptFileError, CursorExpiredError
from tierdex.ids import SeededIds
from tierdex.index_service.opening.maintenance import PutFlusher, WriterTending
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

ROOT = Path("/data")
KEYS = 4
FAULTS = {Fault.FAIL_BEFORE: 0.04, Fault.FAIL_AFTER: 0.03, Fault.TIMEOUT_AFTER: 0.03,
          Fault.SHORT_BODY: 0.02, Fault.ALTERED_BODY: 0.02, Fault.TAKEN_BY_OURSELVES: 0.03}  # fmt: skip


class Log:
    """What one writer put: message n has the key n % KEYS and lies at `first` + n."""

    def __init__(self, name, first):
        self.name, self.first = name, first
        self.begun = self.acknowledged = self.in_files = 0  # counts of messages
        self.gone = 0  # below it, messages may have expired

    def wanted(self, key, count):
        return [self.first + n for n in range(count) if n % KEYS == key]

    def check(self, key, found, least, most, gone, limit=1000):
        """`found`: offsets of this writer's entries, as answered."""
        assert found == sorted(set(found), reverse=True), (self.name, "order", found)
        phantoms = set(found) - set(self.wanted(key, most))
        assert not phantoms, (self.name, "never put", phantoms)
        lost = [at for at in self.wanted(key, least) if at not in found and at >= self.first + gone]
        if len(found) >= limit:
            lost = [at for at in lost if at > found[-1]]
        assert not lost, (self.name, f"key {key}: not found", lost, found[:3], least)


class InterleavedIndex:
    """One index, its actors, and what they know."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.threads = Interleaving(seed, every=self.source.choice((8, 30, 100, 300)))
        self.has_faults = self.source.random() < 0.3
        self.expires = self.source.random() < 0.3
        self.closes = self.source.random() < 0.3
        self.logs = [Log("a", 0), Log("b", 1_000_000)]
        self.writing = len(self.logs)
        self.asked = self.complete = 0
        with self.threads.locks():
            self.clock = ManualClock()
            self.disk = SimulatedFileSystem(clock=self.clock)
            self.objects = MemoryStore(clock=self.clock)
            self.store = FaultyStore(self.objects, ids=SeededIds(seed), clock=self.clock)
            self.settings = SMALL | {
                "item_capacity": self.source.choice((24, 60)),
                "merge_below_items": self.source.choice((0, 200)),
                "page_cache_bytes": self.source.choice((0, 1 << 20)),
                "sidecar_cache_bytes": self.source.choice((0, 3000, 1 << 20)),
                "slot_count": self.source.choice((1, 16)),
                "grace_time": 1e6,
                "scrub_interval": 1.0,  # a file is due whenever the clock has moved
                "roll_after": self.source.choice((20.0, 3600.0)),
            }
            self.index = self.open(SeededIds(seed + 1))
            self.elsewhere = self.open(SeededIds(seed + 2), read_only=True)

    def open(self, ids, **more):
        return Index.open(
            ROOT, store=self.store, clock=self.clock, ids=ids, filesystem=self.disk,
            executor=InlineExecutor(), **{**self.settings, **more},
        )  # fmt: skip

    @property
    def is_over(self):
        return self.writing == 0

    def run(self):
        parts = components_of(self.index)
        compactor = parts.writing.compactor
        workers = [
            compactor.local, compactor.store, parts.read_view,
            PutFlusher(parts.settings, parts.writing.writer),
            WriterTending(parts.writing.writer, parts.forgetter),
            Scrubber(compactor.components, claims=compactor.claims, scrub_sidecar=lambda row: True),
            Heartbeat(compactor.components, on_fenced=compactor.fence),
        ]  # fmt: skip
        if self.has_faults:
            self.store.chances = FAULTS
        with self.threads.locks():
            bodies = {
                **{f"put {log.name}": lambda log=log: self.put(log) for log in self.logs},
                **{worker.name: lambda worker=worker: self.work(worker) for worker in workers},
                "ask": self.ask, "ask many": self.ask_many, "page": self.page,
                "ask elsewhere": self.ask_elsewhere, "operate": self.operate,
            }  # fmt: skip
            self.threads.run({name: partial(self.live, body) for name, body in bodies.items()})
            self.settle()
        return self

    def live(self, body):
        try:
            body()
        except ClosedError:
            assert self.closes
            assert self.is_over

    # -- actors --------------------------------------------------------------------------------------

    def put(self, log):
        source = random.Random(self.source.random())
        for _ in range(source.randrange(6, 16)):
            self.clock.advance(source.choice((0.0, 0.1, 30.0)))
            chosen = source.random()
            if chosen < 0.4:
                self.put_one(log, source)
            elif chosen < 0.9:
                self.put_batch(log, source.choice((1, 5, 20, 70)), source.choice(("os", "disk")))
            else:
                count = log.acknowledged
                self.index.flush("disk")
                log.in_files = max(log.in_files, count)
        self.writing -= 1
        if self.closes and self.is_over:
            self.index.close()

    def put_one(self, log, source):
        n = log.begun
        log.begun += 1
        level = self.index.put(
            topic="t", keys=[f"{log.name}{n % KEYS}"], queue_id=0, offset=log.first + n, size=1,
            timestamp=n, message_id=f"{log.name}{n}", durability=source.choice(("received", "os")),
        )  # fmt: skip
        log.acknowledged = n + 1
        if level != "received":
            log.in_files = n + 1

    def put_batch(self, log, count, level):
        numbers = range(log.begun, log.begun + count)
        log.begun += count
        self.index.put_batch(
            topic="t", keys=[f"{log.name}{n % KEYS}" for n in numbers], queue_id=0, size=1,
            offset=[log.first + n for n in numbers], timestamp=list(numbers), durability=level,
            message_id=[f"{log.name}{n}" for n in numbers],
        )  # fmt: skip
        log.acknowledged = log.in_files = numbers.stop

    def work(self, worker):
        source = random.Random(self.source.random())
        while not self.is_over:
            try:
                is_idle = worker.step() > 0
            except (*UNWELL, CorruptFileError):
                assert self.has_faults or self.closes
                is_idle = True
            if is_idle:
                self.threads.rest(source.randrange(40))
            self.threads.point()

    def ask(self):
        for source in self.questions():
            log, key = source.choice(self.logs), source.randrange(KEYS)
            limit = source.choice((1, 3, 1000))
            before = log.acknowledged, log.gone
            answer = self.index.query("t", key=f"{log.name}{key}", max_count=limit)
            self.check(log, key, answer, before, limit)
            if before[0] > before[1]:
                n = source.randrange(before[1], before[0])
                answer = self.index.query(message_id=f"{log.name}{n}")
                self.count(answer)
                found = [entry.offset for entry in answer.entries]
                assert found == [log.first + n] or not answer.complete or log.gone > n, (n, found)

    def ask_many(self):
        for source in self.questions():
            log = source.choice(self.logs)
            before = log.acknowledged, log.gone
            answers = self.index.query_batch(
                [
                    {"topic": "t", "key": f"{log.name}{key}", "max_count": 1000}
                    for key in range(KEYS)
                ]
            )
            for key, answer in enumerate(answers):
                self.check(log, key, answer, before)
            if source.random() < 0.5:
                before = log.acknowledged, log.gone
                ids = range(before[1], before[0])
                answers = self.index.query_batch([{"message_id": f"{log.name}{n}"} for n in ids])
                for n, answer in zip(ids, answers, strict=True):
                    found = [entry.offset for entry in answer.entries]
                    assert found == [log.first + n] or not answer.complete or log.gone > n, (
                        n,
                        found,
                    )

    def page(self):
        """Page by page while everything moves: all that was there at the first page is there."""
        for source in self.questions():
            log, key = source.choice(self.logs), source.randrange(KEYS)
            before, found, cursor = (log.acknowledged, log.gone), [], None
            while True:
                try:
                    answer = self.index.query(
                        "t",
                        key=f"{log.name}{key}",
                        max_count=source.choice((1, 2, 5)),
                        cursor=cursor,
                    )
                except CursorExpiredError:
                    break
                except UNWELL:  # the file in which the cursor points could not be read
                    assert self.has_faults
                    break
                found += [entry.offset for entry in answer.entries]
                cursor = answer.next_cursor
                self.count(answer)
                if not answer.complete:
                    break
                if cursor is None:
                    log.check(key, found, before[0], log.begun, max(log.gone, before[1]))
                    break

    def ask_elsewhere(self):
        """Another process: what it has shown it shows again; what was in files before a refresh, too."""
        seen = {}
        for source in self.questions():
            log, key = source.choice(self.logs), source.randrange(KEYS)
            least = seen.get((log.name, key), 0)
            if source.random() < 0.6:
                least = max(least, log.in_files)
                self.refresh_elsewhere()
            before = least, log.gone
            answer = self.elsewhere.query("t", key=f"{log.name}{key}", max_count=1000)
            self.check(log, key, answer, before)
            if answer.complete and answer.entries:
                newest = max(entry.offset for entry in answer.entries) - log.first
                seen[log.name, key] = max(least, newest + 1)

    def refresh_elsewhere(self):
        self.elsewhere.refresh()

    def operate(self):
        for source in self.questions():
            chosen = source.random()
            try:
                if chosen < 0.3:
                    self.index.roll()
                elif chosen < 0.5:
                    self.index.run_compaction()
                elif chosen < 0.6 and self.expires:
                    self.expire()
                elif chosen < 0.8:
                    self.watermark()
                else:
                    self.index.files()
                    self.index.compaction_status()
            except (*UNWELL, CorruptFileError):
                assert self.has_faults

    def expire(self):
        for log in self.logs:
            log.gone = 1 << 40  # whatever is put meanwhile may go as well
        try:
            self.index.expire(before=self.clock.now_ms())
        finally:
            for log in self.logs:
                log.gone = log.begun

    def watermark(self):
        # Both writers put to one queue: the greatest end is b's as soon as it put anything.
        least = self.logs[1].in_files
        marks = self.index.watermark("t", 0)
        if least:
            assert marks["os"] >= self.logs[1].first + least, (marks, least)
        ends = [-1 if marks[level] is None else marks[level] for level in ("remote", "disk", "os")]
        assert ends == sorted(ends), marks

    def questions(self):
        source = random.Random(self.source.random())
        while not self.is_over:
            try:
                yield source
            except GeneratorExit:
                return
            self.threads.point()

    # -- comparing -----------------------------------------------------------------------------------

    def count(self, answer):
        self.asked += 1
        self.complete += answer.complete
        assert answer.complete or self.has_faults, answer.missing

    def check(self, log, key, answer, before, limit=1000):
        self.count(answer)
        found = [entry.offset for entry in answer.entries]
        least, gone = before
        log.check(
            key, found, least if answer.complete else 0, log.begun, max(gone, log.gone), limit
        )  # fmt: skip

    def settle(self):
        """Everything is well again, and done: exactly what was acknowledged, in its last state."""
        self.store.chances = {}
        if self.closes:
            self.index = self.open(SeededIds(99))
        self.clock.advance(100)
        self.index.roll()
        self.index.run_compaction()
        self.elsewhere.refresh()
        self.index.refresh()
        for index in (self.index, self.elsewhere):
            for log in self.logs:
                assert log.begun == log.acknowledged
                for key in range(KEYS):
                    answer = index.query("t", key=f"{log.name}{key}", max_count=1000)
                    assert answer.complete, answer.missing
                    self.check(log, key, answer, (log.acknowledged, log.gone))
            assert components_of(index).table.check() == []
        for info in self.index.files():
            assert self.index.verify_file(info.file_id) == [], info
        self.elsewhere.close()
        self.index.close()


def interleave(seed):
    """Run one seed; return what was run."""
    _load_once()
    try:
        return InterleavedIndex(seed).run()
    except BaseException as error:
        error.add_note(f"interleaving seed {seed}")
        raise


@cache
def _load_once():
    load_everything()  # a module that one actor loads would hold up another for real
