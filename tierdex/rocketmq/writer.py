"""Writes RocketMQ index files bit for bit: for tests, and for callers who still have the keys.

The rows are gathered in memory (32 bytes each) and laid out in one of the two forms::

    writer = RocketmqIndexWriter(begin_ms=..., slot_capacity=..., item_capacity=...)
    writer.put("orders", topic_id=7, queue_id=0, keys=["A-1"], offset=0, size=100, timestamp=...)
    writer.save(filesystem, path, form="compacted")

What the original gets wrong is refused here instead: a key without a slot (hash -2^31), a time that
does not fit, a put beyond the capacity. Depends on numpy and layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.rocketmq.layout import (
    DEFAULT_ITEM_CAPACITY,
    DEFAULT_SLOT_CAPACITY,
    HEADER,
    LOCAL_ITEM,
    LOCAL_SLOT,
    MAGIC_BEING_WRITTEN,
    MAGIC_ENDED,
    RUN_ITEM,
    RUN_SLOT,
    Form,
    Shape,
    index_hashes,
    slot_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tierdex.filesystem import FileSystem

_INT32 = np.iinfo(np.int32)


class RocketmqIndexWriter:
    """One index file in memory. Not safe to share between threads."""

    def __init__(
        self,
        *,
        begin_ms: int,
        slot_capacity: int = DEFAULT_SLOT_CAPACITY,
        item_capacity: int = DEFAULT_ITEM_CAPACITY,
    ) -> None:
        self._begin_ms = begin_ms
        self._end_ms = begin_ms
        self._slot_capacity = slot_capacity
        self._item_capacity = item_capacity
        self._newest = np.zeros(slot_capacity, np.int32)
        self._parts: list[np.ndarray] = []
        self._count = 0

    @property
    def item_count(self) -> int:
        """Items put so far; at most item capacity - 1."""
        return self._count

    def put(
        self,
        topic: str,
        *,
        topic_id: int,
        queue_id: int,
        keys: Sequence[str],
        offset: int,
        size: int,
        timestamp: int,
    ) -> None:
        """Add one message under each of its keys; all or nothing. Raises InvalidRequestError."""
        self.put_batch(
            topic,
            topic_id=topic_id,
            keys=keys,
            queue_id=queue_id,
            offset=offset,
            size=size,
            timestamp=timestamp,
        )

    def put_batch(
        self,
        topic: str,
        *,
        topic_id: int,
        keys: Sequence[str],
        queue_id: npt.ArrayLike,
        offset: npt.ArrayLike,
        size: npt.ArrayLike,
        timestamp: npt.ArrayLike,
    ) -> None:
        """Add one item a key; the other columns are scalars or hold one value a key.

        Raises InvalidRequestError when the file is full, a time is beyond 68 years from the begin,
        or a key hashes to -2^31, for which the format has no slot. Nothing is then added.
        """
        count = len(keys)
        if self._count + count >= self._item_capacity:
            raise InvalidRequestError(
                f"the file holds {self._count} of at most {self._item_capacity - 1} items",
                field="keys",
            )
        if not count:
            return
        items = np.zeros(count, LOCAL_ITEM)
        hashes = index_hashes(topic, keys)
        slots = slot_of(hashes, self._slot_capacity)
        if (slots < 0).any():
            where = int(np.argmax(slots < 0))
            raise InvalidRequestError("hashes to -2^31, which has no slot", field=f"keys[{where}]")
        times = np.broadcast_to(np.asarray(timestamp, np.int64), count)
        seconds = np.trunc((times - self._begin_ms) / 1000.0)
        if (np.abs(seconds) > _INT32.max).any():
            raise InvalidRequestError("too far from the file's begin", field="timestamp")
        items["hash"] = hashes
        items["topic_id"] = topic_id
        items["queue_id"] = queue_id
        items["offset"] = offset
        items["size"] = size
        items["time_diff"] = seconds
        items["previous"] = self._link(slots)
        self._parts.append(items)
        self._count += count
        self._end_ms = max(self._end_ms, int(times.max()))

    def local_bytes(self, *, ended: bool) -> bytes:
        """Return the local form: full length, zeros where no item is."""
        shape = Shape("local", self._slot_capacity, self._item_capacity)
        image = np.zeros(shape.length, np.uint8)
        image[: HEADER.itemsize] = np.frombuffer(self._header(ended=ended), np.uint8)
        slots = image[HEADER.itemsize : shape.items_at].view(LOCAL_SLOT)
        slots["newest"] = self._newest
        items = image[shape.items_at :].view(LOCAL_ITEM)
        items[1 : self._count + 1] = self._items()
        return image.tobytes()

    def compacted_bytes(self) -> bytes:
        """Return the compacted form: runs in slot order, newest first."""
        items = self._items()[::-1]
        slots = slot_of(items["hash"], self._slot_capacity)
        order = np.argsort(slots, kind="stable")
        lengths = np.bincount(slots, minlength=self._slot_capacity) * RUN_ITEM.itemsize
        table = np.zeros(self._slot_capacity, RUN_SLOT)
        first = Shape("compacted", self._slot_capacity, 0).items_at
        table["position"] = first + np.cumsum(lengths) - lengths
        table["length"] = lengths
        runs = np.empty(self._count, RUN_ITEM)
        for name in RUN_ITEM.names or ():
            runs[name] = items[name][order]
        return self._header(ended=True) + table.tobytes() + runs.tobytes()

    def save(
        self, filesystem: FileSystem, path: Path, *, form: Form = "local", ended: bool = True
    ) -> None:
        """Write and sync one form as a new file. Raises OSError; FileExistsError when it is there."""
        image = self.local_bytes(ended=ended) if form == "local" else self.compacted_bytes()
        file = filesystem.open(path, writable=True, create=True, exclusive=True)
        try:
            file.write_at(0, image)
            file.sync()
        finally:
            file.close()

    def _link(self, slots: np.ndarray) -> np.ndarray:
        """Make each new item its slot's newest, and return the item that it links to."""
        numbers = np.arange(self._count + 1, self._count + 1 + len(slots), dtype=np.int32)
        order = np.argsort(slots, kind="stable")  # equal slots stay in the order of arrival
        in_order = slots[order]
        opens = np.ones(len(slots), bool)
        opens[1:] = in_order[1:] != in_order[:-1]
        previous = np.empty(len(slots), np.int32)
        linked = np.where(opens, self._newest[in_order], np.roll(numbers[order], 1))
        previous[order] = linked
        closes = np.roll(opens, -1)
        self._newest[in_order[closes]] = numbers[order][closes]
        return previous

    def _items(self) -> np.ndarray:
        return np.concatenate(self._parts) if self._parts else np.empty(0, LOCAL_ITEM)

    def _header(self, *, ended: bool) -> bytes:
        header = np.zeros((), HEADER)
        header["magic"] = MAGIC_ENDED if ended else MAGIC_BEING_WRITTEN
        header["begin_ms"] = self._begin_ms
        header["end_ms"] = self._end_ms
        header["used_slots"] = np.count_nonzero(self._newest)
        header["item_count"] = self._count
        return header.tobytes()
