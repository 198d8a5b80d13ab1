"""The 22 faults of RocketMQ's tiered index (ROCKETMQ_FORMAT.md), shown absent through the public Index."""

from __future__ import annotations

import random
import threading
import tracemalloc

import numpy as np
import pytest

from tests.compactor_steps import step
from tests.index_service.conftest import SMALL, offsets, put
from tests.simulation.crash import CrashingStore, CrashPoint
from tests.simulation.simulated_disk import SimulatedCrash, SimulatedFileSystem
from tierdex import Index
from tierdex.app.cli.commands import make_cli
from tierdex.clock import ManualClock
from tierdex.errors import IncompleteAnswerError, UnavailableError
from tierdex.ids import SeededIds
from tierdex.indexfile.hashing import key_hash
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

STAGES = ("unsealed", "published", "reopened")


class Place:
    """A folder, a store and a clock to open indexes over, small ones and without threads."""

    def __init__(self, path):
        self.path = path
        self.clock = ManualClock()
        self.objects = MemoryStore(clock=self.clock)
        self.store = FaultyStore(self.objects, clock=self.clock)
        self.disk = None
        self.index = None
        self.count = 0

    def open(self, **more):
        self.count += 1
        seams = {"clock": self.clock, "ids": SeededIds(self.count), "store": self.store}
        if self.disk is not None:
            seams["filesystem"] = self.disk
        self.index = Index.open(self.path, **{**SMALL, "node": "a", **seams, **more})
        return self.index

    def reopen(self, **more):
        self.index.close()
        return self.open(**more)

    def publish(self):
        self.index.roll()
        self.index.run_compaction()

    def at(self, stage, **more):
        """Bring everything to a stage; return the index."""
        if stage != "unsealed":
            self.publish()
        return self.reopen(**more) if stage == "reopened" else self.index


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path / "data")
    yield place
    if place.index is not None:
        place.index.close()


@pytest.fixture
def index(place):
    return place.open()


def test_fault_01_file_that_overlaps_the_range_is_asked_whenever_it_began(place, index):
    now = place.clock.now_ms()
    put(index, "K", 1, timestamp=now - 50_000)  # late, into a file that begins after `end`
    put(index, "K", 2, timestamp=now + 90_000)  # early, in a file that began before `begin`
    for stage in STAGES:
        index = place.at(stage)
        assert offsets(index.query("orders", key="K", begin=now - 60_000, end=now - 40_000)) == [1]
        assert offsets(index.query("orders", key="K", begin=now + 80_000, end=now + 95_000)) == [2]


def test_fault_02_extreme_hashes_are_entries_like_any_other(place, index):
    # "polygenelubricants" has Java's hash -2^31; of 3,000 keys the least and the greatest hash.
    keys = sorted((f"key-{i}" for i in range(3000)), key=lambda key: key_hash("orders", key))
    for offset, key in enumerate(("polygenelubricants", keys[0], keys[-1])):
        put(index, key, offset)
    for stage in STAGES:
        index = place.at(stage)
        for offset, key in enumerate(("polygenelubricants", keys[0], keys[-1])):
            assert offsets(index.query("orders", key=key)) == [offset]
        assert [index.verify_file(info.file_id) for info in index.files()] == [[]]


def test_fault_03_put_that_failed_three_times_failed(place):
    place.disk = SimulatedFileSystem(clock=place.clock)
    index = place.open()
    place.disk.fail("open", for_ever=True)
    for offset in range(5):
        with pytest.raises(UnavailableError):
            put(index, "K", offset, durability="os")
    place.disk.heal()
    put(index, "K", 99, durability="disk")
    answer = index.query("orders", key="K")
    assert answer.complete
    assert offsets(answer) == [99]


def test_fault_04_rolls_in_one_millisecond_and_backward_clocks_lose_nothing(place, index):
    for offset in range(6):
        put(index, "K", offset)
        index.roll()
        if offset == 3:
            place.clock.step(-3_600_000)
    ids = [info.file_id for info in index.files()]
    assert len(set(ids)) == 6
    for stage in STAGES:
        index = place.at(stage, merge_below_items=0)
        assert offsets(index.query("orders", key="K")) == [5, 4, 3, 2, 1, 0]
    assert {info.state for info in index.files()} == {"uploaded"}


