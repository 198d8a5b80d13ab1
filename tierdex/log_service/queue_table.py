"""The queues of the node, millions of them: their numbers, and the offset that each gives next.

Topics, queue ids and hash tables are those of a journal (`logfile.journal.tables`); nothing is a Python
object a queue. A queue's number holds for one process. Queues are never removed.

One thread at a time changes it (the caller locks); any number reads. Depends on logfile, fileparts and
kernels.offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.log_service.kernels import offsets as k
from tierdex.logfile.columns import BinaryColumn, QueueColumns
from tierdex.logfile.journal.tables import Tables

if TYPE_CHECKING:
    from tierdex.logfile.journal.sealed import SealedJournal


class NumberedRows(NamedTuple):
    """The rows of an append by queue: `queues` u4 a row, `fresh` u4: those new to the journal."""

    queues: np.ndarray
    fresh: np.ndarray


class RowQueues(NamedTuple):
    """Which queue each row of an append goes to: one value for all rows, or one each."""

    topics: BinaryColumn  # i8 offsets that begin with 0
    topic_index: np.ndarray  # u4, or one 0
    queue_ids: np.ndarray  # i4
    row_count: int

    def slice(self, first: int, end: int) -> RowQueues:
        """Return the same for the rows [first, end)."""
        index = self.topic_index if len(self.topic_index) == 1 else self.topic_index[first:end]
        ids = self.queue_ids if len(self.queue_ids) == 1 else self.queue_ids[first:end]
        return RowQueues(self.topics, index, ids, end - first)


class QueueTable:
    """Numbers and next offsets of all queues."""

    def __init__(self) -> None:
        self._tables = Tables()

    def __len__(self) -> int:
        return self._tables.queue_count

    @property
    def words(self) -> np.ndarray:
        """What kernels know of it; asked for anew after every call that may add."""
        return self._tables.words

    # -- appends ---------------------------------------------------------------------------------------

    def number_rows(self, rows: RowQueues, turn: int) -> NumberedRows:
        """Return each row's queue; those unknown to the journal of `turn` are listed, and noted as known.

        `place` says by which numbers, or `forget` that it did not take them.
        """
        topics = self._number_topics(rows.topics)
        out, listed = np.empty(rows.row_count, np.uint32), np.empty(rows.row_count, np.uint32)
        strides = np.array(
            [4 if len(rows.topic_index) > 1 else 0, 4 if len(rows.queue_ids) > 1 else 0], np.int64
        )
        done, fresh = 0, 0
        while True:
            reached, fresh = k.number_rows(
                self.words, address(topics), address(rows.topic_index), address(rows.queue_ids), strides,
                done, rows.row_count, turn, address(out), address(listed), fresh,
            )  # fmt: skip
            done = int(reached)
            if done == rows.row_count:
                return NumberedRows(out, listed[: int(fresh)].copy())
            self._tables.reserve(1 + len(self) // 2, 0, 0)

    def place(self, queues: np.ndarray, numbers: np.ndarray, turn: int) -> None:
        """Note what the journal of `turn` calls these queues (u4 both)."""
        k.place_queues(self.words, address(queues), address(numbers), len(queues), turn)

    def forget(self, queues: np.ndarray) -> None:
        """Let no journal know these queues (u4)."""
        k.forget_places(self.words, address(queues), len(queues))

    def take_offsets(self, queues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (offset i8, number in the journal u4) of rows of these queues (u4)."""
        offsets, numbers = np.empty(len(queues), np.int64), np.empty(len(queues), np.uint32)
        k.take_offsets(self.words, address(queues), len(queues), address(offsets), address(numbers))
        return offsets, numbers

    def give_back(self, queues: np.ndarray, first: int) -> None:
        """Take back the offsets of the rows from `first` on."""
        k.give_back(self.words, address(queues), first, len(queues))

    def columns_of(self, queues: np.ndarray) -> tuple[QueueColumns, np.ndarray]:
        """Return the names of these queues (u4), and the offset (i8) that each gives next."""
        states = self._tables.states_of(queues)
        used, index = np.unique(states["topic"], return_inverse=True)
        names = BinaryColumn.from_values(self._tables.name(int(topic)) for topic in used)
        columns = QueueColumns(names, index.astype(np.uint32), states["queue_id"].astype(np.int32))
        return columns, states["first_offset"].astype(np.int64)

    # -- recovery --------------------------------------------------------------------------------------

    def note_ends(self, queues: QueueColumns, next_offsets: np.ndarray) -> np.ndarray:
        """Let each queue give `next_offsets` (i8) next; return their numbers (u4)."""
        rows = RowQueues(queues.topics, queues.topic_index, queues.queue_ids, len(queues))
        if not len(queues):
            return np.empty(0, np.uint32)
        numbers = self.number_rows(rows, turn=0).queues
        offsets = np.ascontiguousarray(next_offsets, np.int64)
        k.set_next(self.words, address(numbers), address(offsets), len(numbers))
        return numbers

    # -- questions -------------------------------------------------------------------------------------

    def next_offset(self, topic: bytes, queue_id: int) -> int:
        """Return the offset that a queue gives next; 0 for one that nobody knows."""
        snapshot = self._tables.snapshot
        number = self._tables.find(topic, queue_id)
        return int(k.next_offset(snapshot.words, number)) if number >= 0 else 0

    def topics(self) -> list[str]:
        """Return the topics that have a message, sorted."""
        states = self._tables.states()
        used = np.unique(states["topic"][states["first_offset"] > 0])
        return sorted(self._tables.name(int(topic)).decode() for topic in used)

    def queues(self, topic: bytes) -> list[int]:
        """Return the ids of a topic's queues that have a message, sorted."""
        number = self._tables.find_topic(topic)
        if number < 0:
            return []
        states = self._tables.states()
        held = (states["topic"] == number) & (states["first_offset"] > 0)
        return sorted(states["queue_id"][held].tolist())

    def _number_topics(self, topics: BinaryColumn) -> np.ndarray:
        out = np.empty(len(topics), np.uint32)
        self._tables.reserve(0, len(topics), int(topics.offsets[-1]))
        ends = address(topics.offsets) + topics.offsets.itemsize
        k.number_topics(self.words, address(topics.data), ends, len(topics), address(out))
        return out


def queues_of_tables(tables: Tables) -> tuple[QueueColumns, np.ndarray, np.ndarray]:
    """Return (queues, first offsets i8, next offsets i8) of an unsealed journal, in its own numbers."""
    states = tables.states()
    ends, names = tables.names()
    columns = QueueColumns(
        BinaryColumn(np.concatenate([[0], ends]).astype(np.int64), names),
        states["topic"].astype(np.uint32),
        states["queue_id"].astype(np.int32),
    )
    first = states["first_offset"].astype(np.int64)
    return columns, first, first + states["count"]


def queues_of_sealed(journal: SealedJournal) -> tuple[QueueColumns, np.ndarray]:
    """Return (queues, next offsets i8) of a sealed journal. Raises CorruptFileError."""
    queues = journal.queues()
    ends = journal.topics.rows["name_end"].astype(np.int64)
    columns = QueueColumns(
        BinaryColumn(np.concatenate([[0], ends]).astype(np.int64), journal.topics.names),
        queues["topic"].astype(np.uint32),
        queues["queue_id"].astype(np.int32),
    )
    return columns, queues["first_offset"].astype(np.int64) + queues["count"]
