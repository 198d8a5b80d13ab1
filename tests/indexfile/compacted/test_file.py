import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.indexfile import compacted_files as files
from tests.indexfile.searches import find_all, find_fetched
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.compacted.page_groups import group_pages
from tierdex.indexfile.compacted.page_range import PageSpan
from tierdex.indexfile.lookup import DONE, TIME_MAX, TIME_MIN, Lookup, Search

HOT = 1 << 63
LOOKUP = Lookup(HOT, 0, "orders")


def hot_rows(count=5000):
    """One hash with `count` items between 600 others; the newest has the greatest time."""
    rows = files.make_rows(count + 600)
    rows["key_hash"][300:-300] = HOT
    rows["key_hash"][:300] >>= np.uint64(1)
    rows["key_hash"][-300:] |= np.uint64(HOT)
    rows = rows[np.argsort(rows["key_hash"], kind="stable")]
    inside = rows["key_hash"] == np.uint64(HOT)
    rows["tag"][inside] = 0
    rows["timestamp"][inside] = 2_000_000 - np.arange(np.count_nonzero(inside))
    return rows


@pytest.mark.parametrize("form", ["mapped", "remote"])
def test_every_lookup_gives_what_looking_at_all_rows_gives(form):
    rows = files.make_rows(4000, distinct=1500)
    data = files.write(rows)
    file = CompactedFile.from_bytes(data) if form == "mapped" else files.remote(data)
    for row in rows[::37]:
        lookup = files.lookup_of(row)
        assert np.array_equal(files.found(file, lookup), files.expected(rows, lookup))
        times = {"begin": int(row["timestamp"]), "end": int(row["timestamp"]) + 3_600_000}
        assert np.array_equal(
            files.found(file, lookup, **times), files.expected(rows, lookup, **times)
        )
        message = Lookup(lookup.key_hash, 1, None)
        assert np.array_equal(files.found(file, message), files.expected(rows, message))


def test_lookup_of_absent_key_returns_empty():
    file = files.make_file(files.make_rows(1000))
    for key_hash in (0, 1, 12345 << 40, (1 << 64) - 1):
        assert len(files.found(file, Lookup(key_hash, 0, "orders"))) == 0


def test_lookup_of_unknown_topic_or_other_kind_returns_empty():
    rows = files.make_rows(1000)
    rows["tag"] = 0
    file = files.make_file(rows, dictionaries=files.make_dictionaries(topics=("orders",)))
    key_hash = int(rows["key_hash"][500])
    assert len(files.found(file, Lookup(key_hash, 0, "orders"))) == 1
    assert len(files.found(file, Lookup(key_hash, 0, "nobody"))) == 0
    assert len(files.found(file, Lookup(key_hash, 1, "orders"))) == 0
    assert len(files.found(file, Lookup(key_hash, 1, None))) == 0


def test_file_without_items_answers_empty():
    file = files.make_file(files.make_rows(0), dictionaries=files.make_dictionaries(topics=()))
    assert not file.may_contain(5)
    assert not file.may_contain_many(np.array([5], np.uint64)).any()
    assert len(files.found(file, Lookup(5, 0, "orders"))) == 0
    assert len(file.search(Search.of([5], 0)).rows) == 0
    assert list(file.rows_in_hash_order()) == []
    assert file.plan_pages(Search.of([5], 0)).tolist() == [[0, -1]]
    assert (file.min_time, file.max_time, file.topics, file.check()) == (0, -1, [], [])


@pytest.mark.parametrize("filter_bits", [0, 8, 16])
def test_search_of_many_gives_what_single_lookups_give(filter_bits):
    rows = files.make_rows(6000, distinct=2500)
    file = files.make_file(rows, filter_bits=filter_bits)
    some = rows[np.random.default_rng(3).permutation(len(rows))[:500]]
    absent = np.random.default_rng(4).integers(0, 1 << 64, 100, dtype=np.uint64)
    hashes = np.r_[some["key_hash"], absent]
    tags = np.r_[some["tag"], np.zeros(50, np.uint32), np.full(50, layout.TAG_ANY_MESSAGE_ID, "u4")]
    many = file.search(Search.of(hashes, tags, limit=1000))
    for i, row in enumerate(some):
        own = many.rows[many.offsets[i] : many.offsets[i + 1]]
        assert np.array_equal(own, files.found(file, files.lookup_of(row)))
    assert many.offsets[500] == many.offsets[-1]
    times = some["timestamp"] + 1
    later = file.search(Search.of(some["key_hash"], some["tag"], begin=times))
    assert (later.rows["timestamp"] >= np.repeat(times, np.diff(later.offsets))).all()


