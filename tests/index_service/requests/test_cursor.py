"""A cursor goes on where its page ended, whatever became of the file, or is refused; never wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.index_service.conftest import offsets, put
from tierdex.errors import CursorExpiredError, InvalidRequestError
from tierdex.index_service.requests.cursor import NO_PLACE, Cursor, decode_cursor, digest_query
from tierdex.index_service.requests.query import QueryValues, make_request
from tierdex.index_service.requests.repeats import Floors, fingerprints_of
from tierdex.settings import Settings
from tierdex.storage_layer.memory import MemoryStore


def cursor_of(digest, location, file_id):
    return Cursor(digest, location, 0, bytes(8), bytes(16), NO_PLACE, file_id, Floors())


def fingerprint(identity):
    return fingerprints_of([identity]).tobytes()


def test_a_cursor_survives_its_way_through_text():
    identities = [(("t", 100 - n, 2, n % 3), 5 - n) for n in range(9)]
    cursor = cursor_of(digest_query("t", 0), fingerprint(identities[0]), "00000000000000000007-a")
    cursor = cursor._replace(returned=7, place=3, floors=Floors().lowered(identities))
    assert decode_cursor(cursor.encode(), cursor.query_digest) == cursor


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidRequestError) as caught:
        decode_cursor(text, b"12345678")
    assert caught.value.field == "cursor"


def test_a_changed_letter_is_refused():
    good = cursor_of(b"12345678", bytes(16), "00000000000000000007-a").encode()
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


@pytest.fixture
def nodes(make_index, tmp_path, clock):
    """Return (publish, reader): two nodes whose files lie between each other's, and a reader."""
    store = MemoryStore()
    writers = {
        name: make_index(tmp_path / name, store=store, node=name, merge_min_files=3)
        for name in "ab"
    }
    reader = make_index(None, store=store)

    def publish(name, *numbers):
        clock.advance(1)
        writers[name].roll()  # the next file gets a number of now
        for number in numbers:
            put(writers[name], "A", number)
        writers[name].roll()
        clock.advance(60)
        writers[name].run_compaction()
        reader.refresh()

    return publish, reader


def test_a_cursor_that_entries_were_merged_across_is_refused(nodes):
    publish, reader = nodes
    publish("a", 1)
    publish("b", 2)
    publish("a", 3)
    first = reader.query("orders", key="A", max_count=2)
    assert offsets(first) == [3, 2]
    publish("a", 4)  # and merges 1, 3 and 4, which come all before 2 now
    assert len(reader.files()) == 2
    with pytest.raises(CursorExpiredError, match="both sides"):
        reader.query("orders", key="A", cursor=first.next_cursor)


def test_a_cursor_whose_file_was_merged_away_from_its_place_is_refused(nodes):
    publish, reader = nodes
    publish("a", 0, 1)
    publish("a", 2)
    publish("b", 3)
    first = reader.query("orders", key="A", max_count=3)
    assert offsets(first) == [3, 2, 1]
    publish("a", 4)  # and merges: 3 would come a second time
    with pytest.raises(CursorExpiredError, match="both sides"):
        reader.query("orders", key="A", cursor=first.next_cursor)


def test_pages_go_on_beside_merged_files_while_entries_come(nodes):
    publish, reader = nodes
    publish("a", 1)
    publish("b", 0, 2)
    publish("a", 3)
    publish("a", 4)
    first = reader.query("orders", key="A", max_count=4)
    assert offsets(first) == [4, 3, 1, 2]
    publish("a", 5)
    second = reader.query("orders", key="A", cursor=first.next_cursor)
    assert (offsets(second), second.complete) == ([0], True)


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


def test_a_location_put_again_meanwhile_is_not_lost(index):
    fill(index, 6)
    pages = [index.query("orders", key="A", max_count=2)]
    index.roll()
    put(index, "A", 1)  # replayed, and not returned so far
    put(index, "A", 5)  # returned already
    while pages[-1].next_cursor is not None:
        pages.append(index.query("orders", key="A", max_count=2, cursor=pages[-1].next_cursor))
        put(index, "A", 0)
    assert [offset for page in pages for offset in offsets(page)] == [5, 4, 3, 2, 1, 0]


