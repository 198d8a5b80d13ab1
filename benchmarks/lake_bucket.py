"""Rows of a lake's table on radosgw by key, beside deltalake on the same objects: requests, and times.

The table of benchmarks/lake.py is written to a folder, and its files are uploaded as they are. The index lies
in the bucket, too, and a reader without a data folder asks it, so that each request of a lookup is counted.
DuckDB reads no bucket here: its extension for it cannot be installed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import boto3

import tierdex
from benchmarks.bucket import running_bucket
from benchmarks.lake import (
    FILES,
    LOOKUPS,
    ROWS,
    SIZES,
    TARGET,
    Counted,
    DeltaLake,
    each,
    ratio,
    rows,
)
from benchmarks.measure import Row, seconds, take_turns
from tierdex.files.folder import with_parameters
from tierdex.filesystem import LocalFileSystem
from tierdex.following.tables.delta_table import DeltaTable
from tierdex.resolving.resolver import Wanted
from tierdex.resolving.table_row import TableRows

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench


class BucketLake:
    """The objects of a table that was written to a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        address, _, parameters = url.partition("?endpoint_url=")
        self.endpoint = parameters.replace("%3A", ":").replace("%2F", "/")
        self.address = address
        self.source = f"delta:{address}"
        self.options = {"endpoint_url": self.endpoint, "region": "us-east-1"}
        self._folder = folder
        bucket, _, self._prefix = address.removeprefix("s3://").partition("/")
        self._client: Any = boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1")
        self._bucket = bucket
        self._sent: set[Path] = set()
        self.upload()

    def upload(self) -> None:
        """Send what is new of the folder, the log last."""
        found = sorted(self._folder.rglob("*"), key=lambda path: ("_delta_log" in path.parts, path))
        for path in found:
            if path.is_file() and path not in self._sent:
                key = f"{self._prefix}/{path.relative_to(self._folder)}"
                self._client.upload_file(str(path), self._bucket, key)
                self._sent.add(path)

    def deltalake(self) -> Any:
        import deltalake

        given = {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
        }  # fmt: skip
        table = deltalake.DeltaTable(self.address, storage_options=given)
        sql = deltalake.QueryBuilder().register("t", table)
        return lambda key: sql.execute(f"select * from t where key = '{key}'").read_all()


def run(bench: Bench) -> None:
    with bench.folder() as folder, running_bucket() as url_of:
        count = bench.size(ROWS)
        local = DeltaLake(folder, count)
        lake = BucketLake(local.path, url_of("lake"))
        store, data = url_of("index"), folder / "bucket-data"
        with tierdex.Index.open(data, store=store, background=False, **SIZES) as index:

            def follow() -> Any:
                return tierdex.follow(
                    index, lake.source, keys=["key"], topic="t", options=lake.options, once=True
                ).run()

            first = seconds(follow)
            bench.add(Row(TARGET, "radosgw, Delta: first index", "s", first))
            table = DeltaTable(LocalFileSystem(), with_parameters(lake.address, lake.options))
            newest = str(next(iter(table.steps(None, None))).version)
            with Counted() as counted:
                assert table.behind(newest) == 0
            table.close()
            bench.add(_limited("radosgw, Delta: requests of a look, nothing new", counted.all, 2))
            index.roll()
            index.run_compaction()
            index.roll()
            index.run_compaction()
            compare(bench, lake, local.keys, store, "ten files")
            part = rows(count // FILES, count)
            import deltalake

            deltalake.write_deltalake(local.path, part, mode="append")
            lake.upload()
            begin = time.perf_counter()
            follow()
            key = part.column("key")[7].as_py()
            assert len(index.query("t", key=key).entries) == 1
            taken = time.perf_counter() - begin
            bench.add(_limited("radosgw, Delta: a commit's rows answerable within", taken, 5, "s"))


def compare(bench: Bench, lake: BucketLake, every: list[str], store: str, name: str) -> None:
    keys = every[:: max(1, len(every) // LOOKUPS)][:LOOKUPS]
    with tierdex.Index.open(store=store, background=False) as index:
        messages = TableRows(LocalFileSystem(), index.followed_tables, "t")

        def row(key: str) -> Any:
            (entry,) = index.query("t", key=key).entries
            found = messages.fetch(entry, Wanted(key, None, 1 << 20))
            assert found is not None
            return found

        each(row, keys)
        peer = lake.deltalake()
        timings = take_turns(
            {
                "row": lambda number: each(row, keys),
                "deltalake": lambda number: each(peer, keys[:3]),
            },
            3,
        )
        ours, theirs = timings.median("row"), timings.median("deltalake")
        ratio(
            bench, f"radosgw, {name}: row by key", "ms", ours * 1e3, "deltalake", theirs * 1e3, 0.1
        )
        with Counted() as counted:
            each(row, keys)
        bench.add(_limited(f"radosgw, {name}: requests a row", counted.requests / len(keys), 4))
        bench.add(Row(TARGET, f"radosgw, {name}: bytes a row", "B", counted.bytes / len(keys)))
        others = every[1 :: max(1, len(every) // LOOKUPS)][:LOOKUPS]
        absent = [f"no-{number}" for number in range(6000)]
        _gets_of(index, absent)  # what is left of the filters is fetched
        for what, asked, limit in (
            ("a key, filters known", others, 1),
            ("a key, asked again", others, 0),
            ("an absent key, filters known", [f"nor-{key}" for key in keys], 0),
        ):
            gets = _gets_of(index, asked)
            bench.add(_limited(f"radosgw, {name}: GETs of the index for {what}", gets, limit))
        messages.close()


def _gets_of(index: Any, keys: list[str]) -> float:
    """Return how many GETs a key costs."""

    def gets() -> int:
        return int(index.store_requests()["lookups"].get("get", 0))

    before = gets()
    for key in keys:
        index.query("t", key=key)
    return (gets() - before) / len(keys)


def _limited(name: str, value: float, limit: float, unit: str = "") -> Row:
    return Row(TARGET, name, unit, value, limit=limit, ratio=value)
