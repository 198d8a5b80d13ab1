"""Target 10: everything at once: puts at half speed, rolls, compactions, uploads, and queries.

The index runs as it does in production, with its background threads, over a local store. One thread
puts batches at about half of the speed that it reached alone, another asks one key at a time; files
are small enough that several rolls and compactions fall into the measured time.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import TOPIC, Block
from benchmarks.measure import Row, percentile

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex import Index

BATCH = 10_000
_MEASURED_S = 8.0


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        together(bench, folder)


def together(bench: Bench, folder: Path) -> None:
    capacity = bench.size(10_000_000)
    blocks = [Block(number, BATCH) for number in range(200)]
    for block in blocks:
        _ = block.keys, block.columns
    alone = speed_alone(bench, folder / "alone", blocks)
    index = bench.open_index(
        folder / "data", item_capacity=capacity, slot_count=capacity // 4, background=True,
        store=str(folder / "store"),
    )  # fmt: skip
    try:
        for block in blocks:
            index.put_batch(**block.entries)
        texts = [text for block in blocks for text in block.texts[:500]]
        idle = ask_for(index, texts, 2.0)
        puts, stop = Puts(index, blocks, alone * 2), threading.Event()
        thread = threading.Thread(target=puts.run, args=(stop,))
        thread.start()
        files_before = len(index.files())
        busy = ask_for(index, texts, _MEASURED_S if bench.is_quick else 4 * _MEASURED_S)
        stop.set()
        thread.join()
        rolls = len(index.files()) - files_before
        done = index.compaction_status()
    finally:
        index.close()
    idle_p50, busy_p50 = percentile(idle, 0.5) * 1e6, percentile(busy, 0.5) * 1e6
    p99 = percentile(busy, 0.99) * 1e3
    note = f"{rolls} rolls, {puts.count * BATCH / 1e6:.1f} M entries put meanwhile; {done.get('totals', '')}"
    bench.add(
        Row(10, "local query while all is busy, p99", "ms", p99, ratio=p99, limit=10.0, note=note)
    )
    name = "local query while all is busy, p50"
    bench.add(Row(10, name, "us", busy_p50, "idle", idle_p50, busy_p50 / idle_p50, 3.0))
    longest, median = max(puts.times) * 1e3, float(np.median(puts.times)) * 1e3
    row = Row(10, f"longest put_batch of {BATCH:,} (median {median:.2f} ms)", "ms", longest)
    row.ratio, row.limit = longest, 50.0
    bench.add(row)
    bench.plots["together"] = {
        "idle": idle[:: max(1, len(idle) // 5000)],
        "busy": busy[:: max(1, len(busy) // 5000)],
    }


def speed_alone(bench: Bench, folder: Path, blocks: list[Block]) -> float:
    """Return the seconds that one put_batch takes with nothing else going on."""
    index = bench.open_index(folder)
    times = []
    for block in blocks[:100]:
        begin = time.perf_counter()
        index.put_batch(**block.entries)
        times.append(time.perf_counter() - begin)
    index.close()
    return float(np.median(times))


class Puts:
    """Puts the blocks over and over, one every `period` seconds."""

    def __init__(self, index: Index, blocks: list[Block], period: float) -> None:
        self._index = index
        self._blocks = blocks
        self._period = period
        self.times: list[float] = []
        self.count = 0

    def run(self, stop: threading.Event) -> None:
        due = time.perf_counter()
        while not stop.is_set():
            block = self._blocks[self.count % len(self._blocks)]
            begin = time.perf_counter()
            self._index.put_batch(**block.entries)
            now = time.perf_counter()
            self.times.append(now - begin)
            self.count += 1
            due = max(due + self._period, now - 10 * self._period)
            if due > now:
                time.sleep(due - now)


def ask_for(index: Index, texts: list[str], duration_s: float) -> list[float]:
    """Return the seconds of each of many queries of one entry, for so long."""
    times, place = [], 0
    end = time.perf_counter() + duration_s
    while True:
        begin = time.perf_counter()
        if begin >= end:
            return times
        index.query(TOPIC, key=texts[place * 7919 % len(texts)])
        times.append(time.perf_counter() - begin)
        place += 1
