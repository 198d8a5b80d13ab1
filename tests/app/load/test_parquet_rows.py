"""Rows of Parquet files: times of every year, keys of every type, values inside of structs."""

import datetime
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.recording_index import RecordingIndex
from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader, Watch
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem

AT = [
    datetime.datetime.fromisoformat(text)
    for text in ("9999-12-31T23:59:59", "0001-01-01T00:00:00", "2024-03-01T10:00:00")
]
TIMES = [253_402_300_799_000, -62_135_596_800_000, 1_709_287_200_000]


@pytest.fixture
def register(tmp_path):
    return LoadRegister(LocalFileSystem(), tmp_path / "data")


def load(path, table, register=None, watch=None, how=None, **options):
    pq.write_table(table, path, **(how or {}))
    index = RecordingIndex()
    chosen = {"topic": "o", "keys": ("id",), **options}
    report = Loader(index, register=register).load(path, LoadOptions(**chosen), watch)
    return index, report


@pytest.mark.parametrize("pages", [True, False], ids=["page index", "no page index"])
def test_int96_of_every_year_is_its_time_and_is_shown(tmp_path, register, pages):
    table = pa.table({
        "id": ["a", "b", "c"], "at": pa.array(AT, pa.timestamp("us")),
        "in": pa.array([{"t": each} for each in AT], pa.struct([("t", pa.timestamp("us"))])),
        "fine": pa.array([1, 2, 1_709_287_200_123_456_789], pa.int64()).view(pa.timestamp("ns")),
    })  # fmt: skip
    how = {"use_deprecated_int96_timestamps": True, "write_page_index": pages}
    index, _ = load(
        tmp_path / "o.parquet", table, register, how=how, timestamp="at", timezone="UTC"
    )
    assert [put.timestamp for put in index.puts] == TIMES
    for key, year, fine in (("a", "9999-12-31T23:59:59", "01T"), ("b", "0001-01-01T00:00:00", "01T"),
                            ("c", "2024-03-01T10:00:00", "00.123456789")):  # fmt: skip
        (entry,) = index.query("o", key=key).entries
        body = shown_row(register, entry, key=key).body.decode()
        assert body.count(year) == 2 if key != "c" else body.count(year) == 3
        assert fine in body


def test_keys_of_any_type_are_found_by_their_digits_and_shown(tmp_path, register):
    one = uuid.uuid4()
    table = pa.table({
        "id": [8841.0, 1234567890123.0], "uuid": pa.array([one.bytes] * 2, pa.uuid()),
        "small": pa.array([None, "0.0000001"]).cast(pa.decimal128(20, 7)),
    })  # fmt: skip
    index, report = load(tmp_path / "o.parquet", table, register, keys=("id", "uuid", "small"))
    assert [put.key for put in index.puts] == [
        "8841", "1234567890123", str(one), str(one), "0.0000001",
    ]  # fmt: skip
    assert report.skipped == {"id": 0, "uuid": 0, "small": 1}
    for key in ("1234567890123", str(one), "0.0000001"):
        assert shown_row(register, index.query("o", key=key).entries[0], key=key).outcome == "shown"


def test_key_of_an_earlier_version_is_still_shown(tmp_path, register):
    index, _ = load(tmp_path / "o.parquet", pa.table({"id": [1e15]}), register)
    (entry,) = index.query("o", key="1000000000000000").entries
    assert shown_row(register, entry, key="1e+15").outcome == "shown"
    assert shown_row(register, entry, key="2e+15").outcome == "mismatch"


def test_number_beyond_64_bits_is_a_bad_row(tmp_path):
    table = pa.table({"id": ["a", "b"], "t": pa.array([1, 2**64 - 1], pa.uint64())})
    with pytest.raises(InvalidRequestError, match=r"row group 0, row 1: .*no time"):
        load(tmp_path / "o.parquet", table, timestamp="t")
    bad = []
    index, report = load(
        tmp_path / "o.parquet", table, timestamp="t", watch=Watch(on_bad=bad.append)
    )
    assert ([put.key for put in index.puts], report.bad_rows) == (["a"], 1)


def test_paths_lead_into_structs(tmp_path, register):
    order = pa.array([{"id": 7, "at": {"t": "2024-03-01"}}, None, {"id": 8, "at": None}])
    table = pa.table({"order": order, "order.id": ["x", "y", "z"], "n": [1, 2, 3]})
    index, _ = load(
        tmp_path / "o.parquet", table.drop_columns(["order.id"]), register,
        keys=("order.id", "{order.id}-{n}"),
    )  # fmt: skip
    assert [put.key for put in index.puts] == ["7", "8", "7-1", "8-3"]
    (entry,) = index.query("o", key="8-3").entries
    assert shown_row(register, entry, key="8-3").outcome == "shown"
    index, _ = load(tmp_path / "o.parquet", table, keys=("order.id",))
    assert [put.key for put in index.puts] == ["x", "y", "z"]
    for name in ("order.none", "order.id.x", "none.id", "order"):
        with pytest.raises(InvalidRequestError):
            load(tmp_path / "o.parquet", table.drop_columns(["order.id"]), keys=(name,))
