import numpy as np
import pytest

from tests.indexfile import compacted_files as files
from tierdex.errors import CorruptFileError
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile import layout
from tierdex.indexfile.compacted.file import CompactedFile, Lookup, PageSpan
from tierdex.indexfile.lookup import TIME_MAX, TIME_MIN

HOT = 1 << 63


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
    assert file.page_span(5, TIME_MIN, TIME_MAX) == []
    assert len(files.found(file, Lookup(5, 0, "orders"))) == 0
    assert len(file.find_many(np.array([5], np.uint64), np.zeros(1, np.uint32), limit=5).rows) == 0
    assert list(file.rows_in_hash_order()) == []
    assert file.plan_pages(np.array([5], np.uint64)).tolist() == [[0, -1]]
    assert (file.min_time, file.max_time, file.topics, file.check()) == (0, -1, [], [])


@pytest.mark.parametrize("filter_bits", [0, 8, 16])
def test_find_many_gives_what_single_lookups_give(filter_bits):
    rows = files.make_rows(6000, distinct=2500)
    file = files.make_file(rows, filter_bits=filter_bits)
    some = rows[np.random.default_rng(3).permutation(len(rows))[:500]]
    absent = np.random.default_rng(4).integers(0, 1 << 64, 100, dtype=np.uint64)
    hashes = np.r_[some["key_hash"], absent]
    tags = np.r_[some["tag"], np.zeros(50, np.uint32), np.full(50, layout.TAG_ANY_MESSAGE_ID, "u4")]
    many = file.find_many(hashes, tags, limit=1000)
    for i, row in enumerate(some):
        own = many.rows[many.offsets[i] : many.offsets[i + 1]]
        assert np.array_equal(own, files.found(file, files.lookup_of(row)))
    assert many.offsets[500] == many.offsets[-1]
    times = some["timestamp"] + 1
    later = file.find_many(some["key_hash"], some["tag"], begin=times, limit=1000)
    assert (later.rows["timestamp"] >= np.repeat(times, np.diff(later.offsets))).all()


def test_find_many_stops_at_its_limit_and_grows_its_room():
    rows = hot_rows(3000)
    file = files.make_file(rows)
    hashes, tags = np.full(7, HOT, np.uint64), np.zeros(7, np.uint32)
    few = file.find_many(hashes, tags, limit=3)
    assert few.offsets.tolist() == [0, 3, 6, 9, 12, 15, 18, 21]
    hot = rows[rows["key_hash"] == np.uint64(HOT)]
    assert np.array_equal(few.rows[:3], hot[:3])
    every = file.find_many(hashes, tags, limit=1 << 40)
    assert np.array_equal(every.rows[-len(hot) :], hot)


def test_ordinary_key_needs_one_range_of_at_most_two_pages():
    rows = files.make_rows(20_000, distinct=12_000)
    file = files.remote(files.write(rows))
    for key_hash in rows["key_hash"][::11].tolist():
        spans = file.page_span(key_hash, TIME_MIN, TIME_MAX)
        assert len(spans) == 1
        assert spans[0].page_count <= 2
        assert spans[0].length <= 8192


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


def test_long_run_is_cut_into_ranges_read_newest_end_first_and_only_as_wanted():
    rows = hot_rows()
    reads = []
    data = files.write(rows)
    file = files.remote(data, reads)
    hot = rows[rows["key_hash"] == np.uint64(HOT)]
    spans = file.page_span(HOT, TIME_MIN, TIME_MAX, max_bytes=9000)
    assert len(spans) > 3
    assert all(span.length <= 9000 for span in spans)
    assert [span.position for span in spans] == sorted(span.position for span in spans)
    assert np.array_equal(files.found(file, Lookup(HOT, 0, "orders")), hot)
    reads.clear()
    lookup = Lookup(HOT, 0, "orders")
    first = file.find_in_span(
        spans[0], data[spans[0].position :][: spans[0].length], lookup, TIME_MIN, TIME_MAX
    )
    assert np.array_equal(first, hot[: len(first)])
    assert len(first) > 0


def test_pages_outside_the_time_span_are_not_read():
    rows = hot_rows()
    file = files.remote(files.write(rows))
    everything = file.page_span(HOT, TIME_MIN, TIME_MAX, max_bytes=1 << 30)
    oldest = int(rows["timestamp"][rows["key_hash"] == np.uint64(HOT)].min())
    narrow = file.page_span(HOT, oldest, oldest + 10, max_bytes=1 << 30)
    assert sum(span.page_count for span in narrow) <= 2
    assert sum(span.page_count for span in everything) > 10
    assert file.page_span(HOT, 1, 2) == []


def test_planned_pages_hold_what_was_looked_for():
    rows = files.make_rows(8000, distinct=5000)
    data = files.write(rows)
    file = files.remote(data)
    some = rows[::17]
    plan = file.plan_pages(some["key_hash"])
    for row, (first, last) in zip(some, plan.tolist(), strict=True):
        span = file.span(first, last - first + 1)
        pages = data[span.position : span.position + span.length]
        lookup = files.lookup_of(row)
        got = file.find_in_span(span, pages, lookup, TIME_MIN, TIME_MAX)
        assert np.array_equal(got, files.expected(rows, lookup))
        decoded = file.decode_span(span, pages)
        assert np.array_equal(
            decoded[decoded["key_hash"] == row["key_hash"]],
            rows[rows["key_hash"] == row["key_hash"]],
        )
    early = file.plan_pages(some["key_hash"], begin=1, end=2)
    assert (early[plan[:, 0] == plan[:, 1]] == (0, -1)).all()


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
    walk = file.find(files.lookup_of(rows[77]))
    file.close()
    assert len(next(walk)) == 1


def test_fetched_range_of_a_wrong_length_is_refused():
    rows = files.make_rows(2000)
    data = files.write(rows)
    file = files.remote(data)
    span = file.page_span(int(rows["key_hash"][5]), TIME_MIN, TIME_MAX)[0]
    lookup = files.lookup_of(rows[5])
    with pytest.raises(CorruptFileError, match="were asked for"):
        file.find_in_span(span, data[span.position :][: span.length - 1], lookup, 0, TIME_MAX)


def test_right_page_in_the_wrong_place_is_refused():
    rows = files.make_rows(2000)
    data = files.write(rows)
    file = files.remote(data)
    here, there = file.span(0, 1), file.span(1, 1)
    page = data[there.position :][: there.length]
    moved = PageSpan(here.position, there.length, 0)
    with pytest.raises(CorruptFileError):
        file.decode_span(moved, page)
