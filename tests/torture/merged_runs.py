"""Merges into runs that die, meet faults of the store and each other, while readers ask.

::

    owners of three nodes:  put, publish, drop what was replaced, expire
    tierdex merge:          whole; dead at its nth call of the store, here or as a real process (kill -9);
                            over a store with faults; all runs in one commit, as Spark does
    within a merge:         another merge, an owner that publishes or drops, a reader that is asked
    readers:                fresh ones, one that follows now and then, one whose store has faults

A reader answers what the model says of the moment when it last read the manifests: each entry once, in order.
"""

from __future__ import annotations

import random
import signal
from contextlib import suppress
from pathlib import Path

from tests.crash.killing import Trap, TrappedStore
from tests.pipeline.merged_nodes import KEYS, NODES, Fleet, check, expire_oldest
from tests.simulation.crash import CrashingStore, CrashPoint
from tests.simulation.simulated_disk import SimulatedCrash
from tests.stateful.world import UNWELL
from tests.torture.fork_server import server
from tests.torture.quick_folder import quick_folder
from tests.torture.simulation import CHANCES
from tests.torture.takeovers import InterposedStore
from tierdex.errors import CorruptFileError
from tierdex.ids import SeededIds
from tierdex.pipeline.merging.merge_job import merge_runs
from tierdex.storage_layer.local import LocalStore
from tierdex.testing.faulty_store import FaultyStore

ASKED = KEYS[:6]
_CALLS = 60  # of a merge, about


def merge_until_killed(folder, nth, after, piece_items, telling):
    """Be `tierdex merge` in a process of its own; die at the nth call of the store."""
    trap = Trap(signal.SIGKILL)
    trap.set(nth, after=after)
    store = TrappedStore(LocalStore(Path(folder)), trap)
    merge_runs(lambda: store, older_than_ms=0, piece_items=piece_items)
    telling.send_bytes(b"merged")


