"""Rows of a lake's tables by key, beside engines and libraries on the same files, which take turns.

10 M rows of six columns in ten files, random keys of 16 letters: a Delta table, whose writer gives a page
index, and an Iceberg table, whose writer gives none. Files lie in the page cache: on S3 the requests that a
row takes count more, and they are counted. `python -m benchmarks --only lake`.
"""

from __future__ import annotations

import shutil
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa

import tierdex
from benchmarks.measure import Row, seconds, take_turns
from tierdex.files.folder import FileFolder
from tierdex.files.object_file import RangeFile
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.resolving.show_settings import ShowSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench

TARGET = 16
ROWS = 10_000_000
FILES = 10
LOOKUPS = 20
SIZES: dict[str, Any] = {"slot_count": 1 << 22, "item_capacity": 20_000_000}


def run(bench: Bench) -> None:
    absent = [name for name in ("deltalake", "duckdb", "pyiceberg") if find_spec(name) is None]
    if absent:
        bench.skip("lake", f"{', '.join(absent)} is not here: make's stamp `test` brings it")
        return
    with bench.folder() as folder:
        table = DeltaLake(folder, bench.size(ROWS))
        measure(bench, "Delta", table, folder / "delta-data")
    with bench.folder() as folder:
        measure(bench, "Iceberg", IcebergLake(folder, bench.size(ROWS)), folder / "ice-data")
    from benchmarks import lake_bucket

    lake_bucket.run(bench)


def rows(count: int, first: int) -> pa.Table:
    """Return rows with random keys; those of row n are the same at every call."""
    letters = np.random.default_rng(first).integers(97, 123, (count, 16), np.uint8)
    keys = pa.Array.from_buffers(
        pa.string(), count,
        [None, pa.py_buffer(np.arange(0, 16 * count + 1, 16, dtype=np.int32)), pa.py_buffer(letters)],
    )  # fmt: skip
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "key": keys,
            "id": numbers,
            "customer": pa.array(numbers % 100_003).cast(pa.string()),
            "amount": np.round(numbers * 0.37 % 1000, 2),
            "state": pa.array(["sent", "paid", "back"]).take(pa.array(numbers % 3)),
            "at": pa.array(1_700_000_000_000_000 + numbers * 1000, pa.timestamp("us")),
        }
    )


