"""A histogram counts what all pages of a query have together, whatever form the files have, and no more."""

from __future__ import annotations

import numpy as np
import orjson
import pytest

from tests.app.conftest import Caller, assert_problem
from tests.index_service.conftest import put
from tierdex.client.answers import read_histogram
from tierdex.errors import IncompleteAnswerError, InvalidRequestError
from tierdex.index_service.query.time_counts import in_buckets

HOUR = 3_600_000
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1


def pages_of(index, **asked):
    """Return the times of a query's entries, page by page."""
    times, cursor = [], None
    while True:
        answer = index.query("orders", key="HOT", max_count=7, cursor=cursor, **asked)
        times += [entry.timestamp for entry in answer.entries]
        cursor = answer.next_cursor
        if cursor is None:
            return times


@pytest.fixture
def hot(index):
    """An index with a hot key in a published file, a compacted one and the open one; some of it twice."""
    for n in range(120):
        put(index, "HOT", n, timestamp=n * HOUR)
        put(index, "COLD", n, timestamp=n * HOUR)
        put(index, "HOT", n, topic="payments", timestamp=n)
        if n in (50, 90):
            index.flush("os")
            index.roll()
            index.run_compaction()
    put(index, "HOT", 7, timestamp=7 * HOUR)  # a broker that replays
    index.flush("os")
    return index


@pytest.mark.parametrize("asked", [{}, {"begin": 20 * HOUR, "end": 99 * HOUR}, {"end": -1}])
def test_counts_are_those_of_all_pages_of_the_query(hot, asked):
    found = hot.histogram("orders", key="HOT", buckets=10, **asked)
    times = pages_of(hot, **asked)
    assert (found.count, found.more, found.complete) == (len(times), False, True)
    assert (found.begin, found.end) == (min(times, default=None), max(times, default=None))
    for number, count in enumerate(found.counts):
        begin = found.begin + number * found.width_ms
        assert count == sum(begin <= time < begin + found.width_ms for time in times)
    assert len(found.counts) == (10 if times else 0)


def test_message_ids_are_counted_as_keys_are(index):
    for n in range(3):
        put(index, "k", n, message_id="m-1", timestamp=n)
    assert index.histogram(message_id="m-1").counts == [1, 1, 1]
    assert index.histogram("payments", message_id="m-1").counts == []


def test_times_at_both_ends_of_int64_are_counted():
    times = np.array([INT64_MIN, 0, INT64_MAX], np.int64)
    for buckets in (10, 60, 1000):
        found = in_buckets(times, buckets)
        assert (found.begin, found.end, found.count) == (INT64_MIN, INT64_MAX, 3)
        assert (found.counts[0], found.counts[-1]) == (1, 1)
        assert len(found.counts) <= buckets
        assert orjson.loads(orjson.dumps(found.to_dict()))["width_ms"] == found.width_ms < INT64_MAX
    assert in_buckets(np.array([5, 5], np.int64), 10).counts == [2]


def test_count_stops_at_the_newest_files_entries_and_says_that_there_are_more(hot):
    found = hot.histogram("orders", key="HOT", begin=8 * HOUR, max_count=29)
    assert (found.count, found.more) == (29, True)
    assert found.begin == 91 * HOUR  # of the files before none was asked
    assert hot.histogram("orders", key="HOT", max_count=121).more is False


def test_count_costs_what_a_query_may_cost_and_says_what_it_left_out(hot, make_index, tmp_path):
    hot.flush("remote")
    bounded = make_index(None, store=tmp_path / "data" / "store", query_max_requests=1)
    before = bounded.store_requests()["lookups"]
    found = bounded.histogram("orders", key="HOT")
    sent = sum(bounded.store_requests()["lookups"].values()) - sum(before.values())
    assert sent <= 1
    assert not found.complete
    assert "query_max_requests" in found.missing[0].reason
    assert found.count < 120
    with pytest.raises(IncompleteAnswerError):
        bounded.histogram("orders", key="HOT", on_error="fail")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("buckets", 9),
        ("buckets", 1001),
        ("max_count", 0),
        ("max_count", 1_000_001),
        ("begin", "soon"),
    ],
)
def test_bad_argument_is_named(index, field, value):
    with pytest.raises(InvalidRequestError) as refused:
        index.histogram("orders", key="k", **{field: value})
    assert refused.value.field == field
    answer = Caller(index).get(
        "/v1/histogram", params={"topic": "orders", "key": "k", field: value}
    )
    assert_problem(answer, 400, "invalid-request", field)


def test_service_answers_what_the_client_reads(hot):
    caller = Caller(hot)
    response = caller.get(
        "/v1/histogram", params={"topic": "orders", "key": "HOT", "end": 99 * HOUR}
    )
    found = hot.histogram("orders", key="HOT", end=99 * HOUR)
    assert read_histogram(response.content) == found
    assert response.json()["count"] == found.count == 100
    nothing = caller.get("/v1/histogram", params={"topic": "orders", "key": "absent"})
    assert read_histogram(nothing.content).to_dict()["begin"] is None
    assert_problem(caller.get("/v1/histogram?key=k"), 400, "invalid-request", "topic")
