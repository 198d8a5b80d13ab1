"""Sites (an index, its disk, its model) around one store: what the state machine and the simulation drive.

Every site runs the real code over a simulated disk and one faulty store in memory; time stands still
unless told to move. A site's methods do one thing to the index and to the model, and compare.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedCrash, SimulatedFileSystem
from tests.stateful.fading import Fading
from tests.stateful.model import Lookup, NodeModel, Put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.covering import READS
from tierdex.errors import (
    BacklogFullError,
    ConflictError,
    CorruptFileError,
    OwnershipError,
    StoreRefusedError,
    UnavailableError,
)
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

ROOT = Path("/data")
SMALL = {
    "slot_count": 16,
    "item_capacity": 96,
    "background": False,
    "disk_reserve_bytes": 0,
    "put_buffer_entries": 16,
    "merge_min_files": 2,
    "checkpoint_every": 4,
    "remote_interval": 0.0,
    "remote_timeout": 5.0,
    "look_ahead": 2,
    "max_staleness": 1e9,
}
# What an operation may raise when the store or the disk is unwell; anything else is a bug, but
# for a CorruptFileError about what was altered on its way: `World.refuse_damage` tells.
UNWELL = (UnavailableError, StoreRefusedError, ConflictError, OSError)
ALTERED = (Fault.SHORT_BODY, Fault.ALTERED_BODY)


class Site:
    """One node: its disk lives through crashes, its index does not."""

    def __init__(self, world, name):
        self.world = world
        self.disk = SimulatedFileSystem(clock=world.clock)
        # Nodes put different messages: one entry is answered once, by whichever node it was put.
        self.model = NodeModel(
            name,
            next_offset=len(world.sites) * 1_000_000_000,
            fading=Fading(world.settings.get("retention"), world.settings.get("topic_retention")),
        )
        self.index = None
        self.opened = 0
        self.comparisons = 0
        self.fenced = False
        self.open()

    @property
    def name(self):
        return self.model.name

    @property
    def compactor_parts(self):
        return components_of(self.index).writing.compactor.components

    # -- life ------------------------------------------------------------------------------------

    def open(self, **more):
        self.opened += 1
        self.index = Index.open(
            ROOT,
            store=self.world.store,
            clock=self.world.clock,
            ids=SeededIds(self.world.seed * 1_000_003 + self.opened * 101 + len(self.name)),
            filesystem=self.disk,
            executor=InlineExecutor(),
            node=self.name,
            **self.world.settings,
            **more,
        )

    def drop(self):
        """Abandon the index without a word, as kill -9 does."""
        self.count_work()
        index, self.index = self.index, None
        if index is not None:
            components_of(index).executor.shutdown(wait=False, cancel_futures=True)

    def close(self):
        self.count_work()
        self.index.close()
        self.index = None
        self.model.acknowledge("disk")

    def count_work(self):
        """Add what the compactor of this life did to the world's counts."""
        if self.index is not None:
            self.world.counts.update(asdict(self.compactor_parts.progress.totals))

    def reopen(self):
        """Close and open again: nothing is lost."""
        self.close()
        self.disk = self.disk.restart()
        self.open()
        self.learn_survivors("disk")

    def kill(self):
        """kill -9: the process is gone, the page cache stays."""
        self.drop()
        self.disk = self.disk.restart()
        self.open_until_well()
        self.learn_survivors("os")

    def cut_power(self, choose):
        """The machine is gone: every unsynced effect persists as `choose` says."""
        promised = self.promised_by_watermark("disk")
        self.drop()
        self.disk = self.disk.crash(choose)
        self.open_until_well()
        self.learn_survivors("disk")
        self.check_kept(promised)

    def lose_disk(self):
        """The node's disk is gone: what was published comes back from the bucket alone."""
        promised = self.promised_by_watermark("remote")
        self.drop()
        self.disk = SimulatedFileSystem(clock=self.world.clock)
        self.world.heal()
        self.open(takeover=True)  # for all that the store tells, the node's owner lives
        self.learn_survivors("remote")
        self.check_kept(promised)

    def open_until_well(self):
        """Open as an operator's service manager would: again and again; the store may be unwell."""
        for _ in range(50):
            try:
                self.open()
                break
            except (*UNWELL, CorruptFileError) as error:
                self.world.refuse_damage(error)
                self.world.clock.advance(1)
        self.world.heal()
        if self.index is None:
            self.open()
        self.index.refresh()

    @contextmanager
    def crashing(self, nth, *, after):
        """Whatever happens inside may end in a kill -9 at the nth call of the file system."""
        self.disk.crash_at(nth, after=after)
        try:
            yield
        except SimulatedCrash:
            self.world.counts["crash within a call"] += 1
            self.kill()
        else:
            self.disk.heal()

    # -- puts ------------------------------------------------------------------------------------

    def make_put(self, topic, keys, message_id, queue_id, timestamp):
        offset = self.model.next_offset
        self.model.next_offset += 10
        return Put(topic, tuple(keys), message_id, queue_id, offset, 10, timestamp)

    @contextmanager
    def taking(self, puts):
        """Whatever raises inside leaves these puts uncertain."""
        first = len(self.model.puts)
        self.model.puts += puts
        self.model.fading.note([put.identity for put in puts], self.world.clock.now_ms())
        try:
            yield
        except BaseException:
            self.model.uncertain |= set(range(first, len(self.model.puts)))
            raise

    def put(self, put, durability="received"):
        with self.taking([put]):
            self._put(put, durability)

    def _put(self, put, durability):
        level = self.index.put(
            topic=put.topic, keys=list(put.keys), message_id=put.message_id, queue_id=put.queue_id,
            offset=put.offset, size=put.size, timestamp=put.timestamp, durability=durability,
        )  # fmt: skip
        if level != "received":
            self.model.acknowledge(level)

    def put_batch(self, puts, durability="os"):
        """One key a row; all rows have a message ID or none has."""
        with self.taking(puts):
            self._put_batch(puts, durability)

    def _put_batch(self, puts, durability):
        with_ids = puts[0].message_id is not None
        level = self.index.put_batch(
            topic=[put.topic for put in puts],
            keys=[put.keys[0] for put in puts],
            message_id=[put.message_id for put in puts] if with_ids else None,
            queue_id=[put.queue_id for put in puts],
            offset=[put.offset for put in puts],
            size=[put.size for put in puts],
            timestamp=[put.timestamp for put in puts],
            durability=durability,
        )
        self.model.acknowledge(level)

    def flush(self, level):
        self.index.flush(level)
        self.model.acknowledge(level)

    def compact(self, *, yes=False):
        return self.index.run_compaction(yes=yes)

    def expire(self, before):
        """Expire by hand; the model learns from the files which puts that means."""
        held = self.identities_by_file()
        items = {info.file_id: info for info in self.index.files()}
        leaving = [
            held[file_id] for file_id, info in items.items()
            if file_id in held and info.node == self.name and (info.sealed_at or before) < before
        ]  # fmt: skip
        unsure = self.model.leaving
        self.model.leaving = unsure + leaving  # should it raise, it is not known which of them went
        expired = self.index.expire(before=before)
        for info in expired:
            assert info.node == self.name
            assert items[info.file_id].sealed_at < before or not held.get(info.file_id)
            self.model.expire(held.get(info.file_id, set()))
        self.model.leaving = unsure
        return expired

    # -- comparing -------------------------------------------------------------------------------

    def entries(self, lookup, page=1000, index=None):
        """Return all entries that answer, fetched page by page."""
        index = index or self.index
        found, cursor = [], None
        while True:
            answer = index.query(**lookup.fields(), max_count=page, cursor=cursor)
            assert answer.complete, answer.missing
            assert len(answer.entries) <= page
            found += answer.entries
            cursor = answer.next_cursor
            if cursor is None:
                return found

    def entries_of_all(self, lookups):
        """Return the entries of each lookup, asked all at once or, now and then, one by one."""
        self.comparisons += 1
        if not lookups or self.comparisons % 4 == 0:
            return [self.entries(lookup) for lookup in lookups]
        answers = self.index.query_batch(
            [each.fields() | {"max_count": 10_000} for each in lookups]
        )
        for answer in answers:
            assert answer.complete, answer.missing
            assert answer.next_cursor is None
        return [answer.entries for answer in answers]

    def check_lookup(self, lookup, page=1000):
        """The own node's entries are the model's, in order; those of others a prefix of theirs."""
        self.refresh_beside_others()
        self.world.look_at_clock()
        found = self.entries(lookup, page)
        self.check_found(lookup, found)
        self.check_retention([found])
        return found

    def refresh_beside_others(self):
        if len(self.world.sites) > 1:
            self.index.refresh()  # else it may rightly show what another node has expired

    def check_found(self, lookup, found):
        ids = [entry.file_id for entry in found]
        assert ids == sorted(ids, key=_file_order, reverse=True)
        ours, wanted = (
            identities_of(e for e in found if e.node == self.name),
            self.model.expected(lookup),
        )
        assert self.model.may_be_answer(lookup, ours), (self.name, lookup, ours, wanted)
        for other in self.world.sites.values():
            if other is not self:
                other.check_seen_elsewhere(
                    lookup, identities_of(e for e in found if e.node == other.name)
                )

    def check_retention(self, found):
        """None of these entries is of a topic whose retention has passed since its file was sealed."""
        fading, now_ms = self.model.fading, self.world.clock.now_ms()
        if fading.is_on and self.compactor_parts.claim.is_claimed:  # else the rules are not known
            sealed_ms = {info.file_id: info.sealed_at for info in self.index.files()}
            for entry in {entry for entries in found for entry in entries}:
                assert not fading.is_over([entry.topic], sealed_ms[entry.file_id], now_ms), entry

    def check_seen_elsewhere(self, lookup, found):
        """`found` is what another node saw of us: the answer of some prefix of our puts."""
        model = self.model
        if (
            model.leaving or model.uncertain or model.fading.faded
        ):  # not looked what became of those
            assert is_subsequence(found, model.expected(lookup, ever=True)), (lookup, found)
        else:
            assert model.was_expected(lookup, found), (self.name, lookup, found)

    def check_beside_faults(self, lookup, page=1000):
        """Whatever fails below: no wrong entry, none out of order, and what is missing is said."""
        answer = self.index.query(**lookup.fields(), max_count=page)
        for site in self.world.sites.values():
            found = identities_of(e for e in answer.entries if e.node == site.name)
            possible = site.model.expected(lookup, ever=site is not self)  # what others show is old
            assert is_subsequence(found, possible), (site.name, lookup, found)
        self.world.look_at_clock()
        if answer.complete and answer.next_cursor is None:
            lost = self.model.certain(lookup) - set(identities_of(answer.entries))
            assert not lost, f"complete, and without {sorted(lost)[:3]}"
        return answer

    def check_batch(self, lookups):
        """Many lookups in one call answer as each alone."""
        answers = self.index.query_batch(
            [lookup.fields() | {"max_count": 500} for lookup in lookups]
        )
        for lookup, answer in zip(lookups, answers, strict=True):
            assert answer.complete, answer.missing
            assert answer.entries == self.entries(lookup)

    def check_all(self):
        """Every key and message ID answers as the model says; every file is sound."""
        self.world.look_at_clock()
        if self.model.uncertain or self.model.leaving:
            self.index.refresh()  # an expiry may have taken effect though its answer was lost
            self.model.resolve(self.survivors())
        self.refresh_beside_others()
        lookups = self.model.lookups
        found_of_all = self.entries_of_all(lookups)
        for lookup, found in zip(lookups, found_of_all, strict=True):
            self.check_found(lookup, found)
        self.check_retention(found_of_all)
        self.check_files()

    def check_files(self):
        for info in self.index.files():
            assert info.state != "quarantine", info
            assert self.index.verify_file(info.file_id) == [], info
        assert components_of(self.index).table.check() == []

    def survivors(self):
        """Return the identities of our own node that are found now."""
        return _identities(self.own_answers())

    def own_answers(self):
        """Return every lookup and what is found now of our own node."""
        lookups = self.model.lookups
        return [
            (lookup, identities_of(e for e in found if e.node == self.name))
            for lookup, found in zip(lookups, self.entries_of_all(lookups), strict=True)
        ]

    def learn_survivors(self, level):
        self.world.look_at_clock()
        answers = self.own_answers()
        self.model.cut_to_survivors(_identities(answers), level, answers)
        self.check_known()
        self.check_all()

    def check_known(self):
        """An opening has synced what it found: that may not be lost any more, and the watermarks say so."""
        self.model.acknowledge("disk")
        self.check_watermarks()

    def identities_by_file(self):
        held = {}
        for lookup in self.model.lookups:
            answer = self.index.query(**lookup.fields(), max_count=10_000, on_error="fail")
            for entry in answer.entries:
                held.setdefault(entry.file_id, set()).update(identities_of([entry]))
        return held

    def promised_by_watermark(self, level):
        """Return the identities that the watermarks promise to be at `level`.

        A watermark is an offset: it says nothing of a location that was put again, at another time.
        """
        promised = set()
        if self.index is None:
            return promised
        leaving = set().union(*self.model.leaving) | self.model.fading.faded
        first = {}
        for number, put in enumerate(self.model.puts):
            first.setdefault(put.identity[:-1], number)
        for queue in {(put.topic, put.queue_id) for put in self.model.puts}:
            end = self.index.watermark(*queue)[level]
            promised |= {
                put.identity for number, put in enumerate(self.model.puts)
                if (put.topic, put.queue_id) == queue and end is not None
                and put.offset + put.size <= end
                and number == first[put.identity[:-1]]
                and number not in self.model.gone | self.model.uncertain
                and put.identity not in leaving
            }  # fmt: skip
        return promised

    def check_kept(self, promised):
        lost = promised - self.model.identities(len(self.model.puts)) - self.model.fading.faded
        assert not lost, f"below the watermark and lost: {sorted(lost)[:5]}"

    def check_watermarks(self):
        # Ends of an expired file that no read gave as it was written are given up.
        given_up = self.model.gone if self.world.has_altered(READS) else ()
        for queue in {(put.topic, put.queue_id) for put in self.model.puts}:
            marks = self.index.watermark(*queue)
            ends = [marks[level] for level in ("remote", "disk", "os")]
            known = [-1 if end is None else end for end in ends]
            assert known == sorted(known), marks
            for level in ("os", "disk", "remote"):
                marked = enumerate(self.model.puts[: self.model.acknowledged[level]])
                wanted = max(
                    (
                        p.offset + p.size for number, p in marked
                        if (p.topic, p.queue_id) == queue
                        and number not in given_up
                        and p.identity not in self.model.fading.faded  # perhaps never applied
                    ),
                    default=-1,
                )  # fmt: skip
                assert (-1 if marks[level] is None else marks[level]) >= wanted, (level, marks)


