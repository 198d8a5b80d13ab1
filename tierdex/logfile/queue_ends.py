"""Where queues end: the next offset of each, in order of (topic's name, queue_id), as arrays and as bytes.

::

    head 24 | names of topics, zeros to 8 | topic rows (layout.TOPIC) | queue rows (layout.QUEUE_TABLE_ROW)

It is what outlives the messages themselves: a queue whose files are all gone goes on where it ended. The code
that stores the bytes checks them. No Python object a queue, and no kernels. Depends on columns, layout
and topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.logfile import layout
from tierdex.logfile.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from tierdex.logfile.columns import QueueColumns


class QueueEnds:
    """Queues with their next offsets, and the number of the last file that held messages. Immutable."""

    def __init__(self, topics: Topics, rows: np.ndarray) -> None:
        """`rows` (layout.QUEUE_TABLE_ROW) in order of (topic, queue_id), as `topics` know them."""
        self.topics = topics
        self.rows = rows
        self._keys = _keys(rows["topic"], rows["queue_id"])

    @classmethod
    def of(cls, queues: QueueColumns, next_offsets: np.ndarray, last_file: int) -> QueueEnds:
        """Return the ends of these queues, each named once."""
        names = queues.topics
        order = sorted(range(len(names)), key=names.value)
        place = np.empty(len(names), np.int64)
        place[order] = np.arange(len(names))
        rows = np.empty(len(queues), layout.QUEUE_TABLE_ROW)
        rows["topic"], rows["queue_id"] = place[queues.topic_index], queues.queue_ids
        rows["next_offset"], rows["last_file"] = next_offsets, last_file
        return _joined([names.value(i) for i in order], rows)

    def __len__(self) -> int:
        return len(self.rows)

    def next_offset(self, topic: bytes, queue_id: int) -> int:
        """Return the offset behind a queue's last message; 0 for a queue that is not here."""
        if not len(self.rows):
            return 0
        index = self.topics.find(topic)
        if index < 0:
            return 0
        key = (index << 32) | queue_id
        place = int(np.searchsorted(self._keys, key))
        if place == len(self._keys) or int(self._keys[place]) != key:
            return 0
        return int(self.rows["next_offset"][place])

    def joined(self, other: QueueEnds) -> QueueEnds:
        """Return the queues of both; of a queue in both the greater offset."""
        both = (self, other)
        names = sorted({name for ends in both for name in ends.names()})
        places = {name: place for place, name in enumerate(names)}
        parts = []
        for ends in both:
            mapped = np.array([places[name] for name in ends.names()], np.uint32)
            rows = ends.rows.copy()
            rows["topic"] = mapped[rows["topic"]] if len(rows) else 0
            parts.append(rows)
        return _joined(names, np.concatenate(parts))

    def names(self) -> list[bytes]:
        """Return the topics' names, in order."""
        return [self.topics.name(index) for index in range(len(self.topics))]

    def last_files(self) -> dict[bytes, int]:
        """Return for each topic the number of the last file that held messages of any of its queues."""
        newest = np.full(len(self.topics), -1, np.int64)
        np.maximum.at(newest, self.rows["topic"], self.rows["last_file"])
        return dict(zip(self.names(), newest.tolist(), strict=True))

    # -- bytes -----------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the bytes that `decode` takes."""
        head = np.zeros((), layout.QUEUE_TABLE_HEAD)
        head["queue_count"], head["topic_count"] = len(self.rows), len(self.topics)
        head["names_bytes"] = len(self.topics.names)
        names = self.topics.names.tobytes()
        return b"".join(
            (
                head.tobytes(), names, bytes(-len(names) % 8),
                self.topics.rows.tobytes(), self.rows.tobytes(),
            )
        )  # fmt: skip

    @classmethod
    def decode(cls, data: Buffer, path: object) -> QueueEnds:
        """Return what `encode` wrote. Raises CorruptFileError."""
        found = np.frombuffer(memoryview(data), np.uint8)
        size = layout.QUEUE_TABLE_HEAD.itemsize
        if len(found) < size:
            raise CorruptFileError(path, f"a queue table has {len(found)} bytes")
        head = found[:size].view(layout.QUEUE_TABLE_HEAD)[0]
        names_end = size + int(head["names_bytes"])
        topics_at = names_end + -int(head["names_bytes"]) % 8
        rows_at = topics_at + int(head["topic_count"]) * layout.TOPIC.itemsize
        end = rows_at + int(head["queue_count"]) * layout.QUEUE_TABLE_ROW.itemsize
        if end != len(found):
            raise CorruptFileError(path, f"a queue table has {len(found)} bytes, not {end}")
        rows = np.frombuffer(found[rows_at:end].tobytes(), layout.QUEUE_TABLE_ROW)
        topics = Topics(
            found[topics_at:rows_at].tobytes(), found[size:names_end].tobytes(),
            queue_count=len(rows), path=path,
        )  # fmt: skip
        ends = cls(topics, rows)
        if len(rows) and (
            int(rows["topic"].max()) >= len(topics) or (np.diff(ends._keys) <= 0).any()
        ):
            raise CorruptFileError(path, "the queues of a queue table are not in order")
        return ends


def _keys(topics: np.ndarray, queue_ids: np.ndarray) -> np.ndarray:
    keys: np.ndarray = (topics.astype(np.int64) << 32) | queue_ids
    return keys


def _joined(names: Sequence[bytes], rows: np.ndarray) -> QueueEnds:
    """Return the ends of `rows`, one a queue; of equal queues the one with the greatest offset."""
    keys = _keys(rows["topic"], rows["queue_id"])
    order = np.lexsort((rows["next_offset"], keys))
    sorted_keys = keys[order]
    is_last = np.ones(len(order), bool)
    is_last[:-1] = sorted_keys[1:] != sorted_keys[:-1]
    kept = rows[order[is_last]]
    counts = np.bincount(kept["topic"], minlength=len(names)) if len(kept) else np.zeros(len(names))
    if len(names) and not counts.all():  # a topic without a queue is none
        held = np.flatnonzero(counts)
        place = np.zeros(len(names), np.uint32)
        place[held] = np.arange(len(held))
        kept["topic"] = place[kept["topic"]] if len(kept) else 0
        names, counts = [names[i] for i in held.tolist()], counts[held]
    topics = np.zeros(len(names), layout.TOPIC)
    topics["name_end"] = np.cumsum([len(name) for name in names])
    topics["queue_count"] = counts
    topics["first_queue"] = np.cumsum(counts) - counts
    return QueueEnds(
        Topics(topics.tobytes(), b"".join(names), queue_count=len(kept), path="queue table"), kept
    )


NO_QUEUES = _joined((), np.empty(0, layout.QUEUE_TABLE_ROW))
