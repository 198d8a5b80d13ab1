"""Published messages are fetched ahead of their readers: requests are counted, memory is bounded."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.client.test_remote import AppTransport
from tests.log_service.keyed_world import KeyedWorld
from tests.patience import PATIENCE_S
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.client.remote import Client
from tierdex.clock import ManualClock
from tierdex.log_service.files.fetched_ranges import FetchedRanges, Next, ObjectRange
from tierdex.log_service.files.read_ahead import STEP_BYTES, ReadAhead, Window
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import Fault, FaultyStore

MIB = 1 << 20
_SOURCE = random.Random(1)
BODY = 16 << 10
FEW = 8


class CountedStore(FaultyStore):
    """Notes each range that is asked for of a file; `gate` lets requests wait."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked = []
        self.gate = None
        self.arrived = threading.Semaphore(0)

    def wait_for(self, count):
        for _ in range(count):
            assert self.arrived.acquire(timeout=PATIENCE_S)

    def get(self, key, position=None, length=None):
        if "/files/" in key:
            self.asked.append((key, position, length))
            self.arrived.release()
            if self.gate is not None:
                self.gate.wait(PATIENCE_S)
        return super().get(key, position, length)


class World(KeyedWorld):
    """Queues of incompressible messages, published."""

    def __init__(self) -> None:
        super().__init__()
        self.store = CountedStore()

    def publish(self, log, queues, count, size=BODY):
        """Append `count` messages of `size` bytes to each queue; publish the file that they make."""
        body = [_SOURCE.randbytes(size) for _ in range(count)]
        for queue_id in queues:
            log.append_batch(topic="q", queue_id=queue_id, body=body)
        log.roll()
        log.run_compaction()
        assert log.files()[0].state == "uploaded"
        self.store.asked.clear()
        return body

    @property
    def requests(self):
        return len(self.store.asked)


@pytest.fixture(scope="module")
def big():
    """A world with 4.25 MiB in queue 0, and FEW messages in each of 12 others."""
    world = World()
    log = world.open(journal_bytes=8 * MIB, max_message_bytes=64 << 10, page_cache_bytes=0)
    body = [_SOURCE.randbytes(BODY) for _ in range(17 * 16)]
    log.append_batch(topic="q", queue_id=0, body=body)
    for queue_id in range(1, 13):
        log.append_batch(topic="q", queue_id=queue_id, body=body[:FEW], keys=[f"k{queue_id}"] * FEW)
    log.roll()
    log.run_compaction()
    log.index.roll()
    log.run_compaction()
    world.body = body
    yield world
    log.close()


@pytest.fixture
def reading(big):
    """The same, opened anew: nothing is held."""
    log = big.log = big.open(read_only=True, page_cache_bytes=0)
    log.read("q", 0, 10**9)  # sidecars
    log.index.query("q", key="none")
    big.store.asked.clear()
    yield log
    log.close()


def held(log):
    return components_of(log).tier.tails.fetched.held_bytes


def test_replay_of_a_queue_sends_one_request_for_each_4_mib(big, reading):
    assert [m.body for m in reading.reader("q", 0)] == big.body
    assert big.requests <= 1 + len(big.body) * BODY / STEP_BYTES
    big.store.asked.clear()
    assert sum(len(m.body) for m in reading.reader("q", 7)) == FEW * BODY
    assert big.requests == 1


def test_replay_over_http_sends_as_few_requests(big, reading):
    app = create_app(None, ServerSettings(log_requests=False), log=reading)
    with Client("http://localhost", transport=AppTransport(app)) as client:
        assert [m.body for m in client.reader("q", 0)] == big.body
    assert big.requests <= 1 + len(big.body) * BODY / STEP_BYTES


def test_point_read_sends_one_request_for_its_page(big, reading):
    assert reading.read("q", 0, 200, max_count=1).messages[0].body == big.body[200]
    assert big.requests == 1
    assert big.store.asked[0][2] < 2 * BODY


def test_points_are_no_reader_even_where_one_begins_behind_another(big, reading):
    for offset in (100, 101, 102, 50, 51):
        reading.read("q", 0, offset, max_count=1)
    assert big.requests == 5
    assert all(length < 2 * BODY for _, _, length in big.store.asked)


def test_key_to_body_sends_two_requests(big, reading):
    (found,) = reading.get("q", key="k3", max_count=1)
    assert found.body == big.body[FEW - 1]
    assert big.requests == 2


def test_plain_reads_are_read_ahead_once_they_go_on_where_one_ended(big, reading):
    offset = 0
    while offset < len(big.body):
        answer = reading.read("q", 0, offset, max_count=4)
        assert [m.body for m in answer.messages] == big.body[offset : offset + 4]
        offset = answer.next_offset
    assert big.requests <= 2 + len(big.body) * BODY / STEP_BYTES
    lengths = [length for _, _, length in big.store.asked]
    assert lengths[0] < 5 * BODY < MIB < lengths[1]


