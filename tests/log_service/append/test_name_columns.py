"""Keys and message IDs as Arrow columns give the same extras as message by message, and the same errors."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from tierdex.errors import InvalidRequestError
from tierdex.log_service.append.given_messages import GivenMessages
from tierdex.log_service.append.message_columns import check_messages
from tierdex.log_service.append.name_columns import plain_extras
from tierdex.logfile.extras import Extra, encode_extras
from tierdex.settings import load_settings

SETTINGS = load_settings()
KEYS = ["k", "größe", "x" * 300]
IDS = ["id-1", "日本", "z"]
LISTS = [["a", "b"], [], ["größe"]]


def bytes_of(column):
    offsets = column.offsets.tolist()
    return [column.data[a:b].tobytes() for a, b in itertools.pairwise(offsets)]


@pytest.mark.parametrize(
    ("keys", "ids", "expected"),
    [
        (pa.array(KEYS), None, [Extra(None, (key,)) for key in KEYS]),
        (pa.array(["no", *KEYS], pa.large_string()).slice(1), pa.array(IDS),
         [Extra(i, (key,)) for i, key in zip(IDS, KEYS, strict=True)]),
        (pa.chunked_array([LISTS[:1], LISTS[1:]]), pa.chunked_array([IDS]),
         [Extra(i, tuple(keys)) for i, keys in zip(IDS, LISTS, strict=True)]),
        (pa.array([["no"], *LISTS]).slice(1), None, [Extra(None, tuple(keys)) for keys in LISTS]),
        (None, pa.array(IDS), [Extra(i) for i in IDS]),
    ],
    ids=["one each", "sliced, IDs", "lists, IDs", "sliced lists", "IDs"],
)  # fmt: skip
def test_columns_are_encoded_as_single_messages_are(keys, ids, expected):
    column = plain_extras(SETTINGS, keys, ids, 3)
    assert column is not None
    offsets, data = encode_extras(expected)
    assert column.offsets.tolist() == offsets.tolist()
    assert column.data.tobytes() == data.tobytes()
    given = GivenMessages("t", 0, [b""] * 3, keys, ids)
    assert bytes_of(check_messages(SETTINGS, given, 0).extras) == bytes_of(column)


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        (pa.array(["a", "", "c"]), r"messages\[1\]\.keys"),
        (pa.array(["a", "b", "x" * 70_000]), r"messages\[2\]\.keys"),
        (pa.array([["a"], ["b", ""], []]), r"messages\[1\]\.keys"),
        (pa.array(["a", "b"]), "keys"),
    ],
    ids=["empty", "long", "empty in a list", "short column"],
)
def test_wrong_key_of_a_column_is_named_by_its_row(keys, field):
    assert plain_extras(SETTINGS, keys, None, 3) is None
    with pytest.raises(InvalidRequestError, match=field):
        check_messages(SETTINGS, GivenMessages("t", 0, [b""] * 3, keys), 0)


def test_nulls_are_messages_without_a_key():
    rows = check_messages(SETTINGS, GivenMessages("t", 0, [b""] * 2, pa.array(["a", None])), 0)
    assert bytes_of(rows.extras) == [encode_extras([Extra(None, ("a",))])[1].tobytes(), b""]
