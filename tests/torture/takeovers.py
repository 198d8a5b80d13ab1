"""Two owners of one node: the newer one takes over at every store call of the older one's work.

The older one is a zombie from there on: whatever it goes on to do, it lists nothing, deletes nothing
that is listed, and stops with FencedError.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.stateful.world import SMALL, UNWELL
from tests.torture.history import History
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.upload import Target
from tierdex.errors import FencedError
from tierdex.ids import SeededIds
from tierdex.lifecycle.manifests.forgotten import NOTHING_FORGOTTEN
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


class InterposedStore:
    """Calls `interpose` once, before or after the nth call; otherwise it is `inner`."""

    def __init__(self, inner, nth, *, after, interpose):
        self.inner, self.nth, self.after, self.interpose = inner, nth, after, interpose
        self.calls = 0

    def __getattr__(self, name):
        attribute = getattr(self.inner, name)
        if not callable(attribute) or name == "close":
            return attribute

        def call(*arguments, **named):
            self.calls += 1
            reached = self.calls == self.nth
            if reached and not self.after:
                self.interpose()
            try:
                return attribute(*arguments, **named)
            finally:
                if reached and self.after:  # whatever the store answered
                    self.interpose()

        return call


class OffsetClock(ManualClock):
    """Another machine's clock: time passes as on the first one, the hour differs."""

    def __init__(self, clock, offset_ms):
        self._clock, self._offset_ms = clock, offset_ms

    def now_ms(self):
        return self._clock.now_ms() + self._offset_ms

    def monotonic(self):
        return self._clock.monotonic()

    def advance(self, seconds):
        self._clock.advance(seconds)


class Takeover:
    """One node, its objects, the owners that it had."""

    def __init__(self, seed, *, merge=True):
        self.clock = ManualClock()
        self.objects = MemoryStore(clock=self.clock)
        self.source = random.Random(seed)
        self.seed = seed
        self.settings = SMALL | {"merge_below_items": 400 if merge else 0, "node": "alpha"}
        self.owners = 0
        self.reached = False

    def open(self, store=None):
        self.owners += 1
        offset_ms = self.source.choice((0, 0, -3_600_000, 7_200_000))
        return Index.open(
            Path("/data"), store=store or self.objects, executor=InlineExecutor(),
            clock=OffsetClock(self.clock, offset_ms),
            ids=SeededIds(self.seed * 1000 + self.owners), **self.settings,
            filesystem=SimulatedFileSystem(clock=self.clock), takeover=True,
        )  # fmt: skip

    def put(self, index, first, count):
        index.put_batch(
            topic="t", keys=[f"K{n}" for n in range(first, first + count)], queue_id=0, size=1,
            offset=list(range(first, first + count)), timestamp=5,
        )  # fmt: skip
        index.roll()

    def live(self, index):
        """Put, publish, merge, expire, collect: everything that writes to the store."""
        for part in range(3):
            self.put(index, index.first + part * 10, 10)
            index.run_compaction()
            self.clock.advance(40)
        index.expire(before=self.clock.now_ms() - 60_000)
        self.clock.advance(4000)
        index.run_compaction()
        self.clock.advance(4000)
        index.run_compaction()

    def take_over(self):
        """Be the newer owner for a while: publish, maybe with a job beside; collect after `skew`."""
        self.reached = True
        newer = self.newer = self.open()
        for part in range(self.rounds):
            self.put(newer, 1000 + part * 10, 10)
            newer.run_compaction()
            if self.source.random() < 0.3:
                self.run_job()
            self.clock.advance(self.skew)
            newer.run_compaction()

    def run_job(self):
        """Merge the node's files into a shared node, as a Spark job does."""
        rows = sorted(_state(self.newer).files.values(), key=lambda row: row.number)
        if len(rows) > 1:
            job = JobNode(self.objects, "jobs")
            to = Target("jobs", job.shared.state.number, 16, NOTHING_FORGOTTEN)
            merged = merge_group(self.objects, [("alpha", row) for row in rows], to)
            job.merge([(merged, ())])

    def run(self, nth, *, after, skew):
        """Take over at the nth store call of the older owner's life; return whether it came to that."""
        self.skew, self.rounds = skew, self.source.randrange(1, 4)
        store = InterposedStore(self.objects, nth, after=after, interpose=self.take_over)
        self.history = History(self.objects, "alpha")
        fenced = False
        try:
            older = self.open(store)
            older.first = 0
            self.live(older)
            if self.reached:  # perhaps by the last call of all: now it has to notice
                self.put(older, 500, 5)
                older.run_compaction()
        except FencedError:
            fenced = True
        except UNWELL as error:
            raise AssertionError(f"a takeover looks like a bad store: {error!r}") from error
        self.calls = store.calls
        if not self.reached:
            return False
        self.history.look()
        self.history.check()
        if not fenced:
            self.check_came_too_early()
            return True
        self.check()
        return True

    def check_came_too_early(self):
        """The takeover was before the older one's own claim, so the older one is the owner."""
        try:
            self.put(self.newer, 2000, 5)
            self.newer.run_compaction()
        except FencedError:
            return
        raise AssertionError("both went on")

    def check(self):
        newer = self.newer
        self.history.check_objects()
        for _ in range(4):
            self.clock.advance(8000)
            newer.run_compaction(yes=True)  # of few objects many are orphans
        listed = {row.object_key for row in _state(newer).files.values()}
        stored = {found.key for found in self.objects.list("nodes/alpha/files/")}
        assert listed == stored, (listed - stored, stored - listed)
        self.history.look()
        self.history.check()
        own = range(1000, 1000 + 10 * self.rounds)
        for n in own:
            answer = newer.query("t", key=f"K{n}")
            assert answer.complete
            assert [entry.offset for entry in answer.entries] == [n]
        fresh = Index.open(store=self.objects, clock=self.clock, background=False)
        everything = [{"topic": "t", "key": f"K{n}"} for n in (*range(40), *own)]
        for answer in fresh.query_batch(everything):
            assert answer.complete
            assert len(answer.entries) <= 1
        fresh.close()
        newer.close()


def _state(index):
    return components_of(index).writing.compactor.components.claim.get().state


def take_over_everywhere(seed=0, step=1):
    """Try each store call of a life, or one of `step`, its two sides and a short and a long stall by turns.

    Return how many takeovers that were.
    """
    nth, done = 1, 0
    while Takeover(seed).run(nth, after=nth % 2 == 0, skew=(0.0, 9000.0)[nth // 2 % 2]):
        nth, done = nth + step, done + 1
    return done
