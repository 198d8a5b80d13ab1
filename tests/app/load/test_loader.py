"""Loading files: what becomes of their rows, and what is said about bad ones."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.recording_index import RecordingIndex
from tierdex.app.load import file_load
from tierdex.app.load.loader import Loader, Watch
from tierdex.app.load.plan import LoadOptions
from tierdex.clock import ManualClock
from tierdex.errors import BacklogFullError, InvalidRequestError, NotFoundError

OPTIONS = LoadOptions(topic="orders", keys=("id",), timestamp="t")
CSV = b'id,t,note\nA-1,1700000000,x\nA-2,1700000001,"y\nz"\n,1700000002,w\n'


def load(path, data, options=OPTIONS, index=None, progress=None, **more):
    path.write_bytes(data)
    index = index or RecordingIndex()
    watch = Watch(progress) if progress else None
    return index, Loader(index, **more).load(path, options, watch)


def _sourceless(put):
    return put._replace(location={**put.location, "source": None})


def located(index, data):
    return [
        data[put.location["offset"] : put.location["offset"] + put.location["size"]]
        for put in index.puts
    ]


def test_csv_rows_become_entries_that_point_at_their_lines(tmp_path):
    index, report = load(tmp_path / "o.csv", CSV)
    assert [(put.topic, put.key, put.timestamp) for put in index.puts] == [
        ("orders", "A-1", 1_700_000_000_000),
        ("orders", "A-2", 1_700_000_001_000),
    ]
    assert located(index, CSV) == [b"A-1,1700000000,x", b'A-2,1700000001,"y\nz"']
    assert (report.rows, report.entries, report.skipped) == (3, 2, {"id": 1})
    assert index.flushed == ["disk"]


def test_keys_keep_their_text(tmp_path):
    data = b"id,t\n007,1\n1.50,2\n12345678901234567890123,3\nNA,4\nnull,5\ntrue,6\n"
    index, _ = load(tmp_path / "o.csv", data)
    assert [put.key for put in index.puts] == [
        "007",
        "1.50",
        "12345678901234567890123",
        "NA",
        "null",
        "true",
    ]


def test_crlf_byte_order_mark_and_missing_last_newline_are_placed(tmp_path):
    data = b"\xef\xbb\xbfid,t\r\nA,1\r\n\r\nB,2"
    options = LoadOptions(topic="o", keys=("id",), timestamp="t", take_last_line=True)
    index, _ = load(tmp_path / "o.csv", data, options)
    assert located(index, data) == [b"A,1", b"B,2"]


def test_tsv_and_other_delimiters_are_read(tmp_path):
    index, _ = load(tmp_path / "o.tsv", b"id\tt\nA\t1\n")
    assert index.puts[0].key == "A"
    options = LoadOptions(topic="o", keys=("id",), timestamp="t", delimiter=";")
    index, _ = load(tmp_path / "o.csv", b"id;t\nA;1\n", options)
    assert index.puts[0].key == "A"


def test_several_keys_topics_queues_and_message_ids(tmp_path):
    options = LoadOptions(
        topic="{kind}", keys=("a", "{a}/{b}"), message_id="id", timestamp="t", queue="q"
    )
    data = b"kind,a,b,id,t,q\nx,1,2,m1,5,0\ny,,3,m2,6,7\n"
    index, report = load(tmp_path / "o.csv", data, options)
    shown = [(put.topic, put.key, put.message_id, put.location["queue_id"]) for put in index.puts]
    assert shown == [("x", "1", None, 0), ("x", "1/2", "m1", 0), ("y", None, "m2", 7)]
    assert report.skipped == {"a": 1, "{a}/{b}": 1}
    assert report.entries == 4
    assert report.topics == {"x", "y"}


def test_message_ids_alone_can_be_loaded(tmp_path):
    options = LoadOptions(topic="o", message_id="id", timestamp="t", queue="3")
    index, report = load(tmp_path / "o.csv", b"id,t\nm1,1\n,2\n", options)
    assert [(put.message_id, put.location["queue_id"]) for put in index.puts] == [("m1", 3)]
    assert report.entries == 1


def test_time_of_a_file_without_a_timestamp_column_is_its_own(tmp_path):
    options = LoadOptions(topic="o", keys=("id",))
    path = tmp_path / "o.csv"
    index, _ = load(path, b"id\nA\n", options)
    assert index.puts[0].timestamp == path.stat().st_mtime_ns // 1_000_000


def test_jsonl_rows_become_entries_that_point_at_their_lines(tmp_path):
    lines = [
        {"id": "A-1", "t": 1700000000, "deep": {"x": [1]}},
        {"id": None, "t": 1700000000},
        {"t": 1700000000},
        {"id": "订单", "t": 1700000001},
    ]
    data = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode()
    index, report = load(tmp_path / "o.jsonl", data)
    assert [put.key for put in index.puts] == ["A-1", "订单"]
    assert [json.loads(text) for text in located(index, data)] == [lines[0], lines[3]]
    assert report.skipped == {"id": 2}


def test_jsonl_ids_of_mixed_types_become_text(tmp_path):
    data = b'{"id":1,"t":1}\n \n{"id":"two","t":"2"}\r\n{"id":12345678901234567890123,"t":3.0}\n'
    index, _ = load(tmp_path / "o.jsonl", data)
    assert [put.key for put in index.puts] == ["1", "two", "12345678901234567890123"]
    assert located(index, data)[1] == b'{"id":"two","t":"2"}'


def test_jsonl_strings_that_look_like_times_stay_keys(tmp_path):
    data = b'{"id":"2023-01-01","t":"2023-11-14T22:13:20Z"}\n'
    index, _ = load(tmp_path / "o.ndjson", data)
    assert [(put.key, put.timestamp) for put in index.puts] == [("2023-01-01", 1_700_000_000_000)]


def test_jsonl_numbers_keep_their_digits(tmp_path):
    data = b'{"id":1.50,"t":1700000000.25}\n{"id":2,"t":1700000000}\n'
    index, _ = load(tmp_path / "o.jsonl", data)
    assert [put.key for put in index.puts] == ["1.50", "2"]
    assert [put.timestamp for put in index.puts] == [1_700_000_000_250, 1_700_000_000_000]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("block_bytes", [16, 300])
def test_small_blocks_give_the_same_entries(tmp_path, monkeypatch, kind, block_bytes):
    if kind == "csv":
        data = b"id,t,note\n" + b"".join(b'K%d,%d,"a\n\nb"\n' % (n, n) for n in range(100))
    else:
        data = b"".join(b'{"id":"K%d","t":%d}\n' % (n, n) for n in range(100))
    whole, _ = load(tmp_path / f"whole.{kind}", data)
    read = file_load.read_blocks
    monkeypatch.setattr(
        file_load, "read_blocks", lambda *a, **k: read(*a, **{**k, "block_bytes": block_bytes})
    )
    seen = []
    parts, _ = load(
        tmp_path / f"parts.{kind}", data, progress=lambda done, all_: seen.append((done, all_))
    )
    assert [_sourceless(put) for put in parts.puts] == [_sourceless(put) for put in whole.puts]
    assert parts.batches > 1
    assert seen[-1] == (len(data), len(data))
    assert seen == sorted(seen)


def test_parquet_rows_become_entries_of_row_group_and_row(tmp_path):
    path = tmp_path / "o.parquet"
    table = pa.table(
        {"id": ["a", None, "c", "d"], "t": pa.array([1, 2, 3, 4], pa.timestamp("s", "UTC"))}
    )
    pq.write_table(table, path, row_group_size=3)
    index = RecordingIndex()
    seen = []
    Loader(index).load(path, OPTIONS, Watch(lambda *step: seen.append(step)))
    assert [(put.key, put.timestamp) for put in index.puts] == [
        ("a", 1000),
        ("c", 3000),
        ("d", 4000),
    ]
    assert [put.location for put in index.puts] == [
        {"source": str(path), "row_group": 0, "row": 0},
        {"source": str(path), "row_group": 0, "row": 2},
        {"source": str(path), "row_group": 1, "row": 0},
    ]
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("o.csv", b"id,t\nA,1\nB,2,3\n", r"o.csv:3: has 3 fields where the header has 2"),
        ("o.csv", b'id,t\n"A\nA",1\nB\n', r"o.csv:4: has 1 fields"),
        ("o.csv", b"id,t\nA,1\n\xff,2\n", r"o.csv:3: is not UTF-8"),
        ("o.csv", b"id,t\nA,1\nB,soon\n", r"o.csv:3: timestamp 'soon' is not understood"),
        ("o.csv", b"id,t\nA,1\nB,\n", r"o.csv:3: has no timestamp \(t is empty\)"),
        ("o.csv", b"id,t\nA,1\n\n" + b"B" * 5000 + b",2\n", r"o.csv:4: key must be 1 to 4096"),
        ("o.csv", b"key,t\nA,1\n", r"id: .*has no column 'id'; it has key, t"),
        ("o.csv", b"id,id,t\nA,B,1\n", r"id: .*several columns"),
        ("o.csv", b"\n", r"no header"),
        ("o.csv", b"", r"is empty"),
        ("o.jsonl", b'{"id":"A","t":1}\n{"id":"B","t":1\n', r"o.jsonl:2: is not JSON"),
        ("o.jsonl", b'{"id":"A","t":1}\n[1]\n', r"o.jsonl:2: is not a JSON object"),
        ("o.jsonl", b'{"id":"A","t":1}\n{"id":{},"t":1}\n', r"o.jsonl:2: id is not a plain value"),
        ("o.jsonl", b'{"id":"A","t":1} {"id":"B","t":1}\n', r"o.jsonl:1: is not JSON"),
        ("o.jsonl", b'{"id":"\\ud800","t":1}\n', r"o.jsonl:1: id is not a plain value"),
        ("o.jsonl", b'{"id":"\xff","t":1}\n', r"o.jsonl:1: is not JSON"),
        ("o.jsonl", b'{"id":"A","t":NaN}\n', r"o.jsonl:1: has no timestamp"),
        ("o.jsonl", b'{"id":"A"}\n', r"o.jsonl:1: has no timestamp"),
        ("o.parquet", b"PAR1 and no more", r"is not a Parquet file"),
        ("o.txt", b"x", r"cannot tell the format"),
    ],
)
def test_bad_row_is_named_by_file_and_line(tmp_path, name, data, message):
    with pytest.raises(InvalidRequestError, match=message):
        load(tmp_path / name, data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (LoadOptions(topic="o"), "--key"),
        (LoadOptions(topic="o", keys=("{id",)), "not a template"),
        (LoadOptions(topic="o", keys=("id",), timezone="Nowhere"), "timezone"),
        (LoadOptions(topic="o", keys=("id",), delimiter=";;"), "delimiter"),
        (LoadOptions(topic="o", keys=("id",), queue="id"), "queue 'A' is not understood"),
        (LoadOptions(topic="{none}", keys=("id",)), "no column 'none'"),
        (LoadOptions(topic="a\nb", keys=("id",)), "topic"),
    ],
)
def test_wrong_option_is_named(tmp_path, options, message):
    with pytest.raises(InvalidRequestError, match=message):
        load(tmp_path / "o.csv", b"id\nA\n", options)


def test_absent_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError):
        Loader(RecordingIndex()).load(tmp_path / "none.csv", OPTIONS)


def test_full_backlog_is_waited_for(tmp_path):
    index = RecordingIndex(failures=[BacklogFullError("full", retry_after_s=5.0)] * 2)
    load(tmp_path / "o.csv", CSV, index=index, clock=ManualClock())
    assert len(index.puts) == 2


def test_backlog_that_stays_full_stops_the_load(tmp_path):
    index = RecordingIndex(failures=[BacklogFullError("full", retry_after_s=5.0)] * 9)
    with pytest.raises(BacklogFullError):
        load(tmp_path / "o.csv", CSV, index=index, clock=ManualClock(), patience_s=20.0)
    assert index.puts == []
