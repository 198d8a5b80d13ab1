"""Ranges in memory: found as they were put, the least recently used dropped first."""

from __future__ import annotations

from tierdex.index_service.readers.page_cache import PageCache


def test_a_range_is_found_by_place_and_length():
    cache = PageCache(100)
    cache.put("k", 5, b"abc")
    assert cache.get("k", 5, 3) == b"abc"
    assert cache.get("k", 5, 2) is None
    assert cache.get("k", 4, 3) is None
    assert cache.get("other", 5, 3) is None


def test_the_least_recently_used_goes_first():
    cache = PageCache(10)
    for key in "abc":
        cache.put(key, 0, bytes(3))
    cache.get("a", 0, 3)
    cache.put("d", 0, bytes(3))
    assert [key for key in "abcd" if cache.get(key, 0, 3) is not None] == ["a", "c", "d"]


def test_what_is_larger_than_the_budget_is_not_kept():
    cache = PageCache(10)
    cache.put("a", 0, bytes(4))
    cache.put("b", 0, bytes(11))
    assert cache.get("b", 0, 11) is None
    assert cache.get("a", 0, 4) is not None


def test_putting_again_and_discarding_keep_the_count_right():
    cache = PageCache(10)
    for _ in range(5):
        cache.put("a", 0, bytes(6))
    cache.discard("a", 0, 6)
    cache.discard("a", 0, 6)
    cache.put("b", 0, bytes(5))
    cache.put("c", 0, bytes(5))
    assert cache.get("b", 0, 5) is not None
    assert cache.get("c", 0, 5) is not None
