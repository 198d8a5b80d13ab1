"""Keys chosen to collide slow only the caller that asks for them, up to a bound, and the answer says so.

XXH64 has no secret, so a caller can find keys of one slot (`slot = upper half of hash * slot_count`).
"""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pytest

from tests.app.conftest import Caller
from tests.app.http.hostile.cases import ARROW
from tierdex.errors import IncompleteAnswerError
from tierdex.index_service.index import Index
from tierdex.indexfile import hashing
from tierdex.indexfile.columns import StringColumn
from tierdex.settings import Settings
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore

SLOTS = 64
FLOOD = 4000
INNOCENT = 500
BUDGET = 1500  # items of one query: less than the flooded chain


def keys_by_slot():
    """Return (keys of slot 0, keys of other slots)."""
    names = np.array([f"k{n}" for n in range(SLOTS * FLOOD * 5 // 4)])
    hashes = hashing.key_hashes(StringColumn.from_values(pa.array(names)), ["orders"], None)
    # The upper half of the 128-bit product, for a power of two: the hash's upper bits.
    slots = hashes >> np.uint64(64 - SLOTS.bit_length() + 1)
    return names[slots == 0].tolist(), names[slots != 0].tolist()


COLLIDING, OTHERS = keys_by_slot()
ASKED = COLLIDING[FLOOD : FLOOD + 300]  # same slot, never put: each lookup walks the whole chain


@pytest.fixture(scope="module", params=["chained", "compacted"])
def flooded(request, tmp_path_factory):
    """An index whose slot 0 holds a chain of FLOOD keys, and INNOCENT other keys."""
    settings = {"slot_count": SLOTS, "item_capacity": 10_000, "background": False}
    with Index.open(
        tmp_path_factory.mktemp(request.param), query_max_items=BUDGET, **settings
    ) as index:
        keys = COLLIDING[:FLOOD] + OTHERS[:INNOCENT]
        numbers = range(len(keys))
        index.put_batch(
            topic="orders", keys=keys, queue_id=0, offset=list(numbers), size=1, timestamp=1
        )
        if request.param == "compacted":
            index.roll()
            index.run_compaction()
        yield request.param, index


def test_innocent_keys_cost_what_they_always_do(flooded):
    _, index = flooded
    for number, key in enumerate(OTHERS[:INNOCENT:25]):
        answer = index.query("orders", key=key, explain=True)
        assert answer.complete
        assert [entry.offset for entry in answer.entries] == [FLOOD + 25 * number]
        assert answer.explain.files[0].items < 500


def test_colliding_key_is_given_up_at_the_bound_and_the_answer_says_so(flooded):
    form, index = flooded
    answer = index.query("orders", key=ASKED[0], explain=True)
    assert not answer.entries
    if form == "compacted":  # rows lie by hash: a slot means nothing there
        assert answer.complete
        return
    assert not answer.complete
    assert "query_max_items" in answer.missing[0].reason
    with pytest.raises(IncompleteAnswerError):
        index.query("orders", key=ASKED[0], on_error="fail")


@pytest.mark.parametrize("max_count", [1, 5])
def test_batch_of_colliding_keys_is_given_up_inside_the_call(flooded, max_count):
    """300 keys x 4,000 items would be 1.2 million steps; the batch may take some 20,000."""
    form, index = flooded
    lookups = [{"topic": "orders", "key": key, "max_count": max_count} for key in ASKED]
    answers = index.query_batch(lookups)
    assert all(not answer.entries for answer in answers)
    assert all(answer.complete == (form == "compacted") for answer in answers)
    table = pa.table({"topic": ["orders"] * len(ASKED), "key": ASKED})
    if form == "compacted":
        assert index.query_batch_arrow(table, max_count=max_count).num_rows == 0
        return
    assert "work budget" in answers[0].missing[0].reason
    with pytest.raises(IncompleteAnswerError, match="work budget"):
        index.query_batch_arrow(table, max_count=max_count)


@pytest.mark.parametrize("max_count", [1, 5])
def test_colliding_keys_leave_innocent_keys_of_the_same_batch_complete(flooded, max_count):
    form, index = flooded
    keys = [key for pair in zip(ASKED, OTHERS[: len(ASKED)], strict=True) for key in pair]
    lookups = [{"topic": "orders", "key": key, "max_count": max_count} for key in keys]
    answers = index.query_batch(lookups)
    for number, answer in enumerate(answers[1::2]):
        assert answer.complete
        assert [entry.offset for entry in answer.entries] == [FLOOD + number]
    assert all(not answer.entries for answer in answers[::2])
    assert all(answer.complete == (form == "compacted") for answer in answers[::2])


def test_table_names_the_lookups_that_are_incomplete(flooded):
    """In the metadata of its schema, which HTTP carries too."""
    form, index = flooded
    keys = [*ASKED, *OTHERS[:INNOCENT]]
    lookups = pa.table({"topic": ["orders"] * len(keys), "key": keys})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, lookups.schema) as writer:
        writer.write_table(lookups)
    response = Caller(index, limits=Settings()).post(
        "/v1/entries:batchGet?on_error=partial",
        content=sink.getvalue(),
        headers={"content-type": ARROW},
    )
    over_http = pa.ipc.open_stream(response.content).read_all()
    for table in (index.query_batch_arrow(lookups, on_error="partial"), over_http):
        assert table.column("lookup").to_pylist() == list(range(len(ASKED), len(keys)))
        if form == "compacted":
            assert b"missing" not in table.schema.metadata
            continue
        told = json.loads(table.schema.metadata[b"missing"])
        assert sorted(n for row in told for n in row["lookups"]) == list(range(len(ASKED)))
        assert all("budget" in row["reason"] for row in told)


@pytest.mark.parametrize("max_count", [1, 5])
def test_colliding_keys_are_not_walked_for_a_caller_who_must_not_block(tmp_path, max_count):
    """An event loop answers at once what memory tells quickly, and hands the rest to a thread."""
    keys = COLLIDING[:FLOOD] + OTHERS[:INNOCENT]
    with Index.open(tmp_path, slot_count=SLOTS, item_capacity=10_000, background=False) as index:
        index.put_batch(
            topic="orders",
            keys=keys,
            queue_id=0,
            offset=list(range(len(keys))),
            size=1,
            timestamp=1,
        )
        colliding = pa.table({"topic": ["orders"] * len(ASKED), "key": ASKED})
        innocent = pa.table({"topic": ["orders"] * 300, "key": OTHERS[:300]})
        assert index.query_batch_local(colliding, max_count=max_count) is None
        assert index.query_batch_local(innocent, max_count=max_count).num_rows == 300
        assert index.query_batch_arrow(colliding, max_count=max_count).num_rows == 0


def test_table_says_what_is_missing_from_every_lookup(tmp_path):
    """A node that could not be asked concerns each of them."""
    store = FaultyStore(MemoryStore())
    with Index.open(
        tmp_path, store=store, background=False, slot_count=64, max_staleness=1.0
    ) as index:
        index.put(topic="t", keys=["k"], queue_id=0, offset=1, size=1, timestamp=1)
        lookups = pa.table({"topic": ["t", "t"], "key": ["k", "absent"]})
        assert b"missing" not in index.query_batch_arrow(lookups).schema.metadata
        index.roll()
        index.run_compaction()
        for kept in (tmp_path / "uploaded").iterdir():
            kept.unlink()
    with (
        Index.open(tmp_path, store=store, background=False, slot_count=64) as index,
        store.outage(),
    ):
        table = index.query_batch_arrow(lookups, on_error="partial")
        (row,) = json.loads(table.schema.metadata[b"missing"])
        assert row["lookups"] == [0, 1]
        assert row["file"] == index.files()[0].file_id
        assert table.num_rows == 0
        with pytest.raises(IncompleteAnswerError):
            index.query_batch_arrow(lookups)


def test_hot_key_asked_over_and_over_leaves_other_keys_complete(tmp_path):
    with Index.open(
        tmp_path, slot_count=64, item_capacity=10_000, background=False, query_max_entries=5_000
    ) as index:
        index.put_batch(
            topic="t", keys=["hot"] * 500 + [f"k{n}" for n in range(100)], queue_id=0,
            offset=list(range(600)), size=1, timestamp=1,
        )  # fmt: skip
        hot = [{"topic": "t", "key": "hot", "max_count": 400}] * 1000
        others = [{"topic": "t", "key": f"k{n}", "max_count": 400} for n in range(100)]
        for roll in (False, True):
            if roll:
                index.roll()
                index.run_compaction()
            answers = index.query_batch(hot + others)
            assert sum(len(answer.entries) for answer in answers) <= 5_000
            assert not all(answer.complete for answer in answers[:1000])
            for number, answer in enumerate(answers[1000:]):
                assert answer.complete
                assert [entry.offset for entry in answer.entries] == [500 + number]


def test_innocent_batch_is_answered(flooded):
    _, index = flooded
    answers = index.query_batch([{"topic": "orders", "key": key} for key in OTHERS[:INNOCENT]])
    assert all(answer.complete and len(answer.entries) == 1 for answer in answers)


def test_bound_reaches_the_caller_over_http(flooded):
    form, index = flooded
    caller = Caller(index, limits=Settings())
    lookups = [{"topic": "orders", "key": key} for key in ASKED]
    batch = caller.post("/v1/entries:batchGet", json={"lookups": lookups}).json()["answers"]
    single = caller.get("/v1/entries", params=lookups[0]).json()
    for answer in (*batch, single):
        assert answer["complete"] == (form == "compacted")
        assert answer["entries"] == []
        assert form == "compacted" or "budget" in answer["missing"][0]["reason"]


def test_batch_that_asks_for_a_hot_key_over_and_over_stays_small(tmp_path):
    """A small request must not become an answer of gigabytes."""
    with Index.open(
        tmp_path, slot_count=64, item_capacity=10_000, background=False, query_max_entries=5_000
    ) as index:
        index.put_batch(
            topic="t", keys=["hot"] * 500, queue_id=0, offset=list(range(500)), size=1, timestamp=1
        )
        for roll in (False, True):
            if roll:
                index.roll()
                index.run_compaction()
            lookups = [{"topic": "t", "key": "hot", "max_count": 400}] * 1000
            answers = index.query_batch(lookups)
            assert sum(len(answer.entries) for answer in answers) <= 5_000
            told = [answer for answer in answers if not answer.complete]
            assert "query_max_entries" in told[0].missing[0].reason
            assert all(answer.entries or not answer.complete for answer in answers)
            table = pa.table({"topic": ["t"] * 1000, "key": ["hot"] * 1000})
            with pytest.raises(IncompleteAnswerError):
                index.query_batch_arrow(table, max_count=400)
            few = index.query_batch(lookups[:10])
            assert all(answer.complete and len(answer.entries) == 400 for answer in few)
