"""Lookups that memory answers, alone or in part, give what the general path gives."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import SMALL, from_memory, offsets, put
from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import BacklogFullError, InvalidRequestError, TierdexError
from tierdex.ids import SeededIds
from tierdex.index_service.query import memory_plan
from tierdex.index_service.query.answers import answer_query
from tierdex.index_service.readers.published_file import PublishedFile
from tierdex.index_service.requests.query import QueryValues, make_request
from tierdex.indexfile import hashing
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore


@pytest.fixture
def store():
    return FaultyStore(MemoryStore(), ids=SeededIds(1), clock=ManualClock())


@pytest.fixture
def index(make_index, store):
    """Four compacted files and an unsealed one; k0 lies in all of them, k1 .. k4 in one each."""
    index = make_index(store=store, filter_bits=16)
    for number in range(5):
        put = {"topic": "orders", "queue_id": 0, "size": 10, "timestamp": 1000 + number}
        index.put(keys=["k0"], offset=number, **put)
        index.put(keys=[f"k{number}"], message_id=f"m{number}", offset=100 + number, **put)
        if number < 4:
            index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()
    assert [info.state for info in index.files()] == ["unsealed", *["compacted"] * 4]
    return index


def full_answer(index, **lookup):
    request = make_request(components_of(index).settings, QueryValues(**lookup))
    return answer_query(components_of(index).queries, request, explain=False, fail=False)


@pytest.mark.parametrize(
    "lookup",
    [
        {"topic": "orders", "key": "k0"},
        {"topic": "orders", "key": "k2"},
        {"topic": "orders", "key": "k0", "begin": 1001, "end": 1002},
        {"topic": "orders", "key": "absent"},
        {"message_id": "m3"},
        {"message_id": "m9"},
    ],
)
def test_an_answer_from_memory_equals_the_full_one(index, lookup):
    index.query(topic="orders", key="k0")  # teaches the topic
    answer = from_memory(index, **lookup)
    assert answer is not None
    assert answer.entries == full_answer(index, **lookup).entries


def check_cursor(cursor, full, index, lookup):
    """Check that a page has the full query's cursor, or none because nothing is left."""
    if cursor is None and full.next_cursor is not None:
        assert full_answer(index, **lookup, cursor=full.next_cursor).entries == []
    else:
        assert cursor == full.next_cursor


# -- published files --------------------------------------------------------------------------------


@st.composite
def histories(draw):
    """Messages in arrival order, cut into files, and the state that each file reaches."""
    message = st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b"]),
            "keys": st.lists(st.sampled_from("xyz"), max_size=2),
            "message_id": st.sampled_from([None, "m1", "m2"]),
            "queue_id": st.integers(0, 1),
            "offset": st.integers(0, 3),
            "size": st.just(10),
            "timestamp": st.integers(1000, 1004),
        }
    ).filter(lambda m: m["keys"] or m["message_id"])
    return draw(st.lists(st.lists(message, min_size=1, max_size=6), min_size=1, max_size=4))


TIMES = st.none() | st.integers(999, 1005)


