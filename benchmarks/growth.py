"""Target 11: what a put and a query cost as the index grows to ten files of 20 M entries."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.bench import store_that_is_down
from benchmarks.data import TOPIC, Block
from benchmarks.measure import Row, seconds

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex import Index

FILES = 10
BLOCKS_A_FILE = 20
ASKED = 2000


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        grow(bench, folder)


def grow(bench: Bench, folder: Path) -> None:
    """Chained files, none compacted: the form in which a put and a query cost most."""
    store = store_that_is_down()
    index = bench.open_index(folder, store=store)
    rng = np.random.default_rng(6)
    sizes: list[int] = []
    puts: list[float] = []
    query_sizes: list[int] = []
    queries: list[float] = []
    first = Block(0, bench.size(1_000_000))
    for number in range(FILES * BLOCKS_A_FILE):
        block = Block(number, bench.size(1_000_000))
        _ = block.keys, block.columns
        puts.append(seconds(partial(index.put_batch, **block.entries)) / block.count * 1e9)
        sizes.append((number + 1) * block.count)
        if number % BLOCKS_A_FILE in (0, BLOCKS_A_FILE - 1):
            keys = first.some(rng.integers(0, first.count, ASKED)).to_pylist()

            queries.append(seconds(partial(ask, index, keys)) / ASKED * 1e6)
            query_sizes.append(sizes[-1])
    early, late = float(np.median(puts[1:21])), float(np.median(puts[-20:]))
    name = f"ns a put: last {bench.size(20)} M of {bench.size(200)} M, beside the first"
    bench.add(Row(11, name, "ns/key", late, "first", early, late / early, 1.3))
    fits = np.polyfit(
        [size // (BLOCKS_A_FILE * first.count) + 1 for size in query_sizes], queries, 1
    )
    row = Row(11, "a query, by the chained files that may hold its key", "us/file", float(fits[0]))
    row.note = f"{queries[0]:.1f} us with one file, {queries[-1]:.1f} us with ten"
    bench.add(row)
    bench.plots["growth"] = {
        "put": [sizes, puts], "query": [query_sizes, queries],
    }  # fmt: skip
    with store.outage():
        index.close()


def ask(index: Index, keys: list[str]) -> None:
    for key in keys:
        index.query(TOPIC, key=key)
