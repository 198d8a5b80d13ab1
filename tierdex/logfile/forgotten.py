"""Places of messages that were forgotten: (topic, queue_id, offset) each, as arrays and as bytes.

::

    head 16 | names of topics, zeros to 8 | ends of names i8 | rows 16: topic u4, queue_id i4, offset i8

Sorted by topic's name, queue_id and offset, each once; no Python object a queue. The code that stores
the bytes checks them. Depends on errors.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from tierdex.errors import CorruptFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_HEAD: Final = np.dtype([("topic_count", "<u4"), ("names_bytes", "<u4"), ("place_count", "<u8")])
_ROW: Final = np.dtype([("topic", "<u4"), ("queue_id", "<i4"), ("offset", "<i8")])
_NO_OFFSETS: Final = np.zeros(0, np.int64)


class ForgottenPlaces:
    """Places, sorted. Immutable; safe to share between threads."""

    def __init__(self, names: Sequence[bytes], rows: np.ndarray) -> None:
        """`rows` (topic, queue_id, offset) are sorted, and each of the sorted `names` has one."""
        self._names = tuple(names)
        self._rows = rows
        self._topics = {name: place for place, name in enumerate(self._names)}
        keys = (rows["topic"].astype(np.int64) << 32) | rows["queue_id"]
        self._keys, begins = np.unique(keys, return_index=True)
        self._begins = np.append(begins, len(rows))
        self._offsets = np.ascontiguousarray(rows["offset"])

    @classmethod
    def of(cls, places: Iterable[tuple[bytes, int, int]]) -> ForgottenPlaces:
        """Return these places."""
        listed = list(places)
        names = sorted({name for name, _, _ in listed})
        index = {name: place for place, name in enumerate(names)}
        rows = np.array([(index[name], queue, at) for name, queue, at in listed], _ROW)
        return cls(names, np.unique(rows))

    def joined(self, other: ForgottenPlaces) -> ForgottenPlaces:
        """Return the places of both."""
        names = sorted({*self._names, *other._names})
        index = {name: place for place, name in enumerate(names)}
        parts = []
        for one in (self, other):
            rows = one._rows.copy()
            mapped = np.array([index[name] for name in one._names], np.uint32)
            rows["topic"] = mapped[rows["topic"]] if len(rows) else 0
            parts.append(rows)
        return ForgottenPlaces(names, np.unique(np.concatenate(parts)))

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[bytes, int, int]]:
        for topic, queue_id, offset in self._rows.tolist():
            yield self._names[topic], queue_id, offset

    def queues(self) -> Iterator[tuple[bytes, int, np.ndarray]]:
        """Yield (topic, queue_id, offsets i8) of each queue, in order."""
        for place, key in enumerate(self._keys.tolist()):
            begin, end = self._begins[place : place + 2].tolist()
            yield self._names[key >> 32], key & 0xFFFFFFFF, self._offsets[begin:end]

    def beyond(self, end_of: Callable[[bytes, int], int]) -> bool:
        """Return whether an offset is not below the end of its queue (topic, queue_id)."""
        return any(offsets[-1] >= end_of(topic, queue) for topic, queue, offsets in self.queues())

    def below(self, end_of: Callable[[bytes, int], int]) -> ForgottenPlaces:
        """Return the places whose offset is below the end of their queue."""
        return ForgottenPlaces.of(
            (topic, queue, offset)
            for topic, queue, offsets in self.queues()
            for offset in offsets[offsets < end_of(topic, queue)].tolist()
        )

    def within(self, topic: bytes, queue_id: int, first: int, end: int) -> np.ndarray:
        """Return the offsets (i8) of a queue that lie in [first, end)."""
        index = self._topics.get(topic)
        if index is None:
            return _NO_OFFSETS
        key = (index << 32) | queue_id
        place = int(np.searchsorted(self._keys, key))
        if place == len(self._keys) or int(self._keys[place]) != key:
            return _NO_OFFSETS
        offsets = self._offsets[self._begins[place] : self._begins[place + 1]]
        found: np.ndarray = offsets[np.searchsorted(offsets, first) : np.searchsorted(offsets, end)]
        return found

    def hold(
        self, topics: Sequence[bytes], topic_index: np.ndarray | None, queue_ids: np.ndarray,
        offsets: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Return which (b1) of many places are here; `topic_index` None: all are of the first topic."""
        numbers = np.array([self._topics.get(topic, -1) for topic in topics], np.int64)
        own = numbers[0] if topic_index is None else numbers[topic_index]
        keys = (own << 32) | queue_ids.astype(np.int64)
        held = np.isin(keys, self._keys)
        for row in np.flatnonzero(held).tolist():
            place = int(np.searchsorted(self._keys, keys[row]))
            known = self._offsets[self._begins[place] : self._begins[place + 1]]
            at = int(np.searchsorted(known, offsets[row]))
            held[row] = at < len(known) and int(known[at]) == int(offsets[row])
        return held

    # -- bytes -----------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the bytes that `decode` takes."""
        head = np.zeros((), _HEAD)
        names = b"".join(self._names)
        head["topic_count"], head["names_bytes"] = len(self._names), len(names)
        head["place_count"] = len(self._rows)
        ends = np.cumsum([len(name) for name in self._names], dtype="<i8")
        padding = bytes(-len(names) % 8)
        return b"".join((head.tobytes(), names, padding, ends.tobytes(), self._rows.tobytes()))

    @classmethod
    def decode(cls, data: bytes, path: object) -> ForgottenPlaces:
        """Return what `encode` wrote. Raises CorruptFileError."""
        size = _HEAD.itemsize
        if len(data) < size:
            raise CorruptFileError(path, f"forgotten places have {len(data)} bytes")
        head = np.frombuffer(data[:size], _HEAD)[0]
        names_end = size + int(head["names_bytes"])
        ends_at = names_end + -int(head["names_bytes"]) % 8
        rows_at = ends_at + 8 * int(head["topic_count"])
        if rows_at + _ROW.itemsize * int(head["place_count"]) != len(data):
            raise CorruptFileError(path, f"forgotten places have {len(data)} bytes")
        ends = np.frombuffer(data[ends_at:rows_at], "<i8").tolist()
        names = [data[size + a : size + b] for a, b in pairwise((0, *ends))]
        rows = np.frombuffer(data[rows_at:], _ROW)
        if len(rows) and int(rows["topic"].max()) >= len(names):
            raise CorruptFileError(path, "forgotten places name a topic that is not there")
        return cls(names, rows)


NOWHERE: Final = ForgottenPlaces((), np.empty(0, _ROW))
