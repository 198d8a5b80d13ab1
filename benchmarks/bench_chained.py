"""Nanoseconds an item of the chained form: append, search, seal, rows_in_hash_order, recover.

    python benchmarks/bench_chained.py [--items 10000000] [--folder /tmp]

One run of each: a quick look for whoever changes a kernel; `make bench` compares with peers.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.columns import ItemColumns, StringColumn
from tierdex.indexfile.hashing import key_hashes
from tierdex.indexfile.lookup import Search
from tierdex.indexfile.schema import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 1_000_000


def timed(name: str, items: int, step: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    result = step()
    took = time.perf_counter() - begin
    print(f"{name:34s} {took / items * 1e9:9.1f} ns an item   ({took:.2f} s)")
    return result


def make_keys(first: int, count: int) -> pa.Array:
    numbers = pc.cast(pa.array(np.arange(first, first + count)), pa.string())
    return pc.binary_join_element_wise("ORDER-", pc.utf8_lpad(numbers, 10, "0"), "")


def part_of(keys: pa.Array, first: int) -> ItemColumns:
    count = len(keys)
    rows = np.arange(first, first + count)
    return ItemColumns(
        strings=StringColumn.from_values(keys),
        topics="orders",
        timestamp=1_700_000_000_000 + rows,
        fields={
            "offset": rows * 200,
            "size": np.full(count, 200, np.uint32),
            "queue_id": (rows % 8).astype(np.int32),
        },
    )


def warm_up(folder: Path) -> None:
    """Compile everything once, on a small file."""
    run(folder / "warm", 20_000, 5_000, quiet=True)


def run(path: Path, items: int, slot_count: int, *, quiet: bool = False) -> None:
    def measure(name: str, count: int, step: Callable[[], Any]) -> Any:
        return step() if quiet else timed(name, count, step)

    filesystem = LocalFileSystem()
    parts = [
        part_of(make_keys(first, min(BATCH, items - first)), first)
        for first in range(0, items, BATCH)
    ]
    file = ChainedFile.create(
        filesystem,
        path,
        uuid=b"benchmark uuid 0",
        schema=MESSAGE_SCHEMA,
        slot_count=slot_count,
        item_capacity=items,
        created_ms=0,
    )
    measure("append, batches of 1 M", items, lambda: [file.append([part]) for part in parts])
    rng = np.random.default_rng(1)
    wanted = min(items, 1_000_000)
    present = make_keys(0, items).take(pa.array(rng.integers(0, items, wanted)))
    hashes = key_hashes(StringColumn.from_values(present), ["orders"])
    absent = rng.integers(0, 1 << 63, wanted).astype(np.uint64) * np.uint64(2)
    tags = np.full(wanted, file.tag_of("orders", 0), np.uint32)

    def in_thousands(wanted_hashes: np.ndarray) -> int:
        found = 0
        for first in range(0, wanted, 1000):
            chunk = slice(first, first + 1000)
            found += len(
                search_file(file, Search.of(wanted_hashes[chunk], tags[chunk], limit=1)).rows
            )
        return found

    assert measure("search of 1,000, present", wanted, lambda: in_thousands(hashes)) == wanted
    assert measure("search of 1,000, absent", wanted, lambda: in_thousands(absent)) == 0
    singles = [Search.of(hashes[n : n + 1], tags[0]) for n in range(20_000)]
    measure(
        "search, one key a call", len(singles), lambda: [search_file(file, one) for one in singles]
    )
    single = [part_of(make_keys(number, 1), number) for number in range(min(items, 1000))]
    measure(
        "rows_in_hash_order",
        items,
        lambda: sum(len(chunk) for chunk in file.rows_in_hash_order()),
    )
    measure("sync", items, file.sync)
    measure("recover", items, lambda: ChainedFile.recover(filesystem, path).close())
    measure("seal", items, file.seal)
    file.close()
    sealed = ChainedFile.open_sealed(filesystem, path)
    file = sealed
    measure("sealed, first search", wanted, lambda: in_thousands(hashes))
    measure("sealed, second search", wanted, lambda: in_thousands(hashes))
    sealed.close()
    path.unlink()
    small = ChainedFile.create(
        filesystem,
        path,
        uuid=b"benchmark uuid 1",
        schema=MESSAGE_SCHEMA,
        slot_count=slot_count,
        item_capacity=2 * items,
        created_ms=0,
    )
    measure("append, batches of 1", len(single), lambda: [small.append([part]) for part in single])
    small.close()
    path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        warm_up(Path(folder))
        print(f"{arguments.items} items, {arguments.items // 2} slots, {platform.processor()}")
        run(Path(folder) / "file", arguments.items, arguments.items // 2)


if __name__ == "__main__":
    main()
