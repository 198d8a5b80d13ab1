"""The whole index without a thread: a seed decides who does what next, and what breaks when.

Callers, operators, every background worker, crashes, power cuts, faults of store and disk, in any
order; after each answer the model is asked. The same seed gives the same trace, which a failure
prints the way to: `python -m tests.torture --only simulation --seed S`.
"""

from __future__ import annotations

import errno
import random
from collections import Counter

from tests.simulation.scheduler import SeededScheduler
from tests.simulation.strategies import KEYS, MESSAGE_IDS, TOPICS
from tests.stateful.model import Lookup
from tests.stateful.world import UNWELL, CorruptFileError, World
from tierdex.index_service.opening.maintenance import PutFlusher, WriterTending
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault

CHANCES = {
    Fault.FAIL_BEFORE: 0.08, Fault.FAIL_AFTER: 0.05, Fault.TIMEOUT_BEFORE: 0.03,
    Fault.TIMEOUT_AFTER: 0.05, Fault.REFUSED: 0.02, Fault.BUSY: 0.03, Fault.CRAWL: 0.01,
    Fault.SHORT_BODY: 0.03, Fault.ALTERED_BODY: 0.03, Fault.TAKEN_BY_OURSELVES: 0.05,
}  # fmt: skip
CALLS = (
    "open", "write", "sync", "mapping_sync", "rename", "map", "reserve", "sync_folder", "unlink", "read",
)  # fmt: skip
# Half of the seeds keep everything until an operator expires it by hand.
RETENTIONS = (
    *({} for _ in range(3)),
    {"retention": 300.0},
    {"retention": 5000.0, "topic_retention": {TOPICS[0]: 60.0}},
    {"topic_retention": {TOPICS[0]: 200.0, TOPICS[1]: 4500.0}},
)
# What a hundred seeds must come to, each at least that often: the walk reaches everything.
REACHED = {
    **dict.fromkeys(
        ("put", "put_at_another_time", "put_batch", "query", "query_batch", "flush", "roll", "compact",
         "work", "expire", "pass_time", "step_clock", "break_store", "mend", "reopen", "kill",
         "kill_within", "cut_power", "lose_disk"), 7,
    ),
    **{f"step of {name}": 300 for name in ("compactor", "publisher", "flush", "refresh", "tend")},
    "sealed": 100, "compacted": 100, "published": 100, "merged": 5, "files expired": 10,
    "expired": 50, "faded": 500,
    "collected": 10, "crash within a call": 10, "crash beside store faults": 5,
    "unsynced effect kept": 50, "unsynced effect lost": 50, "UnavailableError": 2, "fail-before": 25,
    **dict.fromkeys(
        ("fail-after", "timeout-before", "timeout-after", "refused", "short-body", "altered-body"), 3
    ),
}  # fmt: skip


