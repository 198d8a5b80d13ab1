"""Target 10: everything at once: puts at half speed, rolls, compactions, uploads, and queries.

The index runs as it does in production, with its background threads, over a local store. One thread
puts batches of new keys at about half of the speed that it reached alone, another asks a thousand
keys a second. (One that asked without a pause would hold the interpreter, and the puts would crawl.)
Two cores compact less than half of what one can put, and local work goes before uploads: so the puts
wait while three files are on their way, as long as it takes to upload one.
It asks for what was put lately, as those do who follow a message: such a key has one entry in
a local file, idle or busy, so that the two measure the same work. Files are small enough that
several rolls and compactions fall into the measured time, which lasts until there were some.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import TOPIC, Block
from benchmarks.measure import Row, percentile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex import Index

BATCH = 10_000
_MEASURED_S = 8.0
_MOST_S = 40.0  # until a compaction and an upload have ended
_PAUSE_S = 0.001  # between two queries
_BACKLOG = 3  # files
_RECENT_BATCHES = 60
_ASKED_OF_A_BATCH = 500


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        together(bench, folder)


def together(bench: Bench, folder: Path) -> None:
    capacity = bench.size(10_000_000)
    alone = speed_alone(bench, folder / "alone")
    index = bench.open_index(
        folder / "data", item_capacity=capacity, slot_count=capacity // 4, background=True,
        store=str(folder / "store"),
    )  # fmt: skip
    try:
        puts = Puts(index, alone * 2)
        for _ in range(100):
            puts.put_next()
        idle = ask_for(index, puts.recent, lambda spent: spent < 2.0)
        rolls, stop = count_rolls(index), threading.Event()
        puts.times.clear()
        thread = threading.Thread(target=puts.run, args=(stop,))
        thread.start()
        busy = ask_for(index, puts.recent, lambda spent: is_going_on(index, spent))
        stop.set()
        thread.join()
        totals = index.compaction_status()["totals"]
        rolls = count_rolls(index) - rolls
    finally:
        index.close()
    if not (totals["compacted"] and totals["published"]):
        bench.skip("everything at once", f"nothing was compacted and published in {_MOST_S:g} s")
        return
    report(bench, idle, busy, puts.times, f"{rolls} rolls; {totals}")


def is_going_on(index: Index, spent: float) -> bool:
    """Say whether to go on: until the time is over, and a compaction and an upload have ended."""
    totals = index.compaction_status()["totals"]
    done = totals["compacted"] > 0 and totals["published"] > 0
    return spent < (_MEASURED_S if done else _MOST_S)


def report(
    bench: Bench, idle: list[float], busy: list[float], puts: list[float], what: str
) -> None:
    idle_p50, busy_p50 = percentile(idle, 0.5) * 1e6, percentile(busy, 0.5) * 1e6
    p99 = percentile(busy, 0.99) * 1e3
    note = f"{what}; {len(puts) * BATCH / 1e6:.1f} M entries put meanwhile"
    bench.add(
        Row(10, "local query while all is busy, p99", "ms", p99, ratio=p99, limit=10.0, note=note)
    )
    name = "local query while all is busy, p50"
    bench.add(Row(10, name, "us", busy_p50, "idle", idle_p50, busy_p50 / idle_p50, 3.0))
    longest, median = max(puts) * 1e3, float(np.median(puts)) * 1e3
    name = f"longest put_batch of {BATCH:,} (median {median:.2f} ms)"
    bench.add(Row(10, name, "ms", longest, ratio=longest, limit=50.0))
    bench.plots["together"] = {
        "idle": idle[:: max(1, len(idle) // 5000)],
        "busy": busy[:: max(1, len(busy) // 5000)],
    }


def count_rolls(index: Index) -> int:
    """Return how many files there are or have been (a merge makes one of several)."""
    totals = index.compaction_status()["totals"]
    return len(index.files()) + int(totals["merged"])


def speed_alone(bench: Bench, folder: Path) -> float:
    """Return the seconds that one put_batch takes with nothing else going on."""
    with bench.open_index(folder) as index:
        puts = Puts(index, 0.0)
        for _ in range(100):
            puts.put_next()
    return float(np.median(puts.times))


class Puts:
    """Puts blocks of new keys, one every `period` seconds."""

    def __init__(self, index: Index, period: float) -> None:
        self._index = index
        self._period = period
        self._count = 0
        self.times: list[float] = []
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
        begin = time.perf_counter()
        self._index.put_batch(**entries)
        now = time.perf_counter()
        self.times.append(now - begin)
        self._count += 1
        self.recent.append(block.keys[:_ASKED_OF_A_BATCH].to_pylist())
        return now


def ask_for(
    index: Index, recent: deque[list[str]], is_going_on: Callable[[float], bool]
) -> list[float]:
    """Return the seconds of each of many queries of one entry, while `is_going_on(seconds)`."""
    times, place, start = [], 0, time.perf_counter()
    while place % 100 or is_going_on(time.perf_counter() - start):
        texts = recent[place * 31 % len(recent)]
        key = texts[place * 7919 % len(texts)]
        begin = time.perf_counter()
        answer = index.query(TOPIC, key=key)
        times.append(time.perf_counter() - begin)
        assert len(answer.entries) == 1, answer
        place += 1
        time.sleep(_PAUSE_S)
    return times