def test_search_of_many_stops_at_its_limit_and_grows_its_room():
    rows = hot_rows(3000)
    file = files.make_file(rows)
    hashes, tags = np.full(7, HOT, np.uint64), np.zeros(7, np.uint32)
    few = file.search(Search.of(hashes, tags, limit=3))
    assert few.offsets.tolist() == [0, 3, 6, 9, 12, 15, 18, 21]
    hot = rows[rows["key_hash"] == np.uint64(HOT)]
    assert np.array_equal(few.rows[:3], hot[:3])
    every = file.search(Search.of(hashes, tags))
    assert np.array_equal(every.rows[-len(hot) :], hot)


def test_ordinary_key_needs_one_range_of_at_most_two_pages():
    rows = files.make_rows(20_000, distinct=12_000)
    file = files.remote(files.write(rows))
    plan = file.plan_pages(Search.of(rows["key_hash"][::11], 0))
    for first, last in plan.tolist():
        assert 0 <= last - first <= 1
        assert file.span(first, last - first + 1).length <= 8192


def test_lookup_reads_exactly_one_range_and_none_for_an_excluded_key():
    rows = files.make_rows(5000)
    reads = []
    file = files.remote(files.write(rows), reads)
    assert len(files.found(file, files.lookup_of(rows[2500]))) == 1
    assert len(reads) == 1
    absent = [h for h in range(1 << 40, 1 << 60, 1 << 54) if not file.may_contain(h)]
    assert absent
    for key_hash in absent:
        assert len(files.found(file, Lookup(key_hash, 0, "orders"))) == 0
    assert len(reads) == 1


def test_long_run_is_read_in_ranges_newest_end_first_and_only_as_wanted():
    rows = hot_rows()
    reads = []
    file = files.remote(files.write(rows), reads)
    hot = rows[rows["key_hash"] == np.uint64(HOT)]
    assert np.array_equal(find_all(file, LOOKUP, limit=1 << 40, read=file._read), hot)
    assert len(reads) > 3
    assert all(length <= 9000 for _, length in reads)
    assert reads == sorted(reads)
    assert sum(length for _, length in reads) <= reads[-1][0] + reads[-1][1] - reads[0][0]
    reads.clear()
    first = find_fetched(file, file._read, Search.of([HOT], 0, limit=5))
    assert np.array_equal(first.rows, hot[:5])
    assert len(reads) == 1
    for place in (first.places[3:4], first.following):
        rest = find_fetched(file, file._read, Search.of([HOT], 0, limit=1, places=place))
        assert rest.rows[0] in (hot[3], hot[5])
    for place in (-7, 1 << 40, 0):
        wanted = Search.of([HOT], 0, places=place)
        assert find_fetched(file, file._read, wanted).following.tolist() == [DONE]


def test_pages_outside_the_time_span_are_not_read():
    rows = hot_rows()
    file = files.remote(files.write(rows))
    oldest = int(rows["timestamp"][rows["key_hash"] == np.uint64(HOT)].min())

    def pages(begin, end):
        wanted = Search.of([HOT], 0, begin=begin, end=end)
        ((first, last),) = file.plan_pages(wanted, 1 << 30).tolist()
        return last - first + 1

    assert pages(oldest, oldest + 10) <= 2
    assert pages(TIME_MIN, TIME_MAX) > 10
    assert pages(1, 2) == 0


