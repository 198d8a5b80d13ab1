import pytest

from tests.interrupting import interrupted_at
from tierdex.errors import InvalidRequestError
from tierdex.fileparts.dictionary import Dictionaries


def test_strings_get_rising_indexes_once():
    dictionaries = Dictionaries(["topic", "source"])
    assert dictionaries.stage("topic", ["a", "b", "a"]).tolist() == [0, 1, 0]
    assert dictionaries.stage("source", ["b"]).tolist() == [0]
    dictionaries.keep()
    assert dictionaries.indexes("topic", ["b", "absent"]) == [1, -1]


def test_forgotten_strings_leave_nothing_behind():
    dictionaries = Dictionaries(["topic"])
    dictionaries.stage("topic", ["a"])
    dictionaries.keep()
    dictionaries.stage("topic", ["b", "c"])
    dictionaries.forget()
    assert dictionaries.strings("topic") == ["a"]
    assert dictionaries.stage("topic", ["c"]).tolist() == [1]


def test_staging_that_is_interrupted_anywhere_leaves_nothing_behind_once_forgotten():
    place, has_come_so_far = 0, True
    while has_come_so_far:
        place += 1
        one, two = Dictionaries(["topic", "source"]), Dictionaries(["topic", "source"])
        has_come_so_far = interrupted_at(place, lambda one=one: one.stage("topic", ["a", "b"]))
        one.forget()
        assert one.stage("topic", ["b"]).tolist() == [0]
        two.load(one.staged())
        assert two.encode() == one.encode()
    assert place > 8


def test_staged_bytes_load_into_equal_dictionaries():
    one, two = Dictionaries(["topic", "source"]), Dictionaries(["topic", "source"])
    one.stage("topic", ["a", "订单"])
    one.stage("source", ["/data/x.parquet"])
    two.load(one.staged())
    assert two.encode() == one.encode()
    assert two.strings("source") == ["/data/x.parquet"]


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        b"\0\0\5\0abc",
        b"\2\0\1\0a",
        b"\0\1\1\0a",
        b"\0\0\1\0\xff",
        b"\0\0\1\0a" * 2,
    ],
    ids=["cut_entry", "cut_string", "unknown", "reserved", "not_utf8", "twice"],
)
def test_broken_bytes_are_refused_and_nothing_is_kept(data):
    dictionaries = Dictionaries(["topic"])
    with pytest.raises(ValueError, match=r".*"):
        dictionaries.load(data)
    assert dictionaries.strings("topic") == []


@pytest.mark.parametrize("text", ["\ud800", "x" * 65_536], ids=["surrogate", "too_long"])
def test_strings_that_cannot_be_stored_are_refused(text):
    with pytest.raises(InvalidRequestError):
        Dictionaries(["topic"]).stage("topic", [text])