class DeltaLake:
    """A Delta table, and its peers."""

    def __init__(self, folder: Path, count: int) -> None:
        import deltalake

        self.path = folder / "delta"
        self.source = f"delta:{self.path}"
        self.options: dict[str, str] = {}
        self.keys: list[str] = []
        for number in range(FILES):
            part = rows(count // FILES, number * (count // FILES))
            self.keys += part.column("key").to_pylist()[:: max(1, part.num_rows // 100)]
            deltalake.write_deltalake(self.path, part, mode="append")
        self.open()

    def open(self) -> None:
        import deltalake
        import duckdb

        self.table: Any = deltalake.DeltaTable(self.path)
        self.files = [file.removeprefix("file://") for file in self.table.file_uris()]
        self._sql = deltalake.QueryBuilder().register("t", self.table)
        self._duck = duckdb.connect()

    def peers(self) -> dict[str, Callable[[str], Any]]:
        def delta(key: str) -> Any:
            return self._sql.execute(f"select * from t where key = '{key}'").read_all()

        return {"DuckDB": self.duck, "deltalake": delta}

    def duck(self, key: str) -> Any:
        asked = "select * from read_parquet($files) where key = $key"
        return self._duck.execute(asked, {"files": self.files, "key": key}).fetchall()

    def rewrite(self) -> None:
        self.table.optimize.compact()
        self.open()


class IcebergLake(DeltaLake):
    """An Iceberg table, and its peers."""

    def __init__(self, folder: Path, count: int) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        self.options = {
            "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/ice",
        }  # fmt: skip
        catalog = SqlCatalog("bench", **self.options)
        catalog.create_namespace("shop")
        self.source = "iceberg://bench/shop.orders"
        self.table = catalog.create_table("shop.orders", schema=rows(1, 0).schema)
        self.keys = []
        for number in range(FILES):
            part = rows(count // FILES, number * (count // FILES))
            self.keys += part.column("key").to_pylist()[:: max(1, part.num_rows // 100)]
            self.table.append(part)
        self.open()

    def open(self) -> None:
        import duckdb

        tasks = self.table.scan().plan_files()
        self.files = [task.file.file_path.removeprefix("file://") for task in tasks]
        self._duck = duckdb.connect()

    def peers(self) -> dict[str, Callable[[str], Any]]:
        def scan(key: str) -> Any:
            return self.table.scan(row_filter=f"key = '{key}'").to_arrow()

        return {"DuckDB": self.duck, "pyiceberg": scan}

    def rewrite(self) -> None:
        self.table.overwrite(self.table.scan().to_arrow())
        self.open()


def measure(bench: Bench, kind: str, lake: DeltaLake, data: Path) -> None:
    with tierdex.Index.open(data, background=False, **SIZES) as index:

        def follow() -> Any:
            return tierdex.follow(
                index, lake.source, keys=["key"], topic="t", options=lake.options, once=True
            ).run()

        follow()
        first, floor = first_index(lake, data.parent)
        ratio(
            bench, f"{kind}: first index", "s", first, "DuckDB: SELECT key into Parquet", floor, 2
        )
        index.roll()
        index.run_compaction()
        compare(bench, f"{kind}, ten files", lake, index, data)
        nothing = min(seconds(follow) for _ in range(3))
        bench.add(Row(TARGET, f"{kind}: look, nothing new", "ms", nothing * 1000))
        rewritten = seconds(lake.rewrite)
        again = seconds(follow)
        ratio(bench, f"{kind}: index after a rewrite", "s", again, "the rewrite", rewritten, 0.5)
        index.roll()
        index.run_compaction()
        compare(bench, f"{kind}, rewritten", lake, index, data)


def first_index(lake: DeltaLake, folder: Path) -> tuple[float, float]:
    """Return the median seconds of a first index, and of DuckDB's copy of the keys, in turns."""
    copied = f"copy (select key from read_parquet($files)) to '{folder / 'keys.parquet'}'"
    ours, theirs = [], []
    for number in range(3):
        data = folder / f"first-{number}"
        with tierdex.Index.open(data, background=False, **SIZES) as index:
            follower = tierdex.follow(
                index, lake.source, keys=["key"], topic="t", options=lake.options, once=True
            )
            ours.append(seconds(follower.run))
        shutil.rmtree(data)
        theirs.append(seconds(lambda: lake._duck.execute(copied, {"files": lake.files})))
    return float(np.median(ours)), float(np.median(theirs))


def ratio(
    bench: Bench, name: str, unit: str, ours: float, peer_name: str, peer: float, limit: float
) -> None:
    bench.add(Row(TARGET, name, unit, ours, peer_name, peer, ours / peer, limit))


def compare(bench: Bench, name: str, lake: DeltaLake, index: Any, data: Path) -> None:
    """Add rows: a row and a place by key beside each peer; bytes and requests that a row takes."""
    keys = lake.keys[:: max(1, len(lake.keys) // LOOKUPS)][:LOOKUPS]
    with MessageFetcher(data, ShowSettings.model_validate({})) as messages:

        def place(number: int) -> float:
            return each(lambda key: index.query("t", key=key), keys)

        def row(number: int) -> float:
            def shown(key: str) -> Any:
                answer = messages.with_messages(index.query("t", key=key), key=key, message_id=None)
                assert answer.entries[0].message.outcome == "shown"

            return each(shown, keys)

        contestants = {"row": row, "place": place}
        for peer, call in lake.peers().items():
            contestants[peer] = lambda number, call=call: each(call, keys[:5])
        timings = take_turns(contestants, 5)
        with Counted() as counted:
            row(0)
    best_name, best = timings.best(list(lake.peers()))
    limit = 0.1 if name.startswith("Delta") else 0.2
    for what, most in (("row", limit), ("place", 0.01)):
        ours = timings.median(what)
        ratio(bench, f"{name}: {what} by key", "ms", ours * 1e3, best_name, best * 1e3, most)
    bench.add(
        Row(TARGET, f"{name}: requests a row", "", counted.requests / len(keys), limit=4,
            ratio=counted.requests / len(keys))
    )  # fmt: skip
    ratio(
        bench, f"{name}: bytes a row", "B", counted.bytes / len(keys), "DuckDB",
        bytes_read(lambda: lake.duck(keys[0])), 0.02,
    )  # fmt: skip


def bytes_read(call: Callable[[], Any]) -> int:
    """Return the bytes that this process reads of files meanwhile, page cache or not."""
    process = psutil.Process()
    before = process.io_counters().read_chars
    call()
    return int(process.io_counters().read_chars - before)


class Counted:
    """Counts what is read of the table's files while it is open: ranges, their bytes, and all requests."""

    def __init__(self) -> None:
        self.others = 0
        self._files: list[RangeFile] = []

    @property
    def requests(self) -> int:
        return sum(file.requests for file in self._files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self._files)

    @property
    def all(self) -> int:
        """Ranges, and questions for an object's size and for names."""
        return self.requests + self.others

    def __enter__(self) -> Counted:
        self._before: Any = RangeFile.__init__, FileFolder.opened, FileFolder.names
        files: list[RangeFile] = []
        self._files = files

        def made(file: RangeFile, *given: Any, **named: Any) -> None:
            self._before[0](file, *given, **named)
            files.append(file)

        def opened(folder: FileFolder, name: str, size: int | None = None) -> Any:
            self.others += size is None
            return self._before[1](folder, name, size)

        def names(folder: FileFolder, name: str) -> Any:
            self.others += 1
            return self._before[2](folder, name)

        self._set(made, opened, names)
        return self

    def __exit__(self, *raised: object) -> None:
        self._set(*self._before)

    def _set(self, made: Any, opened: Any, names: Any) -> None:
        setattr(RangeFile, "__init__", made)  # noqa: B010 - counters for as long as it is open
        setattr(FileFolder, "opened", opened)  # noqa: B010
        setattr(FileFolder, "names", names)  # noqa: B010


def each(call: Callable[[str], Any], keys: list[str]) -> float:
    """Return the median seconds of a call."""
    taken = []
    for key in keys:
        begin = time.perf_counter()
        call(key)
        taken.append(time.perf_counter() - begin)
    return float(np.median(taken))
