"""The level `remote`: one roll for all who wait, no word that is not true, and a store that is away."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from tests.log_service.log_world import open_log, seal_rolled
from tests.patience import PATIENCE_S
from tierdex.errors import (
    ClosedError,
    CorruptFileError,
    FencedError,
    InvalidRequestError,
    OffsetMismatchError,
    UnavailableError,
)
from tierdex.log_service.message_log import MessageLog
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

QUEUE = {"topic": "a", "queue_id": 0}


def states(log):
    return [info.state for info in log.files()]


def ends(log):
    return log.end_offsets("a", 0)


def test_append_returns_when_the_message_is_in_a_published_file(world):
    log = world.open()
    world.append(log, ("a", 0), b"x", ["k"], durability="remote")
    assert states(log) == ["uploaded"]
    assert ends(log) == dict.fromkeys(("received", "os", "disk", "remote"), 1)
    world.append(log, ("a", 0), b"y", ["k"])
    assert ends(log)["remote"] == log.end_offset("a", 0, level="remote") == 1
    receipt = log.append_batch(**QUEUE | {"body": [b"z"]}, durability="remote")
    assert receipt.level.name == "REMOTE"
    assert ends(log)["remote"] == 3


def test_nothing_to_publish_needs_no_roll(world):
    log = world.open()
    log.flush("remote")
    assert states(log) == []
    world.append(log, ("a", 0), b"x", ["k"], durability="remote")
    before = world.store.calls("upload")
    log.flush("remote")
    assert log.append_batch(**QUEUE | {"body": []}, durability="remote").offsets.tolist() == []
    assert world.store.calls("upload") == before


def test_rolls_are_no_closer_than_the_interval(world):
    log = world.open(remote_interval=10.0)
    clock = components_of(log).seams.clock
    world.append(log, ("a", 0), b"x", ["k"], durability="remote")
    begun = clock.monotonic()
    world.append(log, ("a", 0), b"y", ["k"])
    world.append(log, ("a", 0), b"z", ["k"], durability="remote")
    assert clock.monotonic() - begun >= 9.9
    assert states(log) == ["uploaded"] * 2


def test_reads_at_remote_show_what_is_published_and_nothing_else(world):
    log = world.open()
    for i in range(4):
        world.append(log, ("a", i % 2), b"%d" % i, ["k"])
    log.flush("remote")
    world.append(log, ("a", 0), b"4", ["k"])
    world.append(log, ("b", 0), b"5", ["k"])
    log.roll()
    seal_rolled(log)
    world.append(log, ("a", 1), b"6", ["k"])
    reader = open_log(world.disk.other_process(), store=world.store, index=True, read_only=True)
    for each in (log, reader):
        answer = each.read("a", 0, 0, visible="remote")
        assert [m.body for m in answer.messages] == [b"0", b"2"]
        assert (answer.complete, answer.next_offset, answer.end_offset) == (True, 2, 2)
        assert not len(each.read("a", 0, 2, visible="remote"))
        assert [m.body for m in each.get("a", key="k", visible="remote")] == [
            b"3",
            b"2",
            b"1",
            b"0",
        ]
        places = [("a", 0, 0), ("a", 1, 1), ("b", 0, 0), ("nobody", 0, 0)]
        many = each.read_many(places, visible="remote")
        assert [[m.body for m in one.messages] for one in many] == [[b"0", b"2"], [b"3"], [], []]
        assert [m.body for m in each.reader("a", 1, visible="remote")] == [b"1", b"3"]
        assert each.end_offset("b", 0, level="remote") == 0
        assert each.offset_at("a", 0, 1 << 60, visible="remote") == 2
    log.flush("remote")
    reader.refresh()
    assert len(reader.read("a", 1, 2, visible="remote")) == 1


def test_mismatch_is_answered_once_what_is_below_is_published(world):
    log = world.open()
    world.append(log, ("a", 0), b"x", ["k"], durability="os")
    with pytest.raises(OffsetMismatchError) as caught:
        log.append(**QUEUE, body=b"y", expect_offset=7, durability="remote")
    assert caught.value.next_offset == 1
    assert caught.value.end_offsets == dict.fromkeys(("received", "os", "disk", "remote"), 1)


def test_log_without_a_store_says_so(world):
    log = open_log(world.disk)
    for call in (
        lambda: log.append(**QUEUE, body=b"x", durability="remote"),
        lambda: log.append_nowait(**QUEUE, body=b"x", durability="remote"),
        lambda: log.append_batch(topic="a", queue_id=0, body=[b"x"], durability="remote"),
        lambda: log.flush("remote"),
        lambda: log.read("a", 0, 0, visible="remote"),
        lambda: log.end_offset("a", 0, level="remote"),
    ):
        with pytest.raises(InvalidRequestError, match="index=True"):
            call()
    assert log.topics() == []
    assert ends(log) == {"received": 0, "os": 0, "disk": 0, "remote": None}


def test_store_that_is_away_is_an_error_and_nothing_is_lost(world):
    log = world.open()
    with world.store.outage():
        with pytest.raises(UnavailableError):
            log.append(**QUEUE, body=b"x", durability="remote")
        assert ends(log) == {"received": 1, "os": 1, "disk": 1, "remote": 0}
    log.flush("remote")
    assert ends(log)["remote"] == 1


def test_what_is_published_is_not_denied_while_the_store_was_never_reached(world):
    log = world.open()
    world.append(log, ("a", 0), b"x", ["k"], durability="remote")
    log.close()
    with world.store.outage():
        log = world.open()
        with pytest.raises(UnavailableError):
            log.end_offset("a", 0, level="remote")
        assert not log.read("a", 0, 0, visible="remote").complete


def test_file_that_expires_before_it_is_published_holds_nobody_up(world):
    log = world.open(retention=3600.0)
    world.append(log, ("a", 0), b"x", ["k"])
    log.roll()
    log.catch_up()
    seal_rolled(log)
    world.advance(log, 7_200_000)
    world.append(log, ("a", 0), b"y", ["k"], durability="remote")
    assert states(log) == ["uploaded"]
    answer = log.read("a", 0, 0, visible="remote")
    assert (answer.first_offset, [m.body for m in answer.messages]) == (1, [b"y"])


def test_damaged_journal_is_named_and_what_follows_goes_up(world):
    log = world.open()
    world.append(log, ("a", 0), b"x" * 100, ["k"])
    log.roll()
    log.catch_up()
    seal_rolled(log)
    path = components_of(log).table.version.files.local()[0].path
    world.append(log, ("a", 0), b"y", ["k"])
    log.close()
    world.disk.open(path, writable=True).write_at(4096 + 80, b"damage")
    log = world.open()
    with pytest.raises(CorruptFileError, match=path.name):
        log.flush("remote")
    assert log.append(**QUEUE, body=b"z", durability="remote") == 2
    answer = log.read("a", 0, 0, visible="remote")
    assert (len(answer), answer.next_offset, answer.end_offset) == (0, 0, 3)
    assert path.name in answer.missing[0].file
    assert [m.body for m in log.read("a", 0, 1, visible="remote").messages] == [b"y", b"z"]


# -- with threads, on a real folder ---------------------------------------------------------------------


@pytest.fixture
def away(tmp_path):
    """A log with threads whose store is away; its outage ends with the second value's `__exit__`."""
    store = FaultyStore(MemoryStore())
    settings = {"journal_bytes": 1 << 20, "max_message_bytes": 8 << 10, "disk_reserve_bytes": 0}
    with MessageLog.open(
        tmp_path, store=store, node="n", compact_interval=0.02, backoff_max=0.05, **settings
    ) as log:
        outage = store.outage()
        outage.__enter__()
        yield log, outage


