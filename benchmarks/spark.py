"""Issue 4: the Spark pipeline on local[2], against Spark itself in the same session.

    python -m benchmarks --only spark [--quick]        python -m benchmarks.spark [--items N]

* build and read back against an identity `mapInArrow` over the same columns: what Spark takes to
  bring rows to Python and back, without any work done
* bulk lookup of every 20th key in 10 files, against Spark joining the same keys with the same
  entries in Parquet
* a full scan of a published message log, against one of the same rows as Parquet with zstd

20 M entries, 1 M in the quick run, where most is Spark's start; the rows say which. Warm session,
alternating order, median of the rounds; the cold first run is reported beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import Row
from tierdex import MessageLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

ITEMS = 20_000_000
QUICK_ITEMS = 1_000_000
ITEMS_A_KEY = 20
MESSAGES = 4_000_000
QUICK_MESSAGES = 400_000
LOG_ROUNDS = 5
LOG_FILES = 4  # of alike size: Spark's cost a task is a tenth of a second of CPU
FILES = 10  # each from a file of the source, which Spark reads as a whole or with another whole one
ROUNDS = 3
TARGET = 12


def run(bench: Bench) -> None:
    """Measure, as a part of `make bench`."""
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError:
        bench.skip("the Spark pipeline", "pyspark is not installed")
        return
    items = QUICK_ITEMS if bench.is_quick else ITEMS
    with bench.folder() as folder:
        for row in measure(folder, items):
            bench.add(row)


def measure(folder: Path, items: int) -> list[Row]:
    """Return the rows of the report."""
    from tierdex.pipeline import make_session

    begin = time.perf_counter()
    spark = make_session("local[2]", name="tierdex-bench", conf={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("OFF")
    session = time.perf_counter() - begin
    try:
        rows = [Row(TARGET, "start of a Spark session", "s", session)]
        source = make_entries(spark, folder, items)
        rows += builds(spark, folder, source, items)
        rows += lookups(spark, folder, source, items)
        rows += log_scans(spark, folder, QUICK_MESSAGES if items < ITEMS else MESSAGES)
    finally:
        spark.stop()
    return rows


def measure_log(folder: Path, count: int) -> list[Row]:
    """Return the rows of the log's scan alone."""
    from tierdex.pipeline import make_session

    spark = make_session("local[2]", name="tierdex-bench", conf={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("OFF")
    try:
        return log_scans(spark, folder, count)
    finally:
        spark.stop()


def make_entries(spark: Any, folder: Path, items: int) -> str:
    """Write the entries as Parquet; return its path."""
    from pyspark.sql import functions as F

    number = F.col("id")
    path = str(folder / "entries.parquet")
    spark.range(0, items, numPartitions=FILES).select(
        F.concat(F.lit("topic-"), (number % 8).cast("string")).alias("topic"),
        F.concat(F.lit("ORDER-"), F.lpad(F.hex(F.xxhash64(number)), 16, "0")).alias("key"),
        (number % 16).cast("int").alias("queue_id"),
        (number * 200).alias("offset"),
        F.lit(200).alias("size"),
        (F.lit(1_700_000_000_000) + number).alias("timestamp"),
    ).write.parquet(path)
    return path


def builds(spark: Any, folder: Path, source: str, items: int) -> list[Row]:
    """Compare build and read-back with the identity, in turns."""
    entries = spark.read.parquet(source)
    per_file = -(-items // FILES)
    store = folder / "store"

    def identity() -> None:
        entries.mapInArrow(lambda batches: batches, entries.schema).write.format("noop").mode(
            "overwrite"
        ).save()

    def build() -> None:
        shutil.rmtree(store, ignore_errors=True)
        writer = entries.write.format("tierdex").mode("append")
        writer.option("targetEntries", str(per_file)).save(str(store))

    def read() -> None:
        columns = "topic,key_hash,queue_id,offset,size,timestamp"
        frame = spark.read.format("tierdex").option("columns", columns).load(str(store))
        frame.write.format("noop").mode("overwrite").save()

    cold = {"build": timed(build), "read back": timed(read), "identity": timed(identity)}
    warm = alternate({"identity": identity, "build": build, "read back": read})
    rows = []
    for name, least in (("build", 0.5), ("read back", 0.8)):
        rate, peer = items / warm[name] / 1e6, items / warm["identity"] / 1e6
        title = f"Spark {name} of {items / 1e6:g} M entries, local[2]"
        rows.append(
            Row(
                TARGET,
                title,
                "M/s",
                rate,
                "identity",
                peer,
                ratio=rate / peer,
                limit=least,
                better=">=",
            )
        )
        rows.append(Row(TARGET, "  the first time, cold", "M/s", items / cold[name] / 1e6))
    return rows


def lookups(spark: Any, folder: Path, source: str, items: int) -> list[Row]:
    """Compare a bulk lookup with a join of the same keys with the same entries."""
    from pyspark.sql import functions as F

    from tierdex.pipeline import last_scan, lookup

    entries = spark.read.parquet(source)
    path = str(folder / "keys.parquet")
    wanted = F.pmod(F.xxhash64("offset"), F.lit(ITEMS_A_KEY)) == 0
    entries.where(wanted).select("topic", "key").write.parquet(path)
    keys = spark.read.parquet(path)
    total = keys.count()
    store = str(folder / "store")
    found: dict[str, int] = {}

    def ask() -> None:
        frame = lookup(spark, store, keys, how="inner")
        found["lookup"] = frame.agg(F.count("*"), F.sum("offset")).first()[0]

    def join() -> None:
        frame = keys.join(entries, ["topic", "key"])
        found["join"] = frame.agg(F.count("*"), F.sum("offset")).first()[0]

    cold = timed(ask)
    warm = alternate({"join": join, "lookup": ask})
    assert found == {"lookup": total, "join": total}, found
    report = last_scan()
    assert report is not None
    assert report.files_considered == FILES, report
    ratio = warm["join"] / warm["lookup"]
    title = f"Spark lookup of {total / 1e6:g} M keys in {items / 1e6:g} M entries, {FILES} files"
    return [
        Row(
            TARGET,
            title,
            "s",
            warm["lookup"],
            "join",
            warm["join"],
            ratio=ratio,
            # Below this the join itself takes no longer than Spark takes to start two stages.
            limit=10.0 if items >= ITEMS else None,
            better=">=",
        ),
        Row(TARGET, "  the first time, cold", "s", cold),
        Row(TARGET, "  pages fetched", "pages", report.pages_read),
    ]


def log_scans(spark: Any, folder: Path, count: int) -> list[Row]:
    """Compare a full scan of a log with one of the same rows as Parquet, codec zstd, in turns."""
    url = f"file://{folder}/log-store"
    body_bytes = make_log(folder, url, count)
    scan = spark.read.format("tierdex-log").load(url)
    parquet = str(folder / "messages.parquet")
    scan.write.option("compression", "zstd").parquet(parquet)
    same = spark.read.parquet(parquet)
    assert same.count() == count
    seconds: dict[str, list[float]] = {"log": [], "parquet": []}

    def read(name: str, frame: Any) -> Callable[[], None]:
        def step() -> None:
            before = cpu_seconds()
            frame.write.format("noop").mode("overwrite").save()
            seconds[name].append(cpu_seconds() - before)

        return step

    steps = {"parquet": read("parquet", same), "log": read("log", scan)}
    cold = timed(steps["log"])
    timed(steps["parquet"])
    for taken in seconds.values():
        taken.clear()
    best, median = alternate_best(steps, LOG_ROUNDS)
    cpu = {name: statistics.median(taken) for name, taken in seconds.items()}
    title = f"Spark scan of {count / 1e6:g} M published messages of {body_bytes // count} bytes"
    rate = {name: count / taken / 1e6 for name, taken in median.items()}
    quickest = {name: count / taken / 1e6 for name, taken in best.items()}
    return [
        Row(
            TARGET, title, "M/s", rate["log"], "zstd Parquet", rate["parquet"],
            ratio=rate["log"] / rate["parquet"], limit=0.6, better=">=",
        ),
        Row(
            TARGET, "  the best round of each", "M/s", quickest["log"], "zstd Parquet",
            quickest["parquet"], ratio=quickest["log"] / quickest["parquet"], better="",
        ),
        Row(
            TARGET, "  CPU of all of Spark's processes", "s", cpu["log"], "zstd Parquet",
            cpu["parquet"], ratio=cpu["parquet"] / cpu["log"], better="",
        ),
        Row(TARGET, "  the first time, cold", "M/s", count / cold / 1e6),
    ]  # fmt: skip


def cpu_seconds() -> float:
    """Return the CPU that the JVM and its Python processes have taken, those that ended included."""
    import psutil

    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def make_log(folder: Path, url: str, count: int) -> int:
    """Publish a log of orders as JSON under their key, on 64 queues; return the bytes of the bodies."""
    step, total = 50_000, 0
    journal_bytes = (count * 256 // LOG_FILES >> 20) + 1 << 20
    with MessageLog.open(
        folder / "log", store=url, journal_bytes=journal_bytes, background=False
    ) as log:
        for first in range(0, count, step):
            numbers = np.arange(first, min(first + step, count))
            mixed = (numbers * 0x9E3779B1) & 0xFFFFFFFF
            bodies = [
                b'{"order":"ORDER-%d","customer":"C-%08x","lines":[{"sku":"%05d","count":%d,"price":%d.%02d},'
                b'{"sku":"%05d","count":1,"price":%d.99}],"currency":"EUR","status":"paid","note":"%08x"}'
                % (n, m, m % 99991, m % 7 + 1, m % 311, m % 97, m % 8191, m % 53, m ^ 0x5BD1E995)
                for n, m in zip(numbers.tolist(), mixed.tolist(), strict=True)
            ]
            total += sum(map(len, bodies))
            log.append_batch(
                topic="orders", queue_id=(numbers % 64).astype(np.int32), body=bodies,
                keys=[f"ORDER-{n}" for n in numbers.tolist()], timestamp=1_700_000_000_000 + numbers,
                durability="os",
            )  # fmt: skip
        log.flush("disk")
        log.roll()
        log.run_compaction()
    return total


def timed(step: Callable[[], None]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def alternate(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median seconds of each step; every round runs them in another order."""
    return alternate_best(steps, ROUNDS)[1]


def alternate_best(
    steps: dict[str, Callable[[], None]], rounds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the best and the median seconds of each step, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(rounds):
        # read back needs what build wrote, so only the beginning moves
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken[name].append(timed(steps[name]))
    best = {name: min(seconds) for name, seconds in taken.items()}
    return best, {name: statistics.median(seconds) for name, seconds in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--messages", type=int, help="only the scan of a log of so many")
    arguments = parser.parse_args()
    print(platform.platform())
    with tempfile.TemporaryDirectory(prefix="tierdex-bench-", dir=arguments.folder) as folder:
        from benchmarks.bench import line_of

        if arguments.messages:
            rows = measure_log(Path(folder), arguments.messages)
        else:
            rows = measure(Path(folder), arguments.items)
        for row in rows:
            print(line_of(row), flush=True)


if __name__ == "__main__":
    main()
