"""A single put is checked value by value; errors name the field."""

from __future__ import annotations

import numpy as np
import pytest

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.put import PutChecker

GOOD = {
    "topic": "t",
    "keys": ["k"],
    "message_id": "m",
    "queue_id": 1,
    "offset": 2,
    "size": 3,
    "timestamp": 4,
}


@pytest.fixture
def checker():
    return PutChecker(max_key_bytes=8, max_items=3)


def test_a_good_put_is_taken_as_it_is(checker):
    entry = checker.check(**GOOD)
    assert entry == ("t", ("k",), "m", 4, 2, 3, 1)
    assert checker.check(**{**GOOD, "message_id": None}) == ("t", ("k",), None, 4, 2, 3, 1)


def test_numpy_integers_become_plain_ones(checker):
    entry = checker.check(**{**GOOD, "offset": np.int64(9), "timestamp": np.int32(-5)})
    assert entry[3:] == (-5, 9, 3, 1)
    assert {type(value) for value in entry[3:]} == {int}


@pytest.mark.parametrize("keys", [("a", "b"), {"a": 1, "b": 2}, iter(["a", "b"])])
def test_any_iterable_of_keys_is_taken(checker, keys):
    assert checker.check(**{**GOOD, "keys": keys})[1:3] == (("a", "b"), "m")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"topic": None}, "topic"),
        ({"topic": b"t"}, "topic"),
        ({"topic": ["t"]}, "topic"),
        ({"topic": "a\x00b"}, "topic"),
        ({"topic": "a\x85"}, "topic"),
        ({"topic": "ä" * 128}, "topic"),
        ({"keys": 5}, "keys"),
        ({"keys": b"ab"}, "keys[0]"),
        ({"keys": ["k", ""]}, "keys[1]"),
        ({"keys": ["k", "ä" * 5]}, "keys[1]"),
        ({"keys": ["\ud800"]}, "keys[0]"),
        ({"keys": ["a", "b", "c"]}, "keys"),  # four items with the message ID
        ({"keys": ["a", "b", "c", "d"], "message_id": None}, "keys"),
        ({"keys": [], "message_id": None}, "keys"),
        ({"keys": None, "message_id": None}, "keys"),
        ({"message_id": ""}, "message_id"),
        ({"message_id": 5}, "message_id"),
        ({"queue_id": -1}, "queue_id"),
        ({"queue_id": 1 << 31}, "queue_id"),
        ({"offset": -1}, "offset"),
        ({"offset": 1 << 63}, "offset"),
        ({"offset": 1.0}, "offset"),
        ({"offset": True}, "offset"),
        ({"offset": None}, "offset"),
        ({"size": 1 << 32}, "size"),
        ({"timestamp": 1 << 63}, "timestamp"),
        ({"timestamp": "now"}, "timestamp"),
    ],
)
def test_a_bad_value_is_refused_by_name(checker, given, field):
    with pytest.raises(InvalidRequestError) as caught:
        checker.check(**{**GOOD, **given})
    assert caught.value.field == field


def test_a_topic_that_was_refused_is_not_remembered(checker):
    for _ in range(2):
        with pytest.raises(InvalidRequestError):
            checker.check(**{**GOOD, "topic": "a\n"})
