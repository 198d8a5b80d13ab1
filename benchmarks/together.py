"""Target 10: everything at once: puts at half speed, rolls, compactions, uploads, and queries.

The index runs as it does in production, with its background threads, over a local store. One thread
puts batches of new keys at about half of the speed that it reached alone, another asks a thousand
keys a second. (One that asked without a pause would hold the interpreter, and the puts would crawl.)
Two cores compact less than half of what one can put: so the puts wait while three files are on their
way, as long as it takes to upload one.
It asks for what was put lately, as those do who follow a message: such a key has one entry in
a local file, idle or busy, and one file was published before the idle queries, at the same pace, so
that the two measure the same work. Files are small enough that several rolls and compactions fall
into the measured time, which lasts until there were some.

A query's p99 is compared with how late the asking thread wakes from its pauses: both wait for a core
and for the interpreter, and only the query does anything.

The longest put is told apart: near a roll, where it must not stall, and elsewhere. Puts during which
the whole machine stood still (benchmarks/standstill.py) are counted, not compared. Beside the longest
stand its CPU time and how long it could have run but had no core.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.bench import newest_file
from benchmarks.data import TOPIC, Block
from benchmarks.measure import Row, percentile
from benchmarks.standstill import Standstills

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench
    from tierdex import Index

BATCH = 10_000
CAPACITY = 10_000_000  # items a file, in the quick run too: smaller ones would roll all the time
_MEASURED_S = 8.0
_MOST_S = 40.0  # until a compaction and an upload have ended
_PAUSE_S = 0.001  # between two queries
_BACKLOG = 3  # files
_RECENT_BATCHES = 60
_ASKED_OF_A_BATCH = 500
_NEAR_A_ROLL_S = 0.5  # before it the next file is made, after it the last one is sealed


class Put(NamedTuple):
    """One put_batch: when it began, what it took, and in which file it ended. Times in seconds."""

    begin: float
    wall: float
    cpu: float
    waited: float  # for a core
    file: int

    def __str__(self) -> str:
        return f"CPU {self.cpu * 1e3:.1f} ms, without a core {self.waited * 1e3:.1f}"


class Asked(NamedTuple):
    """Seconds of each query, and by how many the same thread woke late from the pause after it."""

    times: list[float]
    late: list[float]


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        together(bench, folder)


def together(bench: Bench, folder: Path) -> None:
    alone = speed_alone(bench, folder / "alone")
    index = bench.open_index(
        folder / "data", item_capacity=CAPACITY, slot_count=CAPACITY // 4, background=True,
        store=str(folder / "store"),
    )  # fmt: skip
    try:
        puts = Puts(index, alone * 2)
        for _ in range(CAPACITY // BATCH):
            puts.put_next()
        index.roll()
        index.run_compaction()
        for _ in range(100):
            puts.put_next()
        idle = ask_for(index, puts.recent, lambda spent: spent < 2.0)
        puts.done.clear()
        before, stop = done_so_far(index), threading.Event()
        with Standstills() as standstills:
            thread = threading.Thread(target=puts.run, args=(stop,))
            thread.start()
            busy = ask_for(index, puts.recent, lambda spent: is_going_on(index, spent, before))
            stop.set()
            thread.join()
        meanwhile = done_so_far(index)
        meanwhile.subtract(before)
    finally:
        index.close()
    if not (meanwhile["compacted"] and meanwhile["published"]):
        bench.skip("everything at once", f"nothing was compacted and published in {_MOST_S:g} s")
        return
    report_queries(bench, idle, busy, f"meanwhile {counted(puts, meanwhile)}")
    report_puts(bench, puts.done, standstills)


def done_so_far(index: Index) -> Counter[str]:
    return Counter(index.compaction_status()["totals"])


def is_going_on(index: Index, spent: float, before: Counter[str]) -> bool:
    """Say whether to go on: until the time is over, and a compaction and an upload have ended."""
    now = done_so_far(index)
    done = all(now[what] > before[what] for what in ("compacted", "published"))
    return spent < (_MEASURED_S if done else _MOST_S)


def counted(puts: Puts, meanwhile: Counter[str]) -> str:
    names = ("sealed", "compacted", "published", "failures")
    jobs = ", ".join(f"{meanwhile[name]} {name}" for name in names)
    return (
        f"{len(puts.done) * BATCH / 1e6:.1f} M entries put, {len(rolls(puts.done))} rolls, {jobs}"
    )


def report_queries(bench: Bench, idle: Asked, busy: Asked, what: str) -> None:
    idle_p50, busy_p50 = percentile(idle.times, 0.5) * 1e6, percentile(busy.times, 0.5) * 1e6
    p99, late = percentile(busy.times, 0.99) * 1e3, percentile(busy.late, 0.99) * 1e3
    name = "local query while all is busy, p99"
    bench.add(Row(10, name, "ms", p99, "waking up late, p99", late, p99 / late, 1.5, note=what))
    name = "local query while all is busy, p50"
    bench.add(Row(10, name, "us", busy_p50, "idle", idle_p50, busy_p50 / idle_p50, 3.0))
    bench.plots["together"] = {
        "idle": idle.times[:: max(1, len(idle.times) // 5000)],
        "busy": busy.times[:: max(1, len(busy.times) // 5000)],
    }


def report_puts(bench: Bench, puts: list[Put], standstills: Standstills) -> None:
    median, times = float(np.median([put.wall for put in puts])) * 1e3, rolls(puts)
    stopped = [put for put in puts if standstills.overlap(put.begin, put.begin + put.wall)]
    puts = sorted(set(puts) - set(stopped), key=lambda put: put.wall)
    near = [put for put in puts if any(abs(put.begin - at) < _NEAR_A_ROLL_S for at in times)]
    if not near:
        bench.skip("longest put at a roll", "nothing was rolled")
        return
    elsewhere = [put for put in puts if put not in set(near)]
    name = f"longest put_batch of {BATCH:,} near a roll (median {median:.2f} ms)"
    note = str(near[-1])
    if stopped:
        most = max(put.wall for put in stopped)
        note += f"; beside {len(stopped)} puts, of up to {most * 1e3:.0f} ms, while the machine stood still"
    row = Row(10, name, "ms", near[-1].wall * 1e3, note=note)
    if elsewhere:
        row.peer_name, row.peer, row.limit = "elsewhere", elsewhere[-1].wall * 1e3, 3.0
        row.ratio = near[-1].wall / elsewhere[-1].wall
        row.note += f"; elsewhere: {elsewhere[-1]}"
    bench.add(row)


def rolls(puts: list[Put]) -> list[float]:
    """Return when another file took over: the beginnings of the puts that found it so."""
    return [put.begin for before, put in pairwise(puts) if put.file != before.file]


def speed_alone(bench: Bench, folder: Path) -> float:
    """Return the seconds that one put_batch takes with nothing else going on."""
    with bench.open_index(folder) as index:
        puts = Puts(index, 0.0)
        for _ in range(100):
            puts.put_next()
    return float(np.median([put.wall for put in puts.done]))


class Puts:
    """Puts blocks of new keys, one every `period` seconds."""

    def __init__(self, index: Index, period: float) -> None:
        self._index = index
        self._period = period
        self._count = 0
        self.done: list[Put] = []
        self.recent: deque[list[str]] = deque(maxlen=_RECENT_BATCHES)  # some keys of each batch

    def run(self, stop: threading.Event) -> None:
        due = time.perf_counter()
        while not stop.is_set():
            now = self.put_next()
            due = max(due + self._period, now - 10 * self._period)
            if due > now:
                time.sleep(due - now)
            while self._count % 10 == 0 and not stop.is_set() and self._is_behind():
                time.sleep(0.01)

    def _is_behind(self) -> bool:
        waiting = [file for file in self._index.files() if file.state != "uploaded"]
        return len(waiting) > _BACKLOG

    def put_next(self) -> float:
        block = Block(self._count % BATCH, BATCH)  # four digits; then they come again
        entries = block.entries
        waited, cpu = waited_for_a_core(), time.thread_time()
        begin = time.perf_counter()
        self._index.put_batch(**entries)
        now = time.perf_counter()
        cpu, waited = time.thread_time() - cpu, waited_for_a_core() - waited
        self.done.append(Put(begin, now - begin, cpu, waited, newest_file(self._index).number))
        self._count += 1
        self.recent.append(block.keys[:_ASKED_OF_A_BATCH].to_pylist())
        return now


def waited_for_a_core() -> float:
    """Return for how many seconds of its life this thread could have run and had no core."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def ask_for(index: Index, recent: deque[list[str]], is_going_on: Callable[[float], bool]) -> Asked:
    """Ask many queries of one entry, while `is_going_on(seconds)`."""
    times, late, place, start = [], [], 0, time.perf_counter()
    while place % 100 or is_going_on(time.perf_counter() - start):
        texts = recent[place * 31 % len(recent)]
        key = texts[place * 7919 % len(texts)]
        begin = time.perf_counter()
        answer = index.query(TOPIC, key=key)
        times.append(time.perf_counter() - begin)
        assert len(answer.entries) == 1, answer
        place += 1
        begin = time.perf_counter()
        time.sleep(_PAUSE_S)
        late.append(time.perf_counter() - begin - _PAUSE_S)
    return Asked(times, late)
