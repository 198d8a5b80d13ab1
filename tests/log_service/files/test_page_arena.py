"""Decoded pages are kept below a budget, and those of the past push none of the tail's out."""

from __future__ import annotations

import tracemalloc

import pytest

from tests.log_service.files.test_read_ahead import BODY, World
from tierdex.log_service.files import page_arena
from tierdex.log_service.files.page_arena import PageArena
from tierdex.logfile.grouped import pages
from tierdex.logfile.grouped.pages import OpenPage

KIB = 1 << 10


class AnySource:
    """A read that takes every page."""

    def takes(self, *, is_stored):
        return True


ANY = AnySource()


def page(number, size=16 * KIB):
    return OpenPage.of(number, None, bytes(size))


def numbers(arena, uuid, count):
    return [number for number in range(count) if arena.get(uuid, number, ANY) is not None]


def test_pages_of_the_tier_push_no_local_page_out_while_they_have_a_quarter():
    arena = PageArena(64 * 17 * KIB)
    for number in range(48):
        arena.put(b"local", [page(number)], is_local=True, is_stored=False)
    for number in range(1000):
        arena.put(b"tier", [page(number)], is_local=False, is_stored=False)
    assert numbers(arena, b"local", 48) == list(range(48))
    kept = numbers(arena, b"tier", 1000)
    assert kept == list(range(1000 - len(kept), 1000))
    assert len(kept) >= 15
    for number in range(48, 96):
        arena.put(b"local", [page(number)], is_local=True, is_stored=False)
    assert len(numbers(arena, b"tier", 1000)) >= 14
    assert numbers(arena, b"local", 96)[-1] == 95


@pytest.mark.parametrize("is_local", [True, False])
def test_least_recently_used_page_goes_first(is_local):
    arena = PageArena(20 * 17 * KIB)
    for number in range(20):
        arena.put(b"f", [page(number)], is_local=is_local, is_stored=False)
    arena.get(b"f", 0, ANY)
    arena.put(b"f", [page(20)], is_local=is_local, is_stored=False)
    assert 0 in numbers(arena, b"f", 21)
    assert 1 not in numbers(arena, b"f", 21)


def test_budget_is_kept_in_memory_as_it_is_counted():
    budget = 2 << 20
    arena = PageArena(budget)
    tracemalloc.start()
    try:
        for number in range(2000):
            arena.put(b"f", [page(number, 4 * KIB)], is_local=number % 2 == 0, is_stored=False)
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    assert arena.held_bytes <= budget
    # Of the pages and of what keeps them: other threads of this process take memory as well.
    files = (__file__, pages.__file__, page_arena.__file__)
    ours = snapshot.filter_traces([tracemalloc.Filter(True, file) for file in files])
    taken = sum(trace.size for trace in ours.traces)
    assert taken > budget / 2
    assert taken <= budget
    arena.put(b"f", [page(5000, budget // 8)], is_local=True, is_stored=False)
    assert arena.get(b"f", 5000, ANY) is None  # a large page would push many out


def test_page_that_was_read_is_not_read_again():
    world = World()
    log = world.open(journal_bytes=1 << 20, max_message_bytes=64 * KIB)
    body = world.publish(log, [0, 1], 8)
    first, second = (log.read("q", 1, 2, max_count=3) for _ in range(2))
    assert [m.body for m in second.messages] == [m.body for m in first.messages] == body[2:5]
    assert first.explain.requests == 1
    assert first.explain.store >= 3 * BODY
    assert second.explain.requests == second.explain.store == 0
    assert second.explain.arena == first.explain.store
    assert world.requests == 1
    log.append_batch(topic="q", queue_id=1, body=body)
    log.roll()
    log.run_compaction()
    world.store.asked.clear()
    log.read_many([("q", 1, 2), ("q", 0, 2)], max_count=3)
    assert world.requests <= 1  # the pages of the one queue are here


def test_pages_of_local_files_are_kept_too():
    world = World()
    log = world.open(index=False, journal_bytes=1 << 20, max_message_bytes=64 * KIB)
    text = b"the same all over again " * 20
    log.append_batch(topic="q", queue_id=[n % 2 for n in range(200)], body=[text] * 200)
    log.roll()
    log.run_compaction()
    first, second = (log.read("q", 0, 10, max_count=5) for _ in range(2))
    assert first.messages == second.messages
    assert (first.explain.arena, second.explain.disk) == (0, 0)
    assert first.explain.disk == second.explain.arena > 0
    reads = len(world.disk.trace)
    many = log.read_many([("q", 0, 10), ("q", 1, 10)], max_count=5)
    assert [len(answer) for answer in many] == [5, 5]
    assert many.explain.arena > 0
    again = len(world.disk.trace)
    log.read_many([("q", 0, 10), ("q", 1, 10)], max_count=5)
    assert len(world.disk.trace) == again >= reads


def test_cold_read_of_a_local_file_lets_go_of_what_it_brought_in():
    world = World()
    log = world.open(index=False, page_arena_bytes=0)
    log.append_batch(topic="q", queue_id=0, body=[b"x" * 100] * 50)
    log.roll()
    log.run_compaction()
    for is_cold in (False, True):
        world.disk.is_cold = is_cold
        before = len(world.disk.trace)
        assert len(log.read("q", 0, 0, max_count=50)) == 50
        calls = [call.split()[0] for call in map(str, world.disk.trace[before:])]
        assert ("read_uncached" in "".join(calls)) == is_cold
