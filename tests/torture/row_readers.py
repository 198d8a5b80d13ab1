"""Odd text in CSV and JSON lines: the row readers of `tierdex load` against a simple reading (row_model.py).

A case is one text, read in blocks of several sizes, whole and row by row, as a load with bad rows halves it.
Each row must be where the model has it, with the same texts, and be bad where it is bad there.
"""

from __future__ import annotations

import random

from tests.torture import row_model
from tests.torture.row_model import Read, Row
from tierdex.app.load.csv_rows import CsvFormat, read_csv_pieces
from tierdex.app.load.jsonl_rows import read_jsonl_pieces
from tierdex.app.load.records import read_blocks
from tierdex.errors import InvalidRequestError

WANTED = ["id", "a.b"]
PATH = "f"
_MARK = b"\xef\xbb\xbf"
_CSV = [
    b"a", b"7", b'"', b'""', b'"x', b'x"', b",", b",", b"\n", b"\n", b"\r\n", b"\r", b"\r\r\n", b"\xc3\xa9",
    b"\xff", b"\xc2\x85", b"\xe2\x80\xa8", b"\x0c", b" ", b"\t", b"\0", b";", b"long" * 30, b"'", b"\\",
]  # fmt: skip
_CSV_ROWS = [
    b"A-1,x,2\n", b'"A,1",x,2\r\n', b'A-2,"y\ny",\n', b'"a""b",c,d\n', b',,\n', b'a,"b"c,d\n', b'5" p,q,6"\n',
    b"short,row\n", b"a,b,c,d\n", b"\n", b"\r\n", b'"",x,y\n', b"\xc3\xa9,\xff,x\n", b"\xff,x,y\n",
    b"a\rb,c,d\n", b'"a\rb",c,d\n', b"a,b,c\r\r\n",
]  # fmt: skip
_JSON = [
    b"{", b"}", b"[", b"]", b":", b",", b'"', b'"id"', b'"a"', b'"b"', b'"a.b"', b"\\", b"\\u00e9",
    b"\\ud83d",
    b"\\ude00", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"null", b"true", b"false", b"NaN", b"Infinity", b"-",
    b"0", b"1", b"1.50", b"-0", b"1e5", b"1E400", b"-2.5e-3", b"9" * 25, b" ", b"\t", b"\n", b"\r", b"\r\n",
    b"\0", b"\x0c", b"\xc2\x85", b"long" * 30, b"x", b"\xef\xbb\xbf",
]  # fmt: skip
_JSON_VALUES = [
    b'"A-1"', b'"A\\u002d1"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\xc3\xa9"', b'""', b"7", b"-0", b"-0.0",
    b"1.50", b"1e3", b"1.5E-7", b"1E400", b"12345678901234567890123", b"true", b"null", b"NaN", b"{}", b"[]",
    b'{"b":"B-1"}', b'{"b":{"c":1}}', b'{"b":8.0,"b":9}', b"-Infinity", b"01", b"1.", b".5", b"+1", b"tru",
    b'"\x7f"', b'"\t"', b'[{"b":1}]', b'"\xff"', b"-1e5", b"0e0", b"1E+05", b"1E9999", b"[" * 40 + b"]" * 40,
]  # fmt: skip
_JSON_NAMES = [b'"id"', b'"id"', b'"a"', b'"a"', b'"a.b"', b'"i\\u0064"', b'"other"', b'"b"']


def read_odd_text(seed: int) -> int:
    """Read one text by the readers and by the model. Return how many rows it has."""
    source = random.Random(seed)
    takes_last = source.random() < 0.3
    if source.random() < 0.5:
        data, delimiter = _csv_text(source), source.choice((",", ",", ";", "\t"))
        wanted = source.choice((["id"], ["id", "n"], ["n", "id"]))
        expected = row_model.read_csv(data, wanted, delimiter.encode(), takes_last=takes_last)
        read_pieces = _csv_reader(wanted, delimiter)
    else:
        data, delimiter, wanted = _json_text(source), None, WANTED
        expected = row_model.read_lines(data, wanted, takes_last=takes_last)
        read_pieces = _json_reader(wanted)
    if b"\n" not in data and b"\r" in data.rstrip(b" \t\r\n"):
        return 0  # refused as a whole, in words of its own
    for block_bytes in (1 << 20, source.choice((16, 40, 300))):
        found = _read(data, read_pieces, delimiter, block_bytes, takes_last=takes_last)
        is_same = found == expected
        if (
            expected.refused is not None
        ):  # a small block may be refused for its header, before the end is seen
            is_same = found.refused is not None
        assert is_same, (data, delimiter, block_bytes, found, expected)
    return len(expected.rows)


