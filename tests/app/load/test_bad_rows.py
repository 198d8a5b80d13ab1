"""Rows that make no entry: left out where they may be, and told."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.recording_index import RecordingIndex
from tierdex.app.load.loader import Loader, Watch
from tierdex.app.load.plan import LoadOptions
from tierdex.errors import InvalidRequestError

OPTIONS = LoadOptions(topic="o", keys=("id", "b"), timestamp="t")
CSV = b"""id,b,t
A,a,1
B,b,soon
C,c,3,too,many
D,,
\xff,e,5
%s,f,6
G,g,7
""" % (b"x" * 5000)
JSONL = b"""{"id": "A", "b": "a", "t": 1}
{"id": "B", "b": "b"
[1]
{"id": {"deep": 1}, "b": "d", "t": 4}
{"id": "E", "b": "e"}
{"id": "G", "b": "g", "t": 7}
"""


def parquet():
    sink = io.BytesIO()
    table = pa.table({"id": ["A", "B", "G"], "b": ["a", "", "g"], "t": ["1", "soon", "7"]})
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "places"),
    [
        ("o.csv", CSV, [f"o.csv:{line}" for line in range(3, 8)]),
        ("o.jsonl", JSONL, [f"o.jsonl:{line}" for line in range(2, 6)]),
        ("o.parquet", parquet(), ["o.parquet: row group 0, row 1"]),
    ],
    ids=["csv", "jsonl", "parquet"],
)
def test_bad_rows_are_left_out_whole_and_told_with_their_place(tmp_path, name, data, places):
    (tmp_path / name).write_bytes(data)
    index, told = RecordingIndex(), []
    report = Loader(index).load(tmp_path / name, OPTIONS, Watch(on_bad=told.append))
    assert [bad.place for bad in told] == [f"{tmp_path}/{place}" for place in places]
    assert sorted(put.key for put in index.puts) == ["A", "G", "a", "g"]
    assert (report.bad_rows, report.rows) == (len(places), len(places) + 2)
    assert all(bad.error for bad in told)
    if name == "o.csv":
        assert told[1].row == b"C,c,3,too,many"


def test_more_bad_rows_than_allowed_end_the_load(tmp_path):
    (tmp_path / "o.csv").write_bytes(b"id,b,t\n" + b"A,a,soon\n" * 100)
    with pytest.raises(InvalidRequestError, match=r"o.csv:12: .*not understood.*--max-bad is 10"):
        Loader(RecordingIndex()).load(
            tmp_path / "o.csv", OPTIONS, Watch(on_bad=[].append, max_bad=10)
        )


def test_column_that_is_not_there_is_no_bad_row(tmp_path):
    (tmp_path / "o.csv").write_bytes(b"id,t\nA,1\n")
    with pytest.raises(InvalidRequestError, match="no column 'b'"):
        Loader(RecordingIndex()).load(tmp_path / "o.csv", OPTIONS, Watch(on_bad=[].append))
