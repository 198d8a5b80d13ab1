"""A journal against lists: what is staged, written, read by queue and offset, beside other readers."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logfile.log_files import (
    FILESYSTEM,
    MOST,
    Model,
    append,
    everything,
    make_journal,
    some_rows,
)
from tierdex.errors import (
    ClosedError,
    CorruptFileError,
    InvalidRequestError,
    ReadOnlyError,
    RequestTooLargeError,
)
from tierdex.logfile import layout
from tierdex.logfile.columns import BinaryColumn, MessageColumns, QueueColumns
from tierdex.logfile.extras import Extra
from tierdex.logfile.journal.file import (
    Journal,
    JournalFullError,
    StageFullError,
    recover_journal,
)
from tierdex.logfile.journal.kernels import state
from tierdex.logfile.journal.scan import EMPTY_END
from tierdex.logfile.messages import MessageBatch

QUEUES = st.tuples(st.sampled_from(["a", "orders", "é"]), st.integers(0, 3))
TIMES = st.integers(1_000, 2_000) | st.integers(-(2**63), 2**63 - 1)
ROWS = st.tuples(
    QUEUES,
    st.binary(max_size=80),
    TIMES,
    st.none() | st.just(Extra("id", ("k",), (("h", b"v"),), 7)),
)


@settings(max_examples=40, deadline=None)
@given(
    calls=st.lists(st.tuples(st.lists(ROWS, min_size=1, max_size=12), st.booleans()), max_size=8),
    first=st.integers(0, 2**62),
)
def test_messages_are_read_as_they_were_appended(tmp_path_factory, calls, first):
    path = tmp_path_factory.mktemp("log") / "journal"
    journal = make_journal(path)
    model = Model()
    for rows, write in calls:
        for queue, *_ in rows:
            model.first_offsets.setdefault(queue, first)
        append(journal, rows, model, write=write)
        seen = everything(journal, model.queues, limit=journal.received_limit)
        assert seen == model.queues
    journal.flush()
    assert everything(journal, model.queues) == model.queues
    assert journal.check() == []
    journal.close()
    again = recover_journal(FILESYSTEM, path)
    assert everything(again, model.queues) == model.queues
    assert again.check() == []
    again.close()


def test_staged_messages_are_published_only_by_write(tmp_path):
    journal = make_journal(tmp_path / "journal")
    append(journal, [(("a", 0), b"first", 1, None)], write=False)
    assert journal.extent(b"a", 0) is None
    closed = journal.close_stage()
    append(journal, [(("a", 0), b"second", 1, None)], write=False)
    read = everything(journal, [("a", 0)], limit=journal.received_limit)
    assert [message.body for message in read["a", 0]] == [b"first", b"second"]
    assert not len(journal.read(b"a", 0, 0, max_count=9, max_bytes=MOST))
    journal.write(closed)
    assert [m.body for m in journal.read(b"a", 0, 0, max_count=9, max_bytes=MOST)] == [b"first"]
    journal.flush()
    assert journal.extent(b"a", 0) == (0, 2)


def test_read_ends_at_count_and_bytes_but_gives_one_message_at_least(tmp_path):
    journal = make_journal(tmp_path / "journal")
    append(journal, [(("a", 0), bytes([i]) * 10, i, None) for i in range(20)])
    counts = [
        len(journal.read(b"a", 0, 5, max_count=count, max_bytes=most))
        for count, most in [(3, MOST), (100, 35), (100, 0), (0, MOST), (100, MOST)]
    ]
    assert counts == [3, 3, 1, 0, 15]
    assert not len(journal.read(b"a", 0, 20, max_count=1, max_bytes=MOST))
    assert not len(journal.read(b"a", 1, 0, max_count=1, max_bytes=MOST))
    assert not len(journal.read(b"", 0, 0, max_count=1, max_bytes=MOST))


def test_queue_of_many_messages_is_read_from_any_offset(tmp_path):
    """Chunks of all sizes: 2, 4 ... 1,024 and the larger ones behind them."""
    journal = make_journal(tmp_path / "journal", capacity=4 << 20, stage_bytes=1 << 20)
    count = 40_000
    numbers = journal.define(QueueColumns.of([("a", 0), ("b", 1)]), np.array([7, 0]))
    bodies = np.arange(2 * count, dtype=np.int64)
    journal.append(
        MessageColumns(
            queues=np.tile(numbers, count),
            bodies=BinaryColumn(np.arange(2 * count + 1) * 8, bodies.view(np.uint8)),
            times=np.arange(2 * count) % 1000,
        )
    )
    random = np.random.default_rng(3)
    for ordinal in [0, 1, 2, 5, 6, 13, 14, 2045, 2046, *random.integers(0, count, 300).tolist()]:
        batch = journal.read(b"a", 0, 7 + ordinal, max_count=3, max_bytes=MOST)
        assert len(batch) == min(3, count - ordinal)
        wanted = 2 * (ordinal + np.arange(len(batch)))
        assert batch.bodies.view(np.int64).tolist() == wanted.tolist()
        assert batch.times.tolist() == (wanted % 1000).tolist()
    used = int(journal.tables.words[state.W_NEXT_SLOT])
    assert 4 * used < 4.6 * 2 * count, "slots of 4 bytes, and chunks that are not full"


def test_recycled_journal_gives_nothing_of_its_old_life(tmp_path):
    path = tmp_path / "journal"
    old = make_journal(path)
    append(old, some_rows(300))
    old.seal()
    with pytest.raises(BlockingIOError):
        Journal.recycle(FILESYSTEM, path, uuid=bytes(16), capacity=1 << 18, created_ms=2)
    old.close()
    backup = tmp_path / "backup"
    backup.hardlink_to(path)
    with pytest.raises(BlockingIOError):
        Journal.recycle(FILESYSTEM, path, uuid=bytes(16), capacity=1 << 18, created_ms=2)
    backup.unlink()
    new = Journal.recycle(
        FILESYSTEM, path, uuid=bytes(16), capacity=1 << 18, created_ms=2, generation=4
    )
    assert (new.message_count, new.predecessor) == (0, None)
    append(new, [(("a", 0), b"new", 1, None)])
    new.close()
    again = recover_journal(FILESYSTEM, path)
    assert again.header.generation == 4
    assert (again.message_count, again.end.number, again.queue_count) == (1, 1, 1)
    assert again.check() == []


def test_stale_batches_of_the_same_place_are_refused_by_the_uuid(tmp_path):
    """The batch lies where the next one is looked for, whole, with the number that comes next."""
    path = tmp_path / "journal"
    old = make_journal(path)
    for _ in range(3):
        append(old, [(("a", 0), b"old", 1, None)])
    old.close()
    new = Journal.recycle(FILESYSTEM, path, uuid=bytes(16), capacity=1 << 18, created_ms=2)
    data = path.read_bytes()
    assert data.count(b"LBCH") == 3, "the old batches are there"
    append(new, [(("a", 0), b"new", 1, None)])
    assert path.read_bytes().count(b"LBCH") == 2, "the next record is zeroed"
    new.close()
    assert recover_journal(FILESYSTEM, path).end.number == 1


def test_full_journal_refuses_a_call_whole_and_takes_a_smaller_one(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=32 << 10, stage_bytes=8 << 10)
    append(journal, [(("a", 0), b"x" * 1000, 1, None)] * 20)
    before = journal.end, journal.message_count
    with pytest.raises(JournalFullError):
        append(journal, [(("a", 0), b"x" * 1000, 1, None)] * 20)
    assert (journal.end, journal.message_count) == before
    append(journal, [(("a", 0), b"x" * 1000, 1, None)] * 5)
    while True:
        try:
            append(journal, [(("a", 0), b"", 1, None)])
        except JournalFullError:
            break
    assert journal.published > journal.header.capacity - 300
    assert journal.check() == []
    journal.seal()


def test_stage_without_room_for_queues_says_so_and_keeps_its_rows(tmp_path):
    journal = make_journal(tmp_path / "journal", stage_bytes=2048)
    append(journal, [(("a", 0), b"x" * 1500, 1, None)], write=False)
    queues = QueueColumns.of([("b", i) for i in range(30)])
    with pytest.raises(StageFullError):
        journal.define(queues, np.zeros(30))
    journal.flush()
    journal.define(queues, np.zeros(30))
    journal.flush()
    with pytest.raises(RequestTooLargeError):
        journal.define(QueueColumns.of([("c", i) for i in range(200)]), np.zeros(200))
    journal.flush()
    assert (journal.queue_count, journal.message_count) == (31, 1)
    assert journal.check() == []


def test_append_of_one_stage_is_one_batch_and_a_larger_one_several(tmp_path):
    journal = make_journal(tmp_path / "journal", stage_bytes=4096)
    append(journal, [(("a", 0), b"x" * 100, 1, None)] * 30)
    assert journal.end.number == 1
    append(journal, [(("a", 0), b"x" * 100, 1, None)] * 100)
    assert journal.end.number == 4
    arrived = list(journal.arrivals(EMPTY_END))
    assert len(arrived[0].queues) == 30
    assert sum(len(rows.queues) for rows in arrived) == 130
    assert arrived[-1].end == journal.end


def test_reader_beside_the_writer_sees_later_batches(tmp_path):
    journal = make_journal(tmp_path / "journal")
    model = Model()
    append(journal, some_rows(50), model)
    reader = Journal.open_for_reading(FILESYSTEM, journal.path)
    assert everything(reader, model.queues) == model.queues
    append(journal, some_rows(200, seed=2, queues=40), model)
    assert reader.message_count == 50
    reader.refresh()
    assert everything(reader, model.queues) == model.queues
    with pytest.raises(ReadOnlyError):
        append(reader, some_rows(1))
    journal.seal()
    reader.close()
    with pytest.raises(ClosedError):
        reader.read(b"a", 0, 0, max_count=1, max_bytes=1)
    with pytest.raises(CorruptFileError):
        Journal.open_for_reading(FILESYSTEM, journal.path)


def test_readers_meet_whole_messages_while_a_thread_appends(tmp_path):
    journal = make_journal(tmp_path / "journal", capacity=8 << 20, stage_bytes=1 << 16)
    failed: list[object] = []
    done = threading.Event()

    def read_on() -> None:
        random = np.random.default_rng(threading.get_ident() % 1000)
        while not done.is_set():
            queue = int(random.integers(50))
            limit = journal.received_limit if random.random() < 0.5 else None
            extent = journal.extent(b"t", queue, limit)
            if extent is None:
                continue
            offset = int(random.integers(extent.first_offset, extent.next_offset))
            batch = journal.read(b"t", queue, offset, max_count=20, max_bytes=MOST, limit=limit)
            wanted = [b"%d:%d" % (queue, offset + i) * 3 for i in range(len(batch))]
            if not len(batch) or [message.body for message in batch] != wanted:
                failed.append((queue, offset, list(batch)[:2]))

    threads = [threading.Thread(target=read_on) for _ in range(2)]
    for thread in threads:
        thread.start()
    counts = [0] * 50
    for call in range(150):
        rows = []
        for i in range(40):
            queue = (call * 7 + i * i) % 50
            rows.append((("t", queue), b"%d:%d" % (queue, counts[queue]) * 3, i, None))
            counts[queue] += 1
        append(journal, rows, write=False)
        if call % 3 == 0:
            journal.flush()
    done.set()
    for thread in threads:
        thread.join()
    assert failed == []


def test_what_no_row_can_hold_is_refused(tmp_path):
    journal = make_journal(tmp_path / "journal")
    for queue, topic in ((-1, "a"), (0, ""), (0, "t" * 256), (2**31, "a"), (0, "\ud800")):
        with pytest.raises(InvalidRequestError):
            QueueColumns.of([(topic, queue)])
    with pytest.raises(RequestTooLargeError):
        append(journal, [(("a", 0), b"x" * journal._stage_bytes, 1, None)])
    with pytest.raises(InvalidRequestError):
        MessageColumns(
            queues=0, bodies=BinaryColumn.from_values([b"x", b"y"]), times=np.array([1] * 3)
        )
    with pytest.raises(InvalidRequestError):
        BinaryColumn(np.array([0, 5]), np.zeros(4, np.uint8))
    with pytest.raises(CorruptFileError):
        make_journal(tmp_path / "small", capacity=4096)
    too_long = np.array([0, layout.BODY_BYTES_MAX + 1])
    with pytest.raises(InvalidRequestError):
        MessageColumns(
            queues=0, bodies=BinaryColumn(too_long, np.zeros(int(too_long[1]), np.uint8)), times=1
        )


def test_arrow_columns_are_taken_without_a_copy():
    import pyarrow as pa

    array = pa.array([b"x", b"yy", b"", b"zzz"], pa.binary())[1:]
    column = BinaryColumn.from_arrow(array)
    assert [column.value(i) for i in range(3)] == [b"yy", b"", b"zzz"]
    assert column.data.ctypes.data == array.buffers()[2].address
    assert len(BinaryColumn.from_arrow(pa.array([], pa.large_binary()))) == 0
    for refused in (pa.array([1]), pa.array([b"x", None])):
        with pytest.raises(InvalidRequestError):
            BinaryColumn.from_arrow(refused)


def test_batches_of_messages_join():
    empty = MessageBatch.join([], 5)
    assert (len(empty), empty.next_offset) == (0, 5)
