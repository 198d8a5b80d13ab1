"""What a journal leaves to the one that takes over from it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pyarrow as pa

from tests.log_service.log_world import DATA, open_log, seal_rolled
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex.filesystem import make_durable_folder
from tierdex.log_service.append.next_journal import FIRST_BYTES
from tierdex.log_service.message_log import MessageLog
from tierdex.logfile.journal.kernels import state as s
from tierdex.testing.components import components_of

QUEUES, EACH = 50, 70
CHUNK_ENDS = s.CHUNK_HEAD + 1


def fill(log) -> int:
    """Append EACH messages to every queue; return the slots that its journal has taken for them."""
    ids = np.tile(np.arange(QUEUES, dtype=np.int32), EACH)
    log.append_batch(topic="t", queue_id=ids, body=pa.array([b"x"] * len(ids), pa.binary()))
    return int(components_of(log).writing.active.journal.tables.words[s.W_NEXT_SLOT])


def test_journal_has_room_in_one_piece_for_as_many_messages_of_a_queue_as_the_last_one_got():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    log = open_log(disk)
    taken = []
    for _ in range(3):
        taken.append(fill(log))
        log.roll()
    begin = 1  # the arena's first slots mean nothing
    exact = QUEUES * (EACH + CHUNK_ENDS)
    assert taken[0] > 1.5 * exact
    assert all(exact <= slots <= exact + s.CHUNK_HEAD + begin for slots in taken[1:])
    ends = [log.end_offset("t", n) for n in range(QUEUES)]
    log.close()
    again = open_log(disk)  # nothing is known of the last journal here
    assert [again.end_offset("t", n) for n in range(QUEUES)] == ends == [3 * EACH] * QUEUES
    assert [len(answer) for answer in again.read_many([("t", n, 0) for n in range(QUEUES)], max_count=1000)] \
        == ends  # fmt: skip


def test_nobody_keeps_the_tables_of_a_journal_that_was_sealed():
    disk = SimulatedFileSystem()
    make_durable_folder(disk, DATA)
    log = open_log(disk)
    for _ in range(2):  # the second time each by its kernel
        log.append(topic="t", queue_id=0, body=b"x")
        assert len(log.read("t", 0, 0)) > 0
    old = weakref.ref(components_of(log).writing.active.journal)
    assert log.end_offset("t", 0) == 2
    log.roll()
    seal_rolled(log)
    gc.collect()
    assert old() is None


def test_journals_of_a_new_log_are_short_and_twice_as_long_when_they_fill(tmp_path):
    def capacity() -> int:
        return components_of(log).writing.active.journal.header.capacity

    with MessageLog.open(tmp_path / "log", background=False, disk_reserve_bytes=0) as log:
        log.append(topic="t", queue_id=0, body=b"x")
        assert capacity() == FIRST_BYTES
        files = (path for path in tmp_path.rglob("*") if path.is_file())
        assert sum(path.stat().st_blocks * 512 for path in files) < 64 << 20
        log.roll()  # hardly used
        log.append(topic="t", queue_id=0, body=b"x")
        assert capacity() == FIRST_BYTES
        for _ in range(3):  # each is more than half of a journal
            log.append_batch(topic="t", queue_id=0, body=[b"x" * (1 << 20)] * 10)
        assert capacity() == 2 * FIRST_BYTES
    with MessageLog.open(tmp_path / "log", background=False, disk_reserve_bytes=0) as log:
        assert capacity() == 2 * FIRST_BYTES


def test_no_journal_is_longer_than_the_setting(tmp_path):
    longest = 24 << 20
    with MessageLog.open(tmp_path / "log", background=False, journal_bytes=longest) as log:
        for _ in range(8):
            log.append_batch(topic="t", queue_id=0, body=[b"x" * (1 << 20)] * 10)
        assert components_of(log).writing.active.journal.header.capacity == longest
