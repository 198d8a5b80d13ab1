"""Issue 4: the Spark pipeline on local[2], against Spark itself in the same session.

    python -m benchmarks --only spark [--quick]        python -m benchmarks.spark [--items N]

* build and read back against an identity `mapInArrow` over the same columns: what Spark takes to
  bring rows to Python and back, without any work done
* bulk lookup of every 20th key in 10 files, against Spark joining the same keys with the same
  entries in Parquet

20 M entries, 1 M in the quick run, where most is Spark's start; the rows say which. Warm session,
alternating order, median of the rounds; the cold first run is reported beside it.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

ITEMS = 20_000_000
QUICK_ITEMS = 1_000_000
ITEMS_A_KEY = 20
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
    finally:
        spark.stop()
    return rows


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


def timed(step: Callable[[], None]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def alternate(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Return the median seconds of each step; every round runs them in another order."""
    taken: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for number in range(ROUNDS):
        # read back needs what build wrote, so only the beginning moves
        for name in names[number % len(names) :] + names[: number % len(names)]:
            taken[name].append(timed(steps[name]))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=ITEMS)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    print(platform.platform())
    with tempfile.TemporaryDirectory(prefix="tierdex-bench-", dir=arguments.folder) as folder:
        from benchmarks.bench import line_of

        for row in measure(Path(folder), arguments.items):
            print(line_of(row), flush=True)


if __name__ == "__main__":
    main()
