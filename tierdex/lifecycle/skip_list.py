"""An ordered map that is read without a lock while one writer changes it.

::

    level 2  head ─────────────────────> 30 ──────────────> None
    level 1  head ────────> 20 ────────> 30 ────────> 50 ─> None
    level 0  head ──> 10 ─> 20 ──> 25 ─> 30 ──> 40 ─> 50 ─> None

Invariants:
  1. level 0 links every key in ascending order; each level above links a subset of the one below;
  2. a node is complete before it is linked, and is linked from the bottom up, one reference a level:
     a reader on any level sees a sorted list at every moment;
  3. an unlinked node keeps its own links, so that a reader standing on it finds its way on.

Writers serialise themselves (the owner's lock). A node's height comes from a mixed counter: as good
as a coin for balance, and the same in every run. Depends on nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")
V = TypeVar("V")

HEIGHT_MAX: Final = 16  # one in two goes up: fine for some hundred thousand keys
_MASK: Final = (1 << 64) - 1


class _Node(Generic[K, V]):
    __slots__ = ("key", "links", "value")

    def __init__(self, key: K, value: V, height: int) -> None:
        self.key = key
        self.value = value
        self.links: list[_Node[K, V] | None] = [None] * height


class SkipList(Generic[K, V]):
    """Keys of one comparable type, each with a value; expected O(log n) a step."""

    __slots__ = ("_count", "_head", "_inserted")

    def __init__(self) -> None:
        # The head's key is never compared.
        self._head: _Node[K, V] = _Node(None, None, HEIGHT_MAX)  # type: ignore[arg-type]
        self._count = 0
        self._inserted = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[V]:
        return self.iterate()

    def get(self, key: K) -> V | None:
        """Return the value of `key`, None when it is absent."""
        node = self._first_from(key)
        return node.value if node is not None and node.key == key else None

    def insert(self, key: K, value: V) -> None:
        """Add a key that is not there. Raises KeyError when it is."""
        before = self._nodes_before(key)
        follower = before[0].links[0]
        if follower is not None and follower.key == key:
            raise KeyError(key)
        height = self._next_height()
        node = _Node(key, value, height)
        for level in range(height):
            node.links[level] = before[level].links[level]
        for level in range(height):  # visible from the first of these stores on
            before[level].links[level] = node
        self._count += 1

    def replace(self, key: K, value: V) -> V:
        """Set the value of a key that is there and return the old one. Raises KeyError."""
        node = self._first_from(key)
        if node is None or node.key != key:
            raise KeyError(key)
        old, node.value = node.value, value
        return old

    def remove(self, key: K) -> V:
        """Unlink a key, top level first, and return its value. Raises KeyError."""
        before = self._nodes_before(key)
        node = before[0].links[0]
        if node is None or node.key != key:
            raise KeyError(key)
        for level in reversed(range(len(node.links))):
            before[level].links[level] = node.links[level]
        self._count -= 1
        return node.value

    def iterate(self, low: K | None = None, high: K | None = None) -> Iterator[V]:
        """Yield the values of low <= key <= high in ascending order; None is open."""
        node = self._head.links[0] if low is None else self._first_from(low)
        while node is not None and not (high is not None and node.key > high):  # type: ignore[operator]
            yield node.value
            node = node.links[0]

    def check(self) -> list[str]:
        """Return every broken invariant, in words."""
        broken = []
        below: set[K] | None = None
        for level in range(HEIGHT_MAX):
            keys = []
            node = self._head.links[level]
            while node is not None:
                keys.append(node.key)
                node = node.links[level]
            if any(not a < b for a, b in pairwise(keys)):  # type: ignore[operator]
                broken.append(f"level {level} is not ascending")
            if below is None and len(keys) != self._count:
                broken.append(f"level 0 links {len(keys)} keys, the count says {self._count}")
            if below is not None and not below.issuperset(keys):
                broken.append(f"level {level} links a key that level {level - 1} does not")
            below = set(keys)
        return broken

    def _first_from(self, key: K) -> _Node[K, V] | None:
        """Return the first node whose key is not below `key`."""
        node = self._head
        for level in reversed(range(HEIGHT_MAX)):
            while (follower := node.links[level]) is not None and follower.key < key:  # type: ignore[operator]
                node = follower
        return follower

    def _nodes_before(self, key: K) -> list[_Node[K, V]]:
        """Return the last node below `key` on each level."""
        before = [self._head] * HEIGHT_MAX
        node = self._head
        for level in reversed(range(HEIGHT_MAX)):
            while (follower := node.links[level]) is not None and follower.key < key:  # type: ignore[operator]
                node = follower
            before[level] = node
        return before

    def _next_height(self) -> int:
        self._inserted += 1
        mixed = (self._inserted * 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed ^= mixed >> 31
        trailing_zeros = (mixed & -mixed).bit_length() - 1 if mixed else HEIGHT_MAX
        return min(trailing_zeros + 1, HEIGHT_MAX)
