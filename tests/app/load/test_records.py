"""Byte spans of records: held against a slow reading of the same rules."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierdex.app.load.records import read_blocks
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem

FILES = LocalFileSystem()


def spans(path, data, *, delimiter=",", block_bytes=1 << 20):
    path.write_bytes(data)
    file = FILES.open(path)
    try:
        return [
            (int(offset), data[int(offset) : int(offset + size)], block.line(record))
            for block in read_blocks(file, str(path), delimiter=delimiter, block_bytes=block_bytes)
            for record, (offset, size) in enumerate(zip(block.offsets, block.sizes, strict=True))
        ]
    finally:
        file.close()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a,b\n1,2\n", [(0, b"a,b", 1), (4, b"1,2", 2)]),
        (b"a,b\r\n1,2\r\n", [(0, b"a,b", 1), (5, b"1,2", 2)]),
        (b"a,b\r\r\n1,2\r\r\n", [(0, b"a,b", 1), (6, b"1,2", 2)]),
        (b"a,b\n1,2", [(0, b"a,b", 1)]),
        (b"a,b\n1,2\r", [(0, b"a,b", 1)]),
        (b'a,b\n"1,2', [(0, b"a,b", 1)]),
        (b"a,b", []),
        (b'a\r"b,c\nd,e\n', [(0, b'a\r"b,c', 1), (7, b"d,e", 2)]),
        (b"\xef\xbb\xbfa,b\n1,2\n", [(3, b"a,b", 1), (7, b"1,2", 2)]),
        (b"a\n\n\r\nb\n\n", [(0, b"a", 1), (5, b"b", 4)]),
        (
            b'"x\ny",1\n"z""\n",2\n3,4\n',
            [(0, b'"x\ny",1', 1), (8, b'"z""\n",2', 3), (17, b"3,4", 5)],
        ),
        (b'5" pipe,1\n6" pipe,2\n', [(0, b'5" pipe,1', 1), (10, b'6" pipe,2', 2)]),
        (b'5" pipe,"a\nb"\nc,d\n', [(0, b'5" pipe,"a\nb"', 1), (14, b"c,d", 3)]),
        (b"\n\n", []),
        (b"", []),
    ],
    ids=[
        "newline",
        "crlf",
        "returns before a newline",
        "no last newline",
        "half a last line break",
        "open quote in the last line",
        "header without a line break",
        "quote behind a lone return",
        "byte order mark",
        "empty lines",
        "quoted newlines",
        "quote inside a field",
        "both kinds of quote",
        "only empty lines",
        "empty",
    ],
)
@pytest.mark.parametrize("block_bytes", [4, 16, 1 << 20])
def test_records_are_placed_to_the_byte(tmp_path, data, expected, block_bytes):
    assert spans(tmp_path / "f", data, block_bytes=block_bytes) == expected


@given(
    st.lists(st.lists(st.text('ab",\n é😀', min_size=1), min_size=2, max_size=2), min_size=1),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([7, 64]),
)
def test_every_record_of_a_written_csv_parses_back(tmp_path_factory, rows, ending, block_bytes):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ending).writerows(rows)
    data = text.getvalue().encode()
    path = tmp_path_factory.getbasetemp() / "written.csv"
    found = spans(path, data, block_bytes=block_bytes)
    texts = [record.decode() for _, record, _ in found]
    assert [next(csv.reader(io.StringIO(text, newline=""))) for text in texts] == rows


def test_quotes_mean_nothing_in_lines_of_json(tmp_path):
    data = b'{"a":"\\""}\n{"b":1}\n'
    assert [record for _, record, _ in spans(tmp_path / "f", data, delimiter=None)] == [
        b'{"a":"\\""}',
        b'{"b":1}',
    ]


def test_quote_that_never_closes_is_named_by_its_line(tmp_path):
    with pytest.raises(InvalidRequestError, match=r"f:2: a quoted field"):
        spans(tmp_path / "f", b'a,b\n"1,2\n3,4\n')


@pytest.mark.parametrize(
    ("data", "word"), [(b"\x1f\x8b\x08\x00", "compressed"), ("a,b".encode("utf-16"), "UTF-16")]
)
def test_file_whose_rows_have_no_place_is_refused(tmp_path, data, word):
    with pytest.raises(InvalidRequestError, match=word):
        spans(tmp_path / "f", data)
