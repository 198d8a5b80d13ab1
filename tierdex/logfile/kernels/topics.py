"""Binary search in the topics of an immutable file, which stand in order of their names' bytes.

Depends on intrinsics, layout and the kernel decorator.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from tierdex.fileparts.kernels.compile import kernel
from tierdex.fileparts.kernels.intrinsics import load_i64, load_u8, load_u32
from tierdex.logfile import layout

_TOPIC = layout.places(layout.TOPIC)
_NAME_END, _FIRST_QUEUE, _QUEUE_COUNT = (
    _TOPIC["name_end"], _TOPIC["first_queue"], _TOPIC["queue_count"],
)  # fmt: skip
_ROW: Final = layout.TOPIC_ROW_BYTES


class TopicsAt(NamedTuple):
    """Where the topics of a file lie: address of the rows, how many they are, address of the names."""

    rows: int
    topic_count: int
    names: int


@kernel
def _compare(a: int, a_bytes: int, b: int, b_bytes: int) -> Any:
    """Return a number below, at or above 0, as a stands before, is, or stands behind b."""
    for i in range(min(a_bytes, b_bytes)):
        difference = np.int64(load_u8(a + i)) - np.int64(load_u8(b + i))
        if difference != 0:
            return difference
    return a_bytes - b_bytes


@kernel
def find_topic(topics: int, count: int, names: int, name: int, length: int) -> Any:
    """Return the index of a topic, or -1."""
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) >> 1
        row = topics + _ROW * middle
        begin = load_i64(row - _ROW + _NAME_END) if middle > 0 else np.int64(0)
        order = _compare(names + begin, load_i64(row + _NAME_END) - begin, name, length)
        if order == 0:
            return np.int64(middle)
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return np.int64(-1)


@kernel
def topic_queues(topics: Any, name: int, length: int) -> Any:
    """Return (place of a topic's first queue among the file's, how many it has; 0 of an absent one)."""
    index = find_topic(topics.rows, topics.topic_count, topics.names, name, length)
    if index < 0:
        return np.int64(0), np.int64(0)
    row = topics.rows + _ROW * index
    return np.int64(load_u32(row + _FIRST_QUEUE)), np.int64(load_u32(row + _QUEUE_COUNT))
