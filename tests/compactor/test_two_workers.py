"""Local work does not wait for the store, one file is in one pair of hands, and nothing is lost at close."""

from __future__ import annotations

import threading

import pytest

from tests.index_service.conftest import offsets, put
from tests.patience import PATIENCE_S, wait_until
from tierdex import Index
from tierdex.compactor.unit import FileClaims, LocalPlace, Unit
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

FILES = 12


class Hanging(MemoryStore):
    """A memory store whose uploads take as long as the test wants."""

    def __init__(self):
        super().__init__()
        self.go_on, self.is_hanging = threading.Event(), threading.Event()

    def upload(self, key, source, length):
        self.is_hanging.set()
        assert self.go_on.wait(PATIENCE_S)
        super().upload(key, source, length)


@pytest.fixture
def store():
    return Hanging()


@pytest.fixture
def index(tmp_path, store):
    with Index.open(
        tmp_path / "data", store=store, slot_count=64, item_capacity=1000, disk_reserve_bytes=0,
        merge_below_items=0,
    ) as index:  # fmt: skip
        try:
            yield index
        finally:
            store.go_on.set()


def totals(index):
    return index.compaction_status()["totals"]


def fill(index, *offsets):
    for offset in offsets:
        put(index, "A", offset)
        index.roll()


def test_a_store_that_hangs_keeps_no_file_from_being_sealed_and_compacted(index, store):
    fill(index, 0)
    assert store.is_hanging.wait(PATIENCE_S)
    fill(index, *range(1, FILES))
    wait_until(lambda: totals(index)["compacted"] == FILES)
    assert totals(index)["sealed"] == FILES
    assert totals(index)["published"] == 0
    status = index.compaction_status()
    assert [job["job"] for job in status["jobs"]] == ["publish"]
    assert status["running"] == status["jobs"][0]
    assert len(offsets(index.query("orders", key="A"))) == FILES
    store.go_on.set()
    wait_until(lambda: totals(index)["published"] == FILES)
    assert {file.state for file in index.files()} == {"uploaded"}
    assert offsets(index.query("orders", key="A")) == list(reversed(range(FILES)))


def test_run_compaction_waits_for_the_store_and_holds_up_no_other_file(index, store):
    fill(index, 0)
    assert store.is_hanging.wait(PATIENCE_S)
    by_hand = threading.Thread(target=index.run_compaction)
    by_hand.start()
    by_hand.join(0.2)
    assert by_hand.is_alive()
    fill(index, *range(1, FILES))
    wait_until(lambda: totals(index)["compacted"] == FILES)
    store.go_on.set()
    by_hand.join(PATIENCE_S)
    assert not by_hand.is_alive()
    assert {file.state for file in index.files()} == {"uploaded"}


def test_a_file_is_in_one_pair_of_hands():
    claims = FileClaims()
    with claims.hold(7) as is_ours:
        assert is_ours
        with claims.hold(7) as is_theirs, claims.hold(8) as is_another:
            assert (is_theirs, is_another) == (False, True)
        with claims.hold(7) as is_theirs:
            assert not is_theirs  # who was refused has released nothing
        with claims.hold(None) as first, claims.hold(None) as second:
            assert (first, second) == (True, True)
    with claims.hold(7) as is_ours:
        assert is_ours


def test_a_unit_whose_file_is_claimed_or_has_moved_on_is_not_done(make_index):
    index = make_index(store="memory://claims")
    fill(index, 0)
    compactor = components_of(index).writing.compactor
    done = []
    with components_of(index).table.snapshot() as snapshot:
        (handle,) = snapshot.files
        unit = Unit(
            "seal",
            handle.file_id,
            1,
            lambda: done.append(1) or 1,
            handle.number,
            LocalPlace(compactor.components, handle),
        )
        with compactor.claims.hold(handle.number):
            assert compactor.local.run(unit) == 0
        index.run_compaction()
        assert compactor.local.run(unit) == 0
    assert done == []