class _Bytes:
    def __init__(self, data):
        self.data = data

    def read_at(self, position, length):
        return self.data[position : position + length]


def _csv_reader(wanted, delimiter):
    return lambda blocks: read_csv_pieces(
        blocks, PATH, wanted, CsvFormat(delimiter), may_be_empty=True
    )


def _json_reader(wanted):
    return lambda blocks: read_jsonl_pieces(blocks, wanted)


def _read(data, read_pieces, delimiter, block_bytes, *, takes_last):
    rows: list[Row] = []
    waiting = None
    blocks = read_blocks(
        _Bytes(data), PATH, delimiter=delimiter, block_bytes=block_bytes, takes_last=takes_last
    )
    try:
        for piece in read_pieces(blocks):
            _add(rows, piece)
            waiting = piece.block.waiting
    except InvalidRequestError as error:
        place = (error.field or "").rpartition(":")[2]
        return Read([], refused=int(place) if place.isdigit() else 1)
    return Read(rows, waiting)


def _add(rows, piece):
    """Add the rows of a piece, halved where it is refused: bad rows stand alone then."""
    if not len(piece):
        return
    try:
        read = piece.parse()
    except InvalidRequestError as error:
        if len(piece) > 1:
            _add(rows, piece.part(0, len(piece) // 2))
            _add(rows, piece.part(len(piece) // 2, len(piece)))
            return
        line = int(piece.place_of(0).rpartition(":")[2])
        if error.field != f"{PATH}:{line}":
            raise
        rows.append(Row(int(piece.block.offsets[0]), int(piece.block.sizes[0]), line, None))
        return
    table = read.table.drop_columns([""]).to_pylist()
    for number, texts in enumerate(table):
        line = int(read.place_of(number).rpartition(":")[2])
        rows.append(
            Row(
                int(read.location["offset"][number]),
                int(read.location["size"][number]),
                line,
                {name: text or None for name, text in texts.items()},
            )
        )


def _csv_text(source):
    delimiter = source.choice((b",", b",", b";", b"\t"))
    rows = [_csv_row(source) for _ in range(source.choice((0, 1, 3, 8, 90)))]
    text = b"id,n,x" + source.choice((b"\n", b"\r\n")) + b"".join(rows)
    if source.random() < 0.2:
        text = text.replace(b"id", b'"id"', 1)
    return _ended(source, text.replace(b",", delimiter))


def _csv_row(source):
    if source.random() < 0.75:
        return source.choice(_CSV_ROWS)
    return b"".join(source.choices(_CSV, k=source.randrange(12)))


def _json_text(source):
    rows = [_json_row(source) for _ in range(source.choice((0, 1, 3, 8, 90)))]
    return _ended(source, b"".join(rows))


def _json_row(source):
    end = source.choice((b"\n", b"\n", b"\r\n", b" \n", b"\n\n", b"\n \t\n"))
    if source.random() < 0.15:
        return b"".join(source.choices(_JSON, k=source.randrange(10))) + end
    blank = source.choice((b"", b"", b" ", b"\t"))
    members = [
        blank + source.choice(_JSON_NAMES) + b":" + blank + source.choice(_JSON_VALUES)
        for _ in range(source.randrange(4))
    ]
    row = source.choice((b"", b"", b" ")) + b"{" + b",".join(members) + b"}"
    if source.random() < 0.1 and row:
        place = source.randrange(len(row))
        row = row[:place] + source.choice(_JSON) + row[place + source.randrange(2) :]
    return row + end


def _ended(source, text):
    """Cut some texts anywhere, put a byte order mark before some."""
    if source.random() < 0.3:
        text = text[: source.randrange(len(text) + 1)]
    return (_MARK if source.random() < 0.15 else b"") + text
