"""The queues of the node, millions of them: their numbers, and the next offset of each.

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
from tierdex.logfile import layout
from tierdex.logfile.columns import BinaryColumn, QueueColumns
from tierdex.logfile.journal.tables import Tables

if TYPE_CHECKING:
    from tierdex.logfile.grouped.file import GroupedFile
    from tierdex.logfile.journal.sealed import SealedJournal
    from tierdex.logfile.journal.tables import Snapshot
    from tierdex.logfile.queue_ends import QueueEnds


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


class TableRows:
    """The rows of an append as kernels take them: topics by the node's numbers."""

    __slots__ = ("_keep", "count", "words")

    def __init__(self, queues: RowQueues, topics: np.ndarray) -> None:
        """`topics` u4: the node's number of each of `queues.topics`."""
        self.count = queues.row_count
        self._keep = queues, topics
        words = self.words = np.empty(k.ROW_WORDS, np.int64)
        words[k.R_TOPICS] = address(topics)
        words[k.R_TOPIC_INDEX] = address(queues.topic_index)
        words[k.R_TOPIC_STRIDE] = 4 if len(queues.topic_index) > 1 else 0
        words[k.R_QUEUE_IDS] = address(queues.queue_ids)
        words[k.R_QUEUE_STRIDE] = 4 if len(queues.queue_ids) > 1 else 0


class TakenRows:
    """What rows were given: `offsets` i8, their queues' `numbers` in the journal u4; `count` have theirs."""

    __slots__ = ("addresses", "count", "numbers", "offsets", "queues")

    def __init__(self, count: int) -> None:
        self.queues, self.offsets, self.numbers = (
            np.empty(count, np.uint32), np.empty(count, np.int64), np.empty(count, np.uint32),
        )  # fmt: skip
        self.addresses = address(self.queues), address(self.offsets), address(self.numbers)
        self.count = 0


class _Listed(NamedTuple):
    """The sorted ids (i4) of a topic's queues, when there were so many queues in all."""

    topic: int
    queue_count: int
    ids: np.ndarray


