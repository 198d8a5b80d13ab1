"""Puts, rolls and levels: what the writer promises, by hand, on a disk that may fail."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.index_service.conftest import offsets, put
from tierdex.errors import (
    BacklogFullError,
    ClosedError,
    FencedError,
    InvalidRequestError,
    UnavailableError,
)
from tierdex.filesystem import LocalFileSystem
from tierdex.index_service.opening.maintenance import WriterTending
from tierdex.testing.components import components_of


class CountingFiles(LocalFileSystem):
    """The machine's file system; counts syncs of mappings and folders, and fails them on demand."""

    def __init__(self):
        self.syncs = 0
        self.folder_syncs = 0
        self.fail_syncs = False
        self.free = None
        self.fail_renames = False
        self.late_errors = 0  # so many renames take effect and report an error

    def open(self, path, **how):
        return _File(super().open(path, **how), self)

    def sync_folder(self, path):
        self.folder_syncs += 1
        super().sync_folder(path)

    def free_bytes(self, path):
        return super().free_bytes(path) if self.free is None else self.free

    def rename(self, source, target):
        if self.fail_renames and source.name == "next.ready":
            raise OSError(28, "no space")
        super().rename(source, target)
        if self.late_errors:
            self.late_errors -= 1
            raise OSError(5, "input/output error")


class _File:
    def __init__(self, file, counts):
        self._file = file
        self._counts = counts

    def __getattr__(self, name):
        return getattr(self._file, name)

    def map(self, length, *, writable):
        mapping = self._file.map(length, writable=writable)
        inner = mapping.sync

        def sync(position, size):
            self._counts.syncs += 1
            if self._counts.fail_syncs:
                raise OSError(5, "input/output error")
            inner(position, size)

        mapping.sync = sync
        return mapping


@pytest.fixture
def files():
    return CountingFiles()


@pytest.fixture
def index(make_index, files):
    return make_index(filesystem=files)


def states(index):
    return [file.state for file in index.files()]


def test_the_buffer_keeps_put_order_before_batches_and_other_levels(index):
    put(index, "A", 1)
    put(index, "A", 2, durability="os")
    put(index, "A", 3)
    index.put_batch(topic="orders", keys=["A"], queue_id=0, offset=[4], size=1, timestamp=[0])
    put(index, "A", 5)
    assert offsets(index.query("orders", key="A")) == [5, 4, 3, 2, 1]


def test_plain_puts_and_others_keep_their_order(index):
    for offset in range(12):
        more = [{}, {"keys": ("A",)}, {"keys": ["A", "B"]}, {"offset": np.int64(offset)}][
            offset % 4
        ]
        fields = {"keys": ["A"], "offset": offset, **more}
        level = "os" if offset % 3 else "received"
        index.put(topic="t", queue_id=0, size=1, timestamp=0, durability=level, **fields)
    assert offsets(index.query("t", key="A")) == list(range(11, -1, -1))
    assert offsets(index.query("t", key="B")) == [10, 6, 2]


def test_entries_with_many_keys_are_written_in_batches_that_fit(make_index):
    index = make_index(item_capacity=10, put_buffer_entries=64)
    for offset in range(12):
        index.put(
            topic="t", keys=["a", "b", "c"], message_id=f"m{offset}",
            queue_id=0, offset=offset, size=1, timestamp=0,
        )  # fmt: skip
    assert offsets(index.query("t", key="b")) == list(range(11, -1, -1))
    with pytest.raises(InvalidRequestError) as caught:
        index.put(topic="t", keys=["k"] * 11, queue_id=0, offset=0, size=1, timestamp=0)
    assert caught.value.field == "keys"
    assert index.flush() == "os"


def test_a_batch_larger_than_a_file_is_split_in_order(make_index):
    index = make_index(item_capacity=100)
    count = 950
    index.put_batch(
        topic="t", keys=["A"] * count, message_id=[f"m{i}" for i in range(count)],
        queue_id=0, offset=list(range(count)), size=1, timestamp=0,
    )  # fmt: skip
    assert offsets(index.query("t", key="A", max_count=1000)) == list(range(count - 1, -1, -1))
    assert offsets(index.query(message_id="m17")) == [17]
    index.run_compaction()
    assert all(file.item_count <= 100 for file in index.files() if file.state == "unsealed")


