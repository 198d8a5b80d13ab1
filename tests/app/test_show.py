"""`--show`: the right bytes, or why there are none."""

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.app.recording_index import RecordingIndex
from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem

FILES = LocalFileSystem()
OPTIONS = LoadOptions(topic="o", keys=("{a}{b}",), message_id="id")


@pytest.fixture
def register(tmp_path):
    return LoadRegister(FILES, tmp_path / "data")


@pytest.fixture
def index():
    return RecordingIndex()


def show(register, index, **wanted):
    (entry,) = index.query("o", **wanted).entries
    return shown_row(register, entry, **wanted)


def test_csv_line_is_shown_by_key_and_by_message_id(tmp_path, register, index):
    path = tmp_path / "x.csv"
    path.write_text('a,b,id\nA,1,m1\nB,2,"m\n2"\n')
    Loader(index, register=register).load(path, OPTIONS)
    assert show(register, index, key="B2").body == b'B,2,"m\n2"'
    assert show(register, index, message_id="m\n2").body == b'B,2,"m\n2"'


def test_jsonl_line_is_shown(tmp_path, register, index):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a":"A","b":1,"id":"m1"}\n{"a":"B","b":"2"}\n')
    Loader(index, register=register).load(path, OPTIONS)
    assert show(register, index, key="A1").body == b'{"a":"A","b":1,"id":"m1"}'
    assert show(register, index, key="B2").body == b'{"a":"B","b":"2"}'


def test_parquet_row_is_shown_as_json(tmp_path, register, index):
    path = tmp_path / "x.parquet"
    table = pa.table({"a": ["A", "B"], "b": [1, 2], "id": ["m1", "m2"], "other": [[1], [2]]})
    pq.write_table(table, path, row_group_size=1)
    Loader(index, register=register).load(path, OPTIONS)
    shown = show(register, index, key="B2")
    assert json.loads(shown.body) == {"a": "B", "b": 2, "id": "m2", "other": [2]}
    assert str(path) in shown.where


def test_right_one_of_two_files_under_one_topic_is_shown(tmp_path, register, index):
    for name, letter in (("x.csv", "X"), ("y.csv", "Y")):
        (tmp_path / name).write_text(f"a,b,id\n{letter},1,m{letter}\n")
        Loader(index, register=register).load(tmp_path / name, OPTIONS)
    assert show(register, index, key="X1").body == b"X,1,mX"
    assert show(register, index, key="Y1").body == b"Y,1,mY"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.unlink(), "is gone"),
        (lambda path: path.write_text("a,b,id\nZ,9,m9\n"), "has another key"),
        (lambda path: path.write_text("a,b,id\n"), "shorter"),
        (lambda path: path.write_text("a,b,id\nA,1,2,3\n"), "changed"),
    ],
    ids=["gone", "other row", "shorter", "other shape"],
)
def test_changed_file_shows_nothing_and_says_why(tmp_path, register, index, change, reason):
    path = tmp_path / "x.csv"
    path.write_text("a,b,id\nA,1,m1\n")
    Loader(index, register=register).load(path, OPTIONS)
    change(path)
    shown = show(register, index, key="A1")
    assert shown.body is None
    assert reason in shown.reason


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_line_of_a_compressed_file_is_shown(tmp_path, register, index, codec):
    path = tmp_path / f"x.csv.{codec}"
    text = b"a,b,id\nA,1,m1\n" + b"F,0,m\n" * 100_000 + b"Z,9,m9\n"
    path.write_bytes(pa.compress(text, {"gz": "gzip", "zst": "zstd"}[codec], asbytes=True))
    Loader(index, register=register).load(path, OPTIONS)
    assert show(register, index, key="Z9").body == b"Z,9,m9"
    assert show(register, index, key="A1").body == b"A,1,m1"
    path.write_bytes(path.read_bytes()[:-20])
    assert "was changed" in show(register, index, key="Z9").reason


def test_file_without_a_note_of_its_rows_is_shown_by_what_it_holds(tmp_path, index, register):
    path = tmp_path / "x.csv"
    path.write_text("a,b,id\nA,1,m1\n")
    Loader(index).load(path, OPTIONS)
    assert show(register, index, message_id="m1").body == b"A,1,m1"


def test_topic_of_no_local_file_is_said_to_be_so(tmp_path, register, index):
    path = tmp_path / "x.csv"
    path.write_text("a,b,id\nA,1,m1\n")
    Loader(index, names_source=False).load(path, OPTIONS)
    assert "no local file was loaded" in show(register, index, key="A1").reason


def test_source_loaded_again_is_remembered_once(tmp_path, register, index):
    path = tmp_path / "x.csv"
    path.write_text("a,b,id,topic\nA,1,m1,one\n")
    options = LoadOptions(topic="{topic}", keys=("a",))
    Loader(index, register=register).load(path, options)
    path.write_text("a,b,id,topic\nA,1,m1,two\n")
    Loader(index, register=register).load(path, options)
    (source,) = register.files()
    assert source.topics == ("one", "two")


def test_damaged_list_of_sources_is_an_error(tmp_path, register):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sources.json").write_text("{")
    with pytest.raises(CorruptFileError):
        register.files()


TIMED = LoadOptions(topic="o", keys=("a",), timestamp="t")
LONG_AGO_NS = 1_600_000_000_000_000_000


def write_rows(path, rows):
    """Write rows {a, t, note} in the form of the file's name, with the time of long ago."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        path.write_text("a,t,note\n" + "".join("{a},{t},{note}\n".format(**row) for row in rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))


def row_of(t, note):
    return {"a": "A", "t": t, "note": note}


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl"])
@pytest.mark.parametrize("time", [1_700_000_000_000, 1_700_000_000_001], ids=["same time", "other"])
def test_row_of_a_rewritten_file_is_not_shown_for_another(tmp_path, register, index, name, time):
    """The same key at the same place, another event: under the entry's time it would be a wrong answer."""
    path = tmp_path / name
    write_rows(path, [row_of(1_700_000_000_000, "paid")])
    Loader(index, register=register).load(path, TIMED)
    assert show(register, index, key="A").outcome == "shown"
    write_rows(path, [row_of(time, "lost")])
    os.utime(path, ns=(LONG_AGO_NS + 10**9,) * 2)
    shown = show(register, index, key="A")
    assert (shown.outcome, shown.body) == ("mismatch", None)
    assert "was changed since it was loaded" in shown.reason


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl"])
@pytest.mark.parametrize(
    "options", [TIMED, LoadOptions(topic="o", keys=("a",))], ids=["timed", "not"]
)
def test_file_that_was_touched_copied_or_appended_to_shows_its_rows(
    tmp_path, register, index, name, options
):
    path = tmp_path / name
    write_rows(path, [row_of(1_700_000_000_000, "paid")])
    Loader(index, register=register).load(path, options)
    path.touch()
    assert show(register, index, key="A").outcome == "shown"
    if name != "x.parquet":
        with path.open("a") as file:
            file.write(path.read_text().splitlines()[-1].replace("A", "B") + "\n")
        assert show(register, index, key="A").outcome == "shown"


def test_time_that_a_load_took_from_the_file_tells_a_rewritten_one(tmp_path, register, index):
    path = tmp_path / "x.csv"
    write_rows(path, [row_of(1, "paid")])
    Loader(index, register=register).load(path, LoadOptions(topic="o", keys=("a",)))
    write_rows(path, [row_of(1, "lost")])
    os.utime(path, ns=(LONG_AGO_NS + 10**9,) * 2)
    assert show(register, index, key="A").outcome == "mismatch"