class Merges:
    """One story: what is done, and what readers must answer."""

    def __init__(self, folder, seed, *, on_disk):
        self.folder, self.on_disk = folder / "store", on_disk
        self.source = random.Random(seed)
        self.fleet = Fleet(folder, LocalStore(self.folder) if on_disk else None)
        self.follower = self.fleet.open(max_staleness=1e6)  # it reads manifests when it is told
        self.expected = self.model()
        self.seed, self.merges, self.depth = seed, 0, 0

    def model(self):
        self.fleet.learn_runs()
        return {key: self.fleet.expected(key) for key in ASKED}

    def live(self, steps):
        for _ in range(4):
            self.publish()
        for _ in range(steps):
            self.source.choice((self.publish, self.publish, self.merge, self.merge, self.tidy))()
            self.look()
        self.fleet.merge(piece_items=self.source.randint(1, 30))
        for owner in self.fleet.owners.values():
            owner.run_compaction()
        check(self.fleet, self.fleet.open())

    # -- what is done --------------------------------------------------------------------------------

    def publish(self):
        for name in self.source.sample(NODES, self.source.randint(1, 3)):
            for _ in range(self.source.randint(1, 9)):
                self.fleet.put(name, self.source.choice(ASKED))
            self.fleet.publish(name)
        if self.source.random() < 0.3:
            self.fleet.clock.advance(40_000)  # another day soon; beyond the grace time
            self.follow()
        self.fleet.clock.advance(self.source.choice((1, 60)))

    def tidy(self):
        """Owners drop what a run replaced; now and then old files expire."""
        name = self.source.choice(NODES)
        self.fleet.owners[name].run_compaction()
        if self.source.random() < 0.3:
            expire_oldest(self.fleet, self.source.randint(1, 2))
            self.follow()  # its model is of another moment than what is deleted

    def merge(self):
        self.merges += 1
        way = self.source.choice((self.merge_whole, self.merge_and_die, self.merge_over_faults,
                                  self.merge_beside_others, self.merge_beside_others))  # fmt: skip
        way({"older_than_ms": 0, "piece_items": self.source.randint(1, 30)})

    def merge_whole(self, options):
        if self.source.random() < 0.5:  # all runs written before the one commit, as by Spark
            options["run_all"] = lambda count, write: [write(number) for number in range(count)]
        self.fleet.merge(**options)

    def merge_and_die(self, options):
        nth, after = self.source.randrange(1, _CALLS), self.source.random() < 0.5
        if not self.on_disk:
            store = CrashingStore(self.fleet.store)
            store.crash_at(CrashPoint(nth, after))
            with suppress(SimulatedCrash):
                merge_runs(lambda: store, **options)
            return
        with server().fork(
            "tests.torture.merged_runs:merge_until_killed", str(self.folder), nth, after,
            options["piece_items"],
        ) as child:  # fmt: skip
            told = list(child.all_told())
            assert child.wait() == (0 if told else -signal.SIGKILL)

    def merge_over_faults(self, options):
        share = self.source.choice((0.2, 0.5, 1.0))
        chances = {fault: share * chance for fault, chance in CHANCES.items()}
        ids = SeededIds(self.source.randrange(1 << 30))
        store = FaultyStore(self.fleet.store, ids=ids, clock=self.fleet.clock, chances=chances)
        with suppress(*UNWELL, CorruptFileError):
            merge_runs(lambda: store, **options)

    def merge_beside_others(self, options):
        """Let something else happen within the merge, at one of its calls of the store."""
        if self.depth == 2:
            return
        other = self.source.choice((self.publish, self.tidy, self.merge, self.look))
        nth, after = self.source.randrange(1, _CALLS), self.source.random() < 0.5
        store = InterposedStore(self.fleet.store, nth, after=after, interpose=other)
        self.depth += 1
        with suppress(*UNWELL):  # lost to the other merge again and again
            merge_runs(lambda: store, **options)
        self.depth -= 1

    # -- what is answered ----------------------------------------------------------------------------

    def follow(self):
        self.follower.refresh()
        self.expected = self.model()

    def look(self):
        if self.source.random() < 0.5:
            self.follow()
        self.ask(self.follower, self.expected)
        fresh = self.fleet.open()
        self.ask(fresh, self.model())
        self.close(fresh)
        self.ask_over_faults()

    def ask(self, reader, expected):
        for key in ASKED:
            answer = reader.query("t", key=key, max_count=1000)
            assert answer.complete, answer.missing
            found = [entry.offset for entry in answer.entries]
            assert found == expected[key], (key, found, expected[key])
        asked = [{"topic": "t", "key": key, "max_count": 1000} for key in ASKED]
        for key, answer in zip(ASKED, reader.query_batch(asked), strict=True):
            assert [entry.offset for entry in answer.entries] == expected[key], key

    def ask_over_faults(self):
        """What says that it is complete is; what is not holds nothing that was not put."""
        expected, inner = self.model(), self.fleet.store
        ids = SeededIds(self.source.randrange(1 << 30))
        faulty = FaultyStore(inner, ids=ids, clock=self.fleet.clock, chances=CHANCES)
        self.fleet.store = faulty
        try:
            reader = self.fleet.open()
        except (*UNWELL, CorruptFileError):
            return
        finally:
            self.fleet.store = inner
        for key in ASKED:
            try:
                answer = reader.query("t", key=key, max_count=1000)
            except (*UNWELL, CorruptFileError):
                continue
            found = [entry.offset for entry in answer.entries]
            if answer.complete:
                assert found == expected[key], (key, answer)
            else:
                assert answer.missing
                assert set(found) <= set(expected[key])
        self.close(reader)

    def close(self, reader):
        reader.close()
        self.fleet.opened.remove(reader)


def merge_and_ask(seed, steps=12):
    """Live through so many steps; return how many merges were tried."""
    with quick_folder() as folder:
        story = Merges(folder, seed, on_disk=seed % 4 == 0)
        try:
            story.live(steps)
        finally:
            story.fleet.close()
    return story.merges