def test_pages_near_each_other_share_a_request(big, reading):
    many = reading.read_many([("q", queue_id, 0) for queue_id in range(1, 13, 2)], max_count=2)
    for answer in many:
        assert [m.body for m in answer.messages] == big.body[:2]
    assert big.requests == many.explain.requests == 1


def test_pages_far_from_each_other_are_asked_for_side_by_side(big, reading):
    big.store.gate, big.store.arrived = threading.Event(), threading.Semaphore(0)
    places = [("q", 0, 0), ("q", 0, 200), ("q", 12, 0)]
    with ThreadPoolExecutor(1) as thread:
        try:
            many = thread.submit(reading.read_many, places, max_count=1)
            big.store.wait_for(3)
        finally:
            big.store.gate.set()
        found = [answer.messages[0].body for answer in many.result(PATIENCE_S)]
    big.store.gate = None
    assert found == [big.body[offset] for _, _, offset in places]
    assert big.requests == 3


def test_window_halves_when_what_was_fetched_is_not_read_in_time(big, reading):
    fetched = components_of(reading).tier.tails.fetched
    clock = components_of(reading).seams.clock
    for offset in (0, 4):
        reading.read("q", 0, offset, max_count=4)
    (window,) = components_of(reading).tier.memory.ahead._windows.values()
    assert window.bytes == STEP_BYTES < held(reading)
    clock.advance(179)
    fetched.let_old_go()
    assert held(reading) > MIB
    clock.advance(2)
    fetched.let_old_go()
    assert held(reading) == 0
    assert window.bytes == STEP_BYTES // 2


def test_what_was_read_goes_after_ten_seconds(big, reading):
    list(reading.reader("q", 1))
    assert held(reading) >= FEW * BODY
    components_of(reading).seams.clock.advance(9)
    list(reading.reader("q", 1))
    assert big.requests == 1
    components_of(reading).seams.clock.advance(11)
    components_of(reading).tier.tails.fetched.let_old_go()
    assert held(reading) == 0


def test_request_under_way_is_shared_by_all_who_want_its_pages(big, reading):
    big.store.gate, big.store.arrived = threading.Event(), threading.Semaphore(0)
    found = {}

    def read(number):
        found[number] = reading.read("q", 2, number, max_count=1, group=None).messages

    def replay():
        found["all"] = list(reading.reader("q", 2))

    threads = [threading.Thread(target=replay)]
    try:
        threads[0].start()
        big.store.wait_for(1)
        threads += [threading.Thread(target=read, args=(number,)) for number in range(3, FEW)]
        for thread in threads[1:]:
            thread.start()
    finally:
        big.store.gate.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        big.store.gate = None
    assert len(found["all"]) == FEW
    assert all(found[n][0].body == big.body[n] for n in range(3, FEW))
    assert big.requests == 1


def test_readers_of_many_queues_share_the_budget_and_none_starves(big, caplog):
    budget = MIB
    log = big.open(read_only=True, read_ahead_bytes=budget)
    log.read("q", 0, 10**9)
    big.store.asked.clear()
    readers = {queue_id: iter(log.reader("q", queue_id, max_count=4)) for queue_id in range(13)}
    counts = dict.fromkeys(readers, 0)
    most = 0
    while readers:
        for queue_id, reader in list(readers.items()):
            for _ in range(4):
                message = next(reader, None)
                if message is None:
                    del readers[queue_id]
                    break
                assert message.body == big.body[message.offset]
                counts[queue_id] += 1
            most = max(most, held(log))
    assert counts == {0: len(big.body)} | dict.fromkeys(range(1, 13), FEW)
    assert most <= budget
    assert big.requests < sum(counts.values()) / 4  # fewer than polls: all are read ahead
    assert "again" not in caplog.text  # nothing was cut
    log.close()


def test_next_files_are_fetched_side_by_side():
    world = World()
    log = world.open(journal_bytes=1 * MIB, max_message_bytes=64 << 10, merge_min_files=100)
    bodies = []
    for _ in range(6):
        bodies += world.publish(log, [0, 1], 8)
    world.store.arrived = threading.Semaphore(0)
    reader = iter(log.reader("q", 1, max_count=8))
    found = [next(reader)]
    world.store.wait_for(4)
    found += reader
    assert [m.body for m in found] == bodies
    assert world.requests == 6
    assert len({key for key, _, _ in world.store.asked}) == 6


def test_request_that_fails_is_named_and_asked_anew_by_the_next_read():
    world = World()
    log = world.open(journal_bytes=1 * MIB, max_message_bytes=64 << 10)
    body = world.publish(log, [0], 8)
    world.store.fail("get", fault=Fault.REFUSED)
    answer = log.read("q", 0, 0)
    assert [each.offset for each in answer.missing] == [0]
    assert held(log) == 0
    assert [m.body for m in log.read("q", 0, 0).messages] == body


