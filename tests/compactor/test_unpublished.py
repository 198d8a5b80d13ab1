"""How far all is published: right whatever moves meanwhile, with the unit alone and with real threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tests.index_service.conftest import put
from tests.lifecycle.manifests.test_manifest import EMPTY, after
from tests.lifecycle.rows import make_row, make_uuid
from tests.lifecycle.table.test_file_table import Reader, make_handle, make_live
from tests.patience import PATIENCE_S
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex import Index
from tierdex.clock import ManualClock, SystemClock
from tierdex.compactor.unpublished import UnpublishedFiles
from tierdex.errors import TierdexError
from tierdex.ids import SeededIds
from tierdex.lifecycle.file_state import FileState
from tierdex.lifecycle.store_time import StoreTime
from tierdex.lifecycle.table.file_table import FileTable
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

STATE = EMPTY


@pytest.fixture
def folder():
    """A folder's table, what waits in memory, what is in quarantine; begun at 1000."""
    clock = ManualClock(1000)
    time = StoreTime(clock)
    time.measure(1000)
    found = SimpleNamespace(table=FileTable(), clock=clock, received=False, quarantine=set())
    found.files = UnpublishedFiles([found.table], "n1", time)
    found.files.begin(1000, holds_unpublished=False)
    found.files.watch(lambda: found.received, lambda: found.quarantine)
    return found


def look(folder, state=STATE, added=()):
    folder.clock.advance(1)
    return folder.files.look(state, added)


def test_nothing_that_waits_is_published_through_now(folder):
    assert look(folder) == (2000, False)
    assert look(folder) == (3000, False)


def test_a_file_counts_from_the_look_before_it_was_found(folder):
    reader = Reader()
    folder.table.insert(make_live(1, reader))
    assert look(folder) == (2000, False)  # empty: it holds nothing
    reader.item_count = 1
    assert look(folder) == (2000, True)
    reader.item_count = 50
    assert look(folder) == (2000, True)
    state = after(STATE, add=(make_row(1, item_count=50),))
    assert look(folder, state) == (5000, False)


def test_a_file_listed_with_fewer_items_than_it_holds_counts(folder):
    folder.table.insert(make_handle(1, items=9))
    assert look(folder, after(STATE, add=(make_row(1, item_count=8),))) == (1000, True)
    assert look(folder, after(STATE, add=(make_row(1, item_count=9),))) == (3000, False)


def test_rows_of_a_commit_that_fails_are_not_remembered_as_published(folder):
    folder.table.insert(make_handle(1))
    row = make_row(1, item_count=1)
    assert look(folder) == (1000, True)
    assert look(folder, added=[row]) == (3000, False)
    assert look(folder) == (1000, True)
    assert look(folder, after(STATE, add=(row,))) == (5000, False)


def test_what_waits_in_memory_counts_from_the_look_before_and_takes_that_into_its_file(folder):
    assert look(folder).through == 2000
    folder.received = True
    assert look(folder) == (2000, True)
    assert look(folder) == (2000, True)
    folder.table.insert(make_handle(1))
    folder.received = False
    assert look(folder) == (2000, True)
    assert look(folder) == (2000, True)
    assert look(folder, after(STATE, add=(make_row(1, item_count=1),))).through == 7000


def test_a_file_that_moves_on_keeps_its_time_whatever_number_and_state_it_has(folder):
    first = make_handle(1)
    folder.table.insert(first)
    assert look(folder).through == 1000
    compacted = first.successor(state=FileState.COMPACTED)
    folder.table.replace([first], [compacted])
    assert look(folder).through == 1000
    renumbered = compacted.successor(number=7)
    folder.table.replace([compacted], [renumbered])
    assert look(folder).through == 1000
    folder.quarantine.add(7)
    folder.table.remove(renumbered)
    assert look(folder) == (1000, True)
    folder.quarantine.clear()  # the operator gave it up
    assert look(folder) == (6000, False)


def test_a_file_renumbered_and_quarantined_between_two_looks_keeps_its_time(folder):
    handle = make_handle(1)
    folder.table.insert(handle)
    look(folder)
    folder.table.remove(handle)
    folder.quarantine.add(7)
    assert look(folder) == (1000, True)


def test_a_file_in_quarantine_counts_unless_it_is_listed(folder):
    folder.quarantine.add(3)
    assert look(folder) == (1000, True)
    assert look(folder, after(STATE, add=(make_row(3, number=3),))) == (3000, False)


def test_other_nodes_files_do_not_count(folder):
    folder.table.insert(make_handle(1, node="other"))
    assert look(folder) == (2000, False)


def test_a_clock_that_steps_back_does_not_take_back_what_was_said(folder):
    assert look(folder).through == 2000
    folder.clock.step(-1_000_000)
    assert look(folder).through == 2000
    assert look(folder).through == 3000


def test_a_folder_that_is_not_open_yet_is_where_its_past_ended():
    time = StoreTime(ManualClock(9000))
    files = UnpublishedFiles([FileTable()], "n1", time)
    files.begin(70, holds_unpublished=True)
    assert files.look(STATE) == (70, True)
    assert make_uuid(1)


# -- with everything real ----------------------------------------------------------------------------


