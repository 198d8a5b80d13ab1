"""The topics of an immutable log file: names in one run of bytes, rows in order of names.

Depends on fileparts and layout. Plans of jobs read topics, so this loads no kernels.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.memory import address
from tierdex.logfile import layout

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
        self.ends: np.ndarray = self.rows["name_end"].astype(np.int64)  # of names
        self._texts = memoryview(names)
        lengths = np.diff(self.ends, prepend=0)
        last = int(self.ends[-1]) if len(self.ends) else 0
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
    def at(self) -> tuple[int, int, int]:
        """The values of `TopicsAt`: where kernels find rows and names, as long as this lives."""
        return self.rows.ctypes.data, len(self.rows), address(self.names)

    def find(self, name: bytes) -> int:
        """Return the index of a topic, or -1."""
        index = bisect_left(range(len(self.ends)), name, key=self.name)
        return index if index < len(self.ends) and self.name(index) == name else -1

    def name(self, index: int) -> bytes:
        begin = self.ends.item(index - 1) if index else 0
        return self._texts[begin : self.ends.item(index)].tobytes()

    def index_of_queue(self, queue: int) -> int:
        """Return the topic of the queue at place `queue`."""
        return int(np.searchsorted(self.rows["first_queue"], queue, side="right")) - 1

    def is_sorted(self) -> bool:
        """Return whether names rise, as a search expects."""
        names = [self.name(index) for index in range(len(self))]
        return all(a < b for a, b in pairwise(names))
