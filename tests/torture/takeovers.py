"""Two owners of one node: the newer one takes over at every store call of the older one's work.

The older one is a zombie from there on: whatever it goes on to do, it lists nothing, deletes nothing
that is listed, and stops with FencedError.
"""

from __future__ import annotations

from pathlib import Path

from tests.stateful.world import SMALL, UNWELL
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import FencedError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.scheduler import InlineExecutor
from tierdex.testing.simulated_disk import SimulatedFileSystem


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
            result = attribute(*arguments, **named)
            if reached and self.after:
                self.interpose()
            return result

        return call


class Takeover:
    """One node, its objects, the owners that it had."""

    def __init__(self, seed, *, merge=True):
        self.clock = ManualClock()
        self.objects = MemoryStore(clock=self.clock)
        self.seed = seed
        self.settings = SMALL | {"merge_below_items": 400 if merge else 0, "node": "alpha"}
        self.owners = 0
        self.reached = False

    def open(self, store=None):
        self.owners += 1
        return Index.open(
            Path("/data"), store=store or self.objects, clock=self.clock, executor=InlineExecutor(),
            ids=SeededIds(self.seed * 1000 + self.owners), **self.settings,
            filesystem=SimulatedFileSystem(clock=self.clock),
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
        self.reached = True
        newer = self.open()
        newer.first = 1000
        self.put(newer, 1000, 10)
        newer.run_compaction()
        self.clock.advance(self.skew)
        newer.run_compaction()
        self.newer = newer

    def run(self, nth, *, after, skew):
        """Take over at the nth store call of the older owner's life; return whether it came to that."""
        self.skew = skew
        store = InterposedStore(self.objects, nth, after=after, interpose=self.take_over)
        fenced = False
        try:
            older = self.open(store)
            older.first = 0
            self.live(older)
        except FencedError:
            fenced = True
        except UNWELL as error:
            raise AssertionError(f"a takeover looks like a bad store: {error!r}") from error
        if not self.reached:
            return False
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
        for _ in range(4):
            self.clock.advance(8000)
            newer.run_compaction()
        node = newer._parts.writing.compactor._parts.claim.get()
        listed = {row.object_key for row in node.state.files.values()}
        stored = {found.key for found in self.objects.list("nodes/alpha/files/")}
        assert listed == stored, (listed - stored, stored - listed)
        for n in range(1000, 1010):
            answer = newer.query("t", key=f"K{n}")
            assert answer.complete
            assert [entry.offset for entry in answer.entries] == [n]
        fresh = Index.open(store=self.objects, clock=self.clock, background=False)
        everything = [{"topic": "t", "key": f"K{n}"} for n in (*range(40), *range(1000, 1010))]
        for answer in fresh.query_batch(everything):
            assert answer.complete
            assert len(answer.entries) <= 1
        fresh.close()
        newer.close()


def take_over_everywhere(seed=0, limit=None, skews=(0.0, 9000.0)):
    """Try each store call, both sides of it, a short and a long stall; return how many there were."""
    tried = 0
    for skew in skews:
        for after in (False, True):
            nth = 0
            while True:
                nth += 1
                if not Takeover(seed).run(nth, after=after, skew=skew):
                    break
                tried += 1
                if limit is not None and tried >= limit:
                    return tried
    return tried
