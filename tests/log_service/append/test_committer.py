"""Threads and coroutines append together, journals roll and are sealed beside them, readers follow."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.patience import PATIENCE_S
from tierdex.clock import Bell
from tierdex.errors import ForkedError, UnavailableError

if TYPE_CHECKING:
    from tierdex.log_service.append.commit import Commit
from tierdex.log_service.levels import Level
from tierdex.log_service.message_log import MessageLog
from tierdex.testing.components import components_of

SMALL = {
    "journal_bytes": 1 << 20,
    "max_message_bytes": 64 << 10,
    "node": "n",
    "disk_reserve_bytes": 0,
    "index": False,
}


@pytest.fixture
def log(tmp_path):
    with MessageLog.open(tmp_path, **SMALL) as log:
        yield log


def run_together(*works) -> None:
    """Run each in a thread of its own; raise the first error."""
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (told below)
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


def bodies_of(log, topic, queue_id, visible="disk"):
    return [m.body for m in log.reader(topic, queue_id, visible=visible)]


def test_threads_that_append_to_one_queue_get_each_offset_once_and_their_own_order(log):
    offsets = {number: [] for number in range(8)}

    def append(number):
        for i in range(40):
            offsets[number].append(log.append(topic="t", queue_id=0, body=b"%d %d" % (number, i)))

    run_together(*(lambda n=n: append(n) for n in offsets))
    assert sorted(offset for given in offsets.values() for offset in given) == list(range(320))
    bodies = bodies_of(log, "t", 0)
    for number, given in offsets.items():
        assert given == sorted(given)
        assert [bodies[offset] for offset in given] == [b"%d %d" % (number, i) for i in range(40)]


def test_messages_that_wait_together_share_a_commit(log):
    """While one sync is held up, every append that comes joins the next commit."""
    log.append(topic="t", queue_id=0, body=b"first")
    journal = components_of(log).writing.active.journal
    began, go_on, syncs, real_sync = Bell(), Bell(), [], journal.sync

    def held_up():
        began.set()
        assert go_on.wait(PATIENCE_S)
        syncs.append(journal.message_count)
        return real_sync()

    journal.sync = held_up
    first = threading.Thread(target=lambda: log.append(topic="t", queue_id=0, body=b"holds"))
    first.start()
    assert began.wait(PATIENCE_S)
    pending = [log.append_nowait(topic="t", queue_id=1, body=b"%d" % i) for i in range(100)]
    assert len({id(each.commit) for each in pending}) == 1
    assert not pending[0].commit.is_settled(Level.OS)
    go_on.set()
    for each in pending:
        components_of(log).writing.committer.wait(each.commit, each.level)
    first.join(PATIENCE_S)
    assert len(syncs) == 2, "one for the first message, one for the hundred"
    assert log.end_offset("t", 1) == 100


def test_batch_that_is_not_waited_for_tells_when_it_is_safe(log):
    pending = log.append_batch_nowait(topic="t", queue_id=[0, 1, 0], body=[b"a", b"b", b"c"])
    assert pending.offsets.tolist() == [0, 0, 1]
    settled = Bell()
    pending.commit.add_callback(pending.level, lambda commit: settled.set())
    assert settled.wait(PATIENCE_S)
    pending.commit.raise_error(pending.level)
    assert bodies_of(log, "t", 0) == [b"a", b"c"]


def test_empty_batch_brings_what_came_before_to_the_level(log):
    log.append(topic="t", queue_id=0, body=b"a", durability="received")
    assert log.append_batch(topic="t", queue_id=0, body=[]).offsets.tolist() == []
    assert log.end_offset("t", 0, level="disk") == 1


def test_without_a_thread_an_append_that_is_not_waited_for_commits_itself(tmp_path):
    with MessageLog.open(tmp_path, **SMALL, background=False) as log:
        pending = log.append_nowait(topic="t", queue_id=0, body=b"a")
        assert pending.commit.is_settled(Level.DISK)
        assert log.append_batch_nowait(topic="t", queue_id=0, body=[b"b"]).commit.error is None
        assert bodies_of(log, "t", 0) == [b"a", b"b"]


def test_callback_comes_once_when_there_is_more_to_see(log):
    came, bell = [], Bell()

    def more():
        came.append(log.end_offset("t", 0))
        bell.set()

    log.call_when_more(more)
    log.append(topic="t", queue_id=0, body=b"a", durability="os")
    log.append(topic="t", queue_id=0, body=b"b")
    assert bell.wait(PATIENCE_S)
    log.append(topic="t", queue_id=0, body=b"c")
    assert came == [2]


def test_coroutines_wait_with_one_future_a_commit(log):
    futures: dict[Commit, asyncio.Future] = {}

    async def append(loop, queue_id, i):
        pending = log.append_nowait(topic="t", queue_id=queue_id, body=b"%d" % i)
        future = futures.get(pending.commit)
        if future is None:
            future = futures[pending.commit] = loop.create_future()

            def settled(commit):
                loop.call_soon_threadsafe(lambda: future.done() or future.set_result(commit))

            pending.commit.add_callback(pending.level, settled)
        (await asyncio.wait_for(asyncio.shield(future), PATIENCE_S)).raise_error(pending.level)
        return pending.offset

    async def one(loop, queue_id):
        return [await append(loop, queue_id, i) for i in range(10)]

    async def main():
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(one(loop, queue_id) for queue_id in range(50)))

    assert asyncio.run(main()) == [list(range(10))] * 50
    assert len(futures) < 500, "commits were shared"
    for queue_id in range(50):
        assert bodies_of(log, "t", queue_id) == [b"%d" % i for i in range(10)]


def test_readers_see_a_prefix_at_every_moment_while_journals_roll_and_are_sealed(log):
    queues, rounds = 20, 25
    is_over = threading.Event()

    def write():
        try:
            for i in range(rounds):
                log.append_batch(
                    topic="t", queue_id=list(range(queues)) * 50,
                    body=pa.array([b"%d %d" % (i, k) for k in range(queues * 50)], pa.large_binary()),
                    durability="os",
                )  # fmt: skip
                if i % 7 == 0:
                    log.roll()
        finally:
            is_over.set()

    def follow(visible):
        done = 0
        while True:
            last = is_over.is_set()
            answer = log.read("t", 3, done, max_count=500, visible=visible, wait=0.05)
            assert answer.complete, answer.missing
            for message in answer.messages:
                i, place = divmod(message.offset, 50)
                assert message.body == b"%d %d" % (i, place * queues + 3)
            done = answer.next_offset
            if last and not len(answer):
                return

    run_together(write, lambda: follow("received"), lambda: follow("os"), lambda: follow("disk"))
    log.flush()
    assert len(bodies_of(log, "t", 3)) == rounds * 50
    log.roll()
    log.run_compaction()
    assert {file.state for file in log.files()} == {"compacted"}
    assert len(bodies_of(log, "t", 3)) == rounds * 50


def test_reader_that_waits_is_woken_by_the_commit(log):
    log.append(topic="t", queue_id=0, body=b"0")
    found = []

    def wait_for_more():
        found.append(log.read("t", 0, 1, wait=PATIENCE_S))

    def append():
        log.append(topic="t", queue_id=0, body=b"1")

    run_together(wait_for_more, append)
    assert [m.body for m in found[0].messages] == [b"1"]


def test_received_messages_are_written_soon_though_nobody_waits(log):
    log.append(topic="t", queue_id=0, body=b"x", durability="received")
    assert len(log.read("t", 0, 0, wait=PATIENCE_S, visible="os")) == 1


def test_closing_makes_everything_durable_and_reopens_in_the_same_generation(tmp_path):
    with MessageLog.open(tmp_path, **SMALL) as log:
        for i in range(100):
            log.append(topic="t", queue_id=i % 3, body=b"%d" % i, durability="received")
    with MessageLog.open(tmp_path, **SMALL) as log:
        assert [len(bodies_of(log, "t", queue)) for queue in range(3)] == [34, 33, 33]
        assert log.append(topic="t", queue_id=0, body=b"more") == 34
        assert {file.generation for file in log.files()} == {0}


def test_child_of_fork_is_refused_and_harms_nothing(tmp_path):
    with MessageLog.open(tmp_path, **SMALL, background=False) as log:
        log.append(topic="t", queue_id=0, body=b"parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                log.append(topic="t", queue_id=0, body=b"child")
            except ForkedError:
                log.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert log.append(topic="t", queue_id=0, body=b"parent again") == 1


def test_full_stage_is_an_error_that_may_be_tried_again_when_the_disk_takes_nothing(tmp_path):
    with MessageLog.open(tmp_path, **SMALL, append_timeout=0.05) as log:
        committer = components_of(log).writing.committer
        body = bytes(60_000)
        taken = [log.append(topic="t", queue_id=0, body=body)]

        def fill() -> None:
            while len(taken) < 1000:
                taken.append(log.append_nowait(topic="t", queue_id=0, body=body).offset)

        with committer.commit_lock:  # a commit that hangs in the disk
            with pytest.raises(UnavailableError, match="append_timeout"):
                fill()
            assert log.end_offset("t", 0, level="received") == len(taken) > 1
        log.flush()  # or the disk may not have taken enough within the append's timeout
        assert log.append(topic="t", queue_id=0, body=body) == len(taken)
