"""A node whose store loses manifest objects, any of them, and perhaps the hint or all that was newer.

::

    owner lives, publishes, merges, expires, collects  ->  loss  ->  readers, then the owner, then a rollback

Whatever is gone: a reader that answers completely answers everything; the owner's folder opens only over
a store that knows all it knew; nothing that a sound manifest would list is deleted unasked. After an
accepted rollback all readers agree, those as well that had read what was lost.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.stateful.world import SMALL
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import CorruptFileError
from tierdex.ids import SeededIds
from tierdex.lifecycle.paths import StorePaths
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

PATHS = StorePaths("alpha")
HOUR_S = 3600.0


class LostManifest:
    """One node in one case."""

    def __init__(self, seed):
        self.source = random.Random(seed)
        self.seed, self.opened, self.count = seed, 0, 0
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.disk = SimulatedFileSystem(clock=self.clock)
        merges = self.source.random() < 0.5
        self.settings = SMALL | {
            "node": "alpha", "merge_below_items": 60 if merges else 0, "max_staleness": 60.0,
            "checkpoint_every": self.source.choice((1, 2, 4, 16)),
        }  # fmt: skip

    def open(self, **more):
        self.opened += 1
        return Index.open(
            Path("/data"), store=self.store, clock=self.clock, filesystem=self.disk,
            ids=SeededIds(self.seed * 1000 + self.opened), executor=InlineExecutor(),
            **self.settings, **more,
        )  # fmt: skip

    def read(self):
        self.opened += 1
        return Index.open(
            store=self.store, clock=self.clock, executor=InlineExecutor(), background=False,
            ids=SeededIds(self.seed * 1000 + self.opened), max_staleness=60.0, grace_time=0.0,
        )  # fmt: skip

    def publish(self, index):
        numbers = range(self.count, self.count + self.source.randrange(1, 20))
        index.put_batch(
            topic="t", keys=[f"K{n}" for n in numbers], queue_id=0, size=1,
            offset=list(numbers), timestamp=5,
        )  # fmt: skip
        self.count = numbers.stop
        index.roll()
        index.run_compaction()

    def live(self):
        index = self.open()
        for _ in range(self.source.randrange(1, 14)):
            self.publish(index)
            self.clock.advance(self.source.choice((1, 60, 5000)))
            if self.source.random() < 0.2:
                index.run_compaction()
            if self.source.random() < 0.1:
                index.close()
                index = self.open()
        return index

    def lose(self):
        """Take objects away; return whether the hint is still there."""
        keys = [found.key for found in self.store.list(PATHS.manifest_prefix)]
        chosen = self.source.random()
        if chosen < 0.3:
            lost = keys[-1:]
        elif chosen < 0.5:
            lost = keys[-self.source.randrange(1, len(keys) + 1) :]
        elif chosen < 0.6:
            lost = keys
        else:
            lost = self.source.sample(keys, self.source.randrange(1, len(keys) + 1))
        for key in lost:
            self.store.delete(key)
        if self.source.random() < 0.3:
            self.store.delete(PATHS.hint)
            return False
        return True

    def found(self, index):
        """Return (whether the answer is complete, which keys are found), each of them once."""
        lookups = [{"topic": "t", "key": f"K{n}"} for n in range(self.count)]
        answers = index.query_batch(lookups)
        for n, answer in enumerate(answers):
            assert [entry.offset for entry in answer.entries] in ([], [n]), (n, answer)
        keys = {n for n, answer in enumerate(answers) if answer.entries}
        return all(answer.complete for answer in answers), keys

    def check_sound(self, index):
        complete, keys = self.found(index)
        assert complete, index.query("t", key="K0").missing
        assert keys == set(range(self.count)), sorted(set(range(self.count)) - keys)

    def objects(self):
        return {found.key for found in self.store.list(PATHS.files_prefix)}

    def run(self):
        index = self.live()
        follower = self.read()
        self.check_sound(follower)
        has_hint = self.lose()
        with self.read() as reader:
            complete, keys = self.found(reader)
            if has_hint and complete:
                assert keys == set(range(self.count)), "complete, and without what was lost"
        if self.source.random() < 0.3:  # the owner is alive meanwhile, and knows all of it
            self.publish(index)
            self.check_sound(index)
        index.close()
        self.reopen(follower)
        follower.close()

    def reopen(self, follower):
        before = self.objects()
        try:
            index = self.open()
        except CorruptFileError:
            assert self.objects() == before, "a refusal deleted something"
            self.roll_back(follower)
            return
        self.check_sound(index)
        index.close()

    def roll_back(self, follower):
        index = self.open(accept_rollback=True)
        before = self.objects()
        state = components_of(index).writing.compactor.components.claim.get().state
        listed = {row.object_key for row in state.files.values()}
        complete, kept = self.found(index)
        # What commits that are lost had merged or expired may be deleted, and the old list names it.
        assert complete == (listed <= before), index.query("t", key="K0").missing
        if not complete:
            index.expire(before=self.clock.now_ms() + 1)
            kept = self.found(index)[1]
            assert kept == set()
            state, listed = (
                components_of(index).writing.compactor.components.claim.get().state,
                set(),
            )
        orphans = before - listed
        orphans -= {dropped.object_key for dropped in state.dropped.values()}
        for _ in range(4):
            self.clock.advance(2 * HOUR_S)
            index.run_compaction()
        if 2 * len(orphans) > len(before) + 4:  # a merge may add objects
            assert orphans <= self.objects(), "orphans went though they are most of all"
        first = self.count
        self.publish(index)
        wanted = kept | set(range(first, self.count))
        self.agree(index, follower, wanted)
        index.close()
        index = self.open()  # once accepted it is the history
        for _ in range(3):
            self.clock.advance(2 * HOUR_S)
            index.run_compaction(yes=True)
        state = components_of(index).writing.compactor.components.claim.get().refresh()
        assert {row.object_key for row in state.files.values()} == self.objects()
        self.agree(index, follower, wanted)
        index.close()

    def agree(self, index, follower, wanted):
        follower.refresh()
        with self.read() as fresh:
            for each in (index, follower, fresh):
                complete, keys = self.found(each)
                assert complete, each.query("t", key="K0").missing
                assert keys == wanted, (sorted(keys - wanted), sorted(wanted - keys))


def lose_manifests(seed):
    """Run one case; return 1."""
    LostManifest(seed).run()
    return 1
