"""Thousands of small lives in one process: memory, descriptors, mappings and disk stay flat.

A real folder and a real store in another; faults of both at a low rate, outages, processes that are
gone without a word, and after each answer a look whether it can be right.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import threading
from pathlib import Path

from tests.stateful.world import UNWELL
from tests.torture.flaky_disk import FlakyDisk
from tests.torture.simulation import CHANCES
from tierdex import Index
from tierdex.app.c_memory import return_memory
from tierdex.clock import ManualClock
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.storage_layer.local import LocalStore
from tierdex.testing.faulty_store import FaultyStore

SETTINGS = {
    "slot_count": 64, "item_capacity": 500, "background": False, "disk_reserve_bytes": 0,
    "merge_min_files": 3, "merge_below_items": 400, "grace_time": 10.0, "checkpoint_every": 8,
    "sidecar_cache_bytes": 200_000, "max_staleness": 1e9,
}  # fmt: skip
KEYS = 9
ROWS = 60
KEPT_MS = 1_500_000
A_CYCLE_S = 100


def anonymous_memory():
    """Return the bytes of memory without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024


class Usage:
    """What the process and its folders hold now.

    `kept` is memory without mapped files before the C library gives back what it keeps for later: how much
    that is follows from which threads asked for what, and when. `anonymous` is what is left.
    """

    def __init__(self, folder):
        gc.collect()
        self.kept = anonymous_memory()
        return_memory()
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.mappings = Path("/proc/self/maps").read_text().count("\n")
        self.resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        self.anonymous = anonymous_memory()
        self.threads = threading.active_count()
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        # Manifest numbers are overwritten by tombstones, never deleted: they are counted apart.
        data = [path for path in files if "/manifest/" not in str(path)]
        self.disk_files, self.disk_bytes = len(data), sum(path.stat().st_size for path in data)

    def __repr__(self):
        return repr(vars(self))


class Soak:
    """One process' life with many lives of an index; `cycle` is one of them."""

    def __init__(self, folder, seed):
        self.folder, self.seed = folder, seed
        self.source = random.Random(seed)
        self.clock = ManualClock()
        self.disk = FlakyDisk(self.source)
        self.objects = LocalStore(folder / "store")
        self.index = None
        self.opened = 0
        self.acknowledged = -1  # the last cycle whose puts are on disk
        self.put_last = -1
        self.counts = {"cycles": 0, "gone": 0, "store faults": 0, "disk faults": 0, "raised": 0}

    def open(self):
        self.opened += 1
        self.disk.is_gone = False
        ids = SeededIds(self.seed * 1_000_003 + self.opened)
        self.store = FaultyStore(self.objects, clock=self.clock, ids=ids)
        self.index = Index.open(
            self.folder / "data", store=self.store, clock=self.clock, ids=ids,
            filesystem=self.disk.wrap(LocalFileSystem()), **SETTINGS,
        )  # fmt: skip

    def be_gone(self):
        """The process ends here: nothing that it still does reaches the disk or the store."""
        self.counts["gone"] += 1
        self.disk.is_gone = True
        self.store.begin_outage()
        self.close()

    def close(self):
        with contextlib.suppress(*UNWELL):
            self.index.close()
        self.counts["store faults"] += len(self.store.history)
        self.counts["disk faults"], self.index = self.disk.struck, None

    def break_something(self):
        self.disk.chance = self.source.choice((0.0, 0.0, 0.003))
        share = self.source.choice((0.0, 0.0, 0.05, 0.3))
        self.store.chances = {fault: share * chance for fault, chance in CHANCES.items()}
        if self.source.random() < 0.03:
            self.store.begin_outage()

    def mend(self):
        self.disk.chance = 0.0
        self.store.chances = {}
        self.store.end_outage()

    def cycle(self):
        """Put, sync, roll, do all that is due, ask, expire."""
        number = self.put_last = self.counts["cycles"]
        self.counts["cycles"] += 1
        if self.index is None:
            self.open()
        try:
            self.break_something()
            self.live(number)
        except (*UNWELL, CorruptFileError):  # the latter: a manifest that was altered on its way
            self.counts["raised"] += 1
        self.mend()
        self.clock.advance(A_CYCLE_S)
        if number % 10 == 9:
            self.check()
            if self.source.random() < 0.5:
                self.be_gone()
            else:
                self.close()

    def live(self, number):
        first = number * 100
        self.index.put_batch(
            topic="t", keys=[f"K{n % KEYS}" for n in range(ROWS)], queue_id=0, size=1,
            offset=list(range(first, first + ROWS)), timestamp=number,
        )  # fmt: skip
        self.index.flush("disk")
        self.acknowledged = number
        self.look(number)
        self.index.roll()
        self.index.run_compaction()
        self.look(number)
        self.index.expire(before=self.clock.now_ms() - KEPT_MS)

    def look(self, number):
        answer = self.index.query("t", key=f"K{number % KEYS}")
        if answer.complete:
            assert answer.entries[0].offset // 100 == number, (number, answer.entries[0])

    def check(self):
        """All is well: nothing acknowledged in the time that is kept is missing, nothing doubled."""
        for _ in range(2):
            self.index.roll()
            self.index.run_compaction()
            self.clock.advance(A_CYCLE_S)
        self.index.refresh()
        for key in range(KEYS):
            answer = self.index.query("t", key=f"K{key}", max_count=1000)
            assert answer.complete, answer.missing
            offsets = [entry.offset for entry in answer.entries]
            assert offsets == sorted(set(offsets), reverse=True), offsets
            assert offsets[0] // 100 >= self.acknowledged, (offsets[0], self.acknowledged)
            assert offsets[0] // 100 <= self.put_last


def soak(folder, cycles, seed=0, warm_up=40):
    """Run whole lives; return what was lived. Raises AssertionError when something grew."""
    life = Soak(Path(folder), seed)
    for _ in range(warm_up):
        life.cycle()
    first = Usage(folder)
    for _ in range(cycles):
        life.cycle()
    last = Usage(folder)
    if life.index is not None:
        life.close()
    assert_flat(first, last)
    return life


def assert_flat(first, last, *, memory=48 << 20, disk_bytes=2 << 20):
    """Raise AssertionError when the process holds more than it did, by more than chance."""
    assert last.descriptors <= first.descriptors + 8, (first, last)
    assert last.mappings <= first.mappings + 40, (first, last)
    assert last.threads <= first.threads + 8, (first, last)
    assert last.resident <= first.resident + memory, (first, last)
    assert last.disk_files <= first.disk_files + 40, (first, last)
    assert last.disk_bytes <= first.disk_bytes + disk_bytes, (first, last)
