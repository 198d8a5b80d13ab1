"""Target 5: the filter's size, false positives and speed; and what it saves with 64 files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.bench import compact_only, newest_file, store_that_is_down
from benchmarks.data import TOPIC, Block
from benchmarks.floor import floor_contains, load_floor
from benchmarks.measure import Row, seconds, take_turns
from tierdex.fileparts.layout import FILTER_PARTITION, Part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench, BenchIndex
    from tierdex import Index

FILES = 64


def run(bench: Bench) -> None:
    for bits, most_bits, most_false in ((16, 1.16, 1.35), (8, 1.15, 1.05)):
        with bench.folder() as folder:
            one_filter(bench, folder, bits, most_bits, most_false)
    with bench.folder() as folder:
        many_files(bench, folder)


def one_filter(bench: Bench, folder: Path, bits: int, most_bits: float, most_false: float) -> None:
    store = store_that_is_down()
    index = bench.open_index(folder, store=store, filter_bits=bits)
    for number in range(10):
        index.put_batch(**Block(number, bench.size(1_000_000)).entries)
    index.roll()
    with store.outage():
        compact_only(index)
        file: Any = newest_file(index).reader
        table = file._view(Part.FILTER_PARTITIONS).view(FILTER_PARTITION)
        prints = table["segment_length"].astype(np.int64) * (table["segment_count"] + 3)
        size = int(prints.sum()) * bits + table.nbytes * 8
        groups = file._view(Part.FILTER).nbytes * 8  # the directory lies among the prints (0035)
        rng = np.random.default_rng(3)
        asked = bench.size(20_000_000)
        absent = rng.integers(0, 1 << 64, asked, dtype=np.uint64)
        false = int(np.count_nonzero(file.may_contain_many(absent)))
        some = absent[:1_000_000]
        contestants: dict[str, Callable[[int], float]] = {
            "ours": lambda _: seconds(lambda: file.may_contain_many(some)) / len(some) * 1e9
        }
        library = load_floor()
        if library is not None:
            assert np.array_equal(floor_contains(library, file, some), file.may_contain_many(some))
            contestants["C floor"] = lambda _: (
                seconds(lambda: floor_contains(library, file, some)) / len(some) * 1e9
            )
        timings = take_turns(contestants)
        index.close()
    name, per_item, share = f"filter of {bits} bit", size / file.item_count, false / asked
    least = 1 / (1 << bits)  # by chance, of a fingerprint of so many bits
    bench.add(
        Row(5, f"{name}: bits an item", "bit", per_item, "print", bits, per_item / bits, most_bits)
    )
    bench.add(
        Row(
            5,
            "  in hash groups, with the directory",
            "bit",
            (groups + table.nbytes * 8) / file.item_count,
        )
    )
    bench.add(
        Row(5, f"{name}: false positives", "", share, "chance", least, share / least, most_false)
    )
    bench.add_ratio(5, f"{name}: one query, in batches", "ns", timings, "C floor", 1.6)


def many_files(bench: Bench, folder: Path) -> None:
    """A key that none of 64 compacted files holds, with and without filters."""
    store = store_that_is_down()
    items = bench.size(10_000_000) // FILES
    indexes: dict[int, BenchIndex] = {}
    for bits in (16, 0):
        index = bench.open_index(
            folder / str(bits), store=store, node=f"bits-{bits}", filter_bits=bits,
            item_capacity=items, slot_count=items // 4,
        )  # fmt: skip
        for number in range(FILES):
            index.put_batch(**Block(number, items).entries)
            index.roll()
        indexes[bits] = index
    with store.outage():
        for index in indexes.values():
            compact_only(index)
        absent = Block(0, items, letter="Z").texts
        count = 500

        def ask(index: Index) -> Callable[[int], float]:
            def measure(number: int) -> float:
                keys = absent[number * count : (number + 1) * count]

                def each() -> None:
                    for key in keys:
                        assert not index.query(TOPIC, key=key).entries

                return seconds(each) / count * 1e6

            return measure

        timings = take_turns({"ours": ask(indexes[16]), "without filters": ask(indexes[0])})
        name = "query of a key in none of 64 compacted files"
        bench.add_ratio(5, name, "us", timings, "without filters", 4.0, ">=")
        for index in indexes.values():
            index.close()