def test_fault_05_hot_key_answers_whole_and_the_same_before_and_after_upload(place, index):
    index = place.reopen(item_capacity=10_000)
    count = 3000
    index.put_batch(
        topic="orders", keys=["HOT"] * count, queue_id=0, size=1, timestamp=5,
        offset=np.arange(count, dtype=np.int64),
    )  # fmt: skip
    for stage in STAGES:
        index = place.at(stage)
        answer = index.query("orders", key="HOT", max_count=10_000)
        assert offsets(answer) == list(range(count - 1, -1, -1))


def test_fault_06_times_are_kept_to_the_millisecond(place, index):
    for offset, time in enumerate((1_000, 1_001, 1_999, -1, -(1 << 63), (1 << 63) - 1)):
        put(index, "K", offset, timestamp=time)
    for stage in STAGES:
        index = place.at(stage)
        assert offsets(index.query("orders", key="K", begin=1_001, end=1_001)) == [1]
        assert offsets(index.query("orders", key="K", begin=1_001, end=1_998)) == [1]
        assert offsets(index.query("orders", key="K", end=-2)) == [4]
        times = {entry.timestamp for entry in index.query("orders", key="K").entries}
        assert times == {1_000, 1_001, 1_999, -1, -(1 << 63), (1 << 63) - 1}


def test_fault_07_keys_that_java_confuses_are_told_apart(place, index):
    put(index, "Aa", 1)
    put(index, "a#b", 2, topic="x")
    put(index, "K", 3, message_id="Aa")
    for stage in STAGES:
        index = place.at(stage)
        assert offsets(index.query("orders", key="Aa")) == [1]
        assert offsets(index.query("orders", key="BB")) == []
        assert offsets(index.query("x#a", key="b")) == []
        assert offsets(index.query("x", key="a#b")) == [2]
        assert offsets(index.query(message_id="Aa")) == [3]


def test_fault_08_equal_places_in_two_topics_are_two_entries(place, index):
    put(index, "K", 7, message_id="ID", topic="orders")
    put(index, "K", 7, message_id="ID", topic="payments")
    put(index, "K", 7, message_id="ID", topic="payments")
    for stage in STAGES:
        index = place.at(stage)
        topics = [entry.topic for entry in index.query(message_id="ID").entries]
        assert topics == ["payments", "orders"]


def test_fault_09_walk_stops_at_max_count(place, index):
    index = place.reopen(merge_below_items=0)
    for offset in range(12):
        put(index, "K", offset)
        index.roll()
    index.run_compaction()
    index = place.reopen(merge_below_items=0)
    answer = index.query("orders", key="K", max_count=2, explain=True)
    assert offsets(answer) == [11, 10]
    assert answer.explain.files_read == 2
    assert answer.explain.requests <= 2


def test_fault_10_order_is_newest_first_and_always_the_same(place, index):
    for offset in range(60):
        put(index, "K", offset, timestamp=(offset * 37) % 60)
        if offset % 13 == 12:
            index.roll()
    for stage in STAGES:
        index = place.at(stage)
        for _ in range(3):
            assert offsets(index.query("orders", key="K")) == list(range(59, -1, -1))
        assert offsets(index.query("orders", key="K", max_count=7)) == list(range(59, 52, -1))


def test_fault_11_failed_or_short_read_is_never_not_found(place, index):
    put(index, "K", 1)
    place.publish()
    index = place.reopen(page_cache_bytes=0)
    index.query("orders", key="K")  # the sidecar is here now
    for fault in (Fault.FAIL_BEFORE, Fault.TIMEOUT_BEFORE, Fault.REFUSED, Fault.SHORT_BODY):
        place.store.fail("get", fault=fault, count=20)
        answer = index.query("orders", key="K")
        assert not answer.complete, fault
        assert answer.missing[0].file == index.files()[0].file_id
        with pytest.raises(IncompleteAnswerError):
            index.query("orders", key="K", on_error="fail")
        place.store.cancel_faults()
        assert offsets(index.query("orders", key="K")) == [1]


