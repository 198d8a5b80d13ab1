"""A query is checked value by value before anything happens; errors name the field."""

from __future__ import annotations

import numpy as np
import pytest

from tierdex.errors import CursorExpiredError, InvalidRequestError
from tierdex.index_service.requests.entry_rules import INT64_MAX, INT64_MIN
from tierdex.index_service.requests.query import QueryValues, make_request, make_requests
from tierdex.settings import load_settings

SETTINGS = load_settings(max_key_bytes=8, max_count_limit=100, max_lookups=3)


def make(**given):
    return make_request(SETTINGS, QueryValues(**{"topic": "t", "key": "k", **given}))


def test_no_times_mean_all_of_them():
    request = make()
    assert (request.begin, request.end, request.kind) == (INT64_MIN, INT64_MAX, 0)


def test_a_message_id_may_name_its_topic():
    with_topic = make_request(SETTINGS, QueryValues(topic="t", message_id="m"))
    without = make_request(SETTINGS, QueryValues(message_id="m"))
    assert with_topic.key_hash == without.key_hash
    assert (with_topic.topic, without.topic) == ("t", None)
    assert with_topic.digest() != without.digest()
    assert make(key="m").digest() != with_topic.digest()


def test_times_and_counts_at_their_limits_are_taken():
    request = make(begin=INT64_MIN, end=INT64_MAX, max_count=100)
    assert (request.begin, request.end, request.max_count) == (INT64_MIN, INT64_MAX, 100)
    assert make(begin=np.int64(5), end=5).begin == 5


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"key": None}, "key"),
        ({"message_id": "m"}, "key"),
        ({"topic": None}, "topic"),
        ({"topic": ""}, "topic"),
        ({"topic": 7}, "topic"),
        ({"topic": "t\x7f"}, "topic"),
        ({"topic": "\ud800"}, "topic"),
        ({"key": ""}, "key"),
        ({"key": "x" * 9}, "key"),
        ({"key": "ü" * 5}, "key"),
        ({"key": b"k"}, "key"),
        ({"key": "\ud800"}, "key"),
        ({"key": None, "message_id": ""}, "message_id"),
        ({"begin": 2, "end": 1}, "begin"),
        ({"begin": "2 "}, "begin"),
        ({"begin": 1.0}, "begin"),
        ({"begin": INT64_MIN - 1}, "begin"),
        ({"end": INT64_MAX + 1}, "end"),
        ({"end": True}, "end"),
        ({"max_count": 0}, "max_count"),
        ({"max_count": -1}, "max_count"),
        ({"max_count": 101}, "max_count"),
        ({"max_count": None}, "max_count"),
        ({"cursor": 5}, "cursor"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "ä"}, "cursor"),
    ],
)
def test_a_bad_value_is_refused_by_name(given, field):
    with pytest.raises(InvalidRequestError) as caught:
        make(**given)
    assert caught.value.field == field
    assert not isinstance(caught.value, CursorExpiredError)


def test_too_many_lookups_are_refused_and_as_many_as_allowed_are_not():
    lookup = {"topic": "t", "key": "k", "begin": None}
    assert len(make_requests(SETTINGS, [lookup] * 3)) == 3
    with pytest.raises(InvalidRequestError) as caught:
        make_requests(SETTINGS, [lookup] * 4)
    assert caught.value.field == "lookups"


@pytest.mark.parametrize("bad", ["x", {"a": 1}, None, 7])
def test_lookups_are_a_list(bad):
    with pytest.raises(InvalidRequestError) as caught:
        make_requests(SETTINGS, bad)
    assert caught.value.field == "lookups"
