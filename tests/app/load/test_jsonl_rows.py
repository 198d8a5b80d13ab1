"""Rows of JSON lines: one object a line, whatever else stands in the file; paths into objects."""

import pytest

from tests.app.recording_index import RecordingIndex
from tests.app.shown_rows import shown_row
from tierdex.app.load.loader import Loader, Watch
from tierdex.app.load.plan import LoadOptions
from tierdex.app.load.register import LoadRegister
from tierdex.errors import InvalidRequestError
from tierdex.filesystem import LocalFileSystem


@pytest.fixture
def register(tmp_path):
    return LoadRegister(LocalFileSystem(), tmp_path / "data")


def load(path, data, *keys, register=None, watch=None):
    path.write_bytes(data)
    index = RecordingIndex()
    options = LoadOptions(topic="o", keys=keys or ("id",))
    report = Loader(index, register=register).load(path, options, watch)
    return index, report


def places(index, data):
    return [(put.key, data[put.location["offset"] :][: put.location["size"]]) for put in index.puts]


@pytest.mark.parametrize(
    "line", [b"null", b"true", b"7", b'"x"', b"[]", b"[{}]", b"NaN", b"{", b'{"id":1}{"id":2}'], ids=repr
)  # fmt: skip
@pytest.mark.parametrize("count", [1, 200], ids=["one", "many"])
def test_line_that_is_no_object_is_a_bad_row_wherever_it_stands(tmp_path, line, count):
    good = b'{"id":"A"}\n' * count
    for data, number in ((line + b"\n" + good, 1), (good + line + b"\n" + good, count + 1)):
        bad = []
        index, report = load(tmp_path / "o.jsonl", data, watch=Watch(on_bad=bad.append))
        assert [(each.place, each.row) for each in bad] == [(f"{tmp_path}/o.jsonl:{number}", line)]
        assert len(index.puts) == report.rows - 1 == data.count(good) * count
        with pytest.raises(InvalidRequestError, match=f"o.jsonl:{number}: is not"):
            load(tmp_path / "o.jsonl", data)


def test_rows_are_matched_to_lines_and_not_counted(tmp_path):
    data = b' \n{"id":"A"}\n\t \r\n\n {"id":"B"} \n'
    index, _ = load(tmp_path / "o.jsonl", data)
    assert places(index, data) == [("A", b'{"id":"A"}'), ("B", b' {"id":"B"} ')]


@pytest.mark.parametrize("first", [b'"A"', b"1", b"null", b"true", b"1.5"])
@pytest.mark.parametrize("other", [b"NaN", b"Infinity", b"1E400", b'"\\ud83d"', b"-0", b"9" * 400])
def test_odd_value_in_another_field_loses_no_row_whatever_stands_first(tmp_path, first, other):
    lines = [b'{"id":%s}\n' % first, b'{"id":"B","x":%s}\n' % other, b'{"id":2,"x":[%s]}\n' % other]
    index, report = load(tmp_path / "o.jsonl", b"".join(lines) * 40)
    assert [put.key for put in index.puts][-2:] == ["B", "2"]
    assert report.rows == 120


@pytest.mark.parametrize(
    "number", [b"-0", b"1e3", b"1.50", b"-0.0", b"12345678901234567890123", b"1.5E-7"]
)
def test_number_is_shown_under_the_key_that_loads_and_follows_it(tmp_path, register, number):
    text = {b"-0": "0", b"1e3": "1000", b"1.5E-7": "0.00000015"}.get(number, number.decode())
    index, _ = load(tmp_path / "o.jsonl", b'{"id":%s}\n{"id":"x"}\n' % number, register=register)
    (entry,) = index.query("o", key=text).entries
    assert shown_row(register, entry, key=text).outcome == "shown"


def test_names_with_dots_are_paths_unless_a_member_has_that_name(tmp_path, register):
    data = (
        b'{"order":{"id":"A","items":[{"sku":7}]}}\n{"order":{"id":"B"},"order.id":"own"}\n'
        b'{"order":null}\n{"order":7}\n'
    )
    keys = ("order.id", "{order.id}/{$.order.items[0].sku}")
    index, report = load(tmp_path / "o.jsonl", data, *keys, register=register)
    assert [put.key for put in index.puts] == ["A", "own", "A/7"]
    assert report.skipped == {keys[0]: 2, keys[1]: 3}
    (entry,) = index.query("o", key="A/7").entries
    assert shown_row(register, entry, key="A/7").outcome == "shown"


@pytest.mark.parametrize("key", ["order", "$.order", "$.order.items[*].sku", "$.", "order.items"])
def test_what_is_no_plain_value_is_refused(tmp_path, key):
    with pytest.raises(InvalidRequestError):
        load(tmp_path / "o.jsonl", b'{"order":{"id":"A","items":[{"sku":7}]}}\n', key)
