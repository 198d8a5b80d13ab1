"""Damaged bytes: every answer over them is right, or says that it is incomplete, or a typed error."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from tests.compactor_steps import step
from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tests.stateful.world import SMALL
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import TierdexError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

DATA = Path("/data")
KINDS = ("unsealed", "sealed", "compacted", "sidecar", "object", "manifest", "hint", "lock", "node")
KEYS = [f"K{n}" for n in range(8)]


class Victim:
    """A folder and a store with one file of each kind, made again and again from the same bytes."""

    def __init__(self):
        self.clock = ManualClock()
        self.objects = MemoryStore(clock=self.clock)
        self.disk = SimulatedFileSystem(clock=self.clock)
        index = self.open(self.objects)
        self._put(index, 0)
        index.roll()
        index.run_compaction()
        store = FaultyStore(self.objects)
        index.close()
        index = self.open(store)
        store.begin_outage()
        for first in (100, 200):
            self._put(index, first)
            index.roll()
            for _ in range(3 if first == 100 else 1):
                step(components_of(index).writing.compactor)
        for first in (300, 400):
            self._put(index, first, 24)
        index.flush("disk")
        self.image = self.paths()
        self.bytes = {str(path): self.read(path) for path in self.image}
        self.stored = dict(self.objects.contents.data)
        store.end_outage()
        self.expected = self.answers(index)
        assert all(answer.complete for answer in self.expected)
        states = sorted(info.state for info in index.files())
        assert states == ["compacted", "sealed", "unsealed", "uploaded"], states
        self.pieces = {kind: self.targets(kind) for kind in KINDS}

    def open(self, store, **more):
        return Index.open(
            DATA, store=store, clock=self.clock, ids=SeededIds(1), filesystem=self.disk,
            executor=InlineExecutor(), **{**SMALL, "page_cache_bytes": 0, "checkpoint_every": 2, **more},
        )  # fmt: skip

    def _put(self, index, first, count=40):
        index.put_batch(
            topic="t", keys=[KEYS[n % 8] for n in range(count)], queue_id=0, size=1,
            offset=list(range(first, first + count)), timestamp=list(range(count)),
            message_id=[f"M{first + n}" for n in range(count)],
        )  # fmt: skip

    def answers(self, index):
        lookups = [{"topic": "t", "key": key, "max_count": 500} for key in KEYS]
        lookups += [{"message_id": f"M{n}"} for n in (0, 5, 105, 205, 305)]
        lookups += [{"topic": "t", "key": "absent"}]
        return [index.query(**lookup) for lookup in lookups]

    def paths(self):
        folders = [DATA, *(DATA / name for name in ("unsealed", "sealed", "compacted", "uploaded"))]
        found = [folder / name for folder in folders for name in self.disk.list_folder(folder)]
        return [path for path in found if not self.disk.is_folder(path)]

    def read(self, path):
        file = self.disk.open(path)
        try:
            return file.read_at(0, file.size())
        finally:
            file.close()

    def targets(self, kind):
        """Return [(where, name)] of what is damaged for a kind."""
        if kind == "object":
            return [("store", key) for key in self.stored if "/files/" in key]
        if kind in ("manifest", "hint"):
            return [("store", key) for key in self.stored if f"/{kind}" in key]
        ends = {"lock": "LOCK", "node": "NODE", "sidecar": "/uploaded/"}
        wanted = ends.get(kind, f"/{kind}/")
        return [("disk", path) for path in self.bytes if wanted in path or path.endswith(wanted)]

    def restore(self):
        self.disk = SimulatedFileSystem(clock=self.clock)
        for folder in ("unsealed", "sealed", "compacted", "uploaded", "quarantine"):
            self.disk.make_folder(DATA / folder)
        for path, data in self.bytes.items():
            self.write(path, data)
        objects = self.objects.contents
        objects.data = dict(self.stored)
        objects.keys = sorted(self.stored)

    def write(self, path, data):
        file = self.disk.open(Path(path), writable=True, create=True)
        file.truncate(0)
        file.write_at(0, data)
        file.close()

    def try_damage(self, kind, damage, source):
        """Damage one thing, open, ask everything, compact, ask again; return what became of it."""
        if not self.pieces[kind]:
            return "absent"
        where, name = source.choice(self.pieces[kind])
        self.restore()
        before = self.bytes[name] if where == "disk" else self.stored[name][0]
        after = damage(bytearray(before), source)
        if where == "disk":
            self.write(name, after)
        else:
            self.objects.contents.data[name] = bytes(after), self.stored[name][1]
        try:
            index = self.open(self.objects)
        except TierdexError as error:
            return type(error).__name__
        try:
            outcome = self.check(index, kind)
            try:
                index.run_compaction()
            except TierdexError as error:
                outcome += f", {type(error).__name__}"
            self.check(index, kind)
            return outcome
        finally:
            self._abandon(index)

    def _abandon(self, index):
        with contextlib.suppress(TierdexError):
            index.close()

    def check(self, index, kind):
        incomplete = False
        for answer, expected in zip(self.answers(index), self.expected, strict=True):
            got = [(e.topic, e.offset, e.timestamp) for e in answer.entries]
            wanted = [(e.topic, e.offset, e.timestamp) for e in expected.entries]
            if answer.complete and kind == "unsealed":
                # Its last batches may look like the torn end of a crash: then a suffix is gone.
                lost = [entry for entry in wanted if entry not in got]
                assert got == wanted[len(lost) :], (got[:5], wanted[:5])
                assert all(entry[1] >= 300 for entry in lost), lost
            elif answer.complete:
                assert got == wanted, (got[:5], wanted[:5])
            else:
                incomplete = True
                walk = iter(wanted)
                assert all(entry in walk for entry in got), "a wrong entry"
        return "incomplete" if incomplete else "unharmed"


def flip(data, source):
    if data:
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)
    return data


def cut(data, source):
    return data[: source.randrange(len(data))] if data else data


def zero(data, source):
    if data:
        begin = source.randrange(len(data))
        length = min(source.choice((1, 512, 4096)), len(data) - begin)
        data[begin : begin + length] = bytes(length)
    return data


def swap(data, source):
    """Two pages change places."""
    pages = len(data) // 512
    if pages >= 2:
        a, b = source.sample(range(pages), 2)
        first, second = data[a * 512 : a * 512 + 512], data[b * 512 : b * 512 + 512]
        data[a * 512 : a * 512 + 512], data[b * 512 : b * 512 + 512] = second, first
    return data


def grow(data, source):
    return data + source.randbytes(source.choice((1, 64, 5000)))


def foreign(data, source):
    return bytearray(source.randbytes(len(data)))


DAMAGES = (flip, flip, flip, cut, zero, swap, grow, foreign)


def damage_many(count, seed=0):
    """Return how often each (kind, outcome) came out."""
    source = random.Random(seed)
    victim = Victim()
    outcomes = {}
    for number in range(count):
        kind, damage = KINDS[number % len(KINDS)], source.choice(DAMAGES)
        case = random.Random(seed * 1_000_003 + number)
        try:
            outcome = victim.try_damage(kind, damage, case)
        except BaseException as error:
            error.add_note(f"case {number} of seed {seed}: {damage.__name__} of {kind}")
            raise
        outcomes[kind, outcome] = outcomes.get((kind, outcome), 0) + 1
    return outcomes