@settings(deadline=None)
@given(
    files=histories(),
    published=st.integers(1, 4),
    sealed=st.integers(0, 1),
    drop_pages=st.booleans(),
    names=st.sampled_from([("a", "x"), ("a", "z"), ("b", "y"), ("c", "x"), (None, "m1")]),
    begin=TIMES,
    end=TIMES,
    max_count=st.sampled_from([1, 2, 64]),
)
def test_cached_pages_answer_what_the_full_query_answers(
    files, published, sealed, drop_pages, names, begin, end, max_count
):
    """A lookup whose pages the full query has read is answered without the store, and equally.

    So is one that memory can only begin.
    """
    topic, name = names
    lookup = {"topic": topic, "key" if topic else "message_id": name, "max_count": max_count}
    if begin is None or end is None or begin <= end:
        lookup |= {"begin": begin, "end": end}
    clock = ManualClock()
    store = FaultyStore(MemoryStore(), ids=SeededIds(1), clock=clock)
    with (
        quick_folder() as folder,
        Index.open(folder, store=store, clock=clock, ids=SeededIds(2), **SMALL) as index,
    ):
        for number, messages in enumerate(files):
            for message in messages:
                index.put(**message)
            if number < published:
                index.roll()
                index.run_compaction()
            elif number < published + sealed:
                index.roll()
        expected = index.query(**lookup)  # teaches the topic, reads the pages
        with store.outage():
            answer = from_memory(index, **lookup)
            full = full_answer(index, **lookup)
        assert full.entries == expected.entries
        assert answer is not None
        assert (answer.entries, answer.complete) == (expected.entries, True)
        check_cursor(answer.next_cursor, full, index, lookup)
        assert from_memory(index, **lookup, cursor="") is None
        if drop_pages:
            components_of(index).pages.clear()
        begun = index.query(**lookup)
        assert begun.entries == full.entries
        check_cursor(begun.next_cursor, full, index, lookup)
        assert (begun.complete, begun.as_of) == (full.complete, full.as_of)
    assert from_memory(index, **lookup) is None  # closed


@pytest.fixture
def published(make_index, store):
    """Two published files and an unsealed one; k0 lies in all, k1 .. k3 in one each."""
    index = make_index(store=store)
    for number in range(3):
        put(index, "k0", number)
        put(index, f"k{number + 1}", 100 + number)
        if number < 2:
            index.roll()
            index.run_compaction()
    index.flush("os")
    assert [info.state for info in index.files()] == ["unsealed", "uploaded", "uploaded"]
    return index


def test_published_key_is_answered_from_cached_pages_without_a_request(published, store):
    published.query("orders", key="k0")
    with store.outage():
        assert offsets(from_memory(published, "orders", key="k0")) == [2, 1, 0]
        assert offsets(from_memory(published, "orders", key="k1")) == [100]
        assert offsets(from_memory(published, "orders", key="k0", end=1001)) == [1, 0]
        assert from_memory(published, "orders", key="absent").entries == []


def test_published_key_whose_page_is_not_in_memory_is_left_to_the_full_query(published, store):
    published.query("orders", key="absent")  # opens nothing that the filters do not let through
    calls = store.calls("get")
    assert from_memory(published, "orders", key="k1") is None
    assert store.calls("get") == calls
    assert offsets(published.query("orders", key="k1")) == [100]
    assert offsets(from_memory(published, "orders", key="k1")) == [100]


def test_damaged_page_in_memory_is_never_an_answer(published):
    published.query("orders", key="k1")
    pages = components_of(published).pages
    for place, data in list(pages._ranges.items()):
        pages._ranges[place] = bytes(byte ^ 0x55 for byte in data)
    assert from_memory(published, "orders", key="k1") is None
    assert offsets(published.query("orders", key="k1")) == [100]  # fetched again
    assert offsets(from_memory(published, "orders", key="k1")) == [100]


@pytest.mark.parametrize("published", [False, True])
def test_retention_hides_a_key_from_the_moment_on_without_the_full_query(
    make_index, store, clock, published
):
    index = make_index(store=store, topic_retention={"orders": 60.0})
    put(index, "a", 1, message_id="m")
    put(index, "a", 7, topic="kept")
    index.roll()
    if published:
        index.run_compaction()
    else:
        with store.outage(), pytest.raises(TierdexError):
            index.run_compaction()
    for topic in ("orders", "kept"):
        index.query(topic, key="a")  # teaches the topic, and fetches
    clock.advance(59.0)
    index.refresh()
    assert offsets(from_memory(index, "orders", key="a")) == [1]
    put(index, "a", 2)
    assert offsets(from_memory(index, "orders", key="a")) == [2, 1]
    clock.advance(1.0)
    assert from_memory(index, "orders", key="a") is None  # what was prepared holds no longer
    assert offsets(from_memory(index, "orders", key="a")) == [2]
    assert offsets(index.query("orders", key="a")) == [2]
    assert offsets(from_memory(index, "kept", key="a")) == [7]
    assert from_memory(index, message_id="m") is None  # its topic is not known before
    assert index.query(message_id="m").entries == []