@pytest.mark.parametrize("fault", [Fault.ALTERED_BODY, Fault.SHORT_BODY])
def test_bytes_that_arrive_damaged_are_fetched_once_more_and_then_named(fault):
    world = World()
    log = world.open(journal_bytes=1 * MIB, max_message_bytes=64 << 10)
    body = world.publish(log, [0], 8)
    world.store.fail("get", fault=fault)
    assert [m.body for m in log.read("q", 0, 0).messages] == body
    assert world.requests == 2
    (handle,) = components_of(log).table.version.files
    components_of(log).tier.tails.fetched.forget(handle.uuid)
    components_of(log).tier.memory.arena.clear()
    world.store.fail("get", fault=fault, count=100)
    answer = log.read("q", 0, 0)
    assert [m.body for m in answer.messages] == body[: len(answer)]
    assert len(answer) < len(body)
    assert [each.offset for each in answer.missing] == [len(answer)]


def test_interrupted_request_is_asked_anew_by_those_who_waited_for_it():
    row = SimpleNamespace(uuid=b"u", object_key="o")
    begun, go, calls = threading.Event(), threading.Event(), []

    def get(_row, position, length):
        calls.append(position)
        if len(calls) == 1:
            begun.set()
            go.wait(PATIENCE_S)
            raise KeyboardInterrupt
        return bytes(length)

    ranges = FetchedRanges(ManualClock(), MIB, get)
    wanted = ObjectRange(row, 10, 20)
    raised, found = [], []

    def interrupted():
        try:
            ranges.read(wanted)
        except KeyboardInterrupt as error:
            raised.append(error)

    first = threading.Thread(target=interrupted)
    first.start()
    assert begun.wait(PATIENCE_S)
    second = threading.Thread(target=lambda: found.append(ranges.read(wanted)))
    second.start()
    go.set()
    for thread in (first, second):
        thread.join(PATIENCE_S)
    assert len(raised) == 1
    assert [bytes(each.data) for each in found] == [bytes(10)]
    assert calls == [10, 10]
    assert ranges.held_bytes == 10


class Data(bytearray):
    """What a weak reference can be held to."""


def test_next_request_is_sent_before_the_reader_has_to_wait_for_it():
    row = SimpleNamespace(uuid=b"u", object_key="o")
    asked, ahead = [], ReadAhead(ManualClock(), 64 * MIB)

    def get(_row, position, length):
        asked.append((position, length))
        return bytes(length)

    ranges, window, end = FetchedRanges(ManualClock(), 64 * MIB, get), Window(0), 41 * MIB
    was_here = []
    for begin in range(0, end, MIB):

        def rest(is_late, begin=begin):
            share = ahead.share()
            most = window.next_bytes(share) if is_late else min(window.bytes, share)
            return Next([ObjectRange(row, begin + MIB, end)], most - MIB)

        found = ranges.read(ObjectRange(row, begin, begin + MIB), rest, window)
        assert len(found.data) == MIB
        was_here.append(found.was_here)
    assert sum(length for _, length in asked) == end
    assert len(asked) <= 1 + -(-end // STEP_BYTES)
    assert was_here.count(False) <= 3  # alone, then 4 MiB, then 8: from there on it is read ahead


def test_memory_of_what_was_read_is_given_back_at_once():
    row = SimpleNamespace(uuid=b"u", object_key="o")
    fetched = []

    def get(_row, position, length):
        data = Data(length)
        fetched.append(weakref.ref(data))
        return data

    ranges = FetchedRanges(ManualClock(), 2 * MIB, get)
    gc.disable()
    try:
        for begin in range(0, 16 * MIB, MIB):
            ranges.read(ObjectRange(row, begin, begin + MIB))
        alive = [data for data in fetched if data() is not None]
    finally:
        gc.enable()
    assert len(alive) == 2


@pytest.mark.parametrize("taken", [MIB + 40_000, 3 * MIB - 1, 5 * MIB, 700_001])
@pytest.mark.parametrize("first_window", [0, STEP_BYTES], ids=["plain", "named"])
def test_long_replay_sends_whole_requests_whatever_it_takes_at_a_time(taken, first_window):
    asked, length = [], 64 * MIB + 12_345
    ahead, window = ReadAhead(ManualClock(), 64 * MIB), Window(first_window)

    def get(row, position, size):
        asked.append(size)
        return bytes(size)

    row = SimpleNamespace(uuid=b"u" * 16, object_key="k")
    ranges = FetchedRanges(ManualClock(), 64 * MIB, get)
    at = 0
    while at < length:
        end = min(at + taken, length)

        def rest(is_late, at=at, end=end):
            share = ahead.share()
            most = window.next_bytes(share) if is_late else min(window.bytes, share)
            return Next([ObjectRange(row, end, length)], most - (end - at))

        ranges.read(ObjectRange(row, at, end), rest, window)
        at = end
    ranges.close()
    assert sum(asked) == length
    assert len(asked) <= 1 + -(-length // STEP_BYTES), asked
