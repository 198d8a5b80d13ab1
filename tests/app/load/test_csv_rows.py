"""Rows of CSV text: kernels and plain code alike, odd bytes anywhere, and line breaks that are none."""

import numpy as np
import pytest

from tests.app.recording_index import RecordingIndex
from tierdex.app.load.csv_rows import CsvFormat, parse_block
from tierdex.app.load.loader import Loader
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.records import Block
from tierdex.errors import InvalidRequestError

OPTIONS = LoadOptions(topic="o", keys=("id",))


def keys(path, data, options=OPTIONS):
    path.write_bytes(data)
    index = RecordingIndex()
    Loader(index).load(path, options)
    return [put.key for put in index.puts]


def parse(record, count):
    """Return the texts of the second of three columns of `count` equal records."""
    data = (record + b"\n") * count
    starts = np.arange(count) * (len(record) + 1)
    block = Block(data, 0, 1, starts, starts + len(record), "f")
    return parse_block(block, ["a", "b", "c"], ["b"], CsvFormat()).table.column("b").to_pylist()


@pytest.mark.parametrize("count", [1, 100], ids=["plain code", "kernel"])
@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"1,x,2", "x"), (b'1,"x",2', "x"), (b'1,"x,y",2', "x,y"), (b'1,"x""y",2', 'x"y'),
        (b'1,"x\ny",2', "x\ny"),
        (b'1,"x"y,2', "xy"), (b'1,"x"y"z,2', 'xy"z'), (b'1,x"y"z,2', 'x"y"z'), (b'1,5" pipe,2', '5" pipe'),
        (b"1,,2", None), (b'1,"",2', None), (b'1,"""",2', '"'), (b'1," x ",2', " x "), (b'1,"x\r",2', "x\r"),
        (b"1,x\xc2\x85y,2", "x\x85y"), (b"\xff,x,2", "x"), (b'"1""",x,"2"""', "x"),
        (b"1," + b"x" * 200_000 + b",2", "x" * 200_000), (b"1,\0,2", "\0"),
    ],
)  # fmt: skip
def test_field_is_read(record, text, count):
    count = min(count, 70) if len(record) > 1000 else count
    assert parse(record, count) == [text] * count


@pytest.mark.parametrize("count", [1, 100], ids=["plain code", "kernel"])
@pytest.mark.parametrize(
    ("record", "said"),
    [
        (b"1,2", "2 fields where the header has 3"), (b"1,2,3,4", "4 fields"), (b"1,\xff,2", "not UTF-8"),
        (b'1,"\xff""",2', "not UTF-8"), (b"1,x\ry,2", "carriage return"), (b'1,"x"\ry,2', "carriage return"),
        (b'1,"x,2', "does not end"),
    ],
)  # fmt: skip
def test_wrong_record_is_refused_by_its_line(record, said, count):
    with pytest.raises(InvalidRequestError, match=f"f:1: .*{said}"):
        parse(record, count)


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\x0c", "\x0b", "\x1e"])
def test_no_other_separator_ends_the_header(tmp_path, separator):
    data = f'"order\nno",a{separator}b,id\nx,x,A-1\n'.encode()
    assert keys(tmp_path / "o.csv", data) == ["A-1"]


def test_header_of_long_fields_is_read(tmp_path):
    data = b'"' + b"x" * 200_000 + b'",id\n1,A-1\n'
    assert keys(tmp_path / "o.csv", data) == ["A-1"]


@pytest.mark.parametrize("name", ["o.csv", "o.jsonl"])
def test_file_whose_lines_end_in_returns_alone_says_what_to_do(tmp_path, name):
    with pytest.raises(InvalidRequestError, match=r"carriage returns alone .*tr '\\r' '\\n'"):
        keys(tmp_path / name, b'id,at\r{"id":"A-1"},1\rA-2,2\r')


def test_blanks_behind_a_return_are_no_lines(tmp_path):
    assert keys(tmp_path / "o.jsonl", b'{"id":"A"}\r\t') == ["A"]


def test_header_with_a_lone_return_is_refused_by_its_file(tmp_path):
    with pytest.raises(InvalidRequestError, match=r"o.csv:1: the header: a carriage return"):
        keys(tmp_path / "o.csv", b"id,a\rt\nA-1,1\n")


def test_quote_behind_a_lone_return_hides_no_line(tmp_path):
    (tmp_path / "o.csv").write_bytes(b'id,t\nA,x\r"\nB,y\nC,"z"\n')
    index, bad = RecordingIndex(), []
    from tierdex.app.load.loader import Watch

    Loader(index).load(tmp_path / "o.csv", OPTIONS, Watch(on_bad=bad.append))
    assert [put.key for put in index.puts] == ["B", "C"]
    assert [each.place for each in bad] == [f"{tmp_path}/o.csv:2"]