def test_planned_pages_hold_what_was_looked_for():
    rows = files.make_rows(8000, distinct=5000)
    data = files.write(rows)
    file, mapped = files.remote(data), CompactedFile.from_bytes(data)
    some = rows[::17]
    wanted = Search.of(some["key_hash"], some["tag"])
    expected = mapped.search(wanted)
    for first, last, low, high in group_pages(file.plan_pages(wanted)):
        span = file.span(first, last - first + 1)
        pages = data[span.position : span.position + span.length]
        got = file.search_span(span, pages, wanted.taken(slice(low, high)))
        begin, end = expected.offsets[low], expected.offsets[high]
        assert np.array_equal(got.rows, expected.rows[begin:end])
        assert np.array_equal(got.offsets, expected.offsets[low : high + 1] - begin)
        assert np.array_equal(got.places, expected.places[begin:end])
        decoded = file.decode_span(span, pages)
        for row in some[low:high]:
            assert np.array_equal(
                decoded[decoded["key_hash"] == row["key_hash"]],
                rows[rows["key_hash"] == row["key_hash"]],
            )


@settings(deadline=None, max_examples=60)
@given(
    runs=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 700)), min_size=1, max_size=6),
    limit=st.sampled_from([1, 3, 64, 5000]),
    most_items=st.sampled_from([1, 500, 1 << 40]),
    span=st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
    is_fetched=st.booleans(),
)
def test_search_in_pieces_gives_what_looking_at_all_rows_gives(
    runs, limit, most_items, span, is_fetched
):
    rows = np.zeros(sum(count for _, count in runs), files.MESSAGE_SCHEMA.dtype)
    rows["key_hash"] = np.sort(np.repeat([n << 59 for n, _ in runs], [c for _, c in runs]))
    rows["tag"] = np.arange(len(rows)) % 2
    rows["timestamp"] = np.arange(len(rows)) * 7919 % 3001
    rows["offset"] = np.arange(len(rows))
    data = files.write(rows)
    file = files.remote(data) if is_fetched else CompactedFile.from_bytes(data)
    times = {"begin": min(span), "end": max(span)}
    for number in range(10):
        lookup = Lookup(number << 59, 0, files.TOPICS[0])
        found = find_all(file, lookup, limit=limit, most_items=most_items, read=file._read, **times)
        assert np.array_equal(found, files.expected(rows, lookup, **times))


def test_facts_of_the_file_stand_in_its_tail():
    rows = files.make_rows(3000)
    file = files.remote(files.write(rows, extra={"begin_ms": 7}))
    assert file.item_count == len(rows)
    assert file.min_time == rows["timestamp"].min()
    assert file.max_time == rows["timestamp"].max()
    assert file.topics == list(files.TOPICS)
    assert file.extra == {"begin_ms": 7}
    assert file.slot_count == 64
    assert file.uuid == files.UUID
    ends = {}
    for row in rows:
        pair = files.TOPICS[int(row["tag"]) & layout.TOPIC_MASK], int(row["queue_id"])
        ends[pair] = max(ends.get(pair, 0), int(row["offset"]) + int(row["size"]))
    assert file.end_offsets() == ends
    bounds = file.row_bounds()
    for name in ("timestamp", "offset", "size", "queue_id"):
        assert (bounds.least[name], bounds.greatest[name]) == (rows[name].min(), rows[name].max())


def test_local_file_is_mapped_and_answers_after_its_name_is_gone(tmp_path):
    rows = files.make_rows(2000)
    path = tmp_path / "file"
    path.write_bytes(files.write(rows))
    file = CompactedFile.open_local(LocalFileSystem(), path)
    path.unlink()
    file.close()
    assert len(files.found(file, files.lookup_of(rows[77]))) == 1


def test_fetched_range_of_a_wrong_length_is_refused():
    rows = files.make_rows(2000)
    data = files.write(rows)
    file = files.remote(data)
    wanted = Search.of(rows["key_hash"][5:6], 0)
    ((first, last),) = file.plan_pages(wanted).tolist()
    span = file.span(first, last - first + 1)
    with pytest.raises(CorruptFileError, match="were asked for"):
        file.search_span(span, data[span.position :][: span.length - 1], wanted)


def test_right_page_in_the_wrong_place_is_refused():
    rows = files.make_rows(2000)
    data = files.write(rows)
    file = files.remote(data)
    here, there = file.span(0, 1), file.span(1, 1)
    page = data[there.position :][: there.length]
    moved = PageSpan(here.position, there.length, 0)
    with pytest.raises(CorruptFileError):
        file.decode_span(moved, page)
