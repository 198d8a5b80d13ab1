from __future__ import annotations

import orjson
import pytest

from tests.app.conftest import assert_problem
from tierdex.app.http.codecs.json_lookups import (
    answer_columns,
    answer_each,
    columns_of,
    read_lookups,
)
from tierdex.errors import IncompleteAnswerError
from tierdex.index_service.answer import Answer, Missing

TOPIC = "orders"


@pytest.fixture
def filled(index):
    """Keys k0 .. k9 with 1 to 10 entries each, half of them published; message IDs m0 .. m9."""
    for state in ("published", "unsealed"):
        rows = [(n, entry) for n in range(10) for entry in range(n + 1)]
        base = 0 if state == "published" else 1000
        index.put_batch(
            topic=TOPIC,
            keys=[f"k{n}" for n, _ in rows],
            message_id=[f"m{n}" if entry == 0 else None for n, entry in rows],
            queue_id=[n % 3 for n, _ in rows],
            offset=[base + 100 * n + entry for n, entry in rows],
            size=1,
            timestamp=5,
        )
        if state == "published":
            index.roll()
            index.run_compaction()
    return index


BY_KEY = [{"topic": TOPIC, "key": f"k{n % 12}"} for n in range(30)]
BY_ID = [{"message_id": f"m{n % 12}"} for n in range(30)]


def documents_of(answered):
    """Return the answers of a body, without their time."""
    return timeless(orjson.loads(answered.body)["answers"])


def timeless(documents):
    return [{**document, "as_of": 0} for document in documents]


def read(lookups):
    return columns_of(read_lookups(orjson.dumps({"lookups": lookups})))


@pytest.mark.parametrize("max_count", [1, 3, 64], ids=["one", "full", "room"])
@pytest.mark.parametrize(
    "lookups",
    [BY_KEY, BY_ID, [{**lookup, "topic": TOPIC} for lookup in BY_ID]],
    ids=["key", "message_id", "message_id_of_topic"],
)
def test_columns_give_the_answers_of_single_objects(filled, lookups, max_count):
    by_columns = answer_columns(filled, read(lookups), max_count)
    one_by_one = timeless(answer_each(filled, lookups, max_count, "partial"))
    assert by_columns is not None
    documents = documents_of(by_columns)
    assert documents == one_by_one
    assert by_columns.asked == len(lookups)
    assert by_columns.found == sum(bool(answer["entries"]) for answer in one_by_one)
    for answer in documents:
        assert bool(answer["next_cursor"]) == (len(answer["entries"]) == max_count)


@pytest.mark.parametrize(
    "keys",
    [["k11"], ["k11", "k11"], ["k11", "k1", "k11"], ["k1"], ["k3", "k11"], ["k0", "k9", "k9"]],
    ids=".".join,
)
def test_absent_keys_stand_in_their_places(filled, keys):
    lookups = [{"topic": TOPIC, "key": key} for key in keys]
    answered = answer_columns(filled, read(lookups), 64)
    assert documents_of(answered) == timeless(answer_each(filled, lookups, 64, "partial"))


@pytest.mark.parametrize("max_count", [1, 64])
def test_memory_answers_what_lies_there_and_nothing_else(index, filled, max_count):
    """Half of the file is published: only what is unsealed could be told, so nothing is."""
    lookups = [{"topic": TOPIC, "key": "k3"}, {"topic": TOPIC, "key": "none"}]
    assert answer_columns(filled, read(lookups), max_count, local=True) is None


def test_memory_answers_local_files_as_the_index_does(index):
    index.put_batch(
        topic="t", keys=["a", "b", "b"], queue_id=1, offset=[1, 2, 3], size=4, timestamp=5
    )
    lookups = [{"topic": "t", "key": key} for key in ("b", "c", "a")]
    at_once = answer_columns(index, read(lookups), 64, local=True)
    assert documents_of(at_once) == timeless(answer_each(index, lookups, 64, "partial"))
    assert answer_columns(index, read(lookups), 2, local=True) is None  # a cursor may be needed


@pytest.mark.parametrize("topic", ['täg "x"', "a\\b", "\u2028"])
def test_names_are_written_as_json(index, topic):
    index.put_batch(topic=topic, keys=["k"], queue_id=1, offset=2, size=3, timestamp=-4)
    (document,) = documents_of(answer_columns(index, read([{"topic": topic, "key": "k"}]), 64))
    assert document["entries"][0]["topic"] == topic
    assert document["entries"][0]["timestamp"] == -4


@pytest.mark.parametrize(
    "lookups",
    [
        [],
        [{"topic": TOPIC, "key": "k1"}, {"message_id": "m1"}],
        [{"message_id": "m1"}, {"message_id": "m1", "topic": TOPIC}],
        [{"topic": TOPIC, "key": "k1", "max_count": 2}],
        [{"topic": TOPIC, "key": "k1", "begin": 1}],
        [{"topic": TOPIC, "key": "k1", "message_id": "m1"}],
        [{"topic": TOPIC, "key": None}],
        [{"key": "k"}],
        [{}],
    ],
)
def test_lookups_that_are_no_columns_are_answered_one_by_one(lookups):
    assert read(lookups) is None


def test_a_file_lost_while_a_cursor_is_made_fails_the_batch_that_asked_to_fail(filled, monkeypatch):
    def query_batch(lookups, *, on_error, fresh_within):
        missing = [Missing("f", "gone")]
        if on_error == "fail":
            raise IncompleteAnswerError("f: gone", missing=missing)
        return [Answer([], complete=False, missing=missing) for _ in lookups]

    monkeypatch.setattr(filled, "query_batch", query_batch)
    with pytest.raises(IncompleteAnswerError):
        answer_columns(filled, read(BY_KEY), 1, "fail")
    partial = answer_columns(filled, read(BY_KEY), 1, "partial")
    assert {answer["complete"] for answer in documents_of(partial)} == {False, True}


@pytest.mark.parametrize("key", [1, None, "", "x" * 5000, ["k"]])
def test_wrong_value_is_named_as_ever(caller, key):
    lookups = [*BY_KEY, {"topic": TOPIC, "key": key}]
    response = caller.post("/v1/entries:batchGet", json={"lookups": lookups})
    assert_problem(response, 400, "invalid-request", "lookups[30].key")


def test_what_is_missing_is_said(make_caller):
    caller = make_caller()
    caller.index.missing = [Missing("f", "gone")]
    lookups = [{"topic": "t", "key": "k"}]
    response = caller.post("/v1/entries:batchGet", json={"lookups": lookups})
    (answer,) = response.json()["answers"]
    assert (answer["complete"], answer["missing"]) == (False, [{"file": "f", "reason": "gone"}])
