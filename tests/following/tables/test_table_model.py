"""Random changes of a table, and kills of its follower at any call: every key at every kept step is right.

The model is the table's own rows at each version. A follower runs in a child process, which ends at a random
function call; what it left in the data folder is opened again, asked, and followed on.
"""

from __future__ import annotations

import os
import random
import sys

import pyarrow as pa
import pytest

import tierdex
from tests.following.tables.answers import SMALL, faults, index_once, keys_of

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
IDS = 60
STEPS = 8


class TableWorld:
    """A Delta table that is changed at random, and what its rows are at each version."""

    def __init__(self, path, seed):
        self.path = str(path)
        self.random = random.Random(seed)
        self.rows_at = []

    def rows(self):
        numbers = self.random.sample(range(IDS), self.random.randint(1, 20))
        return pa.table(
            {"id": pa.array(numbers, pa.int64()), "kind": [f"k{n % 3}" for n in numbers]}
        )

    def change(self):
        """Change the table once; note the rows of the new version, if it made one."""
        table = deltalake.DeltaTable(self.path) if self.rows_at else None
        kinds = ["append", "overwrite", "delete", "update", "compact", "restore", "checkpoint"]
        kind = self.random.choice(kinds) if table else "append"
        if kind == "restore" and len(self.rows_at) < 2:
            kind = "append"
        if kind in ("append", "overwrite"):
            deltalake.write_deltalake(self.path, self.rows(), mode=kind)
        elif kind == "delete":
            table.delete(f"id % {self.random.randint(2, 5)} = 0")
        elif kind == "update":
            table.update(updates={"kind": "'new'"}, predicate=f"id < {self.random.randint(0, IDS)}")
        elif kind == "compact":
            table.optimize.compact()
        elif kind == "restore":
            table.restore(self.random.randrange(len(self.rows_at) - 1))
        else:
            table.create_checkpoint()
        now = deltalake.DeltaTable(self.path)
        while len(self.rows_at) <= now.version():
            version = deltalake.DeltaTable(self.path, version=len(self.rows_at))
            self.rows_at.append(keys_of(version.to_pyarrow_table(), "id"))
        assert of_duckdb(now) == self.rows_at[-1]


def of_duckdb(table):
    """Return the keys as an engine reads them from the files: deltalake writes no deletion vectors."""
    files = table.file_uris()
    if not files:
        return keys_of(pa.table({"id": pa.array([], pa.int64())}), "id")
    read = duckdb.sql("select id from read_parquet($files)", params={"files": files})
    return keys_of(read.to_arrow_table(), "id")


def follow_and_die(data, source, calls, **wanted):
    """Follow in a child process that ends at its so many-th call; return whether it came to the end."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(_frame, event, _arg):
            nonlocal seen
            seen += event == "call"
            if seen >= calls:
                os._exit(9)

        code = 1
        try:
            with tierdex.Index.open(data, **SMALL, look_ahead=1) as index:
                sys.setprofile(count)
                index_once(index, source, "t", "id", **wanted)
                sys.setprofile(None)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 9)
    return code == 0


def calls(world):
    """Return how many calls the follower lives for: as many as it needs, at last."""
    return world.random.choice([world.random.randint(1, 30_000), 1 << 60])


def check(data, world):
    with tierdex.Index.open(data, **SMALL) as index:
        tables = index.tables()
        if not tables or tables[0].version is None:
            return
        every = [str(number) for number in range(IDS)]
        newest = tables[0].version
        assert faults(index, "t", world.rows_at[newest], every) == {}
        for version in range(max(0, newest - 3), newest):
            known = index.followed_tables.state_of("t").snapshots
            if str(version) in [each.snapshot for each in known]:
                expected = world.rows_at[version]
                assert faults(index, "t", expected, every, snapshot=version) == {}


@pytest.mark.parametrize("seed", range(3))
def test_every_key_is_right_after_kills_at_any_call(tmp_path, seed):
    world = TableWorld(tmp_path / "table", seed)
    data, source = tmp_path / "data", f"delta:{world.path}"
    with tierdex.Index.open(data, **SMALL):
        pass
    world.change()
    for _ in range(STEPS):
        for _ in range(world.random.randint(0, 3)):
            world.change()
        kept = {"history": world.random.choice(["0s", "7d"])}
        while not follow_and_die(data, source, calls(world), options=kept):
            check(data, world)
        check(data, world)
    with tierdex.Index.open(data, **SMALL) as index:
        assert index.tables()[0].version == len(world.rows_at) - 1