def test_rows_with_lists_of_keys_are_found_by_each_and_split_over_files(make_index):
    index = make_index(item_capacity=20)
    counts = [1, 19, 3, 0, 7, 15, 2, 2]
    index.put_batch(
        topic=[f"t{row % 2}" for row in range(8)],
        keys=[[f"k{row}-{n}" for n in range(count)] for row, count in enumerate(counts)],
        message_id=[f"m{row}" for row in range(8)],
        queue_id=0, offset=list(range(8)), size=1, timestamp=0,
    )  # fmt: skip
    for row, count in enumerate(counts):
        assert offsets(index.query(message_id=f"m{row}")) == [row]
        for n in range(count):
            assert offsets(index.query(f"t{row % 2}", key=f"k{row}-{n}")) == [row]
    assert max(file.item_count for file in index.files()) <= 20
    with pytest.raises(InvalidRequestError, match="item_capacity"):
        index.put_batch(topic="t", keys=[["k"] * 20], queue_id=0, offset=0, size=1, timestamp=0)


def test_one_string_as_keys_is_one_key(index):
    index.put(topic="t", keys="whole", queue_id=0, offset=1, size=1, timestamp=0)
    assert offsets(index.query("t", key="whole")) == [1]
    assert not index.query("t", key="w").entries


def test_a_batch_of_another_schema_gets_a_file_of_its_own(index):
    from tierdex.indexfile.schema import Schema, SchemaField

    schema = Schema((SchemaField("source", "<u4", dictionary=True), SchemaField("row", "<u8")))
    put(index, "A", 1)
    for row in (7, 8):
        index.put_batch(topic="t", keys=["k"], timestamp=0, schema=schema, source="f", row=[row])
    put(index, "A", 2)
    assert [entry.location for entry in index.query("t", key="k").entries] == [
        {"source": "f", "row": 8}, {"source": "f", "row": 7},
    ]  # fmt: skip
    assert offsets(index.query("orders", key="A")) == [2, 1]
    index.roll()
    index.run_compaction()
    assert states(index) == ["uploaded"] * 3
    assert index.query("t", key="k").entries[0].source == "f"


def test_a_file_rolls_when_full(make_index):
    index = make_index(item_capacity=10)
    for offset in range(25):
        put(index, "A", offset, durability="os")
    assert len(index.files()) == 3
    assert offsets(index.query("orders", key="A")) == list(range(24, -1, -1))


def test_a_file_rolls_when_old_and_holding_anything(make_index, clock):
    index = make_index(roll_after=60.0)
    put(index, "A", 1, durability="os")
    clock.advance(59)
    index.run_compaction()
    assert states(index) == ["unsealed"]
    clock.advance(2)
    index.run_compaction()
    assert states(index) == ["uploaded"]
    clock.advance(120)
    index.run_compaction()
    assert states(index) == ["uploaded"]  # no file, nothing to roll


def test_a_file_keeps_its_age_over_a_restart(make_index, clock):
    for _ in range(3):
        index = make_index(roll_after=60.0)
        put(index, "A", 1, durability="os")
        index.run_compaction()
        index.close()
        clock.advance(25)
    index = make_index(roll_after=60.0)
    index.run_compaction()
    assert states(index) == ["uploaded"]


def test_the_next_file_is_made_ahead_of_time(make_index, tmp_path, clock):
    index = make_index(item_capacity=10)
    writer = components_of(index).writing.writer
    ready = tmp_path / "data" / "unsealed" / "next.ready"
    for offset in range(5):
        assert not ready.exists()
        put(index, "A", offset, durability="os")
        writer.prepare_next()
    assert ready.exists()
    inode = ready.stat().st_ino
    for offset in range(5, 11):
        put(index, "A", offset, durability="os")
    newest = max((tmp_path / "data" / "unsealed").iterdir())
    assert newest.stat().st_ino == inode
    index.close()
    assert not ready.exists()


def test_puts_land_in_the_file_that_has_the_name(make_index, tmp_path):
    """A file made ahead of time by another thread must not take the name of the one that is used."""
    index = make_index(item_capacity=20)
    writer = components_of(index).writing.writer
    stop = threading.Event()

    def prepare():
        while not stop.is_set():
            writer.prepare_next()

    thread = threading.Thread(target=prepare)
    thread.start()
    try:
        for offset in range(400):
            put(index, "A", offset, durability="os")
    finally:
        stop.set()
        thread.join()
    table = components_of(index).table
    with table.snapshot() as snapshot:
        for handle in snapshot.files:
            assert handle.path.exists()
    index.close()
    index = make_index(item_capacity=20)
    assert len(index.query("orders", key="A", max_count=1000).entries) == 400


def test_flushes_with_nothing_new_share_a_sync(index, files):
    put(index, "A", 1, durability="disk")
    before = files.syncs
    for _ in range(5):
        index.flush("disk")
    assert files.syncs == before
    put(index, "A", 2)
    index.flush("disk")
    assert files.syncs > before


