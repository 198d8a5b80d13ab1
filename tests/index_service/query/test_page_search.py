"""Pages out of memory: what a simple model of the index gives, whatever the arguments' shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index_service.conftest import SMALL, from_memory, offsets, put
from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.errors import InvalidRequestError, TierdexError
from tierdex.ids import SeededIds
from tierdex.index_service import single_queries
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.faulty_store import FaultyStore

MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b"]),
            "keys": st.lists(st.sampled_from("xy"), max_size=2, unique=True),
            "message_id": st.sampled_from([None, "m1"]),
            "queue_id": st.integers(0, 1),
            "offset": st.integers(0, 6),
            "size": st.just(10),
            "timestamp": st.integers(1000, 1003),
        }
    ).filter(lambda m: m["keys"] or m["message_id"]),
    max_size=14,
)
BOUNDS = st.sampled_from([None, 1001, 1002, "1970-01-01T00:00:01.001Z"])


def model(files, lookup):
    """Return the places of a lookup's messages, newest first, of repeats the newest."""
    begin, end = (
        bound if isinstance(bound, int) else default if bound is None else 1001
        for bound, default in ((lookup["begin"], 0), (lookup["end"], 9999))
    )
    found = {}
    for message in reversed([message for messages in files for message in messages]):
        names = message["keys"] if lookup["topic"] else [message["message_id"]]
        if lookup["topic"] not in (None, message["topic"]) or lookup["name"] not in names:
            continue
        if begin <= message["timestamp"] <= end:
            found.setdefault(place_of(message))
    return list(found)


def place_of(message):
    return tuple(message[name] for name in ("topic", "queue_id", "offset", "timestamp"))


def pages(ask):
    """Yield the places on each page, until there is no other one."""
    cursor = None
    while True:
        answer = ask(cursor)
        assert answer.complete
        yield [(e.topic, e.queue_id, e.offset, e.timestamp) for e in answer.entries]
        cursor = answer.next_cursor
        if cursor is None:
            return


@settings(deadline=None)
@given(
    files=st.lists(MESSAGES, min_size=1, max_size=5),
    compacted=st.integers(0, 2),
    name=st.sampled_from([("a", "x"), ("b", "y"), ("c", "x"), (None, "m1")]),
    bounds=st.tuples(BOUNDS, BOUNDS),
    max_count=st.sampled_from([1, 2, 3, 64]),
)
def test_pages_of_a_lookup_are_those_of_the_model(files, compacted, name, bounds, max_count):
    topic, text = name
    lookup = {"topic": topic, "name": text, "begin": bounds[0], "end": bounds[1]}
    expected = model(files, lookup)
    asked = {"topic": topic, "key" if topic else "message_id": text, "max_count": max_count}
    if bounds != (1002, 1001) and not (bounds[0] == 1002 and isinstance(bounds[1], str)):
        asked |= {"begin": bounds[0], "end": bounds[1]}
    else:
        expected = model(files, {**lookup, "begin": None, "end": None})
    with (
        quick_folder() as folder,
        Index.open(folder, clock=ManualClock(), ids=SeededIds(2), **SMALL) as index,
    ):
        for number, messages in enumerate(files):
            for message in messages:
                index.put(**message)
            if number < len(files) - 1:
                index.roll()
            if number < compacted:
                index.run_compaction()
        if topic:
            index.query(topic, key="absent")  # teaches the topic
        found = list(pages(lambda cursor: index.query(**asked, cursor=cursor)))
        assert [place for page in found for place in page] == expected
        assert all(len(page) == max_count for page in found[:-1])
        answer = from_memory(index, **asked)
        assert answer is not None
        assert answer.next_cursor == index.query(**asked).next_cursor


@pytest.fixture
def store():
    return FaultyStore(MemoryStore(), ids=SeededIds(1), clock=ManualClock())


@pytest.fixture
def no_general_path(monkeypatch):
    """Return what forbids the general path from now on."""

    def forbid():
        def refuse(*_, **__):
            raise AssertionError("the general path was entered")

        monkeypatch.setattr(single_queries, "answer_query", refuse)

    return forbid


def test_memory_takes_all_pages_of_a_hot_key_over_several_files(make_index, no_general_path):
    index = make_index()
    for offset in range(100):
        put(index, "hot", offset)
        if offset in (30, 60):
            index.roll()
    index.query("orders", key="absent")
    no_general_path()
    for max_count in (1, 7, 50, 64, 100, 101):
        found = [
            offset
            for page in pages(
                lambda cursor, most=max_count: index.query(
                    "orders", key="hot", max_count=most, cursor=cursor
                )
            )
            for _, _, offset, _ in page
        ]
        assert found == list(reversed(range(100)))


def test_full_page_behind_which_nothing_is_left_has_no_cursor(make_index):
    index = make_index()
    put(index, "a", 1)
    index.query("orders", key="absent")
    answer = index.query("orders", key="a", max_count=1)
    assert (offsets(answer), answer.next_cursor) == ([1], None)


def test_cursor_read_after_the_index_was_closed_is_the_same(make_index):
    index = make_index()
    for offset in range(3):
        put(index, "a", offset)
    index.query("orders", key="absent")
    read = index.query("orders", key="a", max_count=2).next_cursor
    answer = index.query("orders", key="a", max_count=2)
    answer.entries.clear()
    index.close()
    assert answer.next_cursor == read


def test_entry_that_is_put_again_between_two_pages_comes_once(make_index):
    index = make_index()
    for offset in range(4):
        put(index, "a", offset)
    index.query("orders", key="absent")
    first = index.query("orders", key="a", max_count=2)
    put(index, "a", 3)
    rest = index.query("orders", key="a", cursor=first.next_cursor)
    assert offsets(rest) == [1, 0]


@pytest.mark.parametrize("key", ["other", "hot "])
def test_cursor_of_another_key_is_refused(make_index, key):
    index = make_index()
    for offset in range(3):
        put(index, "hot", offset)
    index.query("orders", key="absent")
    cursor = index.query("orders", key="hot", max_count=1).next_cursor
    with pytest.raises(InvalidRequestError, match="belongs to another query"):
        index.query("orders", key=key, cursor=cursor)


class Key(str):
    """A key of a caller's own class."""


def test_memory_takes_the_spellings_of_a_page_that_callers_use(make_index, no_general_path):
    index = make_index()
    for offset in range(10):
        put(index, "hot", offset)
    index.query("orders", key="absent")
    no_general_path()
    for most in (3, np.int32(3), np.uint64(3)):
        for key in ("hot", Key("hot"), np.str_("hot")):
            first = index.query(Key("orders"), key=key, max_count=most)
            assert offsets(first) == [9, 8, 7]
            second = index.query("orders", key=key, max_count=most, cursor=Key(first.next_cursor))
            assert offsets(second) == [6, 5, 4]
            assert type(second.entries[0].topic) is str


def test_memory_takes_all_pages_of_a_hot_key_in_compacted_files(make_index, no_general_path, store):
    index = make_index(store=store)
    for offset in range(90):
        put(index, "hot", offset)
        if offset in (30, 60):
            index.roll()
    with store.outage(), pytest.raises(TierdexError):
        index.run_compaction()
    assert [info.state for info in index.files()] == ["unsealed", "compacted", "compacted"]
    index.query("orders", key="absent")
    no_general_path()
    for max_count in (1, 7, 29, 50, 90):
        found = [
            offset
            for page in pages(
                lambda cursor, most=max_count: index.query(
                    "orders", key="hot", max_count=most, cursor=cursor
                )
            )
            for _, _, offset, _ in page
        ]
        assert found == list(reversed(range(90)))
