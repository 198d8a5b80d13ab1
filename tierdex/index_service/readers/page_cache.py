"""Byte ranges of published files that were read lately, kept in memory up to a budget.

Pages are immutable, so a range never goes stale; the least recently used is dropped first.
Depends on nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple


class CacheUse(NamedTuple):
    """What a cache was asked since it was opened, and what it holds now; `misses` went to the store."""

    hits: int
    misses: int
    bytes: int
    budget_bytes: int


class PageCache:
    """Remembers ranges by (object key, position, length). Safe to share between threads."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._bytes = 0
        self._hits = self._misses = 0
        self._lock = threading.Lock()
        self._ranges: OrderedDict[tuple[str, int, int], bytes] = OrderedDict()

    def get(self, key: str, position: int, length: int) -> bytes | None:
        with self._lock:
            data = self._ranges.get((key, position, length))
            if data is None:
                self._misses += 1
            else:
                self._hits += 1
                self._ranges.move_to_end((key, position, length))
            return data

    def use(self) -> CacheUse:
        with self._lock:
            return CacheUse(self._hits, self._misses, self._bytes, self._budget)

    def put(self, key: str, position: int, data: bytes) -> None:
        if len(data) > self._budget:
            return
        with self._lock:
            before = self._ranges.pop((key, position, len(data)), b"")
            self._ranges[key, position, len(data)] = data
            self._bytes += len(data) - len(before)
            while self._bytes > self._budget:
                _, dropped = self._ranges.popitem(last=False)
                self._bytes -= len(dropped)

    def discard(self, key: str, position: int, length: int) -> None:
        """Forget one range: it turned out to be damaged on its way here."""
        with self._lock:
            self._bytes -= len(self._ranges.pop((key, position, length), b""))

    def clear(self) -> None:
        """Forget all ranges."""
        with self._lock:
            self._ranges.clear()
            self._bytes = 0
