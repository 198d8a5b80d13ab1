"""The level `remote`: one roll for all who wait, and no word that is not true."""

from __future__ import annotations

import threading

import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import offsets, put
from tests.patience import PATIENCE_S
from tierdex import Index
from tierdex.errors import ClosedError, StoreUnavailableError, UnavailableError
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of


class Away(MemoryStore):
    """A memory store that can be switched off for uploads."""

    is_away = False

    def upload(self, key, source, length):
        if self.is_away:
            raise StoreUnavailableError("away")
        super().upload(key, source, length)


def test_flush_remote_publishes_what_was_put(index):
    assert put(index, "A", 1, durability="remote") == "remote"
    assert [file.state for file in index.files()] == ["uploaded"]
    assert index.watermark("orders", 0)["remote"] == 11


def test_nothing_waiting_needs_no_roll(index):
    assert index.flush("remote") == "remote"
    assert index.files() == []


def test_rolls_are_shared_within_the_interval(make_index, clock):
    index = make_index(remote_interval=10.0)
    put(index, "A", 1, durability="remote")
    begun = clock.monotonic()
    put(index, "A", 2)
    put(index, "A", 3, durability="remote")  # waits until a roll is due again
    assert clock.monotonic() - begun >= 9.9
    assert len(index.files()) == 2


def test_waiting_ends_with_the_timeout_when_no_roll_is_due(make_index):
    index = make_index(remote_interval=1000.0, remote_timeout=5.0)
    put(index, "A", 1, durability="remote")
    with pytest.raises(UnavailableError, match="remote_timeout"):
        put(index, "A", 2, durability="remote")
    assert offsets(index.query("orders", key="A")) == [2, 1]


def test_a_quarantined_file_is_not_acknowledged(index, tmp_path):
    put(index, "A", 1)
    index.roll()
    step(components_of(index).writing.compactor)
    (sealed,) = (tmp_path / "data" / "sealed").iterdir()
    data = bytearray(sealed.read_bytes())
    data[8192:8232] = b"\xff" * 40  # the first row
    sealed.write_bytes(data)
    with pytest.raises(UnavailableError, match="quarantined"):
        index.flush("remote")
    assert not index.query("orders", key="A").complete


@pytest.fixture
def threaded(tmp_path):
    """An index with threads over a store that is away."""
    store = Away()
    store.is_away = True
    settings = {"slot_count": 64, "item_capacity": 1000, "disk_reserve_bytes": 0}
    with Index.open(
        tmp_path / "t", store=store, compact_interval=0.02, backoff_max=0.05, **settings
    ) as index:
        yield index, store


def test_many_waiters_share_one_roll(threaded):
    index, store = threaded
    threads = []
    for number in range(6):
        put(index, "A", number, durability="os")
    for _ in range(6):
        threads.append(threading.Thread(target=index.flush, args=("remote",)))
        threads[-1].start()
    store.is_away = False
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert [file.state for file in index.files()] == ["uploaded"]


def test_closing_ends_a_wait_with_an_error(threaded):
    index, _ = threaded
    put(index, "A", 1, durability="os")
    caught, begun = [], threading.Event()

    def wait():
        begun.set()
        try:
            index.flush("remote")
        except ClosedError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait(PATIENCE_S)
    index.close()
    thread.join(PATIENCE_S)
    assert len(caught) == 1