def test_published_hot_key_is_left_to_the_full_query(make_index, store):
    index = make_index(store=store)
    for offset in range(40):
        put(index, "hot", offset)
    put(index, "cold", 0)
    index.roll()
    index.run_compaction()
    assert len(index.query("orders", key="hot").entries) == 40
    assert from_memory(index, "orders", key="hot") is None
    assert len(from_memory(index, "orders", key="cold").entries) == 1


# -- local files ------------------------------------------------------------------------------------


def test_a_key_in_every_file_comes_newest_file_first(index):
    index.query(topic="orders", key="k0")
    answer = from_memory(index, "orders", key="k0")
    assert [entry.offset for entry in answer.entries] == [4, 3, 2, 1, 100, 0]


def test_filters_of_no_bits_leave_files_to_be_asked(make_index, store):
    index = make_index(store=store, filter_bits=0)
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
    index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()
    index.query("t", key="a")
    assert [entry.offset for entry in from_memory(index, "t", key="a").entries] == [1]
    assert from_memory(index, "t", key="b").entries == []


def test_nothing_is_told_from_memory_while_a_file_is_missing(make_index, tmp_path):
    index = make_index()
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
    index.query("t", key="a")
    assert from_memory(index, "t", key="a").complete
    damaged = tmp_path / "data" / "quarantine" / "sealed-7"
    damaged.write_bytes(b"x")
    index.refresh()
    assert from_memory(index, "t", key="a") is None
    assert not index.query("t", key="a").complete
    damaged.unlink()
    index.refresh()
    assert from_memory(index, "t", key="a").complete


def test_what_was_received_and_cannot_be_written_is_not_told_from_memory(make_index, monkeypatch):
    index = make_index()
    index.put(topic="t", keys=["a"], queue_id=0, offset=1, size=1, timestamp=1)
    index.query("t", key="a")
    index.put(
        topic="t", keys=["a"], queue_id=0, offset=2, size=1, timestamp=1, durability="received"
    )

    def refuse():
        raise BacklogFullError("full", retry_after_s=1.0)

    with monkeypatch.context() as patched:
        patched.setattr(components_of(index).writing.writer, "flush_buffer", refuse)
        assert from_memory(index, "t", key="a") is None
        assert not index.query("t", key="a").complete
    assert len(from_memory(index, "t", key="a").entries) == 2


@pytest.mark.parametrize(
    "lookup",
    [
        {"topic": "orders"},
        {"key": "k0"},
        {"topic": "orders", "key": 5},
        {"topic": "orders", "key": ""},
        {"topic": "orders", "key": "\ud800"},
        {"topic": ["orders"], "key": "k0"},
        {"topic": "orders", "message_id": "m3", "key": "k0"},
        {"topic": "orders", "key": "k0", "max_count": 2.0},
        {"topic": "orders", "key": "k0", "max_count": 0},
        {"topic": "orders", "key": "k0", "begin": "1 "},
        {"topic": "orders", "key": "k0", "begin": 2, "end": 1},
    ],
)
def test_lookup_that_is_wrong_is_not_answered_from_memory(index, lookup):
    index.query("orders", key="k0")
    assert from_memory(index, **lookup) is None
    with pytest.raises(TierdexError):
        index.query(**lookup)


def test_wrong_name_is_not_answered_by_an_index_without_files(make_index):
    index = make_index()
    assert index.query("orders", key="k0").entries == []
    assert from_memory(index, "orders", key="k0").entries == []
    assert from_memory(index, "orders", key=5) is None


def test_closed_index_answers_nothing_from_memory(index):
    index.query("orders", key="k0")
    index.close()
    assert from_memory(index, "orders", key="k0") is None
    assert components_of(index).local_queries._files.sources == ()
    assert components_of(index).local_queries._plans == {}