class World:
    """One store, one clock, some sites."""

    def __init__(self, seed=0, names=("alpha",), **settings):
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.objects = MemoryStore(clock=self.clock)
        self.store = FaultyStore(self.objects, ids=SeededIds(seed), clock=self.clock)
        self.settings = SMALL | settings
        self.counts = Counter()
        self.sites = {}
        for name in names:
            self.sites[name] = Site(self, name)

    def refuse_damage(self, error):
        """Raise an error that calls an object damaged unless the store has altered that very object."""
        if isinstance(error, CorruptFileError) and not any(
            struck.key == error.path and struck.fault in ALTERED for struck in self.store.history
        ):
            raise error

    def has_altered(self, times):
        """Say whether the store has altered the bytes of one object at least so many times."""
        struck = getattr(self.store, "history", ())  # a store that only is killed alters nothing
        altered = Counter(each.key for each in struck if each.fault in ALTERED)
        return max(altered.values(), default=0) >= times

    def look_at_clock(self):
        for site in self.sites.values():
            site.model.fading.look(self.clock.now_ms())

    def step_clock(self, milliseconds):
        """Set the wall clock forwards or back; no time passes."""
        self.look_at_clock()
        self.clock.step(milliseconds)
        self.look_at_clock()

    def heal(self):
        """Everything works again from here on."""
        self.store.chances = {}
        self.store.end_outage()
        for site in self.sites.values():
            site.disk.heal()

    def settle(self):
        """Make everything well, do all that is due, and compare everything."""
        self.heal()
        for site in self.sites.values():
            if site.index is None:
                site.open()
            self.clock.advance(1)
            site.compact()
        for site in self.sites.values():
            site.index.refresh()
            site.check_all()
        self.check_store()

    def check_store(self):
        """Nothing is orphaned once the grace time is over and garbage was collected; all is listed."""
        for _ in range(4):
            self.clock.advance(self.sites_grace() + 8000)  # the clock may have been set back
            for site in self.sites.values():
                if not site.fenced:
                    site.compact(yes=True)  # of few objects many are orphans
        for site in self.sites.values():
            if site.fenced:
                continue
            rows = site.compactor_parts.claim.get().state.files.values()
            for row in rows:
                over = site.model.fading.is_over(row.topics, row.sealed_at_ms, self.clock.now_ms())
                assert not over, f"expired, and listed: {row}"
            listed = {row.object_key for row in rows}
            stored = {found.key for found in self.objects.list(f"nodes/{site.name}/files/")}
            assert listed == stored, (listed - stored, stored - listed)

    def sites_grace(self):
        return self.settings.get("grace_time", 3600.0)

    def close(self):
        self.heal()
        for site in self.sites.values():
            if site.index is not None:
                site.count_work()
                site.index.close()
                site.index = None


def identities_of(entries):
    return [(e.topic, e.queue_id, e.offset, e.size, e.timestamp) for e in entries]


def _identities(answers):
    return {identity for _, found in answers for identity in found}


def is_subsequence(found, expected):
    walk = iter(expected)
    return all(entry in walk for entry in found)


def _file_order(file_id):
    number, node = file_id.split("-", 1)
    return int(number), node


__all__ = [
    "SMALL",
    "UNWELL",
    "BacklogFullError",
    "CorruptFileError",
    "Lookup",
    "OwnershipError",
    "Site",
    "World",
    "identities_of",
]
