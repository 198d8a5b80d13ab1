"""The queues of a grouped file as it stores them: ids, first offsets, counts, packed in groups of 512.

About 8 bytes a queue. Depends on fileparts and layout.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tierdex.fileparts.kernels.bits import bit_width, pack_values
from tierdex.fileparts.memory import address
from tierdex.logfile import layout


class QueueRows(NamedTuple):
    """All queues of a file, in order of (topic's name, queue_id); one element a queue."""

    topics: np.ndarray  # i8: index of the topic
    queue_ids: np.ndarray  # i8
    first_offsets: np.ndarray  # i8
    counts: np.ndarray  # i8

    def __len__(self) -> int:
        return len(self.counts)

    def of_messages(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return (topic u4, queue id u4, offset i8) of messages `first` .. `first + count`, in order."""
        starts = np.cumsum(self.counts) - self.counts
        messages = np.arange(first, first + count)
        queues = np.searchsorted(starts, messages, side="right") - 1
        offsets = self.first_offsets[queues] + messages - starts[queues]
        return (
            self.topics[queues].astype(np.uint32),
            self.queue_ids[queues].astype(np.uint32),
            offsets,
        )

    @property
    def keys(self) -> np.ndarray:
        """i8 that rise as the queues do."""
        keys: np.ndarray = (self.topics << 32) | self.queue_ids
        return keys


_COLUMNS = (("id", "queue_ids"), ("offset", "first_offsets"), ("count", "counts"))
_SLACK = 16  # that packing may store behind the last value


def encode_queues(queues: QueueRows) -> tuple[np.ndarray, np.ndarray]:
    """Return (group rows, packed bytes u1) of all queues."""
    size = layout.QUEUE_GROUP
    groups = np.zeros(-(-len(queues) // size), layout.QUEUE_GROUP_ROW)
    packed = np.zeros(3 * 8 * len(queues) + _SLACK, np.uint8)
    position = 0
    for number, row in enumerate(groups):
        row["position"] = position
        part = slice(number * size, (number + 1) * size)
        for name, column in _COLUMNS:
            values = getattr(queues, column)[part]
            base = int(values.min())
            above = values.astype(np.uint64) - np.array(base).astype(np.uint64)
            width = int(bit_width(above.max()))
            row[f"{name}_base"], row[f"{name}_width"] = base, width
            place = address(packed) + position
            position += int(pack_values(above, len(above), width, place))
    return groups, packed[: position + layout.COLUMNS_PADDING]
