"""Messages that are parts of files: ranges of bytes, rows of Parquet, on this machine and in a store."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tierdex.files.object_file import opened_file
from tierdex.files.parquet_row import read_parquet_row
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.answer import Answer, Entry
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.storage_layer.open import open_store

PLACE = ("f", "uploaded", "n")


def fetch(tmp_path, entry, key, text):
    (tmp_path / "resolvers.toml").write_text(text)
    with MessageFetcher(tmp_path) as messages:
        return messages.with_messages(Answer([entry]), key=key).entries[0].message


def in_file(source, **place):
    return Entry("t", None, None, None, 5, *PLACE, place, source)


def test_bytes_of_a_queues_file_are_shown(tmp_path):
    (tmp_path / "q7.log").write_bytes(b'xx{"id":"A"}yy')
    text = f"[topics.t]\nsource='file:{tmp_path}/q{{queue_id}}.log'\nkeys=['$.id']\n"
    entry = Entry("t", 7, 2, 10, 5, *PLACE)
    assert fetch(tmp_path, entry, "A", text).body == b'{"id":"A"}'
    assert fetch(tmp_path, entry, "B", text).outcome == "mismatch"
    short = fetch(tmp_path, entry._replace(size=99), "A", text)
    assert (short.outcome, "shorter" in short.reason) == ("mismatch", True)
    assert fetch(tmp_path, entry._replace(queue_id=8), "A", text).outcome == "gone"
    long = fetch(tmp_path, entry._replace(size=1 << 30), "A", text)
    assert (long.outcome, long.size) == ("too_large", 1 << 30)


@pytest.fixture
def lake(request):
    """A store with a Parquet file of three row groups and a file of lines; its URL."""
    url = f"memory://{request.node.name.replace('[', '-').strip(']')}"
    sink = io.BytesIO()
    table = pa.table(
        {"id": [f"R-{n}" for n in range(300)], "n": range(300), "pad": ["x" * 5000] * 300}
    )
    pq.write_table(table, sink, row_group_size=100, compression="none", use_dictionary=False)
    store = open_store(f"{url}/lake")
    store.put("day/rows.parquet", sink.getvalue())
    store.put("lines.jsonl", b'{"id":"L-0"}\n{"id":"L-1"}\n')
    yield url
    store.close()


def test_row_and_line_of_a_store_are_shown_below_the_root_only(tmp_path, lake):
    text = f"[topics.t]\nsource='files:{lake}/lake'\n"
    row = in_file(f"{lake}/lake/day/rows.parquet", row_group=1, row=50)
    shown = fetch(tmp_path, row, "R-150", text)
    assert json.loads(shown.body)["n"] == 150
    assert "row group 1, row 50" in shown.where
    assert fetch(tmp_path, row, "R-151", text).outcome == "mismatch"
    line = in_file(f"{lake}/lake/lines.jsonl", offset=13, size=12)
    assert fetch(tmp_path, line, "L-1", text).body == b'{"id":"L-1"}'
    absent = fetch(tmp_path, in_file(f"{lake}/lake/none", offset=0, size=1), "L-1", text)
    assert absent.outcome == "gone"
    beyond = fetch(tmp_path, row._replace(location={"row_group": 9, "row": 0}), "R-1", text)
    assert beyond.outcome == "mismatch"
    literal = fetch(
        tmp_path, in_file(f"{lake}/lake/x?endpoint_url=http://h", offset=0, size=1), "L-1", text
    )
    assert literal.outcome == "gone"  # a key, never a parameter
    for outside in (
        f"{lake}/other/lines.jsonl", f"{lake}/lake/../other/x", f"{lake}/lake-2/x", "/etc/passwd",
        f"{lake}/lake/./x", "",
    ):  # fmt: skip
        refused = fetch(tmp_path, in_file(outside, offset=0, size=1), "L-1", text)
        assert (refused.outcome, refused.body) == ("unresolved", None)


@pytest.mark.radosgw
def test_row_and_line_of_a_bucket_are_shown(tmp_path, radosgw):
    url = radosgw.make_url("lake")
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": [f"R-{n}" for n in range(30)]}), sink, row_group_size=10)
    store = open_store(url)
    store.put("rows.parquet", sink.getvalue())
    store.put("lines.jsonl", b'{"id":"L-0"}\n{"id":"L-1"}\n')
    store.close()
    text = f"[topics.t]\nsource='files:{url}'\n"
    place = url.partition("?")[0]  # entries name no server: the file's own parameters count
    row = fetch(tmp_path, in_file(f"{place}/rows.parquet", row_group=2, row=3), "R-23", text)
    assert json.loads(row.body) == {"id": "R-23"}
    line = in_file(f"{place}/lines.jsonl", offset=13, size=12)
    assert fetch(tmp_path, line, "L-1", text).body == b'{"id":"L-1"}'
    gone = fetch(tmp_path, in_file(f"{place}/none.jsonl", offset=0, size=1), "L-1", text)
    assert gone.outcome == "gone"


def test_row_is_read_without_the_rest_of_its_file(lake):
    """Without a page index the column chunks of the row's group are read, and no others."""
    with opened_file(LocalFileSystem(), f"{lake}/lake/day/rows.parquet") as file:
        row = read_parquet_row(file, 2, 7)
        assert row["id"].to_pylist() == ["R-207"]
        assert file.bytes < file.length / 2
