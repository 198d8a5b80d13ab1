"""Requests to forget, killed and failing at any call, beside owners, merges and restarts that are, too.

A perfect memory tells what must be found (`shown`), what must not (`gone`: a request said that it is
complete), and what may be either way (`loose`: named by a request that has not, or put while one ran). After
every failure a process goes on with the requests that are listed; then each has hidden all of its entries,
or it was never committed, and none. In the end all is forgotten, and no live object holds any of it.
"""

from __future__ import annotations

import random
from pathlib import Path
from unittest.mock import patch

from tests.simulation.crash import CrashingStore, CrashPoint
from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedCrash, SimulatedFileSystem
from tests.stateful.world import SMALL, UNWELL
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.merged_file import open_published
from tierdex.compactor.upload import Target
from tierdex.errors import FencedError, NodeInUseError, NotFoundError
from tierdex.ids import SeededIds
from tierdex.indexfile.hashing import key_hash
from tierdex.pipeline.jobs import publishing
from tierdex.pipeline.jobs import snapshot as snapshot_module
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.jobs.snapshot import read_store, take_snapshot
from tierdex.pipeline.merging.merge_job import commit_merges, mergeable
from tierdex.pipeline.merging.merge_task import merge_group
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import Fault, FaultyStore

KEYS = ("K1", "K2", "K3")
GRACE_S = 60.0
CHANCES = {
    Fault.FAIL_BEFORE: 0.06, Fault.FAIL_AFTER: 0.05, Fault.TIMEOUT_BEFORE: 0.02,
    Fault.TIMEOUT_AFTER: 0.04, Fault.TAKEN_BY_OURSELVES: 0.04,
}  # fmt: skip
FAILURES = (*UNWELL, NotFoundError, NodeInUseError, FencedError)


class Actor:
    """A process that comes and goes: an owner with its disk, or (`node` None) a reader."""

    def __init__(self, life, node):
        self.life, self.node = life, node
        self.disk = SimulatedFileSystem(clock=life.clock)
        self.store = CrashingStore(life.faulty, on_crash=lambda: self.disk.crash_at(1))
        self.index, self.opened = None, 0
        self.open()

    def open(self):
        self.opened += 1
        own = {} if self.node is None else {"node": self.node}
        self.index = Index.open(
            None if self.node is None else Path("/data"), store=self.store, clock=self.life.clock,
            ids=SeededIds(self.life.seed * 1009 + self.opened * 13 + ord((self.node or "r")[0])),
            filesystem=self.disk, executor=InlineExecutor(), read_only=self.node is None,
            **self.life.settings, **own,
        )  # fmt: skip

    def close(self):
        if self.index is not None:
            self.index.close()
            self.index = None

    def die(self):
        """kill -9: the page cache stays."""
        self.index = None
        self.disk = self.disk.restart()
        self.store.revive()

    def come_back(self):
        """Start until the store lets it."""
        for _ in range(50):
            if self.index is not None:
                return
            try:
                self.open()
            except FAILURES:
                self.life.clock.advance(1)
        self.life.heal()
        if self.index is None:
            self.open()


