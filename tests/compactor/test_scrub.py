"""When the scrubber reads a file: by the clock alone, however often it is woken."""

from __future__ import annotations

import threading

import pytest

from tests.index_service.conftest import put
from tests.patience import PATIENCE_S
from tierdex import Index
from tierdex.compactor.scrub import Scrubber
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

FILES = 4
INTERVAL_S = 86_400.0


@pytest.fixture
def index(make_index, store):
    index = make_index(store=store, scrub_interval=INTERVAL_S)
    for offset in range(FILES):
        put(index, "A", offset)
        index.roll()
    return index


@pytest.fixture
def scrubber(index):
    compactor = components_of(index).writing.compactor
    return Scrubber(
        compactor.components,
        claims=compactor.claims,
        scrub_sidecar=lambda row: True,
    )


def scrubbed(index):
    return index.compaction_status()["totals"]["scrubbed"]


def test_a_wake_is_not_due(index, scrubber, clock):
    index.run_compaction()
    for _ in range(200):
        scrubber.step()
        clock.advance(0.02)
    assert scrubbed(index) == 1


def test_every_file_is_read_once_in_the_interval(index, scrubber, clock):
    index.run_compaction()
    until = clock.monotonic() + 3 * INTERVAL_S
    while clock.monotonic() < until:
        clock.advance(scrubber.step())
    assert 3 * FILES <= scrubbed(index) <= 3 * FILES + 1


def test_files_that_come_to_an_empty_folder_do_not_wait_for_an_interval(index, scrubber, clock):
    assert 0 < scrubber.step() <= 60  # all are unsealed
    index.run_compaction()
    assert scrubbed(index) == 0
    clock.advance(60)
    scrubber.step()
    assert scrubbed(index) == 1
    clock.advance(INTERVAL_S)
    scrubber.step()
    assert scrubbed(index) == 2


class Hanging(MemoryStore):
    """A memory store whose uploads take as long as the test wants; lists are counted."""

    def __init__(self):
        super().__init__()
        self.go_on, self.is_hanging = threading.Event(), threading.Event()
        self.lists = 0

    def upload(self, key, source, length):
        self.is_hanging.set()
        assert self.go_on.wait(PATIENCE_S)
        super().upload(key, source, length)

    def list(self, prefix, start_after=""):
        self.lists += 1
        return super().list(prefix, start_after)


def test_waiting_for_remote_reads_no_file_again_and_asks_no_manifest(tmp_path, monkeypatch):
    store = Hanging()
    looks, looked_often = [], threading.Event()
    with Index.open(
        tmp_path / "data", store=store, slot_count=64, item_capacity=1000, refresh_interval=3600.0
    ) as index:
        put(index, "A", 1, durability="os")
        advance = components_of(index).writing.remote._advance

        def count_and_advance():
            advance()
            looks.append((scrubbed(index), store.lists))
            if store.is_hanging.is_set() and len(looks) > 40:
                looked_often.set()

        monkeypatch.setattr(components_of(index).writing.remote, "_advance", count_and_advance)
        flushing = threading.Thread(target=index.flush, args=("remote",))
        flushing.start()
        assert looked_often.wait(PATIENCE_S)
        store.go_on.set()
        flushing.join(PATIENCE_S)
        assert not flushing.is_alive()
    (scrubbed_first, lists_first), (scrubbed_last, lists_last) = looks[0], looks[40]
    assert scrubbed_last - scrubbed_first <= 1  # the thread's first step
    assert lists_last - lists_first <= 2