def test_many_threads_share_syncs(index, files):
    put(index, "A", 0, durability="disk")
    before, count = files.syncs, 8
    barrier = threading.Barrier(count)

    def run(number):
        put(index, "A", number, durability="os")
        barrier.wait()
        index.flush("disk")

    threads = [threading.Thread(target=run, args=(n,)) for n in range(1, count + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.syncs - before == 1  # all were written before the first flush began


def test_a_failed_sync_is_never_tried_into_a_success(index, files):
    put(index, "A", 1, durability="disk")
    files.fail_syncs = True
    with pytest.raises(UnavailableError):
        put(index, "A", 2, durability="disk")
    files.fail_syncs = False
    with pytest.raises(UnavailableError, match="re-read"):
        index.flush("disk")
    put(index, "A", 3, durability="os")  # into a new file
    assert offsets(index.query("orders", key="A")) == [3, 2, 1]
    index.run_compaction()
    assert index.flush("disk") == "disk"
    assert offsets(index.query("orders", key="A")) == [3, 2, 1]


def test_a_full_disk_refuses_puts_until_space_returns(make_index, files):
    index = make_index(filesystem=files, disk_reserve_bytes=1 << 20, put_buffer_entries=2)
    put(index, "A", 1, durability="os")
    files.free = 1000
    components_of(index).writing.writer.look_again()
    with pytest.raises(BacklogFullError):
        put(index, "A", 2, durability="os")
    assert put(index, "A", 3) == "received"
    assert put(index, "A", 4) == "received"
    with pytest.raises(BacklogFullError):
        put(index, "A", 5)
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([1], False)
    assert [name for name, _ in answer.missing] == ["put buffer"]
    files.free = None
    index.run_compaction()
    answer = index.query("orders", key="A")
    assert (offsets(answer), answer.complete) == ([4, 3, 1], True)


def test_single_puts_meet_a_full_disk_by_themselves(make_index, files, clock):
    index = make_index(filesystem=files, disk_reserve_bytes=1 << 20, item_capacity=100_000)
    put(index, "A", 0, durability="os")
    files.free = 1000
    clock.advance(1)

    def put_many():
        for offset in range(1, 1100):
            put(index, "A", offset, durability="os")

    with pytest.raises(BacklogFullError):
        put_many()
    put(index, "A", 2000)  # waits in memory
    with pytest.raises(BacklogFullError):
        index.flush("os")


def test_the_disk_budget_counts_files_that_wait_for_the_store(make_index):
    index = make_index(disk_budget_bytes=1)
    put(index, "A", 1, durability="os")
    components_of(index).writing.writer.look_again()
    with pytest.raises(BacklogFullError, match="disk_budget_bytes"):
        put(index, "A", 2, durability="os")
    index.roll()
    index.run_compaction()
    put(index, "A", 3, durability="os")


def test_a_roll_that_cannot_have_its_file_applies_nothing(index, files):
    files.fail_renames = True
    with pytest.raises(BacklogFullError):
        put(index, "A", 1, durability="os")
    files.fail_renames = False
    put(index, "A", 2, durability="os")
    assert offsets(index.query("orders", key="A")) == [2]


def test_close_writes_what_was_received_even_without_budget(make_index):
    index = make_index(disk_budget_bytes=1)
    put(index, "A", 1, durability="os")
    components_of(index).writing.writer.look_again()
    put(index, "A", 2)
    index.close()
    assert offsets(make_index().query("orders", key="A")) == [2, 1]


def test_close_that_cannot_write_says_that_what_was_received_is_lost(make_index, files):
    index = make_index(filesystem=files)
    put(index, "A", 1)
    files.fail_renames = True
    with pytest.raises(UnavailableError, match="only `received` is lost"):
        index.close()
    files.fail_renames = False
    assert offsets(make_index().query("orders", key="A")) == []


def test_a_fenced_owner_keeps_what_it_received(make_index, tmp_path):
    first = make_index(tmp_path / "a", store=str(tmp_path / "s"), node="n")
    put(first, "A", 1, durability="os")
    put(first, "A", 2)
    make_index(tmp_path / "b", store=str(tmp_path / "s"), node="n", takeover=True)
    first.roll()
    with pytest.raises(FencedError):
        first.run_compaction()
    for level in ("received", "os"):
        with pytest.raises(FencedError):
            put(first, "A", 3, durability=level)
    with pytest.raises(FencedError):
        first.flush("remote")
    assert offsets(first.query("orders", key="A")) == [2, 1]
    first.close()
    adopted = make_index(tmp_path / "a", store=str(tmp_path / "s"), node="m", adopt=True)
    adopted.run_compaction()
    assert offsets(adopted.query("orders", key="A")) == [2, 1]


def test_a_closed_index_answers_and_takes_nothing(make_index):
    index = make_index()
    put(index, "A", 1)
    index.close()
    index.close()
    calls = [
        lambda: put(index, "A", 2),
        lambda: put(index, "A", 2, durability="os"),
        lambda: index.put_batch(topic="t", keys=["k"], queue_id=0, offset=0, size=0, timestamp=0),
        lambda: index.query("orders", key="A"),
        lambda: index.query_batch([{"topic": "orders", "key": "A"}]),
        lambda: index.flush("os"),
        lambda: index.roll(),
        lambda: index.run_compaction(),
        lambda: index.files(),
        lambda: index.watermark("orders", 0),
        lambda: index.refresh(),
    ]
    for call in calls:
        with pytest.raises(ClosedError):
            call()


def test_next_file_is_made_while_a_seal_holds_the_sync_lock(make_index):
    """A seal syncs a whole file under that lock; what puts wait for must not wait for it."""
    index = make_index(item_capacity=10)
    writer = components_of(index).writing.writer
    for offset in range(6):
        put(index, "A", offset, durability="os")
    with writer._disk._sync_lock:
        writer.prepare_next()  # would hang here
    assert writer._next_file.is_made


@pytest.mark.parametrize("how", ["gone", "renamed late", "renamed elsewhere"])
def test_a_writer_heals_itself_when_the_file_made_ahead_lost_its_name(make_index, files, how):
    index = make_index(filesystem=files, item_capacity=10)
    for offset in range(10):
        put(index, "A", offset, durability="os")
    writer = components_of(index).writing.writer
    writer.prepare_next()
    ready = components_of(index).writing.writer._next_file.path
    assert ready.exists()
    if how == "gone":
        ready.unlink()
    elif how == "renamed elsewhere":
        ready.rename(ready.with_name("7"))
    else:
        files.late_errors = 1
    with pytest.raises(UnavailableError):
        put(index, "A", 10, durability="os")
    assert index.health() != []  # nothing is open for puts now
    for offset in range(10, 31):
        put(index, "A", offset, durability="os")
    assert index.health() == []
    assert offsets(index.query("orders", key="A")) == list(range(30, -1, -1))
    folder = ready.parent
    (folder / "7").unlink(missing_ok=True)  # of the operator; no process of ours has it
    assert len(list(folder.iterdir())) == len(index.files())  # the late one did not stay
    index.flush("disk")
    index.close()
    index = make_index(item_capacity=10)
    assert offsets(index.query("orders", key="A")) == list(range(30, -1, -1))


def test_a_writer_that_can_open_no_file_says_so_until_its_tending_can(make_index, files):
    index = make_index(filesystem=files)
    tending = WriterTending(components_of(index).writing.writer, components_of(index).forgetter)
    assert index.health() == []
    files.fail_renames = True
    with pytest.raises(BacklogFullError):
        put(index, "A", 1, durability="os")
    assert "no space" in index.health()[0].detail
    tending.step()
    assert "no space" in index.health()[0].detail
    files.fail_renames = False
    tending.step()  # no put comes to a service that is not ready
    assert index.health() == []
    put(index, "A", 2, durability="os")
    assert offsets(index.query("orders", key="A")) == [2]


def test_a_fenced_writer_is_not_healthy(index):
    components_of(index).writing.writer.refuse(FencedError("epoch 9 took over"))
    assert index.health() == [("fenced", "epoch 9 took over")]


@pytest.mark.parametrize(
    "spelling",
    [
        {"key": "k"}, {"keys": "k"}, {"keys": ("k", "l")}, {"keys": {"k"}}, {"keys": frozenset({"k"})},
        {"keys": lambda: iter(["k"])}, {"keys": {"k": 1}.keys()}, {"key": "k", "message_id": "m"},
        {"key": "k", "timestamp": "2024-03-01T10:00:00Z"},
        {"key": "k", "timestamp": datetime(1970, 1, 15, tzinfo=UTC)},  # no number of seconds
        {"key": "k", "queue_id": np.int32(3), "offset": np.uint64(7)},
    ],
    ids=[
        "key", "text", "tuple", "set", "frozenset", "iterator", "view", "id", "written", "early", "numpy",
    ],
)  # fmt: skip
@pytest.mark.parametrize("durability", ["received", "os", "disk"])
def test_put_takes_every_spelling(index, spelling, durability):
    place = {"topic": "t", "queue_id": 0, "offset": 7, "size": 1, "timestamp": 5}
    for _ in range(2):  # of a new topic, and of one that the file has
        given = {name: value() if callable(value) else value for name, value in spelling.items()}
        assert index.put(**{**place, **given}, durability=durability) == durability
    (entry,) = index.query("t", key="k").entries
    assert entry.offset == 7
    assert isinstance(entry.timestamp, int)
