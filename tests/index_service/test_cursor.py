"""A cursor goes on where its page ended, whatever became of the file, or is refused; never wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.index_service.conftest import offsets, put
from tierdex.errors import CursorExpiredError, InvalidRequestError
from tierdex.index_service.cursor import Cursor, decode_cursor, digest_query, fingerprint_location


def test_a_cursor_survives_its_way_through_text():
    cursor = Cursor(
        digest_query("t", 0), fingerprint_location(("t", 1, 2)), "00000000000000000007-a"
    )
    assert decode_cursor(cursor.encode(), cursor.query_digest) == cursor


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidRequestError) as caught:
        decode_cursor(text, b"12345678")
    assert caught.value.field == "cursor"


def test_a_changed_letter_is_refused():
    good = Cursor(b"12345678", bytes(16), "00000000000000000007-a").encode()
    for place in range(len(good)):
        other = "B" if good[place] == "A" else "A"
        with pytest.raises(InvalidRequestError):
            decode_cursor(good[:place] + other + good[place + 1 :], b"12345678")


def test_digests_tell_queries_apart():
    queries = [("t", 0, "k", 1, 2), ("t", 1, "k", 1, 2), (None, 0, "k", 1, 2), ("t", 0, "k", 1, 3)]
    assert len({digest_query(*query) for query in queries}) == 4
    assert digest_query("ab", "c") != digest_query("a", "bc")


def fill(index, count):
    for offset in range(count):
        put(index, "A", offset)


@pytest.mark.parametrize(("begin", "end"), [(None, 1015), (1000, None), (1001, 1010)])
def test_a_cursor_is_bound_to_the_time_range(index, begin, end):
    fill(index, 20)
    cursor = index.query("orders", key="A", max_count=2).next_cursor
    with pytest.raises(InvalidRequestError, match="another query"):
        index.query("orders", key="A", begin=begin, end=end, cursor=cursor)


def test_the_page_size_may_change(index):
    fill(index, 10)
    first = index.query("orders", key="A", max_count=2)
    second = index.query("orders", key="A", max_count=5, cursor=first.next_cursor)
    assert offsets(first) + offsets(second) == [9, 8, 7, 6, 5, 4, 3]


def test_the_page_after_the_last_entry_is_empty_and_complete(index):
    fill(index, 2)
    first = index.query("orders", key="A", max_count=2)
    second = index.query("orders", key="A", cursor=first.next_cursor)
    assert (second.entries, second.complete, second.next_cursor) == ([], True, None)


def test_a_cursor_survives_a_merge(make_index):
    index = make_index(merge_min_files=2)
    for offset in range(12):
        put(index, "A", offset)
        if offset % 3 == 2:
            index.roll()
    first = index.query("orders", key="A", max_count=5)
    index.run_compaction()
    assert len(index.files()) == 1
    second = index.query("orders", key="A", cursor=first.next_cursor)
    assert offsets(first) + offsets(second) == list(range(11, -1, -1))


def test_entries_that_came_meanwhile_do_not_shift_the_pages(index):
    fill(index, 6)
    first = index.query("orders", key="A", max_count=3)
    index.roll()
    put(index, "A", 4)  # a replayed location, now the newest
    put(index, "A", 99)
    second = index.query("orders", key="A", cursor=first.next_cursor)
    assert offsets(first) + offsets(second) == [5, 4, 3, 2, 1, 0]


def test_a_cursor_whose_entry_is_hidden_by_now_goes_on(make_index, clock):
    index = make_index(topic_retention={"orders": 5.0})
    for topic, offset in (("kept", 1), ("orders", 2), ("kept", 3)):
        index.put(topic=topic, message_id="M", queue_id=0, offset=offset, size=1, timestamp=0)
    index.roll()
    index.run_compaction()
    first = index.query(message_id="M", max_count=2)
    clock.advance(6)
    second = index.query(message_id="M", cursor=first.next_cursor)
    assert offsets(first) + offsets(second) == [3, 2, 1]


def test_a_cursor_of_an_unknown_file_has_expired(index):
    fill(index, 3)
    request = ("orders", 0, "A", -(1 << 63), (1 << 63) - 1)
    location = fingerprint_location(("orders", 1, 10, 0))
    index.flush()
    file_id = index.files()[0].file_id
    stranger = Cursor(digest_query(*request), location, "00000000000000000001-default").encode()
    with pytest.raises(CursorExpiredError):
        index.query("orders", key="A", cursor=stranger)
    absent = Cursor(digest_query(*request), bytes(16), file_id).encode()
    with pytest.raises(CursorExpiredError):
        index.query("orders", key="A", cursor=absent)
    assert offsets(
        index.query(
            "orders", key="A", cursor=Cursor(digest_query(*request), location, file_id).encode()
        )
    ) == [0]


@pytest.mark.parametrize("file_id", ["", "x", "7-", "00000000000000000007-A", "0" * 30])
def test_a_forged_file_id_is_refused(index, file_id):
    fill(index, 1)
    digest = digest_query("orders", 0, "A", -(1 << 63), (1 << 63) - 1)
    with pytest.raises(InvalidRequestError):
        index.query("orders", key="A", cursor=Cursor(digest, bytes(16), file_id).encode())
