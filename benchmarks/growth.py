"""Target 11: what a put and a query cost as the index grows to ten files of 20 M entries.

The memory that a block of puts will fill is touched before each, as in all other rows of puts: the
first files would else find pages that the machine has already, and the others wait for its host.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import Bench, store_that_is_down, warm_memory
from benchmarks.data import TOPIC, Block
from benchmarks.measure import Row, seconds

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from tierdex import Index

FILES = 10
BLOCKS_A_FILE = 20
ASKED = 2000
_BYTES_A_KEY = 160  # of memory that a put of them touches: items, columns, what it makes meanwhile


@dataclass
class Grown:
    """What was measured while an index grew: ns a put (wall and CPU) by size, us a query by size."""

    sizes: list[int] = field(default_factory=list)
    puts: list[float] = field(default_factory=list)
    puts_cpu: list[float] = field(default_factory=list)
    query_sizes: list[int] = field(default_factory=list)
    queries: list[float] = field(default_factory=list)


def run(bench: Bench) -> None:
    """Let a process of its own grow the index, and end without syncing gigabytes that nobody wants."""
    with bench.folder() as folder:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("spawn").Process(
            target=grow, args=(bench.scale, folder, theirs)
        )
        child.start()
        theirs.close()
        try:
            report(bench, ours.recv())
        finally:
            child.kill()
            child.join()


def grow(scale: float, folder: Path, results: Connection) -> None:
    """Chained files, none compacted: the form in which a put and a query cost most."""
    bench, grown = Bench(scale, folder), Grown()
    index = bench.open_index(folder / "data", store=store_that_is_down())
    rng = np.random.default_rng(6)
    first = Block(0, bench.size(1_000_000))
    index.put_batch(**Block(9000, 1000).entries)  # what is compiled or loaded at the first put
    for number in range(FILES * BLOCKS_A_FILE):
        block = Block(number, first.count)
        _ = block.keys, block.columns
        warm_memory(block.count * _BYTES_A_KEY)
        cpu = time.thread_time()
        grown.puts.append(seconds(partial(index.put_batch, **block.entries)) / block.count * 1e9)
        grown.puts_cpu.append((time.thread_time() - cpu) / block.count * 1e9)
        grown.sizes.append((number + 1) * block.count)
        if number % BLOCKS_A_FILE in (0, BLOCKS_A_FILE - 1):
            keys = first.some(rng.integers(0, first.count, ASKED)).to_pylist()
            grown.queries.append(seconds(partial(ask, index, keys)) / ASKED * 1e6)
            grown.query_sizes.append(grown.sizes[-1])
    results.send(grown)
    time.sleep(60)  # killed before: closing would sync what is removed in a moment


def report(bench: Bench, grown: Grown) -> None:
    early, late = np.median(grown.puts[1:21]), np.median(grown.puts[-20:])
    name = f"ns a put: last {bench.size(20)} M of {bench.size(200)} M, beside the first"
    row = Row(11, name, "ns/key", float(late), "first", float(early), float(late / early), 1.3)
    early_cpu, late_cpu = np.median(grown.puts_cpu[1:21]), np.median(grown.puts_cpu[-20:])
    row.note = f"CPU {late_cpu:.0f} beside {early_cpu:.0f}; each block's memory was touched before"
    bench.add(row)
    items_a_file = bench.size(1_000_000) * BLOCKS_A_FILE
    files = [size // items_a_file + 1 for size in grown.query_sizes]
    per_file = float(np.polyfit(files, grown.queries, 1)[0])
    row = Row(11, "a query, by the chained files that may hold its key", "us/file", per_file)
    row.note = f"{grown.queries[0]:.1f} us with one file, {grown.queries[-1]:.1f} us with ten"
    bench.add(row)
    bench.plots["growth"] = {
        "put": [grown.sizes, grown.puts], "query": [grown.query_sizes, grown.queries],
    }  # fmt: skip


def ask(index: Index, keys: list[str]) -> None:
    for key in keys:
        index.query(TOPIC, key=key)
