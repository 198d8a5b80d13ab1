"""Published files of which nothing is here: requests and bytes of a lookup, by the store's own count."""

from __future__ import annotations

from functools import partial

import pytest

from tests.index_service.conftest import offsets
from tierdex.indexfile.compacted.hash_group import GroupSizes
from tierdex.indexfile.compacted.writer import FilePlan
from tierdex.storage_layer.memory import MemoryStore

KEYS = 60_000
KIB = 1024


class Counting(MemoryStore):
    """A memory store that notes the reads of files' objects; it may damage the next ones."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.damaged = 0

    def get(self, key, position=None, length=None):
        data = super().get(key, position, length)
        if "/files/" in key:
            self.reads.append(len(data))
            if self.damaged:
                self.damaged -= 1
                return bytes(byte ^ 0x55 for byte in data)
        return data

    def taken(self):
        """The requests and bytes since the last look."""
        reads, self.reads = self.reads, []
        return len(reads), sum(reads)


@pytest.fixture
def store():
    return Counting()


@pytest.fixture
def owner(make_index, store):
    """One published file of 60,000 keys, among them one with 30,000 entries."""
    index = make_index(store=store, item_capacity=100_000, slot_count=1 << 14)
    keys = [f"K{n}" if n % 2 else "hot" for n in range(KEYS)]
    index.put_batch(
        topic="orders", keys=keys, queue_id=0, offset=list(range(KEYS)), size=10,
        timestamp=list(range(KEYS)),
    )  # fmt: skip
    index.roll()
    index.run_compaction()
    return index


@pytest.fixture
def reader(owner, make_index, store):
    opened = make_index(None, store=store)
    store.taken()
    return opened


def ask(reader, *keys, **more):
    """Ask one key, or several in one batch."""
    if len(keys) == 1:
        return [reader.query("orders", key=keys[0], **more)]
    return reader.query_batch([{"topic": "orders", "key": key, **more} for key in keys])


def test_a_cold_key_that_is_there_costs_its_group_then_page_and_head(reader, store):
    (answer,) = ask(reader, "K9")
    requests, size = store.taken()
    assert (offsets(answer), answer.complete) == ([9], True)
    assert requests == 3
    assert size < 64 * KIB


def test_a_cold_key_that_is_absent_costs_its_group_only(reader, store):
    (answer,) = ask(reader, "nobody")
    requests, size = store.taken()
    assert (answer.entries, answer.complete) == ([], True)
    assert requests == 1
    assert size < 40 * KIB


def test_a_warm_lookup_costs_its_page_and_nothing_when_the_filter_says_no(owner, make_index, store):
    reader = make_index(None, store=store, page_cache_bytes=0)
    ask(reader, "K9")
    ask(reader, "nobody")
    store.taken()
    (answer,) = ask(reader, "K9")
    assert offsets(answer) == [9]
    assert store.taken()[0] == 1
    ask(reader, "nobody")
    assert store.taken() == (0, 0)


def test_a_warm_lookup_of_a_page_in_memory_costs_nothing(reader, store):
    before = ask(reader, "K9")
    store.taken()
    assert ask(reader, "K9") == before
    assert store.taken() == (0, 0)


def test_a_hot_keys_directory_is_one_request_more(reader, store):
    (answer,) = ask(reader, "hot", max_count=3)
    assert offsets(answer) == [KEYS - 2, KEYS - 4, KEYS - 6]
    assert store.taken()[0] == 4
    (again,) = ask(reader, "hot", max_count=10_000)
    assert offsets(again) == list(range(0, KEYS, 2))[::-1][:10_000]


def test_explain_counts_what_the_store_counts(reader, store):
    (answer,) = ask(reader, "K9", explain=True)
    explain = answer.explain
    requests, size = store.taken()
    assert (explain.requests + explain.sidecar_requests, explain.bytes) == (requests, size)
    assert explain.sidecar_requests == 2


def test_a_batch_of_few_keys_takes_their_groups_and_of_many_the_sidecar(reader, store):
    few = ask(reader, "nobody")
    assert [offsets(answer) for answer in few] == [[]]
    assert store.taken()[1] < 40 * KIB
    many = ask(reader, *(f"K{n}" for n in range(50)))
    assert [offsets(answer) for answer in many] == [[n] if n % 2 else [] for n in range(50)]
    requests, size = store.taken()
    assert requests < 50
    assert size > 128 * KIB
    ask(reader, "one", "two", "three")
    assert store.taken() == (0, 0)  # all of the filter is here


def test_answers_are_those_of_the_owner(reader, owner):
    keys = ["hot", *(f"K{n}" for n in range(1, KEYS, 4000)), "nobody"]
    for key in keys:
        for times in ({}, {"begin": 100, "end": 9000}):
            ours = reader.query("orders", key=key, max_count=2000, **times)
            theirs = owner.query("orders", key=key, max_count=2000, **times)
            assert offsets(ours) == offsets(theirs)
            assert ours.complete


def test_pages_with_a_cursor_go_on_in_a_hot_key(reader):
    cursor, found = None, []
    for _ in range(6):
        answer = reader.query("orders", key="hot", max_count=700, cursor=cursor)
        found += offsets(answer)
        cursor = answer.next_cursor
    assert found == list(range(0, KEYS, 2))[::-1][: len(found)]
    assert len(found) == 4200


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("key", ["K9", "nobody"])
def test_a_group_damaged_on_its_way_is_fetched_again_or_missing(reader, store, times, key):
    store.damaged = times
    (answer,) = ask(reader, key)
    if times == 1:
        assert answer.complete
        assert offsets(answer) == ([9] if key == "K9" else [])
    else:
        assert (answer.entries, answer.complete, len(answer.missing)) == ([], False, 1)
    (again,) = ask(reader, key)
    assert again.complete
    assert offsets(again) == ([9] if key == "K9" else [])


@pytest.mark.parametrize("lacks", ["file", "row"])
def test_a_file_of_before_is_read_by_its_whole_sidecar(monkeypatch, lacks, request, store):
    if lacks == "file":
        sizes = GroupSizes(whole_bytes=1 << 40)
        without = partial(FilePlan, group_sizes=sizes)
        monkeypatch.setattr("tierdex.compactor.rewrite.FilePlan", without)
    else:
        monkeypatch.setattr("tierdex.compactor.file_row.HashGroups", lambda *places: None)
    reader = request.getfixturevalue("reader")
    (answer,) = ask(reader, "K9")
    requests, size = store.taken()
    assert (offsets(answer), requests) == ([9], 2)
    assert size > 72 * KIB


def test_parts_are_kept_on_disk_for_the_next_reader(owner, make_index, store, tmp_path):
    kept = {"cache_dir": str(tmp_path / "cache"), "cache_bytes": 1 << 20}
    before = ask(make_index(None, store=store, **kept), "K9")
    store.taken()
    again = make_index(None, store=store, **kept)
    store.taken()
    assert ask(again, "K9") == before
    assert store.taken()[0] == 1  # the page


def test_a_part_that_came_damaged_does_not_stay_on_disk(owner, make_index, store, tmp_path):
    kept = {"cache_dir": str(tmp_path / "cache"), "cache_bytes": 1 << 20}
    reader = make_index(None, store=store, **kept)
    store.damaged = 2
    assert not ask(reader, "K9")[0].complete
    (answer,) = ask(make_index(None, store=store, **kept), "K9")
    assert (offsets(answer), answer.complete) == ([9], True)
