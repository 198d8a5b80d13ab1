"""Sidecars that a batch needs and that are not here: how many are fetched, and that they are side by side."""

from __future__ import annotations

import threading

import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import StoreUnavailableError
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

_PATIENCE_S = 120  # of a read for its companion: a machine may be slow


class Together(MemoryStore):
    """Notes the ranges that are read of files; `meet` makes reads of sidecars wait for each other."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()
        self.reads = []
        self.sidecar_reads = 0
        self.meet = {}  # from the number of a read of a sidecar to the barrier where it waits
        self.sidecars = {}  # position of the sidecar by object key

    def get(self, key, position=None, length=None):
        if "/files/" in key:
            barrier = None
            with self.lock:
                self.reads.append((key, position))
                if self.sidecars.get(key) == position:
                    barrier = self.meet.get(self.sidecar_reads)
                    self.sidecar_reads += 1
            if barrier is not None:
                barrier.wait(_PATIENCE_S)
        return super().get(key, position, length)


@pytest.fixture
def store():
    return Together()


@pytest.fixture
def reader(make_index, store):
    """A reader that has no sidecar yet, of six files: k0 .. k5 lie in one each, `all` lies in each."""
    writer = make_index(store=store)
    for number in range(6):
        put(writer, f"k{number}", number)
        put(writer, "all", 100 + number)
        writer.roll()
        writer.run_compaction()
    reader = make_index(None, store=store, look_ahead=4)
    for handle in components_of(reader).table.snapshot().files:
        store.sidecars[handle.row.object_key] = handle.row.sidecar_position
    store.reads.clear()
    return reader


def ask(reader, keys, max_count=64):
    answers = reader.query_batch(
        [{"topic": "orders", "key": key, "max_count": max_count} for key in keys]
    )
    assert all(answer.complete for answer in answers)
    return [offsets(answer) for answer in answers]


KEYS = [f"k{number}" for number in range(6)]


def test_sidecars_of_a_batch_are_fetched_side_by_side(reader, store):
    """The first alone; the second and third wait for each other, and so do the other three."""
    store.meet = dict.fromkeys((1, 2), threading.Barrier(2)) | dict.fromkeys(
        (3, 4, 5), threading.Barrier(3)
    )
    assert ask(reader, KEYS) == [[number] for number in range(6)]
    assert store.sidecar_reads == 6


def test_each_range_is_read_once(reader, store):
    assert ask(reader, [*KEYS, "absent"]) == [*([number] for number in range(6)), []]
    assert len(store.reads) == len(set(store.reads)) == 12  # a sidecar and a page of each file
    store.reads.clear()
    assert ask(reader, [*KEYS, "absent"])[:2] == [[0], [1]]
    assert store.reads == []


def test_no_sidecar_is_fetched_beside_the_file_that_answers_everything(reader, store):
    assert ask(reader, ["all", "k5"], max_count=1) == [[105], [5]]
    assert store.sidecar_reads == 1


def test_at_most_twice_as_many_sidecars_are_fetched_as_are_needed(reader, store):
    assert ask(reader, ["k4", "k5"], max_count=1) == [[4], [5]]
    assert store.sidecar_reads <= 4


def test_requests_that_a_batch_does_not_use_are_not_charged_to_it(make_index, reader, store):
    """Two requests a file are allowed for the two files that are needed, and one for each other lookup."""
    poor = make_index(None, store=store, look_ahead=4, query_max_requests=3)
    assert ask(poor, ["k4", "k5"], max_count=1) == [[4], [5]]


def test_sidecar_that_cannot_be_fetched_ahead_makes_its_file_missing(reader, store, monkeypatch):
    handles = components_of(reader).table.snapshot().files
    away = handles[2].row.object_key
    original = MemoryStore.get

    def get(self, key, position=None, length=None):
        if key == away:
            raise StoreUnavailableError("away")
        return original(self, key, position, length)

    monkeypatch.setattr(MemoryStore, "get", get)
    answers = reader.query_batch([{"topic": "orders", "key": key} for key in KEYS])
    assert [offsets(answer) for answer in answers] == [[0], [1], [2], [], [4], [5]]
    assert {missing.file for answer in answers for missing in answer.missing} == {
        handles[2].file_id
    }
