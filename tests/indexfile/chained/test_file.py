"""Append and look up: every answer is compared with a list of what was put."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.indexfile.chained_files import (
    FILESYSTEM,
    key,
    make_file,
    make_part,
    message_id,
    offsets_of,
)
from tests.indexfile.searches import find_all
from tierdex.errors import ClosedError, InvalidRequestError, ReadOnlyError
from tierdex.indexfile.chained.file import ChainedFile, FileFullError, Lookup
from tierdex.indexfile.column_search import search_file
from tierdex.indexfile.columns import ItemColumns, ItemRows, StringColumn
from tierdex.indexfile.hashing import key_hash, key_hashes
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID, TAG_NONE
from tierdex.indexfile.lookup import DONE, Search
from tierdex.indexfile.schema import MESSAGE_SCHEMA


@pytest.fixture
def file(tmp_path):
    file = make_file(tmp_path / "file")
    yield file
    assert file.check() == []
    file.close()


def test_new_file_is_empty_and_has_room(file):
    assert (file.item_count, file.published, file.topics) == (0, 0, [])
    assert file.min_time > file.max_time
    assert file.room() == file.item_capacity
    assert not file.is_full
    assert offsets_of(file, key("absent")) == []
    assert list(file.rows_in_hash_order()) == []


def test_lookup_returns_newest_first(file):
    file.append([make_part(["a", "b", "a"])])
    file.append([make_part(["a"], first=9)])
    assert offsets_of(file, key("a")) == [900, 200, 0]
    assert offsets_of(file, key("b")) == [100]
    assert offsets_of(file, key("absent")) == []


def test_times_are_inclusive(file):
    file.append([make_part(["a"] * 5)])
    assert offsets_of(file, key("a"), begin=1001, end=1003) == [300, 200, 100]
    assert offsets_of(file, key("a"), begin=1005) == []
    assert offsets_of(file, key("a"), end=999) == []


def test_extreme_times_and_offsets_are_kept(file):
    low, high = -(1 << 63), (1 << 63) - 1
    file.append([make_part(["a", "a"], timestamp=np.array([low, high]))])
    assert (file.min_time, file.max_time) == (low, high)
    assert offsets_of(file, key("a"), begin=high) == [100]
    assert offsets_of(file, key("a"), end=low) == [0]


def test_same_key_of_another_topic_is_another_key(file):
    file.append([make_part(["a"], topic="t1"), make_part(["a"], topic="t2", first=1)])
    assert offsets_of(file, key("a", "t1")) == [0]
    assert offsets_of(file, key("a", "t2")) == [100]


def test_topic_and_kind_are_compared_besides_the_hash(file):
    hashes = np.array([77], np.uint64)
    for topic, kind, first in (
        ("t1", KIND_KEY, 0),
        ("t2", KIND_KEY, 1),
        ("t1", KIND_MESSAGE_ID, 2),
    ):
        rows = {"offset": first * 100, "size": 1, "queue_id": 0}
        part = ItemColumns(topics=topic, timestamp=5, fields=rows, hashes=hashes, kind=kind)
        file.append([part])
    assert offsets_of(file, Lookup(77, KIND_KEY, "t1")) == [0]
    assert offsets_of(file, Lookup(77, KIND_KEY, "t2")) == [100]
    assert offsets_of(file, Lookup(77, KIND_MESSAGE_ID, None)) == [200]
    assert offsets_of(file, Lookup(77, KIND_MESSAGE_ID, "t1")) == [200]
    assert offsets_of(file, Lookup(77, KIND_KEY, "absent")) == []


def test_message_id_is_found_without_its_topic_which_the_item_has(file):
    file.append([make_part(["k"]), make_part(["id-1"], kind=KIND_MESSAGE_ID, topic="t9")])
    rows = find_all(file, message_id("id-1"))
    assert file.topics[rows["tag"][0] & 0x7FFFFFFF] == "t9"
    assert offsets_of(file, key("id-1")) == []


def test_parts_of_a_batch_lie_in_sequence(file):
    file.append([make_part(["a"], first=0), make_part(["a"], first=1), make_part(["a"], first=2)])
    assert offsets_of(file, key("a")) == [200, 100, 0]


def test_rows_without_a_key_are_skipped(file):
    file.append([make_part(["a", None, "c"]), make_part([None])])
    assert file.item_count == 2
    assert offsets_of(file, key("c")) == [200]


def test_topics_by_row_and_dictionary_encoded_keys_are_taken_as_they_are(file):
    keys = pa.array(["a", "b", None, "a"]).dictionary_encode()
    index = np.array([1, 0, 1, 0], np.int32)
    file.append([make_part(keys, topic=["t0", "t1"], topic_index=index)])
    assert offsets_of(file, key("a", "t1")) == [0]
    assert offsets_of(file, key("a", "t0")) == [300]
    assert offsets_of(file, key("b", "t0")) == [100]
    assert file.item_count == 3


@pytest.mark.parametrize("kind", [KIND_KEY, KIND_MESSAGE_ID], ids=["keys", "message IDs"])
def test_batch_written_in_one_pass_equals_one_written_column_by_column(tmp_path, kind):
    rng = np.random.default_rng(3)
    columns = {
        "offset": rng.integers(0, 1 << 62, 3000) * 2,
        "size": rng.integers(0, 1 << 32, 3000).astype(np.uint32),
        "queue_id": rng.integers(0, 2500, 3000).astype(np.int32),
    }
    times = rng.integers(-(1 << 62), 1 << 62, 3000)
    images, ends = [], []
    for step in (1, 2):  # a column with gaps is no plain one
        made = make_file(tmp_path / str(step))
        for rows in (slice(0, 5), slice(5, 2000), slice(2000, 3000)):
            part = make_part([f"key-{n % 700}" for n in range(3000)][rows], kind=kind)
            part.timestamp = np.repeat(times[rows], step)[::step]
            part.fields = {k: np.repeat(v[rows], step)[::step] for k, v in columns.items()}
            made.append([part])
        assert made.check() == []
        ends.append((made.snapshot, made.end_offsets()))
        made.close()
        images.append((tmp_path / str(step)).read_bytes())
    assert ends[0] == ends[1]
    assert images[0] == images[1]


def test_gathered_rows_equal_columns(file):
    rows = np.zeros(3, MESSAGE_SCHEMA.dtype)
    rows["key_hash"] = [key_hash("t1", "a"), key_hash("t2", "a"), key_hash("t1", "a")]
    rows["tag"] = [0, 1, 0]
    rows["offset"] = [1, 2, 3]
    rows["link"] = 99
    file.append([make_part(["x"], topic="t2"), ItemRows(rows, ["t1", "t2"])])
    assert offsets_of(file, key("a", "t1")) == [3, 1]
    assert offsets_of(file, key("a", "t2")) == [2]
    assert rows["link"].tolist() == [99] * 3


def test_batch_without_items_changes_nothing(file):
    assert file.append([]) == 0
    assert file.append([make_part([None], topic="new")]) == 0
    assert file.topics == []


def test_search_goes_on_where_it_stopped_and_says_what_it_walked(file):
    for _ in range(3):
        file.append([make_part(["hot"] * 1000 + ["other"])])
    hot = key("hot").key_hash
    tag = file.tag_of("orders", 0)
    found = search_file(file, Search.of([hot], tag, limit=16))
    assert len(found.rows) == 16
    assert found.items == 16
    rest = search_file(file, Search.of([hot], tag, places=found.following))
    assert (len(rest.rows), rest.following.tolist()) == (2984, [DONE])
    again = search_file(file, Search.of([hot], tag, places=found.places[7:8], limit=9))
    assert np.array_equal(again.rows, found.rows[7:])
    for place in (0, -7, 1 << 40, file.published + 1):
        assert search_file(file, Search.of([hot], tag, places=place)).following.tolist() == [DONE]


@pytest.mark.parametrize("most_items", [1, 7, 1000])
def test_search_is_cut_after_the_items_that_it_may_look_at(file, most_items):
    file.append([make_part([f"k{n}" for n in range(1000)] + ["hot"] * 500)])
    tag = file.tag_of("orders", 0)
    found = search_file(file, Search.of([key("absent").key_hash], tag, most_items=most_items))
    assert found.items <= 2 * most_items
    assert offsets_of(file, key("k7"), most_items=most_items) == [700]
    assert len(offsets_of(file, key("hot"), most_items=most_items)) == 500


def test_many_lookups_find_what_each_finds_alone(file):
    rng = np.random.default_rng(3)
    for first in range(0, 3000, 1000):
        names = [f"k{number}" for number in rng.zipf(1.3, 1000) % 200]
        file.append([make_part(names, first=first)])
    names = [f"k{number}" for number in range(300)]
    hashes = key_hashes(StringColumn.from_values(names), ["orders"])
    tags = np.repeat(file.tags_of(["orders"], 0), len(names))
    for limit in (1, 2, 7, 9, 5000):
        found = search_file(file, Search.of(hashes, tags, limit=limit, begin=1100, end=3700))
        offsets = found.rows["offset"]
        for i, name in enumerate(names):
            expected = offsets_of(file, key(name), begin=1100, end=3700)[:limit]
            assert offsets[found.offsets[i] : found.offsets[i + 1]].tolist() == expected


def test_search_takes_a_time_range_for_each_lookup(file):
    file.append([make_part(["a"] * 4)])
    hashes = np.full(3, key("a").key_hash, np.uint64)
    tags = np.repeat(file.tags_of(["orders"], 0), 3)
    found = search_file(
        file, Search.of(hashes, tags, begin=[0, 0, 5000], end=[9999, 1001, 1], limit=1)
    )
    assert found.offsets.tolist() == [0, 1, 2, 2]
    assert found.rows["offset"].tolist() == [300, 100]


def test_unknown_topic_matches_nothing(file):
    file.append([make_part(["a"])])
    tags = file.tags_of(["absent", "orders"], 0)
    assert tags[0] == TAG_NONE
    found = search_file(file, Search.of(np.full(2, key("a").key_hash, np.uint64), tags))
    assert found.offsets.tolist() == [0, 0, 1]


def test_no_lookups_give_no_matches(file):
    found = search_file(file, Search.of(np.empty(0, np.uint64), np.empty(0, np.uint32), limit=3))
    assert (found.offsets.tolist(), len(found.rows)) == ([0], 0)


def test_end_offsets_are_the_greatest_of_each_topic_and_queue(file):
    file.append([make_part(["a", "b"], queue_id=np.array([0, 7])), make_part(["c"], topic="t2")])
    file.append([make_part(["z"], queue_id=7)])
    assert file.end_offsets() == {("orders", 0): 100, ("orders", 7): 200, ("t2", 0): 100}


def test_end_offsets_of_thousands_of_queues_are_kept(file):
    queues = np.arange(9000) % 4500
    file.append([make_part(["k"] * 9000, queue_id=queues)])
    ends = file.end_offsets()
    assert len(ends) == 4500
    assert ends["orders", 17] == (4500 + 17) * 100 + 100


def test_end_offset_beyond_the_range_is_clamped(file):
    part = make_part(["a"])
    part.fields = {"offset": (1 << 63) - 1, "size": 100, "queue_id": 0}
    file.append([part])
    assert file.end_offsets() == {("orders", 0): (1 << 63) - 1}


def test_full_file_refuses_a_batch_whole_and_takes_what_fits(tmp_path):
    file = make_file(tmp_path / "file", item_capacity=10)
    file.append([make_part(["a"] * 8)])
    assert file.room() == 2
    with pytest.raises(FileFullError):
        file.append([make_part(["b"] * 3, topic="new")])
    assert (file.item_count, file.topics) == (8, ["orders"])
    file.append([make_part(["b"] * 2)])
    assert file.is_full
    assert file.check() == []


def test_one_item_batches_with_long_topics_fill_a_file(tmp_path):
    file = make_file(tmp_path / "file", item_capacity=50)
    for number in range(50):
        file.append([make_part(["k"], topic=f"{number:0255d}")])
    assert file.is_full
    assert len(file.topics) == 50
    assert file.check() == []


def test_wrong_fields_are_refused_and_leave_nothing(file):
    part = make_part(["a"], topic="new")
    part.fields = {"offset": 1, "size": 2}
    with pytest.raises(InvalidRequestError, match="queue_id"):
        file.append([make_part(["b"], topic="new2"), part])
    assert (file.item_count, file.topics) == (0, [])


def test_closed_file_refuses_every_use(tmp_path):
    file = make_file(tmp_path / "file")
    file.append([make_part(["a"])])
    file.close()
    file.close()
    with pytest.raises(ClosedError):
        offsets_of(file, key("a"))
    with pytest.raises(ClosedError):
        file.append([make_part(["a"])])


def test_file_that_exists_is_not_overwritten(file):
    with pytest.raises(FileExistsError):
        make_file(file.path)


def test_reader_beside_a_writer_sees_batches_after_refresh(file):
    file.append([make_part(["a"])])
    reader = ChainedFile.open_for_reading(file_system(), file.path)
    file.append([make_part(["a", "b"], first=1, topic="new")])
    assert reader.item_count == 1
    reader.refresh()
    assert offsets_of(reader, key("b", "new")) == [200]
    assert reader.check() == []
    with pytest.raises(ReadOnlyError):
        reader.append([make_part(["c"])])
    reader.close()


def test_reader_outlives_the_seal_of_its_file(file):
    file.append([make_part(["a"])])
    reader = ChainedFile.open_for_reading(file_system(), file.path)
    file.append([make_part(["a"], first=1)])
    file.seal()
    reader.refresh()
    assert offsets_of(reader, key("a")) == [100, 0]
    reader.close()


def file_system():

    return FILESYSTEM


BATCHES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["t1", "t2"]), st.integers(0, 1)),
        max_size=40,
    ),
    max_size=8,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(BATCHES, st.sampled_from([1, 3, 64]))
def test_any_batches_are_answered_as_a_list_would(tmp_path_factory, batches, slot_count):
    file = make_file(tmp_path_factory.mktemp("f") / "file", slot_count=slot_count)
    model: list[tuple[str, str, int]] = []
    for batch in batches:
        parts = []
        for kind in (KIND_KEY, KIND_MESSAGE_ID):
            for topic in ("t1", "t2"):
                names = [name for name, t, k in batch if t == topic and k == kind]
                parts.append(make_part(names, topic=topic, kind=kind, first=len(model)))
                model += [(name, topic, kind) for name in names]
        file.append(parts)
    for name in "abcdefgh":
        for topic in ("t1", "t2"):
            expected = [
                i * 100 for i, entry in enumerate(model) if entry == (name, topic, KIND_KEY)
            ]
            assert offsets_of(file, key(name, topic)) == expected[::-1]
        ids = [i * 100 for i, entry in enumerate(model) if entry[::2] == (name, KIND_MESSAGE_ID)]
        assert offsets_of(file, message_id(name)) == ids[::-1]
    assert file.check() == []
    file.close()


def test_many_lookups_with_more_matches_than_were_expected_get_all(file):
    file.append([make_part(["a", "b"] * 100, first=0)])
    file.append([make_part(["c"], first=500)])
    names = ["a", "c", "absent", "b", "a"] * 30
    hashes = np.array([key(name).key_hash for name in names], np.uint64)
    tags = np.full(len(names), file.tag_of(key("a").topic, 0), np.uint32)
    for limit in (1, 7, 8, 9, 99, 100, 101):
        matches = search_file(file, Search.of(hashes, tags, limit=limit))
        offsets = matches.rows["offset"]
        for i, name in enumerate(names):
            found = offsets[matches.offsets[i] : matches.offsets[i + 1]].tolist()
            assert found == offsets_of(file, key(name))[:limit], (name, limit)
