"""Every lookup of a batch is answered as the single query answers it, whatever state the files have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import SMALL, offsets, put
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError, TierdexError
from tierdex.ids import SeededIds
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore

TOPICS = ["a", "b"]
KEYS = ["k0", "k1", "k2"]
ENTRY = st.tuples(
    st.sampled_from(TOPICS), st.sampled_from(KEYS), st.integers(0, 4), st.integers(0, 9)
)
STEP = st.one_of(st.lists(ENTRY, min_size=1, max_size=30), st.sampled_from(["roll", "compact"]))
LOOKUP = st.tuples(
    st.sampled_from([*TOPICS, None]),
    st.sampled_from([*KEYS, "absent"]),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(1, 4),
)


def lookup_of(topic, text, begin, end, max_count):
    """Return a lookup by key, or without a topic by message ID."""
    name = "message_id" if topic is None else "key"
    times = {"begin": min(begin, end), "end": max(begin, end)}
    return {"topic": topic, name: text, "max_count": max_count, **times}


def assert_same(index, answers, singles, lookups):
    """Check that both are the same, but that a single query may know that nothing is left."""
    for answer, single, lookup in zip(answers, singles, lookups, strict=True):
        if answer.next_cursor is not None and single.next_cursor is None:
            assert index.query(**lookup, cursor=answer.next_cursor).entries == []
            answer.next_cursor = None
        assert answer == single


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    steps=st.lists(STEP, min_size=1, max_size=8), lookups=st.lists(LOOKUP, min_size=1, max_size=12)
)
def test_batch_answers_are_those_of_single_queries(tmp_path_factory, steps, lookups):
    data = tmp_path_factory.mktemp("batch")
    with Index.open(
        data, clock=ManualClock(), ids=SeededIds(1), merge_min_files=2, **SMALL
    ) as index:
        for step in steps:
            if step == "roll":
                index.roll()
            elif step == "compact":
                index.run_compaction()
            else:
                for topic, key, offset, timestamp in step:  # few offsets: many repeated locations
                    put(index, key, offset, topic=topic, message_id=key, timestamp=timestamp)
        asked = [lookup_of(*lookup) for lookup in lookups]
        singles = [index.query(**lookup) for lookup in asked]
        assert_same(index, index.query_batch(asked), singles, asked)
        plain = [{"topic": lookup[0] or "a", "key": lookup[1]} for lookup in lookups]
        for alike in (plain, [{**lookup, "topic": "a"} for lookup in plain]):
            singles = [index.query(**lookup) for lookup in alike]
            assert_same(index, index.query_batch(alike), singles, alike)
            keys = pa.table({name: [lookup[name] for lookup in alike] for name in alike[0]})
            newest = index.query_batch_arrow(keys).to_pylist()
            firsts = [(i, one.entries[0]) for i, one in enumerate(singles) if one.entries]
            assert [(row["lookup"], row["offset"], row["file_id"]) for row in newest] == [
                (i, entry.offset, entry.file_id) for i, entry in firsts
            ]


@pytest.mark.parametrize("published", [False, True])
def test_a_location_repeated_in_several_files_leaves_room_for_the_others(index, published):
    put(index, "A", 1)
    index.roll()
    for _ in range(3):
        put(index, "A", 2)
        index.roll()
    if published:
        index.run_compaction()
    lookup = {"topic": "orders", "key": "A", "max_count": 2}
    assert offsets(index.query_batch([lookup])[0]) == [2, 1]
    table = index.query_batch_arrow(pa.table({"topic": ["orders"], "key": ["A"]}), max_count=2)
    assert table.column("offset").to_pylist() == [2, 1]


@pytest.mark.parametrize("holds_entries", [False, True])
@pytest.mark.parametrize("bad", ["", "\ud800", "x" * 5000, 5, None])
def test_a_bad_key_among_plain_ones_is_named_wherever_it_stands(index, holds_entries, bad):
    if holds_entries:
        put(index, "A", 1)
    lookups = [{"topic": "orders", "key": key} for key in ("A", "é", bad)]
    with pytest.raises(InvalidRequestError) as refused:
        index.query_batch(lookups)
    assert refused.value.field == "lookups[2].key"
    if isinstance(bad, str) and bad.isascii():
        keys = pa.table({"topic": ["orders"] * 2, "key": ["A", bad]})
        with pytest.raises(InvalidRequestError):
            index.query_batch_arrow(keys)


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    "topic_type",
    [
        pa.string(),
        pa.large_string(),
        *(pa.dictionary(n, pa.string()) for n in (pa.int8(), pa.int32())),
    ],
)
def test_plain_keys_are_found_whatever_their_arrow_types(index, key_type, topic_type):
    put(index, "é", 1)
    for offset in range(100):
        put(index, f"K{offset}", offset)
    keys = pa.array([f"K{n}" for n in range(100)], key_type)
    table = pa.table({"key": keys, "topic": pa.array(["orders"] * 100).cast(topic_type)})
    for part in (table, table.slice(7, 50), table.slice(99)):
        found = index.query_batch_arrow(part).column("offset").to_pylist()
        assert found == [int(key[1:]) for key in part.column("key").to_pylist()]
    beyond = pa.table({"topic": ["orders"] * 2, "key": ["é", "K5"]})
    assert index.query_batch_arrow(beyond).column("offset").to_pylist() == [1, 5]


@pytest.mark.parametrize("topic_type", [pa.string(), pa.large_string()])
@pytest.mark.parametrize(
    "topics",
    [
        ["ab"] * 9,
        ["ab"] * 8 + ["ac"],
        ["ac"] + ["ab"] * 8,
        ["a", "aa", "aaa"],
        ["ab", "a", "ab"],
        ["é"],
    ],
)
def test_plain_topic_column_answers_as_its_dictionary_does(index, topics, topic_type):
    for topic in dict.fromkeys(topics):
        put(index, "K", len(topic.encode()), topic=topic)
    plain = pa.array(topics).cast(topic_type)
    for part in (slice(None), slice(1, None), slice(0, -1)):
        keys = pa.array(["K"] * len(topics[part]))
        table = pa.table({"topic": plain[part], "key": keys})
        coded = pa.table({"topic": pa.array(topics).dictionary_encode()[part], "key": keys})
        found = index.query_batch_arrow(table).to_pylist()
        assert found == index.query_batch_arrow(coded).to_pylist()
        assert [row["topic"] for row in found] == topics[part]


@pytest.mark.parametrize(
    "offsets", [[0, -3, 4], [0, 9, 4], [0, -2147483646, 4], [0, 2147483647, 4]]
)
def test_topic_column_that_points_outside_its_text_is_not_read(index, offsets):
    text = pa.py_buffer(b"abab")
    places = pa.py_buffer(np.array(offsets, np.int32))
    topics = pa.StringArray.from_buffers(2, places, text)
    with pytest.raises(InvalidRequestError):
        index.query_batch_arrow(pa.table({"topic": topics, "key": ["K", "K"]}))


def test_arrow_answers_are_ordered_by_lookup_and_newest_first(index):
    for offset in range(20):
        put(index, f"K{offset % 3}", offset)
        if offset == 9:
            index.roll()
            index.run_compaction()
    keys = ["K2", "absent", "K0"]
    table = index.query_batch_arrow(pa.table({"topic": ["orders"] * 3, "key": keys}), max_count=3)
    assert table.column("lookup").to_pylist() == [0, 0, 0, 2, 2, 2]
    assert table.column("offset").to_pylist() == [17, 14, 11, 18, 15, 12]


def test_entries_hidden_by_retention_do_not_use_up_a_lookup(make_index, clock):
    index = make_index(topic_retention={"orders": 5.0})
    index.put(topic="orders", keys=[], message_id="M", queue_id=0, offset=1, size=1, timestamp=0)
    index.put(topic="kept", keys=[], message_id="M", queue_id=0, offset=2, size=1, timestamp=0)
    index.put(topic="orders", keys=[], message_id="M", queue_id=0, offset=3, size=1, timestamp=0)
    index.roll()
    index.run_compaction()
    clock.advance(6)
    assert offsets(index.query(message_id="M", max_count=1)) == [2]
    assert offsets(index.query_batch([{"message_id": "M", "max_count": 1}])[0]) == [2]
    table = index.query_batch_arrow(pa.table({"message_id": ["M"]}), max_count=1)
    assert table.column("offset").to_pylist() == [2]


@pytest.mark.parametrize(
    ("lookups", "field"),
    [
        ({}, "lookups"),
        (["x"], "lookups[0]"),
        ([{"topic": "t", "key": "k"}, {"topic": "t"}], "lookups[1].key"),
        ([{"topic": "t", "key": "k", "cursor": "c"}], "lookups[0].cursor"),
        ([{"topic": "t", "key": ""}], "lookups[0].key"),
        ([{"topic": "t", "key": "k", "max_count": 0}], "lookups[0].max_count"),
        ([{"topic": "t", "key": "k", "begin": 2, "end": 1}], "lookups[0].begin"),
    ],
)
def test_bad_lookup_is_refused_by_name(index, lookups, field):
    with pytest.raises(InvalidRequestError) as caught:
        index.query_batch(lookups)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({"topic": ["t"]}, "lookups"),
        ({"key": ["k"]}, "lookups"),
        ({"topic": ["t"], "key": ["k"], "message_id": ["m"]}, "lookups"),
        ({"topic": ["t"], "key": ["k"], "other": [1]}, "other"),
        ({"topic": ["t", "t"], "key": ["k", ""]}, "lookups[1].key"),
        ({"topic": ["t", "t"], "key": ["k", None]}, "lookups[1].key"),
        ({"topic": ["t", ""], "key": ["k", "k"]}, "lookups[1].topic"),
    ],
)
def test_bad_table_of_lookups_is_refused_by_name(index, columns, field):
    with pytest.raises(InvalidRequestError) as caught:
        index.query_batch_arrow(pa.table(columns))
    assert caught.value.field == field


def test_empty_batches_have_empty_answers(index):
    put(index, "A", 1)
    assert index.query_batch([]) == []
    empty = pa.table({"topic": pa.array([], pa.string()), "key": pa.array([], pa.string())})
    assert index.query_batch_arrow(empty).num_rows == 0


def test_as_many_entries_as_lookups_are_told_apart(index):
    """Two of one key and none of another: no row may slip to its neighbour."""
    for offset, key in enumerate("abb"):
        put(index, key, offset)
    table = pa.table({"topic": ["orders"] * 3, "key": ["b", "absent", "a"]})
    found = index.query_batch_arrow(table, max_count=64)
    assert found.column("lookup").to_pylist() == [0, 0, 2]


@pytest.mark.parametrize("form", ["chained", "compacted", "both"])
@pytest.mark.parametrize("several", [0, 3, 40])
def test_keys_with_several_entries_among_many_with_one_have_all_of_them(make_index, form, several):
    store = FaultyStore(MemoryStore(), ids=SeededIds(1), clock=ManualClock())
    index = make_index(store=store)
    keys = [f"k{number}" for number in range(40)]
    for number, key in enumerate(keys):
        put(index, key, number)
    if form == "both":
        index.roll()
    for number, key in enumerate(keys[:several]):
        put(index, key, number)  # the same location again
        put(index, key, 100 + number)
    if form != "chained":
        compact_locally(index, store)
    put(index, "last", 1000, topic="other")
    lookups = [{"topic": "orders", "key": key} for key in ["absent", *keys, "é", keys[0]]]
    answers = index.query_batch(lookups)
    assert answers == [index.query(**lookup) for lookup in lookups]
    assert [len(answer.entries) for answer in answers[1:41]] == [2] * several + [1] * (40 - several)
    assert len({id(answer.missing) for answer in answers}) == len(answers)


def compact_locally(index, store):
    index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()


@pytest.mark.parametrize("compacted", [False, True])
def test_offsets_that_fall_with_time_are_compared_with_each_other_so_often_and_then_alone(
    make_index, compacted
):
    """Each row may repeat any before it, for all that its offset tells: the batch does not wait for that."""
    store = FaultyStore(MemoryStore(), ids=SeededIds(1), clock=ManualClock())
    index = make_index(item_capacity=2000, store=store)
    for offset in range(700, 0, -1):
        put(index, "hot", offset, timestamp=5)
        if offset % 50 == 0:
            put(index, "hot", offset, timestamp=5)  # a replay
    if compacted:
        index.roll()
        with store.outage(), pytest.raises(TierdexError):
            index.run_compaction()
        assert [file.state for file in index.files()] == ["compacted"]
    lookups = [{"topic": "orders", "key": key, "max_count": 1000} for key in ("hot", "absent")]
    hot, absent = index.query_batch(lookups)
    assert [entry.offset for entry in hot.entries] == list(range(1, 701))
    assert absent.entries == []
    table = pa.table({"topic": ["orders"] * 2, "key": ["hot", "absent"]})
    rows = index.query_batch_arrow(table, max_count=1000).to_pylist()
    assert [(row["lookup"], row["offset"]) for row in rows] == [(0, n) for n in range(1, 701)]