def test_a_location_put_again_into_the_same_file_is_not_lost(index):
    fill(index, 6)
    first = index.query("orders", key="A", max_count=3)
    put(index, "A", 1)
    put(index, "A", 3)  # the cursor's own: what page one returned may come again
    second = index.query("orders", key="A", cursor=first.next_cursor)
    assert set(offsets(first) + offsets(second)) == set(range(6))


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_location_that_compaction_moves_over_the_cursor_is_not_lost(make_index, is_merged):
    index = make_index(merge_min_files=2)
    fill(index, 6)
    first = index.query("orders", key="A", max_count=3)
    if is_merged:
        index.roll()
    put(index, "A", 1)  # compaction keeps this one of the two
    for offset in range(5):
        put(index, "B", offset)  # as many as in the other file: they are worth a merge
    index.roll()
    index.run_compaction()
    assert len(index.files()) == 1
    with pytest.raises(CursorExpiredError, match="query again"):
        index.query("orders", key="A", cursor=first.next_cursor)
    again = index.query("orders", key="A", max_count=3)
    put(index, "A", 0)
    rest = index.query("orders", key="A", cursor=again.next_cursor)
    assert offsets(again) + offsets(rest) == [1, 5, 4, 3, 2, 0]


def test_what_was_returned_comes_once_though_others_came_meanwhile(index):
    fill(index, 4)
    index.roll()
    for offset in (9, 1, 8):  # 1 is here twice from the start
        put(index, "A", offset)
    first = index.query("orders", key="A", max_count=3)
    put(index, "A", 10)
    second = index.query("orders", key="A", max_count=2, cursor=first.next_cursor)
    put(index, "A", 11)
    third = index.query("orders", key="A", max_count=2, cursor=second.next_cursor)
    assert [offsets(page) for page in (first, second, third)] == [[8, 1, 9], [3, 2], [0]]


def test_a_cursor_of_a_batch_goes_on_as_one_of_a_query_does(index):
    fill(index, 4)
    index.roll()
    put(index, "A", 1)
    batch = index.query_batch([{"topic": "orders", "key": "A", "max_count": 2}])
    single = index.query("orders", key="A", max_count=2)
    for answer in (batch[0], single):
        rest = index.query("orders", key="A", cursor=answer.next_cursor)
        assert offsets(answer) + offsets(rest) == [1, 3, 2, 0]


def cursor_text(location, file_id):
    digest = digest_query("orders", 0, "A", -(1 << 63), (1 << 63) - 1)
    return cursor_of(digest, location, file_id).encode()


def test_a_cursor_of_an_unknown_file_has_expired(index):
    fill(index, 3)
    location = fingerprint((("orders", 1, 10, 0), 1001))
    index.flush()
    file_id = index.files()[0].file_id
    for cursor in (
        cursor_text(location, "00000000000000000001-default"),
        cursor_text(bytes(16), file_id),
    ):
        with pytest.raises(CursorExpiredError):
            index.query("orders", key="A", cursor=cursor)
    assert offsets(index.query("orders", key="A", cursor=cursor_text(location, file_id))) == [0]


@pytest.mark.parametrize("file_id", ["", "x", "7-", "00000000000000000007-A", "0" * 30])
def test_a_forged_file_id_is_refused(index, file_id):
    fill(index, 1)
    with pytest.raises(InvalidRequestError):
        index.query("orders", key="A", cursor=cursor_text(bytes(16), file_id))


def forged(index, place, **more):
    """Return a cursor of the test's query that names `place`."""
    page = index.query("orders", key="A", max_count=1)
    request = make_request(Settings(), QueryValues("orders", "A"))
    cursor = decode_cursor(page.next_cursor, request.digest())
    return cursor._replace(place=place, **more).encode()


@pytest.mark.parametrize("form", ["unsealed", "uploaded"])
def test_a_forged_place_never_makes_a_sound_file_look_damaged(index, form):
    """Between the items of a chained file lie the records of batches, whose bytes are no links."""
    topics = [f"topic-{number}" for number in range(20)] + ["orders"] * 20
    for batch in range(20):
        index.put_batch(
            topic=topics, keys=["A"] * 40, queue_id=0, offset=list(range(40 * batch, 40 * batch + 40)),
            size=1, timestamp=1000,
        )  # fmt: skip
    if form == "uploaded":
        index.roll()
        index.run_compaction()
    assert [file.state for file in index.files()] == [form]
    rest = offsets(index.query("orders", key="A"))[1:]
    for place in [*range(0, 1000, 3), -3, 1 << 40, (1 << 63) - 1, -(1 << 63)]:
        answer = index.query("orders", key="A", max_count=63, cursor=forged(index, place))
        assert answer.complete
        assert offsets(answer) == rest
    with pytest.raises(CursorExpiredError):  # another entry at the place of another chain
        index.query("orders", key="A", cursor=forged(index, 7, fingerprint=bytes(16)))


@pytest.mark.parametrize("file_id", ["", "x", "1-", "-a", "99999999999999999999999-a", "../../x"])
def test_a_forged_file_id_is_the_cursors_fault(index, file_id):
    fill(index, 3)
    with pytest.raises(InvalidRequestError) as caught:
        index.query("orders", key="A", cursor=forged(index, 1, file_id=file_id))
    assert caught.value.field == "cursor"