def test_fault_12_both_time_bounds_survive_a_restart(place):
    place.disk = SimulatedFileSystem(clock=place.clock)
    index = place.open()
    put(index, "K", 1, timestamp=500)
    put(index, "K", 2, timestamp=900_000)
    index.flush("os")
    place.disk = place.disk.restart()  # kill -9
    index = place.open()
    assert [(info.min_time, info.max_time) for info in index.files()] == [(500, 900_000)]
    assert offsets(index.query("orders", key="K", begin=800_000)) == [2]
    assert offsets(index.query("orders", key="K", end=600)) == [1]


def test_fault_13_old_files_open_whatever_the_settings_are_now(place, index):
    put(index, "K", 1)
    index.roll()
    put(index, "K", 2)
    index = place.reopen(slot_count=7, item_capacity=33, filter_bits=8)
    put(index, "K", 3)
    assert offsets(index.query("orders", key="K")) == [3, 2, 1]
    place.publish()
    index = place.reopen(slot_count=1024)
    assert offsets(index.query("orders", key="K")) == [3, 2, 1]


@pytest.mark.parametrize("state", ["sealed", "compacted"])
@pytest.mark.parametrize("damage", ["flip", "cut", "zero", "foreign"])
def test_fault_14_damaged_file_is_named_and_never_taken_for_empty(place, index, state, damage):
    for offset in range(200):
        put(index, "K", offset)
    index.roll()
    compactor = components_of(index).writing.compactor
    with place.store.outage():
        for _ in range(1 if state == "sealed" else 5):
            step(compactor)
    index.close()
    (path,) = (place.path / state).glob("0*")
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes(
        {
            "flip": data,
            "cut": data[: len(data) // 2],
            "zero": bytes(len(data)),
            "foreign": b"\x89PNG" + bytes(data[4:]),
        }[damage]
    )
    with place.store.outage():
        index = place.open()
        answer = index.query("orders", key="K", max_count=1000)
        assert offsets(answer) == list(range(199, -1, -1)) or not answer.complete
        for _ in range(6):
            compactor = components_of(index).writing.compactor
            step(compactor)
            place.clock.advance(100)
        answer = index.query("orders", key="K", max_count=1000)
        assert not answer.complete
        assert any(path.name in name for name, _ in answer.missing)


@pytest.mark.parametrize("after", [False, True])
def test_fault_15_crash_in_mid_upload_publishes_once_and_deletes_nothing_live(place, after):
    place.disk = SimulatedFileSystem(clock=place.clock)
    crashing = CrashingStore(place.store, on_crash=lambda: place.disk.crash_at(1))
    place.store = crashing
    index = place.open()
    put(index, "K", 1)
    place.publish()
    put(index, "K", 2)
    index.roll()
    for nth in range(1, 12):
        crashing.crash_at(CrashPoint(nth, after))
        try:
            index.run_compaction()
        except SimulatedCrash:
            crashing.revive()
            place.disk = place.disk.restart()
            index = place.open()
            assert offsets(index.query("orders", key="K")) == [2, 1]
    crashing.revive()
    for _ in range(3):
        index.run_compaction()
        place.clock.advance(4000)
    assert offsets(index.query("orders", key="K")) == [2, 1]
    assert [info.item_count for info in index.files()] == [1, 1]
    assert len(list(place.objects.list("nodes/a/files/"))) == 2


def test_fault_16_crash_between_upload_and_local_drop_hides_nothing(place):
    place.disk = SimulatedFileSystem(clock=place.clock)
    index = place.open()
    put(index, "K", 1)
    index.roll()
    place.disk.crash_at(2, kind="unlink")  # the temporary file of the compaction, then the copies
    nth = 2
    while True:
        try:
            index.run_compaction()
            break
        except SimulatedCrash:
            place.disk = place.disk.restart()
            index = place.open()
            assert offsets(index.query("orders", key="K")) == [1]
            nth += 1
            place.disk.crash_at(nth, kind="unlink")
    assert nth > 2
    assert [info.state for info in index.files()] == ["uploaded"]
    assert offsets(index.query("orders", key="K")) == [1]


def test_fault_17_file_that_is_written_is_not_compacted(place, index):
    expected = []
    for offset in range(300):
        put(index, "K", offset)
        expected.insert(0, offset)
        if offset % 50 == 0:
            index.run_compaction()
        if offset % 120 == 119:
            index.roll()
    assert index.files()[0].state == "unsealed"
    index.run_compaction()
    assert index.files()[0].state == "unsealed"
    assert offsets(index.query("orders", key="K", max_count=1000)) == expected


def test_fault_18_failing_store_hangs_neither_queries_nor_puts_nor_the_end(tmp_path):
    store = FaultyStore(MemoryStore())
    settings = {**SMALL, "background": True, "compact_interval": 0.01, "refresh_interval": 0.05}
    index = Index.open(tmp_path / "data", store=store, **settings)
    store.begin_outage()
    for offset in range(500):
        put(index, "K", offset)
        if offset % 100 == 99:
            index.roll()
    assert len(index.query("orders", key="K", max_count=1000).entries) == 500
    index.close()
    store.end_outage()
    index = Index.open(tmp_path / "data", store=store, **{**settings, "background": False})
    index.roll()  # the last file may not have been sealed before the end: then it goes on
    index.run_compaction()
    assert {info.state for info in index.files()} == {"uploaded"}
    assert len(index.query("orders", key="K", max_count=1000).entries) == 500
    index.close()


def test_fault_19_concurrent_reads_of_one_file_get_their_own_bytes(place, index):
    index = place.reopen(item_capacity=5000)
    for offset in range(2000):
        put(index, f"K{offset}", offset)
    place.publish()
    index = place.reopen(page_cache_bytes=0, item_capacity=5000)
    wrong = []

    def ask(seed):
        source = random.Random(seed)
        for _ in range(100):
            offset = source.randrange(2000)
            if offsets(index.query("orders", key=f"K{offset}")) != [offset]:
                wrong.append(offset)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_fault_20_compaction_does_not_hold_the_file_in_memory(place):
    count = 1_000_000
    index = place.open(slot_count=250_000, item_capacity=count)
    keys = np.char.add("K", np.arange(count).astype("U7"))
    index.put_batch(
        topic="orders", keys=keys.tolist(), queue_id=0, size=1, timestamp=5,
        offset=np.arange(count, dtype=np.int64),
    )  # fmt: skip
    index.roll()
    compactor = components_of(index).writing.compactor
    step(compactor)  # sealed
    file_bytes = index.files()[0].bytes
    tracemalloc.start()
    step(compactor)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert index.files()[0].state == "compacted"
    assert file_bytes > 40_000_000
    assert peak < file_bytes * 0.75


def test_fault_21_clean_restart_uploads_nothing_and_a_small_file_stays_small(place, index):
    put(index, "K", 0)
    for _ in range(5):
        index = place.reopen(slot_count=1_000_000)
        index.run_compaction()
    assert [info.state for info in index.files()] == ["unsealed"]
    assert list(place.objects.list("nodes/a/files/")) == []
    place.publish()
    (stored,) = place.objects.list("nodes/a/files/")
    assert stored.size < 50_000


def test_fault_22_tools_open_verify_describe_and_rebuild(place, index, capsys):
    for offset in range(50):
        put(index, f"K{offset}", offset)
    index.flush("disk")
    index.close()
    (path,) = (place.path / "unsealed").glob("0*")
    cli = make_cli()
    for command in ("inspect", "verify"):
        with pytest.raises(SystemExit) as ended:
            cli([command, str(path)])
        assert ended.value.code == 0
    assert "item" in capsys.readouterr().out
    data = bytearray(path.read_bytes())
    data[4096 : 4096 + 4 * 64] = bytes(4 * 64)  # the slots: rebuilt from the batches when opened
    path.write_bytes(data)
    index = place.open()
    assert offsets(index.query("orders", key="K7")) == [7]
    assert index.verify_file(index.files()[0].file_id) == []