class Simulation:
    """One run of one seed; `trace` says what happened, a line a step."""

    def __init__(self, seed, steps=120):
        self.random = random.Random(seed)
        self.steps = steps
        self.trace = []
        self.counts = Counter()  # what was done, and what befell
        self.world = World(
            seed,
            ("alpha", "beta")[: self.random.choice((1, 1, 2))],
            filter_bits=self.random.choice((0, 8, 16)),
            merge_below_items=self.random.choice((0, 400, 400)),
            item_capacity=self.random.choice((40, 96, 300)),
            slot_count=self.random.choice((1, 16, 200)),
            checkpoint_every=self.random.choice((1, 3, 32)),
            page_cache_bytes=self.random.choice((0, 1 << 20)),
            sidecar_cache_bytes=self.random.choice((0, 5000, 1 << 30)),
            roll_after=self.random.choice((5.0, 3600.0)),
            grace_time=self.random.choice((10.0, 3600.0)),
            **self.random.choice(RETENTIONS),
        )
        self.schedulers = {}
        self.is_unwell = self.is_disk_unwell = False

    def run(self):
        for _ in range(self.steps):
            name = self.random.choice(list(self.world.sites))
            action, weight = zip(*self.ACTIONS, strict=True)
            chosen = self.random.choices(action, weight)[0]
            self.note(f"{name} {chosen.__name__}")
            site = self.world.sites[name]
            try:
                if site.index is None:
                    site.open()
                chosen(self, site)
                self.counts[chosen.__name__] += 1
            except (*UNWELL, CorruptFileError) as error:
                self.counts[type(error).__name__] += 1
                self.note(f"  {type(error).__name__}")
                self.world.refuse_damage(error)
                if not self.is_unwell and not site.model.uncertain:
                    raise
            self.world.clock.advance(self.random.choice((0.0, 0.01, 1.0)))
        self.counts.update(fault.fault.value for fault in self.world.store.history)
        self.note("settle")
        self.world.settle()
        self.world.close()
        self.counts.update(self.world.counts)
        self.counts["faded"] += sum(
            len(site.model.fading.faded) for site in self.world.sites.values()
        )
        return self.trace

    def note(self, line):
        self.trace.append(line)

    # -- callers ---------------------------------------------------------------------------------

    def lookup(self):
        begin, end = sorted(self.random.choices((None, 990, 1010, 1030), k=2), key=lambda t: t or 0)
        if self.random.random() < 0.25:
            return Lookup(None, message_id=self.random.choice((*MESSAGE_IDS, "B1", "absent")))
        return Lookup(
            self.random.choice(TOPICS), self.random.choice((*KEYS, "absent")), None, begin, end
        )

    def put(self, site):
        level = self.random.choice(("received", "received", "os", "disk"))
        keys = self.random.choices(KEYS, k=self.random.choice((1, 2)))
        message_id = self.random.choice((None, *MESSAGE_IDS))
        site.put(
            site.make_put(
                self.random.choice(TOPICS), keys, message_id, self.random.choice((0, 1)),
                self.random.randrange(980, 1040),
            ),
            level,
        )  # fmt: skip

    def put_at_another_time(self, site):
        """A location that was put before, at a time that no put had: another entry."""
        if site.model.puts:
            put = self.random.choice(site.model.puts)
            site.put(put._replace(timestamp=2000 + len(site.model.puts)))

    def put_batch(self, site):
        with_ids = self.random.random() < 0.4
        topic, count = self.random.choice(TOPICS), self.random.choice((1, 5, 30, 120))
        puts = [
            site.make_put(topic, [self.random.choice(KEYS)], f"B{row % 7}" if with_ids else None,
                          row % 2, self.random.randrange(980, 1040))
            for row in range(count)
        ]  # fmt: skip
        site.put_batch(puts, self.random.choice(("os", "os", "disk")))

    def query(self, site):
        lookup = self.lookup()
        if self.is_unwell or site.model.uncertain or site.model.leaving:
            answer = site.check_beside_faults(lookup)
            self.note(f"  {len(answer.entries)} {answer.complete}")
        else:
            found = site.check_lookup(lookup, self.random.choice((1, 3, 64)))
            self.note(f"  {len(found)}")

    def query_batch(self, site):
        if not self.is_unwell:
            site.check_batch([self.lookup() for _ in range(8)])

    # -- operators and workers -------------------------------------------------------------------

    def flush(self, site):
        site.flush(self.random.choice(("os", "disk", "disk")))

    def roll(self, site):
        site.index.roll()

    def compact(self, site):
        site.compact()

    def work(self, site):
        """Let background workers step, in any order, due or not."""
        scheduler = self.schedulers.get(site.name)
        if scheduler is None or scheduler[0] is not site.index:
            parts = components_of(site.index)
            workers = [
                parts.writing.compactor.local, parts.writing.compactor.store, parts.read_view,
                PutFlusher(parts.settings, parts.writing.writer),
                WriterTending(parts.writing.writer, parts.forgetter),
            ]  # fmt: skip
            scheduler = (
                site.index,
                SeededScheduler(workers, self.world.clock, self.random, keep_time=False),
            )
            self.schedulers[site.name] = scheduler
        for _ in range(self.random.randrange(1, 12)):
            stepped = scheduler[1].run_one()
            self.note(f"  {stepped.name} {stepped.again_in_s:.6f}")
            self.counts[f"step of {stepped.name}"] += 1
            self.world.clock.advance(min(stepped.again_in_s, 1.0) * self.random.random())

    def expire(self, site):
        if not self.is_disk_unwell:
            expired = site.expire(self.world.clock.now_ms() - self.random.choice((0, 5000)))
            self.counts["files expired"] += len(expired)

    def pass_time(self, site):
        self.world.clock.advance(self.random.choice((1, 40, 4000)))

    def step_clock(self, site):
        self.world.step_clock(self.random.choice((-3_600_000, -5, 60_000)))

    # -- fate ------------------------------------------------------------------------------------

    def break_store(self, site):
        self.is_unwell = True
        if self.random.random() < 0.2:
            self.world.store.begin_outage()
        else:
            share = self.random.choice((0.5, 1.0, 3.0))
            self.world.store.chances = {fault: share * p for fault, p in CHANCES.items()}
        site.index.roll()
        self.work(site)

    def break_disk(self, site):
        self.is_unwell = self.is_disk_unwell = True
        kind = self.random.choice(CALLS)
        number = self.random.choice((errno.EIO, errno.ENOSPC))
        nth, for_ever = self.random.randrange(1, 8), self.random.random() < 0.2
        self.note(f"  {kind} {nth} {number} {for_ever}")
        site.disk.fail(kind, nth, number, for_ever=for_ever)
        self.flush(site)
        site.index.roll()
        self.work(site)

    def mend(self, site):
        self.world.heal()
        self.world.clock.advance(100)
        for each in self.world.sites.values():
            if each.index is None:
                each.open()
            if self.is_disk_unwell:
                self._rewrite_suspects(each)
            each.check_all()
        self.is_unwell = self.is_disk_unwell = False

    def _rewrite_suspects(self, site):
        """A failed sync is told to flushes until the compactor has written the file anew."""
        for _ in range(3):
            try:
                site.flush("disk")
            except UNWELL:
                site.compact()
        site.flush("disk")

    def reopen(self, site):
        if not self.is_unwell:
            site.reopen()

    def mend_some(self, site):
        """A crash beside faults of the store leaves those going on; two faults of a disk are too many."""
        if self.is_disk_unwell or self.random.random() < 0.5:
            self.mend(site)

    def kill(self, site):
        self.mend_some(site)
        self.counts["crash beside store faults"] += self.is_unwell
        site.kill()
        self.is_unwell = False

    def kill_within(self, site):
        """A crash at some call of whatever the workers do next."""
        self.mend(site)
        with site.crashing(self.random.randrange(1, 60), after=self.random.random() < 0.5):
            site.index.roll()
            self.work(site)
            site.compact()

    def cut_power(self, site):
        self.mend_some(site)
        self.counts["crash beside store faults"] += self.is_unwell
        density = self.random.choice((0.0, self.random.random(), 1.0))
        site.cut_power(lambda effect: self._persists(density))
        self.is_unwell = False

    def _persists(self, density):
        kept = self.random.random() < density
        self.counts["unsynced effect kept" if kept else "unsynced effect lost"] += 1
        return kept

    def lose_disk(self, site):
        self.mend(site)
        site.lose_disk()

    ACTIONS = (
        (put, 14), (put_at_another_time, 4), (put_batch, 12), (query, 14), (query_batch, 3),
        (flush, 8), (roll, 5), (compact, 5), (work, 14), (expire, 3), (pass_time, 3), (step_clock, 1),
        (break_store, 4), (break_disk, 3), (mend, 5), (reopen, 2), (kill, 3), (kill_within, 3),
        (cut_power, 4), (lose_disk, 1),
    )  # fmt: skip


def simulate(seed, steps=120):
    """Run one seed; return the simulation. Raises AssertionError with the last lines of the trace."""
    simulation = Simulation(seed, steps)
    try:
        simulation.run()
    except BaseException as error:
        error.add_note(f"seed {seed}; the last steps:\n" + "\n".join(simulation.trace[-15:]))
        raise
    return simulation