def test_location_repeated_in_two_files_that_are_not_compacted_is_told_once(make_index):
    index = make_index()
    for _ in range(2):
        put(index, "a", 1)
        index.roll()
    put(index, "a", 2)
    index.query("orders", key="a")
    assert offsets(from_memory(index, "orders", key="a")) == [2, 1]


def test_topic_that_comes_to_a_file_late_is_found_there(make_index):
    index = make_index()
    put(index, "a", 1, topic="other")
    for offset in range(3):
        index.query("orders", key="a")
        put(index, "a", offset)
        answer = from_memory(index, "orders", key="a")
        assert offsets(answer) == list(range(offset, -1, -1))
    from_memory(index, "orders", key="absent")
    plan = components_of(index).local_queries._plans["orders"]
    assert len(plan.first.sources) == 1
    assert len(plan.steps) == 1


def test_topic_that_comes_to_a_file_while_its_plan_is_made_is_found(make_index, monkeypatch):
    index = make_index()
    put(index, "a", 1)
    index.query("orders", key="a")  # from here on its seed is known
    index.roll()
    put(index, "a", 1, topic="other")
    made = memory_plan.Run

    def make_and_put(*arguments):
        run = made(*arguments)  # it has read which of the files know the topic
        monkeypatch.setattr(memory_plan, "Run", made)
        put(index, "a", 2, durability="os")
        return run

    monkeypatch.setattr(memory_plan, "Run", make_and_put)
    assert offsets(from_memory(index, "orders", key="a")) == [1]  # asked before that put
    assert offsets(from_memory(index, "orders", key="a")) == [2, 1]


def test_no_file_is_kept_for_a_topic_that_nobody_asks_for_any_more(make_index):
    index = make_index()
    put(index, "a", 1, topic="seldom")
    put(index, "a", 1)
    for topic in ("seldom", "orders"):
        index.query(topic, key="a")
        assert from_memory(index, topic, key="a").entries
    assert set(components_of(index).local_queries._plans) == {"seldom", "orders"}
    index.roll()
    put(index, "a", 2)
    assert offsets(from_memory(index, "orders", key="a")) == [2, 1]
    assert set(components_of(index).local_queries._plans) == {"orders"}


# -- what is handed on to the general path ----------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Count what a query does: names hashed, and searches of each file, by the form that was searched."""
    counts = Counter()

    def count(owner, name, what):
        original = getattr(owner, name)

        def counted(*arguments, **named):
            label = what(*arguments) if callable(what) else what
            counts[label] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, counted)

    def file_of(file, *_):
        return getattr(file, "path", "published")

    for name in ("key_hash", "message_id_hash"):
        count(hashing, name, "hashes")
    count(memory_plan, "seeded_hash", "hashes")
    count(ChainedFile, "searched", file_of)
    count(CompactedFile, "search", file_of)
    count(PublishedFile, "search", "store")
    return counts


def searches(asked, index):
    """Return how often each local file was searched beyond its finder, newest first."""
    handles = components_of(index).table.snapshot().files
    return [asked[handle.reader.path] for handle in handles if hasattr(handle.reader, "path")]


def test_miss_hashes_once_and_asks_no_file_again(published, asked, store):
    """k1 lies in the oldest file, whose page is not in memory: all others were asked before."""
    published.query("orders", key="absent")  # teaches the topic
    pages = components_of(published).pages
    published.query("orders", key="k1")
    pages._ranges.clear()
    asked.clear()
    calls = store.calls("get")
    assert offsets(published.query("orders", key="k1")) == [100]
    assert store.calls("get") == calls + 1
    assert asked["hashes"] == 1
    assert asked["store"] == 1  # the filter of the newer one said no, in memory
    assert searches(asked, published) == [0]


def test_page_that_the_newest_file_fills_asks_no_other(published, asked):
    published.query("orders", key="k0")
    asked.clear()
    answer = published.query("orders", key="k0", max_count=1)
    assert offsets(answer) == [2]
    assert (asked["hashes"], asked["store"], searches(asked, published)) == (1, 0, [0])
    rest = published.query("orders", key="k0", cursor=answer.next_cursor)
    assert offsets(rest) == [1, 0]


