"""Which entries of one key are repeats: the same location at the same time.

A broker that replays puts the same message again, with the same time: that is one entry, and the newest
arrival stands for it. A location that was put at another time is another entry, so that an answer for a
time range never depends on what lies outside of it. Files drop repeats by the same rule when they are
compacted (`identity_masks`).

`fingerprints` stand for identities, the same in every form of a file. `Floors` say of most entries, in
a few numbers, that they are no repeats of what was returned.

The identity of an entry is `answer.identity_of`. Depends on answer and indexfile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.indexfile.kernels.fingerprint import add_keys
from tierdex.indexfile.row_identity import fingerprints, text_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tierdex.index_service.answer import Identity

_BITS: Final = (1 << 64) - 1
_MOST_FLOORS: Final = 16  # queues; a cursor stays short enough for a query string
_MESSAGE_FIELDS: Final = 4  # topic, offset, size, queue
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


def first_of_each(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a mask (b1[n]): whether no row before has the same values in all `columns`."""
    order = np.lexsort(columns)  # stable: among equal rows the first stays first
    same = np.ones(max(0, len(order) - 1), bool)
    for column in columns:
        values = column[order]
        same &= values[1:] == values[:-1]
    first = np.ones(len(order), bool)
    first[order[1:][same]] = False
    return first


# -- fingerprints -----------------------------------------------------------------------------------


def fingerprints_of(identities: Sequence[Identity]) -> np.ndarray:
    """Return the fingerprints (u8[n, 2]) of identities of one schema."""
    if not identities:
        return np.empty((0, 2), np.uint64)
    numbers = [_number(v) for location, timestamp in identities for v in (*location, timestamp)]
    return fingerprints(np.array(numbers, np.uint64).reshape(len(identities), -1))


def _number(value: Any) -> int:
    return text_number(value) if isinstance(value, str) else value & _BITS


class EntrySet:
    """Entries of many lookups, by fingerprint: which of those that come are there already. One thread."""

    def __init__(self) -> None:
        self._table = np.empty((0, 2), np.uint64)  # most batches need none
        self._count = 0

    def add(self, lookups: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Add entries of `lookups` (i8[n]) with the fingerprints `found` (u8[n, 2]).

        Returns which of them (b1[n]) no entry of the same lookup repeats, here or before.
        """
        keys = found.copy()
        keys[:, 0] += lookups.astype(np.uint64) * _SPREAD
        keys[(keys == 0).all(1)] = 1  # zeros stand for an empty place
        if 2 * (self._count + len(keys)) > len(self._table):
            self._grow(self._count + len(keys))
        is_new = np.empty(len(keys), np.bool_)
        add_keys(self._table, keys, is_new)
        self._count += int(np.count_nonzero(is_new))
        return is_new

    def _grow(self, count: int) -> None:
        known = self._table[self._table.any(1)]
        self._table = np.zeros((1 << (4 * count).bit_length(), 2), np.uint64)
        add_keys(self._table, known, np.empty(len(known), np.bool_))


# -- floors -----------------------------------------------------------------------------------------


class Floors:
    """A bound below everything that was returned: by queue, and by time.

    Whatever lies below was surely not returned. Logs are written in the order of their offsets, queue by
    queue, and are paged newest first: there everything is below but repeats and what is out of order.
    """

    __slots__ = ("_lowest", "_time")

    def __init__(self) -> None:
        """Bound nothing: nothing was returned."""
        self._time: int | None = None
        self._lowest: dict[int, tuple[int, ...]] | None = {}  # None: too many queues

    def lie_above(self, timestamp: int) -> bool:
        """Return whether nothing was returned that is as old as this, or older."""
        return self._time is None or timestamp < self._time

    def clears(self, identity: Identity) -> bool:
        """Return whether this identity was surely not returned."""
        if self.lie_above(identity[1]):
            return True
        if self._lowest is None:
            return False
        queue, rank = _queue_and_rank(identity)
        lowest = self._lowest.get(queue)
        return lowest is None or (len(lowest) == len(rank) and rank < lowest)

    def lowered(self, identities: Iterable[Identity]) -> Floors:
        """Return the floors when these were returned, too."""
        floors = Floors()
        floors._time = self._time
        lowest = None if self._lowest is None else dict(self._lowest)
        for identity in identities:
            if floors._time is None or identity[1] < floors._time:
                floors._time = identity[1]
            if lowest is not None:
                queue, rank = _queue_and_rank(identity)
                before = lowest.get(queue)
                if before is None or len(before) != len(rank) or rank < before:
                    lowest[queue] = rank
        is_few = lowest is not None and len(lowest) <= _MOST_FLOORS
        floors._lowest = lowest if is_few else None
        return floors

    def encode(self) -> tuple[int | None, list[list[int]] | None]:
        """Return what `decode` takes, for JSON."""
        lowest = self._lowest
        return self._time, None if lowest is None else [[q, *rank] for q, rank in lowest.items()]

    @classmethod
    def decode(cls, lowest_time: object, lowest: object) -> Floors:
        """Raises ValueError when it is not what `encode` returned."""
        floors = cls()
        rows = [] if lowest is None else lowest
        if not isinstance(rows, list) or not all(isinstance(row, list) and row for row in rows):
            raise ValueError("floors")
        if not all(type(number) is int for row in rows for number in row):
            raise ValueError("floors")
        if lowest_time is not None and type(lowest_time) is not int:
            raise ValueError("floors")
        floors._time = lowest_time
        floors._lowest = None if lowest is None else {row[0]: tuple(row[1:]) for row in rows}
        return floors

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Floors) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self._time)


def _queue_and_rank(identity: Identity) -> tuple[int, tuple[int, ...]]:
    """Return what stands for the log that a location is in, and the location's rank there."""
    location, timestamp = identity
    if len(location) == _MESSAGE_FIELDS and set(map(type, location[1:])) == {int}:
        topic, offset, size, queue = location
        return _queue_number(topic, queue), (offset, size, timestamp)
    texts = tuple(value for value in location if isinstance(value, str))
    return _queue_number(*texts), (*(v for v in location if not isinstance(v, str)), timestamp)


@lru_cache(maxsize=4096)
def _queue_number(*names: object) -> int:
    return text_number(repr(names)) >> 11  # 53 bits: any JSON reader keeps them