class Watch:
    """Holds what was acknowledged against what was said to be published."""

    def __init__(self, index):
        self.index = index
        self.claim = components_of(index).writing.claim
        self.time = self.claim.get()._voice.time
        self.acknowledged = []  # (key, owner's time after it was acknowledged), in that order
        self.said = 0
        self.looks = 0

    def look(self):
        node = self.claim.get()
        known = list(self.acknowledged)
        live = node._make_live()
        # The record is of the state before it, or a newer one, and of nothing that came later.
        state = node.state
        assert live.published_through >= self.said
        self.said = live.published_through
        self.looks += 1
        for key, at in known:
            if at < live.published_through:
                answer = self.index.query("orders", key=key)
                numbers = [int(entry.file_id.partition("-")[0]) for entry in answer.entries]
                listed = [number for number in numbers if state.lists_number(number)]
                # The store fails now and then, and a file that cannot be asked is named.
                assert listed or answer.missing, (key, at, live, answer)
        self.acknowledged = [each for each in self.acknowledged if each[1] >= self.said]


@pytest.mark.parametrize("seed", range(2))
def test_what_is_said_to_be_published_is_while_two_threads_put(tmp_path, seed):
    """Every entry acknowledged before the time in a record is in a file that the manifest lists."""
    clock = SystemClock()
    store = FaultyStore(MemoryStore(), ids=SeededIds(seed), clock=clock)
    index = Index.open(
        tmp_path, store=store, clock=clock, ids=SeededIds(seed), node="n1", slot_count=16,
        item_capacity=60, background=False, disk_reserve_bytes=0, store_attempts=1,
        put_buffer_entries=8, merge_below_items=0,
    )  # fmt: skip
    watch = Watch(index)
    store.chances = {Fault.FAIL_AFTER: 0.02, Fault.FAIL_BEFORE: 0.02}
    levels = ("received", "os", "disk")
    failures = []

    def write(name):
        for number in range(400):
            key = f"{name}-{number}"
            put(index, key, number, durability=levels[number % 3])
            watch.acknowledged.append((key, watch.time.now_ms()))

    def publish(stop):
        while not stop.is_set():
            try:
                index.roll()
                index.run_compaction()
            except TierdexError:
                continue  # the store fails now and then

    def guarded(work, *arguments):
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)
            raise

    stop = threading.Event()
    writers = [threading.Thread(target=guarded, args=(write, name)) for name in "ab"]
    publisher = threading.Thread(target=guarded, args=(publish, stop))
    for thread in (*writers, publisher):
        thread.start()
    while any(thread.is_alive() for thread in writers) and not failures:
        watch.look()
    for thread in writers:
        thread.join(PATIENCE_S)
    stop.set()
    publisher.join(PATIENCE_S)
    store.chances = {}
    assert not failures
    index.roll()
    index.run_compaction()
    last = max(at for _, at in watch.acknowledged) if watch.acknowledged else 0
    while watch.said <= last:
        watch.look()
    assert not watch.acknowledged
    assert watch.looks > 1
    index.close()


def test_a_file_that_was_damaged_before_it_was_published_holds_the_time(
    make_index, store, clock, tmp_path
):
    index = make_index(store=store, node="n1")
    watch = Watch(index)
    put(index, "A", 1, durability="disk")
    acknowledged_ms = watch.time.now_ms()
    clock.advance(1)
    watch.claim.get().look()
    index.roll()
    clock.advance(1)
    seal_only(index)
    (path,) = (tmp_path / "data" / "sealed").iterdir()
    data = bytearray(path.read_bytes())
    data[4096] ^= 0xFF
    path.write_bytes(data)
    index.close()
    again = make_index(store=store, node="n1")
    again.run_compaction()
    put(again, "B", 2)
    again.flush("remote")
    clock.advance(1)
    said = components_of(again).writing.claim.get().look()
    quarantined = list((tmp_path / "data" / "quarantine").iterdir())
    assert quarantined
    assert said.through <= acknowledged_ms
    assert said.holds_unpublished
    quarantined[0].unlink()
    again.refresh()
    assert components_of(again).writing.claim.get().look().through == clock.now_ms()


def seal_only(index):
    from tests.compactor_steps import step

    step(components_of(index).writing.compactor)


def test_what_a_failed_sync_left_in_doubt_is_not_published_before_it_is(clock):
    disk = SimulatedFileSystem(clock=clock)
    store = MemoryStore(clock=clock)
    from pathlib import Path

    with Index.open(
        Path("/var/data"), filesystem=disk, store=store, clock=clock, ids=SeededIds(1), node="n1",
        slot_count=64, item_capacity=1000, background=False, disk_reserve_bytes=0,
    ) as index:  # fmt: skip
        node = components_of(index).writing.claim.get()
        clock.advance(1)
        node.look()
        put(index, "A", 1, durability="os")
        acknowledged_ms = clock.now_ms()
        disk.fail("mapping_sync", nth=1)
        with pytest.raises(TierdexError):
            index.flush("disk")
        for _ in range(3):
            clock.advance(1)
            assert node.look().through <= acknowledged_ms
        index.run_compaction()
        clock.advance(1)
        assert node.look() == (clock.now_ms(), False)
