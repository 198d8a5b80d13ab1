"""Target 4: compaction of one full file, with and without its filter, and the memory it takes.

The floor in C walks the same chains to plain rows: no pages, no checksums, no file. The index runs its
own compactor by hand, with the store down, so that what is timed is the one job
"compact": walk in hash order, pages, checksums, directory, (filter,) write, sync, verify, rename.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bench import newest_file, next_local_unit, store_that_is_down
from benchmarks.data import Block
from benchmarks.floor import floor_compact, load_floor
from benchmarks.measure import Row, Timings, take_turns
from benchmarks.memory import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex import Index

MIB = 1 << 20


def run(bench: Bench) -> None:
    items = bench.size(10_000_000)
    blocks = [Block(number, items // 10) for number in range(10)]
    peaks: list[float] = []
    shares: dict[str, list[float]] = {}
    with bench.folder() as folder:
        contestants: dict[str, Callable[[int], float]] = {
            f"{bits} bit": compaction_of(bench, folder, blocks, bits, peaks, shares)
            for bits in (0, 16)
        }
        library = load_floor()
        if library is not None:
            index = fill(bench, folder / "floor", blocks, 0)
            file: Any = newest_file(index).reader
            out = np.empty(items, file.schema.dtype)

            def floor(_round: int) -> float:
                begin = time.thread_time()
                floor_compact(library, file, out)
                taken = time.thread_time() - begin
                assert np.all(out["key_hash"][1:] >= out["key_hash"][:-1])
                return taken / items * 1e9

            contestants["C floor"] = floor
        timings = take_turns(contestants)
    note = "parts: " + ", ".join(f"{k} {np.median(v):.0f}" for k, v in shares.items())
    name = "compaction, all in but the filter"
    bench.add_ratio(4, name, "ns/item", timings, "C floor", 2.5, ours="0 bit", note=note)
    pairs = zip(timings.rounds["16 bit"], timings.rounds["0 bit"], strict=True)
    filters = Timings({**timings.rounds, "filter": [whole - bare for whole, bare in pairs]})
    name = "the filter of 16 bit on top"
    bench.add_ratio(4, name, "ns/item", filters, "C floor", 2.0, ours="filter")
    peak = max(peaks) / MIB
    bench.add(
        Row(
            4, "compaction: peak memory beyond the page cache", "MiB", peak, ratio=peak, limit=256.0
        )
    )


def compaction_of(
    bench: Bench,
    folder: Path,
    blocks: list[Block],
    bits: int,
    peaks: list[float],
    shares: dict[str, list[float]],
) -> Callable[[int], float]:
    def measure(number: int) -> float:
        index = fill(bench, folder / f"{bits}-{number}", blocks, bits)
        items = sum(block.count for block in blocks)
        index.roll()
        taken = 0.0
        for job in ("seal", "compact"):
            unit = next_local_unit(index)
            assert unit.job == job, unit
            with PeakMemory() as peak:
                cpu, begin = time.thread_time(), time.perf_counter()
                unit.run()
                wall, cpu = time.perf_counter() - begin, time.thread_time() - cpu
            shares.setdefault(f"{job} {bits} bit wall", []).append(wall / items * 1e9)
            shares.setdefault(f"{job} {bits} bit CPU", []).append(cpu / items * 1e9)
            if job == "compact":
                taken = cpu
                peaks.append(peak.bytes)
        index.close()
        return taken / items * 1e9

    return measure


def fill(bench: Bench, folder: Path, blocks: list[Block], bits: int) -> Index:
    """Return an index whose one file holds all blocks; its store is down."""
    store = store_that_is_down()
    index = bench.open_index(folder, store=store, filter_bits=bits)
    store.begin_outage()
    for block in blocks:
        index.put_batch(**block.entries)
    return index
