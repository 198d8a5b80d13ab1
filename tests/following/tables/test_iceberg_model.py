"""Random changes of an Iceberg table, its maintenance, and kills of its follower at any call.

The model is the table's own rows at each snapshot, as pyiceberg reads them; DuckDB reads the newest from the
files that pyiceberg calls live. Deletes that pyiceberg cannot write are in test_iceberg_table.py.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of
from tests.following.tables.test_table_model import follow_and_die

pytest.importorskip("pyiceberg")
duckdb = pytest.importorskip("duckdb")
IDS = 60
STEPS = 7
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string())])


class IcebergWorld:
    """An Iceberg table that is changed at random, and what its rows are at each snapshot that it has."""

    def __init__(self, folder, seed):
        from pyiceberg.catalog.sql import SqlCatalog

        self.random = random.Random(seed)
        self.options = {
            "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake",
        }  # fmt: skip
        catalog = SqlCatalog("prod", **self.options)
        catalog.create_namespace("shop")
        self.table = catalog.create_table("shop.orders", schema=SCHEMA)
        self.rows_at = {}

    def rows(self):
        numbers = self.random.sample(range(IDS), self.random.randint(1, 20))
        return pa.table([numbers, [f"k{n % 3}" for n in numbers]], schema=SCHEMA)

    def change(self):
        """Change the table once; note the rows of the snapshot that it has now."""
        kinds = [
            "append",
            "append",
            "overwrite",
            "delete",
            "update",
            "rewrite",
            "rollback",
            "expire",
        ]
        kind = self.random.choice(kinds)
        now = self.table.current_snapshot()
        if now is None or kind == "append":
            self.table.append(self.rows())
        elif kind == "overwrite":
            self.table.overwrite(self.rows())
        elif kind == "delete":
            self.table.delete(f"id < {self.random.randint(1, IDS)}")
        elif kind == "update":
            self.table.upsert(self.rows(), join_cols=["id"]) if self.is_unique() else None
        elif kind == "rewrite":
            self.table.overwrite(self.table.scan().to_arrow())
        elif kind == "rollback" and now.parent_snapshot_id in self.known():
            self.table.manage_snapshots().rollback_to_snapshot(now.parent_snapshot_id).commit()
        elif kind == "expire":
            old = [each for each in self.known() if each != now.snapshot_id]
            if old:
                self.table.maintenance.expire_snapshots().by_id(min(old)).commit()
        for each in self.known():
            if str(each) not in self.rows_at:
                rows = self.table.scan(snapshot_id=each).to_arrow()
                self.rows_at[str(each)] = keys_of(rows, "id")

    def known(self):
        return [each.snapshot_id for each in self.table.metadata.snapshots]

    def is_unique(self):
        rows = self.table.scan().to_arrow()
        return len(rows.column("id").unique()) == rows.num_rows

    def of_duckdb(self):
        """Return the newest rows, as an engine reads them from the files."""
        files = [task.file.file_path for task in self.table.scan().plan_files()]
        if not files:
            return keys_of(SCHEMA.empty_table(), "id")
        read = duckdb.sql("select id from read_parquet($files)", params={"files": files})
        return keys_of(read.to_arrow_table(), "id")


def check(data, world):
    with tierdex.Index.open(data, **SMALL) as index:
        state = index.followed_tables.state_of("t")
        if state is None or state.newest is None:
            return
        every = [str(number) for number in range(IDS)]
        for each in state.snapshots[-4:]:
            expected = world.rows_at[each.snapshot]
            assert faults(index, "t", expected, every, snapshot=each.snapshot) == {}


@pytest.mark.parametrize("seed", range(3))
def test_every_key_is_right_after_kills_at_any_call(tmp_path, seed):
    world = IcebergWorld(tmp_path, seed)
    data, source = tmp_path / "data", "iceberg://prod/shop.orders"
    with tierdex.Index.open(data, **SMALL):
        pass
    world.change()
    for _ in range(STEPS):
        for _ in range(world.random.randint(0, 3)):
            world.change()
        for _ in range(world.random.randint(0, 2)):
            calls = world.random.randint(1, 60_000)
            follow_and_die(data, source, calls, options=world.options)
            check(data, world)
        with tierdex.Index.open(data, **SMALL) as index:
            index_once(index, source, "t", "id", options=world.options)
            assert faults(index, "t", world.of_duckdb(), map(str, range(IDS))) == {}
        check(data, world)
