"""One key over all topics: order, gaps, one batch, what is not known, at every door."""

from __future__ import annotations

import orjson
import pytest

from tests.app.conftest import Caller, assert_problem
from tests.app.http.test_shown_messages import PATIENT, OneBody
from tierdex import Index
from tierdex.app.rights import Scope
from tierdex.client.answers import read_journey
from tierdex.errors import IncompleteAnswerError, InvalidRequestError, NotFoundError
from tierdex.index_service.journey import find_journey
from tierdex.resolving.message_fetcher import MessageFetcher
from tierdex.times import format_duration

DAY = 86_400_000


def put(index, topic, timestamp, key="ORDER-1", offset=0):
    index.put(topic=topic, keys=[key], queue_id=0, offset=offset, size=9, timestamp=timestamp)


@pytest.fixture
def shop(index):
    put(index, "shipments", 5 * DAY)
    put(index, "orders", 1 * DAY)
    put(index, "payments", 1 * DAY + 250)
    put(index, "payments", 1 * DAY + 250, key="ORDER-2", offset=50)
    index.flush("os")
    return index


def test_entries_of_all_topics_come_in_order_of_time_with_the_gaps_between_them(shop):
    journey = find_journey(shop, "ORDER-1")
    assert [entry.topic for entry in journey.entries] == ["orders", "payments", "shipments"]
    assert journey.gaps_ms == [None, 250, 4 * DAY - 250]
    assert (journey.duration_ms, journey.topics, journey.complete) == (4 * DAY, 3, True)
    nothing = find_journey(shop, "ORDER-9")
    assert (nothing.entries, nothing.gaps_ms, nothing.duration_ms) == ([], [], None)
    assert [e.topic for e in find_journey(shop, "ORDER-1", begin=2 * DAY).entries] == ["shipments"]


def test_a_file_that_is_gone_makes_a_journey_incomplete_and_not_a_failure(tmp_path):
    store = tmp_path / "store"
    for node in ("orders", "payments"):
        with Index.open(tmp_path / node, node=node, store=str(store), background=False) as owner:
            put(owner, node, DAY)
            owner.roll()
            owner.run_compaction()
    (lost,) = (store / "nodes" / "payments" / "files").iterdir()
    lost.unlink()
    with Index.open(store=str(store), background=False) as reader:
        journey = find_journey(reader, "ORDER-1")
        assert [entry.topic for entry in journey.entries] == ["orders"]
        assert not journey.complete
        assert [file.partition("-")[2] for file, _ in journey.missing] == ["payments"]
        with pytest.raises(IncompleteAnswerError, match=r"not all topics are known: .*-payments"):
            find_journey(reader, "ORDER-1", on_error="fail")
        with pytest.raises(NotFoundError):
            reader.topics()


def test_topics_are_asked_with_one_batch(shop):
    batches = []

    class Counting:
        def known_topics(self, **how):
            return shop.known_topics(**how)

        def query_batch(self, lookups, **how):
            batches.append(len(lookups))
            return shop.query_batch(lookups, **how)

    find_journey(Counting(), "ORDER-1")
    assert batches == [3]


def test_a_put_that_returned_is_in_a_journey_as_in_a_query(tmp_path):
    with Index.open(tmp_path / "own", put_buffer_delay=60.0, background=False) as index:
        put(index, "orders", DAY)
        index.put(
            topic="new", key="K", queue_id=0, offset=1, size=1, timestamp=DAY, durability="received"
        )
        assert [entry.topic for entry in find_journey(index, "K").entries] == ["new"]


def test_topic_with_more_entries_is_named(shop):
    for n in range(3):
        put(shop, "orders", DAY + n, key="HOT", offset=100 + n)
    shop.flush("os")
    journey = find_journey(shop, "HOT", max_count=2)
    assert [entry.offset for entry in journey.entries] == [101, 102]
    assert journey.more == ["orders"]


def test_empty_index_still_refuses_a_bad_key(index):
    assert find_journey(index, "k").entries == []
    with pytest.raises(InvalidRequestError):
        find_journey(index, "")


def test_journey_over_http_is_read_by_the_client(shop, tmp_path, keys):
    body = OneBody()
    read, message = keys.create(Scope.READ), keys.create(Scope.MESSAGE)
    with MessageFetcher(tmp_path, PATIENT, others=body) as messages:
        caller = Caller(shop, keys, messages=messages)
        response = caller.get("/v1/journeys", params={"key": "ORDER-1"}, key=read)
        assert (
            orjson.loads(orjson.dumps(read_journey(response.content).to_dict())) == response.json()
        )
        assert response.json()["entries"][1]["gap_ms"] == 250
        asked = {"key": "ORDER-1", "message": "true"}
        assert_problem(caller.get("/v1/journeys", params=asked, key=read), 403, "permission-denied")
        shown = read_journey(caller.get("/v1/journeys", params=asked, key=message).content)
        assert [entry.message.outcome for entry in shown.entries] == ["shown"] * 3
        for bad, field in (
            ({}, "key"),
            ({"key": "k", "topic": "t"}, "topic"),
            ({"key": "k", "max_count": "0"}, "max_count"),
        ):
            assert_problem(
                caller.get("/v1/journeys", params=bad, key=read), 400, "invalid-request", field
            )


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (60_000, "1 min"), (125_000, "2 min 5 s"),
     (3_600_000, "1 h"), (4 * DAY + 3 * 3_600_000, "4 d 3 h")],
)  # fmt: skip
def test_duration_is_told_in_two_units(milliseconds, text):
    assert format_duration(milliseconds) == text


def backfilled(index, today=20, before=30):
    """Put entries of today, then a backfill of last year: the newest arrivals are the oldest."""
    for n in range(today):
        put(index, "orders", 4000 * DAY + n, key="HOT", offset=n)
    index.roll()
    for n in range(before):
        put(index, "orders", 3635 * DAY + n, key="HOT", offset=1000 + n)
    index.flush("os")


@pytest.mark.parametrize("published", [False, True])
def test_a_journey_has_the_newest_entries_in_time_whenever_they_arrived(index, published):
    backfilled(index)
    if published:
        index.roll()
        index.run_compaction()
    journey = find_journey(index, "HOT")
    assert [entry.offset for entry in journey.entries] == list(range(4, 20))
    assert (journey.more, journey.by_arrival, journey.complete) == (["orders"], [], True)
    whole = find_journey(index, "HOT", max_count=100)
    assert len(whole.entries) == 50
    assert (whole.more, whole.by_arrival) == ([], [])


def test_many_entries_of_one_time_end_the_looks(index):
    for n in range(1500):
        put(index, "orders", DAY, key="HOT", offset=n)
    put(index, "orders", 2 * DAY, key="HOT", offset=9999)
    for n in range(1500):
        put(index, "orders", DAY, key="HOT", offset=5000 + n)
    index.flush("os")
    journey = find_journey(index, "HOT")
    assert journey.entries[-1].offset == 9999
    assert journey.by_arrival == []


def test_a_journey_says_where_the_order_of_arrival_decides_at_every_door(index, monkeypatch):
    """Arrivals in the wrong order, more of them than the looks take."""
    monkeypatch.setattr("tierdex.index_service.journey._LOOK_AGAIN", 20)
    for n in range(400):
        put(index, "orders", 4000 * DAY - n, key="HOT", offset=n)
    index.flush("os")
    journey = find_journey(index, "HOT")
    assert journey.by_arrival == ["orders"]
    answer = read_journey(Caller(index).get("/v1/journeys", params={"key": "HOT"}).content)
    assert (answer.by_arrival, answer.more) == (["orders"], ["orders"])
