"""Loaded files found again through a real index, before and after they were published."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.index import Index

FILES = LocalFileSystem()
SMALL = {"slot_count": 1 << 10, "item_capacity": 1 << 12, "background": False}


@pytest.fixture
def index(tmp_path):
    with Index.open(tmp_path / "data", **SMALL) as index:
        yield index


@pytest.fixture
def register(tmp_path):
    return LoadRegister(FILES, tmp_path / "data")


def publish(index):
    index.roll()
    index.run_compaction()


@pytest.mark.parametrize("published", [False, True], ids=["local", "published"])
def test_csv_line_is_found_and_shown(tmp_path, index, register, published):
    path = tmp_path / "orders.csv"
    path.write_text("id,t\n" + "".join(f"ORDER-{n},{1700000000 + n}\n" for n in range(1000)))
    options = LoadOptions(topic="orders", keys=("id",), timestamp="t")
    Loader(index, register=register).load(path, options)
    if published:
        publish(index)
    (entry,) = index.query("orders", key="ORDER-777").entries
    assert entry.timestamp == 1_700_000_777_000
    shown = shown_row(register, entry, key="ORDER-777")
    assert shown.body == b"ORDER-777,1700000777"


@pytest.mark.parametrize("published", [False, True], ids=["local", "published"])
def test_parquet_row_is_found_and_shown(tmp_path, index, register, published):
    path = tmp_path / "orders.parquet"
    ids = [f"ORDER-{n}" for n in range(1000)]
    pq.write_table(pa.table({"id": ids, "n": range(1000)}), path, row_group_size=300)
    Loader(index, register=register).load(path, LoadOptions(topic="orders", keys=("id",)))
    if published:
        publish(index)
    (entry,) = index.query("orders", key="ORDER-777").entries
    assert entry.source == str(path)
    assert (entry.location["row_group"], entry.location["row"]) == (2, 177)
    shown = shown_row(register, entry, key="ORDER-777")
    assert shown.body == b'{"id":"ORDER-777","n":777}'


def test_file_loaded_twice_answers_once(tmp_path, index):
    path = tmp_path / "orders.csv"
    path.write_text("id\nA\n")
    for _ in range(2):
        Loader(index).load(path, LoadOptions(topic="orders", keys=("id",)))
    assert len(index.query("orders", key="A").entries) == 1
