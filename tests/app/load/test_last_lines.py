"""The last line of a file: it may still be written."""

import gzip

import pytest

from tests.app.recording_index import RecordingIndex
from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.filesystem import LocalFileSystem

OPTIONS = LoadOptions(topic="o", keys=("id",))
TAKING = LoadOptions(topic="o", keys=("id",), take_last_line=True)


@pytest.fixture
def register(tmp_path):
    return LoadRegister(LocalFileSystem(), tmp_path / "data")


def load(path, options=OPTIONS, register=None):
    index = RecordingIndex()
    report = Loader(index, register=register).load(path, options)
    return [put.key for put in index.puts], report


def test_half_a_line_waits_and_is_taken_when_it_has_its_end(tmp_path, register):
    path = tmp_path / "o.csv"
    path.write_text("n,id\n1,A-1\n2,A-12")
    keys, report = load(path, register=register)
    assert (keys, report.waiting) == (["A-1"], [f"{path}:3"])
    assert load(path, register=register)[1].waiting == [f"{path}:3"]  # said as long as it waits
    path.write_text("n,id\n1,A-1\n2,A-12345\n")
    keys, report = load(path, register=register)
    assert (keys, report.waiting) == (["A-12345"], [])
    assert load(path, register=register)[1].unchanged == 1


def test_half_a_line_is_taken_at_once_where_the_caller_says_so(tmp_path, register):
    path = tmp_path / "o.csv"
    path.write_text("n,id\n1,A-1\n2,A-2")
    assert load(path, register=register)[0] == ["A-1"]
    assert load(path, TAKING, register)[0] == ["A-2"]
    index = RecordingIndex()
    Loader(index).load(path, TAKING)
    (entry,) = index.query("o", key="A-2").entries
    assert shown_row(register, entry, key="A-2").body == b"2,A-2"


def test_row_that_was_loaded_as_half_a_line_is_not_shown(tmp_path, register):
    path = tmp_path / "o.csv"
    path.write_text("n,id\n1,A-1\n2,A-2")
    index = RecordingIndex()
    Loader(index, register=register).load(path, TAKING)
    (entry,) = index.query("o", key="A-2").entries
    assert shown_row(register, entry, key="A-2").outcome == "shown"
    path.write_text("n,id\n1,A-1\n2,A-23\n")
    assert shown_row(register, entry, key="A-2").outcome == "mismatch"


@pytest.mark.parametrize(
    ("name", "text", "line", "loaded"),
    [
        ("o.csv", "id", 1, []),
        ("o.csv", "id\n", None, []),
        ("o.csv", "id\nA\r", 2, []),
        ("o.csv", 'id\n"A\nB', 2, []),
        ("o.csv", "id\nA\n \t", None, ["A"]),
        ("o.jsonl", '{"id":"A"}\n{"id":"B"', 2, ["A"]),
        ("o.jsonl", '{"id":"A"}\n{"id":"B","', 2, ["A"]),
        ("o.jsonl", '{"id":"A"}\n"B"', 2, ["A"]),
        ("o.jsonl", '{"id":"A"}\n{"id":"B"}', None, ["A", "B"]),
        ("o.jsonl", '{"id":"A"}\n{"id":"B"} \r', None, ["A", "B"]),
    ],
)
def test_what_can_still_grow_waits_and_a_whole_object_does_not(tmp_path, name, text, line, loaded):
    (tmp_path / name).write_bytes(text.encode())
    keys, report = load(tmp_path / name)
    assert report.waiting == ([] if line is None else [f"{tmp_path / name}:{line}"])
    assert keys == loaded


def test_end_of_a_compressed_file_is_the_end_of_its_last_line(tmp_path):
    (tmp_path / "o.csv.gz").write_bytes(gzip.compress(b"id\nA") + bytes(512))
    assert load(tmp_path / "o.csv.gz")[0] == ["A"]


def test_gzip_of_several_members_with_zeros_behind_is_read_and_a_cut_one_refused(tmp_path):
    path = tmp_path / "o.jsonl.gz"
    whole = gzip.compress(b'{"id":"A"}\n') + gzip.compress(b'{"id":"B"}\n')
    path.write_bytes(whole + bytes(700))
    assert load(path)[0] == ["A", "B"]
    for data in (whole[:-9], whole + b"rest", whole[:20] + b"\xff\xff" + whole[22:]):
        path.write_bytes(data)
        with pytest.raises(Exception, match="cannot be decompressed"):
            load(path)
