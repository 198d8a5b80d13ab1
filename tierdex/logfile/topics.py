"""The topics of an immutable log file: names in one run of bytes, rows in order of names.

Depends on fileparts, layout and kernels.topics.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.kernels import topics as k

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Topics:
    """The verified topics of a file. Immutable; no Python object a topic until its name is asked for."""

    def __init__(self, rows: Buffer, names: Buffer, *, queue_count: int, path: object) -> None:
        """Take both parts. Raises CorruptFileError when they do not fit each other."""
        if memoryview(rows).nbytes % layout.TOPIC_ROW_BYTES:
            raise CorruptFileError(path, f"topics have {memoryview(rows).nbytes} bytes")
        self.rows: np.ndarray = np.frombuffer(memoryview(rows), layout.TOPIC)
        self.names: np.ndarray = np.frombuffer(memoryview(names), np.uint8)
        ends = self.rows["name_end"].astype(np.int64)
        lengths = np.diff(ends, prepend=0)
        last = int(ends[-1]) if len(ends) else 0
        queues = self.rows["queue_count"].astype(np.int64)
        first = np.cumsum(queues) - queues
        sound = (
            last == len(self.names)
            and bool(((lengths >= 1) & (lengths <= layout.TOPIC_BYTES_MAX)).all())
            and bool((first == self.rows["first_queue"]).all())
            and int(queues.sum()) == queue_count
        )
        if not sound:
            raise CorruptFileError(path, "topics and names or queues disagree")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def at(self) -> k.TopicsAt:
        """Where kernels find rows and names, as long as this lives."""
        return k.TopicsAt(self.rows.ctypes.data, len(self.rows), address(self.names))

    def find(self, name: bytes) -> int:
        """Return the index of a topic, or -1."""
        wanted = np.frombuffer(name, np.uint8)
        if not len(wanted):
            return -1
        at = address(wanted)
        rows = self.rows.ctypes.data
        return int(k.find_topic(rows, len(self.rows), address(self.names), at, len(wanted)))

    def name(self, index: int) -> bytes:
        begin = int(self.rows["name_end"][index - 1]) if index else 0
        return self.names[begin : int(self.rows["name_end"][index])].tobytes()

    def index_of_queue(self, queue: int) -> int:
        """Return the topic of the queue at place `queue`."""
        return int(np.searchsorted(self.rows["first_queue"], queue, side="right")) - 1

    def is_sorted(self) -> bool:
        """Say whether names rise, as a search expects."""
        names = [self.name(index) for index in range(len(self))]
        return all(a < b for a, b in pairwise(names))
