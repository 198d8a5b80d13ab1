"""An exception of a signal handler, anywhere in a call: nothing waits for ever, nothing stays locked.

A profile function raises where CPython runs signal handlers: at a function's begin and end, and after a
call into C. Every such place of a call is tried, one after the other.
"""

from __future__ import annotations

import threading

import pytest

from tests.index_service.conftest import SMALL, offsets, put
from tests.interrupting import interrupted_at
from tests.patience import PATIENCE_S
from tierdex import Index
from tierdex.indexfile.chained.reserved_blocks import ReservedBlocks
from tierdex.testing.components import components_of

# Within __del__ Python only says that it was raised.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def in_time(call):
    """Return what a call on another thread returns; fail when it does not."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert answers, "it waits for ever"
    return answers[0]


def assert_nothing_is_held(index):
    with components_of(index).table._reclaim_lock, components_of(index).table._lock:
        assert components_of(index).table.check() == []
        assert not components_of(index).table.version.pins
    if components_of(index).writing is not None:
        assert in_time(
            lambda: (
                components_of(index).writing.writer._lock.acquire(timeout=PATIENCE_S)
                and not components_of(index).writing.writer._lock.release()
            )
        )


@pytest.fixture
def index(tmp_path):
    """Four published files that every query reads in threads, and one that is written."""
    settings = {**SMALL, "page_cache_bytes": 0, "look_ahead": 2, "merge_min_files": 100}
    with Index.open(tmp_path / "data", **settings) as index:
        for offset in range(4):
            put(index, "A", offset)
            index.roll()
            index.run_compaction()
        put(index, "A", 4)
        yield index


def every_place(call, step=1):
    place = 1
    while interrupted_at(place, call):
        yield place
        place += step
    assert place > 20


def test_a_query_goes_on_after_an_interrupt_anywhere(index):
    def ask():
        return offsets(index.query("orders", key="A"))

    assert ask() == [4, 3, 2, 1, 0]
    for _ in every_place(ask, step=7):
        assert in_time(ask) == [4, 3, 2, 1, 0]
        assert_nothing_is_held(index)


def test_a_batch_of_queries_goes_on_after_an_interrupt_anywhere(index):
    lookups = [{"topic": "orders", "key": key} for key in ("A", "absent", "B")]

    def ask():
        return [offsets(answer) for answer in index.query_batch(lookups)]

    assert ask()[0] == [4, 3, 2, 1, 0]
    for _ in every_place(ask, step=13):
        assert in_time(ask)[0] == [4, 3, 2, 1, 0]
        assert_nothing_is_held(index)


@pytest.mark.parametrize("level", ["received", "os", "disk"])
def test_puts_go_on_and_are_found_after_an_interrupt_anywhere(make_index, tmp_path, level):
    place, has_come_so_far = (
        10**9,
        True,
    )  # once undisturbed: kernels are loaded with numba's own locks
    while has_come_so_far or place == 1:
        folder = tmp_path / str(place)
        index = make_index(folder, item_capacity=3)
        acknowledged = []

        def put_some(index=index, acknowledged=acknowledged):
            for offset in range(4):  # rolls once
                put(index, "A", offset, durability=level)
                acknowledged.append(offset)

        has_come_so_far = interrupted_at(place, put_some)
        in_time(lambda index=index: put(index, "A", 9, durability="os"))
        in_time(lambda index=index: index.run_compaction() + 1)  # rewrites a file that was given up
        assert in_time(lambda index=index: index.flush("disk")) == "disk"
        found = in_time(lambda index=index: offsets(index.query("orders", key="A")))
        assert_nothing_is_held(index)
        index.close()
        again = make_index(folder)
        for answer in (found, offsets(again.query("orders", key="A"))):
            assert len(answer) == len(set(answer)), place
            assert {9, *acknowledged} <= set(answer), place
        again.close()
        place = 1 if place == 10**9 else place + 149
    assert place > 500


def test_waking_a_worker_leaves_it_able_to_work(tmp_path):
    with Index.open(tmp_path / "data", **{**SMALL, "background": True}) as index:
        (compactor,) = [t for t in components_of(index).threads if t.name == "compactor"]
        for _ in every_place_of_waking(compactor):
            pass
        put(index, "A", 1)
        assert in_time(lambda: index.flush("remote")) == "remote"


def every_place_of_waking(worker):
    for place in range(1, 40):
        interrupted_at(place, lambda: [worker.wake() for _ in range(3)])
        yield place


class Blocks:
    def reserve(self, position, length):
        pass


class Header:
    slot_count = 8
    full_length = 1 << 40


def test_reserving_blocks_goes_on_after_an_interrupt_anywhere():
    blocks = ReservedBlocks(Blocks(), lambda position, length: None, Header())
    needed = blocks.end

    def append():
        nonlocal needed
        needed += 1 << 30
        blocks.make_room(needed)

    place = 1
    while interrupted_at(place, append):
        in_time(lambda: blocks.make_room(needed + 1) or True)
        place += 1
    assert place > 5