def test_many_who_wait_share_one_roll_and_coroutines_hold_no_thread(away):
    log, outage = away
    told = queue.SimpleQueue()
    with components_of(
        log
    ).writing.remote._stepping:  # else the first is rolled before the next comes
        for number in range(8):
            pending = log.append_nowait(**QUEUE, body=b"%d" % number, durability="remote")
            pending.commit.add_callback(pending.level, told.put)
        log.flush("disk")
        assert len(log.read("a", 0, 0)) == 8  # appends do not wait for the store
    threads = [threading.Thread(target=log.flush, args=("remote",)) for _ in range(6)]
    for thread in threads:
        thread.start()
    outage.__exit__(None, None, None)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert states(log) == ["uploaded"]
    for _ in range(8):
        told.get(timeout=PATIENCE_S)
    assert ends(log)["remote"] == 8


def test_reader_at_remote_is_woken_by_the_publication(away):
    log, outage = away
    log.append(**QUEUE, body=b"x")
    read = []
    thread = threading.Thread(
        target=lambda: read.append(log.read("a", 0, 0, visible="remote", wait=PATIENCE_S))
    )
    thread.start()
    outage.__exit__(None, None, None)
    log.flush("remote")
    thread.join(PATIENCE_S)
    assert [m.body for m in read[0].messages] == [b"x"]


def test_rolled_journal_is_published_though_nothing_more_is_appended(tmp_path):
    with MessageLog.open(
        tmp_path, store=MemoryStore(), journal_bytes=1 << 20, max_message_bytes=8 << 10,
        disk_reserve_bytes=0, compact_interval=0.02,
    ) as log:  # fmt: skip
        log.append(**QUEUE, body=b"x", keys=["k"])
        deadline = time.monotonic() + PATIENCE_S
        while not log.index.query("a", key="k").entries:  # its commit's dispatch is over
            assert time.monotonic() < deadline
            time.sleep(0.01)
        log.roll()
        while states(log) != ["uploaded"]:
            assert time.monotonic() < deadline, "no thread looks at it any more"
            time.sleep(0.01)


def test_wait_ends_with_the_timeout(tmp_path):
    store = FaultyStore(MemoryStore())
    with MessageLog.open(
        tmp_path, store=store, journal_bytes=16 << 20, remote_timeout=0.3, disk_reserve_bytes=0,
        compact_interval=0.02,
    ) as log:  # fmt: skip
        with store.outage():
            log.append(**QUEUE, body=b"x")
            log.roll()
            deadline = time.monotonic() + PATIENCE_S
            while components_of(log).writing.kind.last_failure() is None:  # which the error tells
                assert time.monotonic() < deadline
                time.sleep(0.01)
            with pytest.raises(UnavailableError, match=r"remote_timeout.*last failure"):
                log.append(**QUEUE, body=b"y", durability="remote")
        assert ends(log)["disk"] == 2


@pytest.mark.parametrize("end", ["close", "fence"])
def test_wait_ends_when_nothing_is_published_any_more(away, end):
    log, _outage = away
    caught, begun = [], threading.Event()

    def wait():
        begun.set()
        try:
            log.append(**QUEUE, body=b"x", durability="remote")
        except (ClosedError, FencedError) as error:
            caught.append(type(error))

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait(PATIENCE_S)
    assert len(log.read("a", 0, 0, wait=PATIENCE_S)) == 1
    if end == "close":
        log.close()
    else:
        components_of(log).fenced = FencedError("another owner has the node")
    thread.join(PATIENCE_S)
    assert caught == [ClosedError if end == "close" else FencedError]
