"""Files that are written anew between two loads: their new entries take the place of the old ones."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tierdex
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.filesystem import LocalFileSystem

BY_ID = LoadOptions(topic="o", keys=("id",), timestamp="t")
BY_CUSTOMER = LoadOptions(topic="o", keys=("customer",), timestamp="t")
START = 1_600_000_000


@pytest.fixture
def index(tmp_path):
    with tierdex.Index.open(
        tmp_path / "data", slot_count=64, item_capacity=1024, background=False
    ) as index:
        yield index


def load(index, given, options=BY_ID, **how):
    register = LoadRegister(LocalFileSystem(), index.data_folder)
    return Loader(index, register=register).load(given, options, **how)


def write(path, night, ids, appends=False):
    """Write rows of one night: each row's time is that night's."""
    rows = [{"id": one, "customer": f"C-{one}", "t": (START + night) * 1000} for one in ids]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        text = "".join("{id},{customer},{t}\n".format(**row) for row in rows)
        head = "" if appends else "id,customer,t\n"
        with path.open("a" if appends else "w") as file:
            file.write(head + text)
    os.utime(path, ns=((START + night) * 10**9,) * 2)


def times(index, key):
    return [entry.timestamp // 1000 - START for entry in index.query("o", key=key).entries]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
@pytest.mark.parametrize("again", [False, True])
def test_nightly_rewrite_leaves_one_entry_a_row(tmp_path, index, name, again):
    path, other = tmp_path / name, tmp_path / f"other-{name}"
    write(other, 0, ["A"])
    for night in range(3):
        write(path, night, ["A", f"N-{night}"])
        report = load(index, [path, other], again=again)
        assert report.replaced == ([str(path)] if night else [])
    assert sorted(times(index, "A")) == [0, 2]
    assert (times(index, "N-1"), times(index, "N-2")) == ([], [2])


def test_appended_file_keeps_its_entries(tmp_path, index):
    path = tmp_path / "x.csv"
    write(path, 0, ["A"])
    load(index, path)
    write(path, 1, ["B"], appends=True)
    assert load(index, path).replaced == []
    assert (times(index, "A"), times(index, "B")) == ([0], [1])


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_loads_under_two_options_do_not_forget_each_others_entries(tmp_path, index, name):
    path = tmp_path / name
    for night in range(3):
        write(path, night, ["A"])
        for options in (BY_ID, BY_CUSTOMER):
            load(index, path, options)
            if name == "x.csv" and options is BY_ID:
                write(path, night, ["B"], appends=True)
    assert (times(index, "A"), times(index, "C-A")) == ([2], [2])


def test_load_that_ended_between_forgetting_and_putting_goes_on(tmp_path, index):
    path = tmp_path / "x.csv"
    write(path, 0, ["A"])
    load(index, path)
    write(path, 1, ["A"])
    index.forget_sources(str(path), own=True)  # and then the process was killed
    assert times(index, "A") == []
    load(index, path)
    assert times(index, "A") == [1]
    assert load(index, path).unchanged == 1
