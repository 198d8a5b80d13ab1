from __future__ import annotations

import orjson
import pytest

from tierdex.app.batch_json import _answer_any, _answer_plain, answer_lookups
from tierdex.errors import InvalidRequestError
from tierdex.index_service.answer import Missing

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


def plain_documents(answered):
    documents = orjson.loads(orjson.dumps(answered.answers))
    for document in documents:
        document["as_of"] = 0
    return documents


@pytest.mark.parametrize("max_count", [1, 3, 64], ids=["one", "full", "room"])
@pytest.mark.parametrize(
    "lookups",
    [BY_KEY, BY_ID, [{**lookup, "topic": TOPIC} for lookup in BY_ID]],
    ids=["key", "message_id", "message_id_of_topic"],
)
def test_columns_give_the_answers_of_single_objects(filled, lookups, max_count):
    by_columns = _answer_plain(filled, lookups, max_count)
    one_by_one = _answer_any(filled, lookups, max_count, "partial")
    assert by_columns is not None
    assert by_columns.found == one_by_one.found
    documents = plain_documents(by_columns)
    assert documents == plain_documents(one_by_one)
    for answer in documents:
        assert bool(answer["next_cursor"]) == (len(answer["entries"]) == max_count)


@pytest.mark.parametrize(
    "lookups",
    [
        [],
        [{"topic": TOPIC, "key": "k1"}, {"message_id": "m1"}],
        [{"topic": TOPIC, "key": "k1", "max_count": 2}],
        [{"topic": TOPIC, "key": "k1", "begin": 1}],
    ],
    ids=["empty", "mixed", "own_count", "own_time"],
)
def test_lookups_that_are_not_plain_take_the_ordinary_way(filled, lookups):
    assert _answer_plain(filled, lookups, 64) is None
    assert len(answer_lookups(filled, lookups, None, "partial").answers) == len(lookups)


@pytest.mark.parametrize("key", [1, None, "", "x" * 5000, ["k"]])
def test_wrong_value_is_named_as_ever(filled, key):
    lookups = [*BY_KEY, {"topic": TOPIC, "key": key}]
    with pytest.raises(InvalidRequestError) as caught:
        answer_lookups(filled, lookups, None, "partial")
    assert caught.value.field == "lookups[30].key"


def test_what_is_missing_is_said(make_door):
    door = make_door()
    door.index.missing = [Missing("f", "gone")]
    (answer,) = answer_lookups(door.index, [{"topic": "t", "key": "k"}], None, "partial").answers
    assert (answer["complete"], answer["missing"]) == (False, [{"file": "f", "reason": "gone"}])