def test_hot_key_is_found_by_one_finder(make_index, asked):
    index = make_index()
    for offset in range(40):
        put(index, "hot", offset)
    index.query("orders", key="absent")
    asked.clear()
    assert offsets(index.query("orders", key="hot")) == list(reversed(range(40)))
    assert asked["hashes"] == 0
    assert searches(asked, index) == [0]  # all by its finder


def test_what_was_begun_is_of_no_use_once_the_files_have_changed(published, asked, monkeypatch):
    """A file is rolled, and another message put, between the fast path and the general one."""
    published.query("orders", key="k0")
    components_of(published).pages.clear()
    memory = published._from_memory

    def told(*arguments):
        begun = memory(*arguments)
        published.roll()
        put(published, "k0", 7)
        published.flush("os")
        return begun

    monkeypatch.setattr(published, "_from_memory", told)
    assert offsets(published.query("orders", key="k0", max_count=2)) == [7, 2]


def test_query_that_goes_on_on_another_thread_searches_memory_once(published, asked, store):
    published.query("orders", key="k0")
    components_of(published).pages.clear()
    memory, told = published._from_memory, []
    published._from_memory = lambda *arguments: told.append(memory(*arguments)) or told[-1]
    begun = published.begin_query("orders", key="k0")
    assert offsets(begun()) == [2, 1, 0]
    assert len(told) == 1
    assert offsets(published.begin_query("orders", key="k0")) == [2, 1, 0]
    wrong = published.begin_query("orders", key="")
    with pytest.raises(InvalidRequestError, match="key"):
        wrong()


# -- explained --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lookup",
    [
        {"key": "k0"},
        {"key": "k3"},
        {"key": "absent"},
        {"key": "k0", "begin": 1001, "end": 1002},
    ],
)
def test_explained_lookup_in_memory_tells_what_the_general_path_tells(index, lookup):
    index.query(topic="orders", key="absent")  # teaches the topic
    told = from_memory(index, "orders", **lookup, explain=True)
    assert told is not None
    request = make_request(components_of(index).settings, QueryValues("orders", **lookup))
    general = answer_query(components_of(index).queries, request, explain=True, fail=False)

    def shown(answer):
        return {
            (line.file_id, line.outcome, line.entries, line.items > 0)
            for line in answer.explain.files
        }

    assert told.entries == general.entries
    assert shown(told) == shown(general)
    assert told.explain.files_read == general.explain.files_read
    assert told.explain.files_considered == general.explain.files_considered == 5
    assert (told.explain.requests, told.explain.cost_usd) == (0, 0.0)
    assert [node["node"] for node in told.explain.nodes] == [each.node for each in index.nodes()]


def test_explained_lookup_that_leaves_memory_tells_of_all_files(published, store):
    published.query("orders", key="k0")
    components_of(published).pages.clear()
    answer = published.query("orders", key="k0", explain=True)
    assert offsets(answer) == [2, 1, 0]
    lines = {line.file_id: line for line in answer.explain.files}
    assert len(lines) == len(answer.explain.files) == len(published.files())
    assert sum(line.entries for line in lines.values()) == 3
    assert answer.explain.requests == 2


def test_files_that_changed_since_memory_was_searched_are_told_once(published, monkeypatch):
    published.query("orders", key="k0")
    components_of(published).pages.clear()
    memory = published._from_memory

    def told(*arguments):
        begun = memory(*arguments)
        published.roll()
        put(published, "k0", 7)
        published.flush("os")
        return begun

    monkeypatch.setattr(published, "_from_memory", told)
    answer = published.query("orders", key="k0", explain=True)
    assert offsets(answer) == [7, 2, 1, 0]
    names = [line.file_id for line in answer.explain.files]
    assert len(names) == len(set(names)) == len(published.files())
    assert sum(line.entries for line in answer.explain.files) == 4