class QueueTable:
    """Numbers and next offsets of all queues."""

    def __init__(self) -> None:
        self._tables = Tables()
        self._listed = _Listed(-1, 0, np.zeros(0, np.int32))  # of the topic that was asked for last

    def __len__(self) -> int:
        return self._tables.queue_count

    @property
    def snapshot(self) -> Snapshot:
        """The tables as they are now: another one after a call that had to make room."""
        return self._tables.snapshot

    @property
    def words(self) -> np.ndarray:
        """What kernels know of it; asked for anew after every call that may add."""
        return self._tables.words

    # -- appends ---------------------------------------------------------------------------------------

    def rows_of(self, queues: RowQueues) -> TableRows:
        """Return the rows of an append as the other calls take them; its topics are known from here on."""
        return TableRows(queues, self._number_topics(queues.topics))

    def take_rows(self, rows: TableRows, taken: TakenRows, turn: int) -> bool:
        """Give rows their offsets, from `taken.count` on; say whether all have one.

        Else the next row's queue is unknown to the journal of `turn`: `list_unplaced`, `place`, again.
        """
        taken.count = int(
            k.take_rows(self.words, rows.words, taken.count, rows.count, turn, *taken.addresses)
        )
        return taken.count == rows.count

    def list_unplaced(self, rows: TableRows, first: int, turn: int) -> np.ndarray:
        """Return the queues (u4) of rows from `first` on that the journal of `turn` does not know.

        They are noted as known: `place` says by which numbers, or `forget` that it did not take them.
        """
        listed = np.empty(rows.count - first, np.uint32)
        done, found = first, 0
        while True:
            reached, found = k.list_unplaced(
                self.words, rows.words, done, rows.count, turn, address(listed), found
            )
            done, found = int(reached), int(found)
            if done == rows.count:
                return listed[:found].copy()
            self._tables.reserve(1 + len(self) // 2, 0, 0)

    def reserve_one(self, name_bytes: int) -> None:
        """Make room for a queue of a topic of so many bytes."""
        self._tables.reserve(1, 1, name_bytes)

    def place(self, queues: np.ndarray, numbers: np.ndarray, turn: int) -> None:
        """Note what the journal of `turn` calls these queues (u4 both)."""
        k.place_queues(self.words, address(queues), address(numbers), len(queues), turn)

    def forget(self, queues: np.ndarray) -> None:
        """Forget the journal of these queues (u4)."""
        k.forget_places(self.words, address(queues), len(queues))

    def give_back(self, taken: TakenRows, first: int) -> None:
        """Take back the offsets of the rows from `first` on."""
        k.give_back(self.words, address(taken.queues), first, taken.count)

    def columns_of(self, queues: np.ndarray) -> tuple[QueueColumns, np.ndarray, np.ndarray]:
        """Return the names of these queues (u4), the offset (i8) that each gives next, and a hint (u4).

        That is how many messages the last journal got of it, as far as this process knows: the next one
        will get about as many, and has room for them in one piece.
        """
        states = self._tables.states_of(queues)
        used, index = np.unique(states["topic"], return_inverse=True)
        names = BinaryColumn.from_values(self._tables.name(int(topic)) for topic in used)
        columns = QueueColumns(names, index.astype(np.uint32), states["queue_id"].astype(np.int32))
        next_offsets = states["first_offset"].astype(np.int64)
        held = next_offsets.astype(np.int32) - states["count"].astype(np.int32)  # their low halves
        hints = np.where((states["hint"] > 0) & (held > 0), held, 0).astype(np.uint32)
        return columns, next_offsets, hints

    # -- recovery --------------------------------------------------------------------------------------

    def note_ends(self, queues: QueueColumns, next_offsets: np.ndarray) -> None:
        """Set the next offset (i8) of each queue."""
        numbers = self._number_queues(queues)
        offsets = np.ascontiguousarray(next_offsets, np.int64)
        k.set_next(self.words, address(numbers), address(offsets), len(numbers))

    def raise_ends(self, queues: QueueColumns, next_offsets: np.ndarray) -> None:
        """Set the next offset (i8) of each queue, unless it is higher already."""
        numbers = self._number_queues(queues)
        held = self._tables.states_of(numbers)["first_offset"].astype(np.int64)
        offsets = np.maximum(held, next_offsets)
        k.set_next(self.words, address(numbers), address(offsets), len(numbers))

    def _number_queues(self, queues: QueueColumns) -> np.ndarray:
        """Return the numbers (u4) of queues; unknown ones are added."""
        numbers = np.empty(len(queues), np.uint32)
        if len(queues):
            rows = self.rows_of(
                RowQueues(queues.topics, queues.topic_index, queues.queue_ids, len(queues))
            )
            self.list_unplaced(rows, 0, turn=0)
            k.number_queues(self.words, rows.words, len(queues), address(numbers))
        return numbers

    # -- questions -------------------------------------------------------------------------------------

    def next_offset(self, topic: bytes, queue_id: int) -> int:
        """Return the offset that a queue gives next; 0 for an unknown queue."""
        snapshot = self._tables.snapshot
        number = self._tables.find(topic, queue_id)
        return int(k.next_offset(snapshot.words, number)) if number >= 0 else 0

    def topics(self) -> list[str]:
        """Return the topics that have a message, sorted."""
        states = self._tables.states()
        used = np.unique(states["topic"][states["first_offset"] > 0])
        names = sorted(self._tables.name(int(topic)) for topic in used)
        return [name.decode() for name in names if name != layout.TIMER_TOPIC]

    def queues(self, topic: bytes, first: int = 0, most: int | None = None) -> list[int]:
        """Return the ids of a topic's queues with a message, sorted: the least `most` from `first` on."""
        number = self._tables.find_topic(topic)
        if number < 0:
            return []
        ids = self._ids_of(number)
        begin = int(np.searchsorted(ids, first))
        found: list[int] = ids[begin : None if most is None else begin + most].tolist()
        return found

    def _ids_of(self, topic: int) -> np.ndarray:
        """Return the sorted ids of a topic's queues with a message, kept while no queue is added."""
        listed, count = self._listed, len(self)
        if (listed.topic, listed.queue_count) == (topic, count):
            return listed.ids
        states = self._tables.states()[:count]
        is_its, is_empty = states["topic"] == topic, states["first_offset"] == 0
        ids = np.sort(states["queue_id"][is_its & ~is_empty]).astype(np.int32)
        if not (is_its & is_empty).any():  # else one may get its first message, and none be added
            self._listed = _Listed(topic, count, ids)
        return ids

    def _number_topics(self, topics: BinaryColumn) -> np.ndarray:
        out = np.empty(len(topics), np.uint32)
        self._tables.reserve(0, len(topics), int(topics.offsets[-1]))
        ends = address(topics.offsets) + topics.offsets.itemsize
        k.number_topics(self.words, address(topics.data), ends, len(topics), address(out))
        return out


def queues_of_tables(tables: Tables) -> tuple[QueueColumns, np.ndarray, np.ndarray]:
    """Return (queues, first offsets i8, next offsets i8) of an unsealed journal, in its own numbers."""
    states = tables.states()
    columns = _columns(*tables.names(), states["topic"], states["queue_id"])
    first = states["first_offset"].astype(np.int64)
    return columns, first, first + states["count"]


def queues_of_grouped(file: GroupedFile) -> tuple[QueueColumns, np.ndarray]:
    """Return (queues, next offsets i8) of a grouped file. Raises CorruptFileError."""
    rows = file.queues()
    columns = _columns(file.topics.ends, file.topics.names, rows.topics, rows.queue_ids)
    return columns, rows.first_offsets + rows.counts


def queues_of_sealed(journal: SealedJournal) -> tuple[QueueColumns, np.ndarray]:
    """Return (queues, next offsets i8) of a sealed journal. Raises CorruptFileError."""
    rows, topics = journal.queues(), journal.topics
    columns = _columns(topics.ends, topics.names, rows["topic"], rows["queue_id"])
    return columns, rows["first_offset"].astype(np.int64) + rows["count"]


def queues_of_ends(ends: QueueEnds) -> tuple[QueueColumns, np.ndarray]:
    """Return (queues, next offsets i8) of a table of ends."""
    rows, topics = ends.rows, ends.topics
    columns = _columns(topics.ends, topics.names, rows["topic"], rows["queue_id"])
    return columns, rows["next_offset"].astype(np.int64)


def _columns(
    name_ends: np.ndarray, names: np.ndarray, topics: np.ndarray, queue_ids: np.ndarray
) -> QueueColumns:
    offsets = np.concatenate([[0], name_ends]).astype(np.int64)
    index, ids = topics.astype(np.uint32), queue_ids.astype(np.int32)
    return QueueColumns(BinaryColumn(offsets, names), index, ids)