class Life:
    """One seed: two owners, a reader, jobs, and what must be found."""

    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.clock = ManualClock()
        self.objects = MemoryStore(clock=self.clock)
        self.faulty = FaultyStore(self.objects, ids=SeededIds(seed), clock=self.clock)
        self.settings = SMALL | {
            "grace_time": GRACE_S, "merge_min_files": self.random.choice((2, 4, 100)),
            "merge_below_items": 400,
        }  # fmt: skip
        self.shown, self.loose, self.gone = ({key: set() for key in KEYS} for _ in range(3))
        self.asked = {}  # key -> what its open requests name
        self.twice = set()  # keys with more than one open request
        self.owners = [Actor(self, node) for node in ("a", "b")]
        self.put()  # a reader wants something to read
        self.owners[0].index.flush("remote")
        self.reader = Actor(self, None)
        self.failures = 0

    def run(self, steps=40):
        actions, weights = zip(*self.ACTIONS, strict=True)
        for _ in range(steps):
            self.random.choices(actions, weights)[0](self)
            self.clock.advance(self.random.choice((0.001, 0.1, 1.0)))
        self.forget_everything()
        return self.failures

    # -- what happens ----------------------------------------------------------------------------

    def owner(self):
        actor = self.random.choice(self.owners)
        actor.come_back()
        return actor

    def put(self):
        """Put a key's message, perhaps one that was put before, with the same location and time."""
        actor, key, offset = self.owner(), self.random.choice(KEYS), self.random.randrange(12)
        actor.index.put(
            topic="t", keys=[key], queue_id=0, offset=offset, size=1, timestamp=offset,
            durability="disk",
        )  # fmt: skip
        self.gone[key].discard(offset)
        if key in self.asked:
            self.asked[key].discard(offset)
            self.loose[key].add(offset)
        elif offset not in self.loose[key]:
            self.shown[key].add(offset)

    def publish(self):
        self.attempt(self.owner(), lambda index: index.flush("remote"))

    def work(self):
        self.attempt(self.owner(), lambda index: index.run_compaction())

    def merge(self):
        """Merge all files of the owners into node `jobs`, as Spark does; killed at any call, perhaps."""
        store = CrashingStore(self.faulty)
        self.plan_death(store)
        try:
            self._merge(store)
        except (SimulatedCrash, *FAILURES):
            self.failures += 1

    def _merge(self, store):
        with (
            patch.object(publishing, "SystemClock", lambda: self.clock),
            patch.object(snapshot_module, "SystemClock", lambda: self.clock),
        ):
            self._merge_now(store)

    def _merge_now(self, store):
        target, snapshot = JobNode(store, "jobs"), take_snapshot(store)
        files = mergeable(snapshot, target.shared.state.retention)
        group = [(file.node, file.row) for file in reversed(files)]
        if len(group) > 1:
            to = Target("jobs", target.shared.state.number, 16, snapshot.forgotten)
            rows = merge_group(store, group, to)
            commit_merges(store, target, len(group), [(group, rows)])

    def forget(self):
        asker = self.random.choice([*self.owners, self.reader])
        asker.come_back()
        self.clock.advance(0.001)  # what is put in one millisecond with a request is beside it
        key, now = self.random.choice(KEYS), self.random.random() < 0.5
        named = self.shown[key] | self.loose[key]
        if key in self.asked:
            self.twice.add(key)
        self.asked[key] = self.asked.get(key, set()) | named
        self.loose[key] |= named
        self.shown[key] = set()
        receipt = self.attempt(
            asker, lambda index: index.forget([{"topic": "t", "key": key}], now=now)
        )
        if receipt is not None and receipt.is_complete and not self.is_pending_elsewhere(receipt):
            self.complete(key)

    def is_pending_elsewhere(self, receipt):
        """Say whether an earlier request of the same key may be open: it goes on hiding what is put."""
        return len(self.asked) > 1 or bool({*self.pending()} - {receipt.forgetting})

    def pending(self):
        states = {each.node: each.state for each in read_store(self.objects)}
        return (
            [] if "forgotten" not in states else [u.hex() for u in states["forgotten"].forgettings]
        )

    def complete(self, key):
        named = self.asked.pop(key)
        self.gone[key] |= named
        self.loose[key] -= named

    def settle(self):
        """A process goes on with every request that is listed, until each is complete."""
        self.heal()
        for actor in (*self.owners, self.reader):
            actor.come_back()
        for name in self.pending():
            self.see_through(self.random.choice([*self.owners, self.reader]).index, name)
        found = self.found()
        for key in self.asked.keys() - self.twice:
            left, before = self.asked[key] & found[key], self.asked[key]
            assert left in (set(), before), f"half hidden: {key} {left} of {before}"
        self.asked, self.twice = {}, set()
        self.learn(found)

    def see_through(self, index, name):
        for _ in range(6):
            try:
                receipt = index.resume_forgetting(name)
            except NotFoundError:
                return
            if receipt.is_complete:
                return
            self.clock.advance(31)
            for owner in self.owners:
                owner.index.run_compaction()
        raise AssertionError(f"not complete: {receipt.waiting}")

    def restart(self):
        actor = self.random.choice(self.owners)
        if actor.index is None:
            actor.come_back()
        elif not self.faulty.chances:
            actor.close()  # its node has no owner for a while

    def pass_time(self):
        self.clock.advance(self.random.choice((1, 31, GRACE_S + 1)))

    def break_store(self):
        self.faulty.chances = dict(CHANCES)

    def heal(self):
        self.faulty.chances = {}
        self.faulty.end_outage()

    def attempt(self, actor, call):
        """Make a call that may fail, and at any call of which the process may die."""
        self.plan_death(actor.store)
        try:
            done = call(actor.index)
        except SimulatedCrash:
            self.failures += 1
            actor.die()
            actor.come_back()
            return None
        except FAILURES:
            self.failures += 1
            done = None
        actor.store.revive()
        if actor.store.is_dead:
            actor.die()
        return done

    def plan_death(self, store):
        if self.random.random() < 0.3:
            nth = int(self.random.paretovariate(0.5))
            store.crash_at(CrashPoint(min(nth, 300), after=self.random.random() < 0.5))

    # -- what must be found ------------------------------------------------------------------------

    def found(self):
        """Return what owners find together, {key: offsets}; what each shows is nothing that is gone."""
        everything = {key: set() for key in KEYS}
        for actor in (*self.owners, self.reader):
            if actor.index is None:
                continue
            actor.index.refresh()
            answers = actor.index.query_batch([{"topic": "t", "key": key} for key in KEYS])
            for key, answer in zip(KEYS, answers, strict=True):
                assert answer.complete, answer.missing
                single = actor.index.query("t", key=key)
                assert single.entries == answer.entries
                offsets = {entry.offset for entry in answer.entries}
                bad = offsets - self.shown[key] - self.loose[key]
                assert not bad, f"{actor.node} shows {bad} of {key} again"
                everything[key] |= offsets
        return everything

    def check(self):
        self.heal()
        for actor in (*self.owners, self.reader):
            actor.come_back()
        found = self.found()
        for key in KEYS:
            lost = self.shown[key] - found[key]
            assert not lost, f"no request asked to forget {lost} of {key}"
        if not self.asked:
            self.learn(found)

    def learn(self, found):
        """Take what is found, and what is not, for good: no request is open that could hide more."""
        for key in KEYS:
            self.shown[key] |= self.loose[key] & found[key]
            self.gone[key] |= self.loose[key] - found[key]
            self.loose[key] = set()

    def forget_everything(self):
        self.settle()
        self.check()
        for owner in self.owners:
            owner.index.flush("remote")
        self.check()
        self.reader.index.refresh()
        for key in KEYS:
            found = {e.offset for e in self.reader.index.query("t", key=key).entries}
            assert found == self.shown[key], (key, found)
        if self.random.random() < 0.5:
            self.owners[1].close()
        self.clock.advance(0.001)
        asked = [{"topic": "t", "key": key} for key in KEYS]
        receipt = self.reader.index.forget(asked, now=True)
        for owner in self.owners:
            owner.come_back()
        self.see_through(self.reader.index, receipt.forgetting)
        for key in KEYS:
            self.shown[key] = set()
        self.check()
        hashes = {key_hash("t", key) for key in KEYS}
        for reading in read_store(self.objects):
            for row in reading.state.files.values():
                rows = open_published(self.objects, row).rows_in_hash_order(1000)
                assert not hashes.intersection(
                    h for some in rows for h in some["key_hash"].tolist()
                )
        for _ in range(3):
            self.clock.advance(GRACE_S + 31)
            for owner in self.owners:
                owner.index.run_compaction()
            self.reader.index.forgettings()
        assert self.pending() == []
        for actor in (*self.owners, self.reader):
            for info in actor.index.files():
                assert actor.index.verify_file(info.file_id) == [], info
            actor.close()

    ACTIONS = (
        (put, 12), (publish, 6), (work, 6), (merge, 4), (forget, 6), (settle, 3), (restart, 2),
        (pass_time, 3), (break_store, 1), (heal, 3), (check, 4),
    )  # fmt: skip


def forget_beside_failures(seed):
    """Live one life; return how many calls failed or died in it."""
    return max(1, Life(seed).run())
