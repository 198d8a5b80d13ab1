"""An ordered map as an immutable value, searched by key and by what its values cover.

::

    level 2   [                                                          ]
    level 1   [           ] [ 30                                         ]
    level 0   [ 10 20 25  ] [ 30        40 ] [ 50     60   70  ]

It is a skip list linked by spans instead of nodes. A key of height h begins a span on each level
below h; a span of a level holds the spans of the level below that begin in it. A key's height is
computed from its hash, so a set of keys has one shape, whatever was inserted and removed before,
and no step balances it.

* **A change copies one span a level**, O(log n) in all, and returns a new list. Readers of the old
  list keep it, without a lock.
* **Each span has the hull of the values below it**: the least and greatest time, and the oldest key
  that a value contains (a merged file: its oldest source). A search enters only spans whose hull it
  meets. It costs O(log n), and O(log n) more for each value that it yields or that lies alone
  outside its neighbours' hull.

Not an interval tree by time: a query wants the newest file first and stops early, and a tree yields files by
their times. Not an array: each change would copy all of it (92 ms for 100,000 files).

Depends on nothing.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

K = TypeVar("K")
V = TypeVar("V")

TOP: Final = 5  # level of the one span that holds everything; no key is higher
_HEIGHT_BITS: Final = 3  # one key in eight begins a span, one in 64 one of the next level, ...
TIME_MIN: Final = -(1 << 63)
TIME_MAX: Final = (1 << 63) - 1


class Bounds(NamedTuple):
    """The hull of a value: times (int64 ms, inclusive), and the oldest key that it contains."""

    low: int
    high: int
    oldest: Any


class _Entry:
    """A key with its value: an element of the spans of level 0."""

    __slots__ = ("high", "key", "low", "oldest", "value")
    children = ()

    def __init__(self, key: Any, value: Any, bounds: Bounds) -> None:
        self.key = key
        self.value = value
        self.low, self.high, self.oldest = bounds


class _Span:
    """A run of entries (level 0), or of spans of the level below.

    `keys` are the keys of all entries; on higher levels the first keys of all spans but the first.
    """

    __slots__ = ("children", "high", "keys", "low", "oldest")

    def __init__(self, keys: tuple[Any, ...], children: tuple[Any, ...]) -> None:
        self.keys = keys
        self.children = children
        filled = [child for child in children if child.oldest is not None]
        self.low: int = min((child.low for child in filled), default=TIME_MAX)
        self.high: int = max((child.high for child in filled), default=TIME_MIN)
        # None: empty, as the span before the first key may be.
        self.oldest: Any = min((child.oldest for child in filled), default=None)


class SkipList(Generic[K, V]):
    """Distinct keys of one comparable type, each with a value. Immutable; a change returns a new list."""

    __slots__ = ("_bounds_of", "_count", "_root")

    def __init__(
        self,
        bounds_of: Callable[[K, V], Bounds],
        items: Iterable[tuple[K, V]] = (),
    ) -> None:
        """Hold `items`, whose keys ascend: O(n). `bounds_of` returns the hull of a value."""
        self._bounds_of = bounds_of
        entries = [_Entry(key, value, bounds_of(key, value)) for key, value in items]
        self._count = len(entries)
        self._root = _built(entries)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[V]:
        return self.iterate()

    # -- changes ---------------------------------------------------------------------------------

    def insert(self, key: K, value: V) -> SkipList[K, V]:
        """Return the list with a new key. Raises KeyError when the key is here."""
        if self._find(key) is not None:
            raise KeyError(key)
        entry = _Entry(key, value, self._bounds_of(key, value))
        (root,) = _inserted(self._root, TOP, entry, _height_of(key))
        return self._with(root, self._count + 1)

    def replace(self, key: K, value: V) -> SkipList[K, V]:
        """Return the list with another value of a key. Raises KeyError when the key is absent."""
        if self._find(key) is None:
            raise KeyError(key)
        entry = _Entry(key, value, self._bounds_of(key, value))
        return self._with(_replaced(self._root, TOP, entry), self._count)

    def remove(self, key: K) -> SkipList[K, V]:
        """Return the list without a key. Raises KeyError when the key is absent."""
        if self._find(key) is None:
            raise KeyError(key)
        return self._with(_removed(self._root, TOP, key, _height_of(key)), self._count - 1)

    def _with(self, root: _Span, count: int) -> SkipList[K, V]:
        changed: SkipList[K, V] = SkipList.__new__(SkipList)
        changed._bounds_of, changed._root, changed._count = self._bounds_of, root, count
        return changed

    # -- searches --------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """Return the value of `key`, None when it is absent."""
        entry = self._find(key)
        return None if entry is None else entry.value

    def iterate(self, low: K | None = None, high: K | None = None) -> Iterator[V]:
        """Yield the values of low <= key <= high in ascending order; None is open."""
        stack: list[Any] = [self._root] if low is None else self._from(low)
        while stack:
            node = stack.pop()
            if type(node) is _Span:
                stack.extend(reversed(node.children))
                continue
            if high is not None and node.key > high:
                return
            yield node.value

    def descend(
        self, begin: int = TIME_MIN, end: int = TIME_MAX, high: K | None = None
    ) -> Iterator[V]:
        """Yield the values whose times may meet [begin, end], greatest key first, at most `high`."""
        stack = self._up_to(high)
        while stack:
            node = stack.pop()
            if node.low > end or node.high < begin:
                continue
            if type(node) is _Span:
                stack.extend(node.children)
            else:
                yield node.value

    def across(self, key: K, low: K) -> Iterator[V]:
        """Yield the values of keys >= `low` that contain `key` or older ones, greatest first."""
        stack: list[Any] = [self._root]
        while stack:
            node = stack.pop()
            if node.oldest is None or node.oldest > key:
                continue
            if type(node) is _Span:
                stack.extend(node.children)
            elif node.key < low:
                return
            else:
                yield node.value

    def _from(self, low: K) -> list[Any]:
        """Return the nodes that hold all keys from `low` on, the least last."""
        nodes: list[Any] = []
        span = self._root
        for _ in range(TOP):
            place = bisect_right(span.keys, low)
            nodes += reversed(span.children[place + 1 :])
            span = span.children[place]
        return [*nodes, *reversed(span.children[bisect_left(span.keys, low) :])]

    def _up_to(self, high: K | None) -> list[Any]:
        """Return the nodes that hold all keys up to `high`, the greatest last."""
        if high is None:
            return [self._root]
        nodes: list[Any] = []
        span = self._root
        for _ in range(TOP):
            place = bisect_right(span.keys, high)
            nodes += span.children[:place]
            span = span.children[place]
        return nodes + list(span.children[: bisect_right(span.keys, high)])

    def _find(self, key: K) -> _Entry | None:
        span = self._root
        for _ in range(TOP):
            span = span.children[bisect_right(span.keys, key)]
        place = bisect_left(span.keys, key)
        is_here = place < len(span.keys) and span.keys[place] == key
        return span.children[place] if is_here else None

    def check(self) -> list[str]:
        """Return every broken invariant, in words."""
        entries = list(_entries(self._root, TOP))
        keys = [entry.key for entry in entries]
        broken = []
        if any(not a < b for a, b in pairwise(keys)):
            broken.append("the keys do not ascend")
        if len(keys) != self._count:
            broken.append(f"{len(keys)} keys are here, the count says {self._count}")
        if _shape(self._root) != _shape(_built(entries)):
            broken.append("spans or hulls are not those of the keys")
        return broken


def _height_of(key: object) -> int:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    mixed = int.from_bytes(digest, "little") | 1 << (TOP * _HEIGHT_BITS)
    return ((mixed & -mixed).bit_length() - 1) // _HEIGHT_BITS


def _built(entries: Sequence[_Entry]) -> _Span:
    """Return the one span of the top level over entries in ascending order."""
    heights = [_height_of(entry.key) for entry in entries]
    begins: list[Any] = [entry.key for entry in entries]
    nodes: list[Any] = list(entries)
    for level in range(TOP + 1):
        # A span begins at each node that is higher than the level; the first span has no such node.
        cuts = [place for place, height in enumerate(heights) if height > level]
        spans = []
        for low, high in zip([0, *cuts], [*cuts, len(nodes)], strict=True):
            keys = begins[low:high] if level == 0 else begins[low + 1 : high]
            spans.append(_Span(tuple(keys), tuple(nodes[low:high])))
        begins = [None, *(begins[place] for place in cuts)]
        heights = [-1, *(heights[place] for place in cuts)]
        nodes = spans
    root: _Span = nodes[0]
    return root


def _inserted(span: _Span, level: int, entry: _Entry, height: int) -> tuple[_Span, ...]:
    """Return the span with `entry`, or two spans when `entry` begins the second."""
    keys, children, key = span.keys, span.children, entry.key
    place = bisect_right(keys, key)
    if level == 0:
        if height > 0:
            return (
                _Span(keys[:place], children[:place]),
                _Span((key, *keys[place:]), (entry, *children[place:])),
            )
        return (
            _Span(
                (*keys[:place], key, *keys[place:]), (*children[:place], entry, *children[place:])
            ),
        )
    spans = _inserted(children[place], level - 1, entry, height)
    before, after = children[:place], children[place + 1 :]
    if len(spans) == 1:
        return (_Span(keys, (*before, *spans, *after)),)
    if height > level:
        return (
            _Span(keys[:place], (*before, spans[0])),
            _Span(keys[place:], (spans[1], *after)),
        )
    return (_Span((*keys[:place], key, *keys[place:]), (*before, *spans, *after)),)


def _replaced(span: _Span, level: int, entry: _Entry) -> _Span:
    children = span.children
    if level == 0:
        place = bisect_left(span.keys, entry.key)
        child: Any = entry
    else:
        place = bisect_right(span.keys, entry.key)
        child = _replaced(children[place], level - 1, entry)
    return _Span(span.keys, (*children[:place], child, *children[place + 1 :]))


def _removed(span: _Span, level: int, key: Any, height: int) -> _Span:
    keys, children = span.keys, span.children
    if level == 0:
        place = bisect_left(keys, key)
        return _Span(keys[:place] + keys[place + 1 :], children[:place] + children[place + 1 :])
    place = bisect_right(keys, key)
    if height < level:  # it begins no span on this level
        child = _removed(children[place], level - 1, key, height)
        return _Span(keys, (*children[:place], child, *children[place + 1 :]))
    child = _joined(children[place - 1], children[place], level - 1)
    return _Span(
        keys[: place - 1] + keys[place:],
        (*children[: place - 1], child, *children[place + 1 :]),
    )


def _joined(left: _Span, right: _Span, level: int) -> _Span:
    """Return one span in place of two, without the key that begins the second."""
    if level == 0:
        return _Span(left.keys + right.keys[1:], left.children + right.children[1:])
    child = _joined(left.children[-1], right.children[0], level - 1)
    return _Span(left.keys + right.keys, (*left.children[:-1], child, *right.children[1:]))


def _entries(span: _Span, level: int) -> Iterator[_Entry]:
    for child in span.children:
        if level:
            yield from _entries(child, level - 1)
        else:
            yield child


def _shape(node: Any) -> Any:
    """Return a span as nested tuples, to be compared."""
    if type(node) is _Entry:
        return node.key
    return node.keys, node.low, node.high, node.oldest, tuple(map(_shape, node.children))
