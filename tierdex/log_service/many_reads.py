"""Reads of many queues at once: three kernel calls for all, and answers that are made when asked for.

Queues that the only growing journal holds whole are read together; every other place is answered by `reads`.
Nothing is a Python object a queue, as long as nobody looks at its answer. Depends on fileparts, logfile and
the other modules of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.log_service.answer import ReadAnswer
from tierdex.log_service.kernels import many_reads as k
from tierdex.logfile.columns import BinaryColumn
from tierdex.logfile.messages import MessageBatch
from tierdex.value_rules import INT32_MAX

if TYPE_CHECKING:
    from tierdex.log_service.log_file import LiveFile
    from tierdex.log_service.reads import ReadLimits

Place = tuple[str, int, int]


class ManyAnswers(Sequence[ReadAnswer]):
    """The answers of one call, in the order of its places. Each is made when it is looked at."""

    def __init__(self, places: Sequence[Place], others: dict[int, ReadAnswer]) -> None:
        self._places = places
        self._others = others
        self._found: _Found | None = None

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> ReadAnswer: ...
    @overload
    def __getitem__(self, index: slice) -> list[ReadAnswer]: ...
    def __getitem__(self, index: int | slice) -> ReadAnswer | list[ReadAnswer]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        other = self._others.get(place)
        if other is not None:
            return other
        assert self._found is not None, place
        return self._found.answer(self._places[place], place)

    def take(self, found: _Found) -> None:
        """Take what was read together."""
        self._found = found


class _Found(NamedTuple):
    """What was read of the journal: a row of `table` a place (k.P_*), the columns of all in `memory`."""

    table: np.ndarray
    memory: memoryview
    generation: int

    def answer(self, place: Place, index: int) -> ReadAnswer:
        topic, queue_id, offset = place
        row = self.table[index].tolist()
        count, bodies, extras, begin = (
            row[k.P_COUNT], row[k.P_BODIES], row[k.P_EXTRAS], row[k.P_BEGIN],
        )  # fmt: skip
        batch = MessageBatch(offset, count, bodies, extras, self.memory[begin:])
        return ReadAnswer(
            topic, queue_id, offset, row[k.P_FIRST], row[k.P_END], batch,
            generation=self.generation if count else 0,
        )  # fmt: skip


class Columns(NamedTuple):
    """Places by column: distinct topics, and by place the index of its topic u4, queue id i4, offset i8."""

    topics: list[str]
    topic_index: np.ndarray
    queue_ids: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, places: Sequence[Place]) -> Columns | None:
        """Return the columns; None when one of the places is out of the ordinary. Topics are unchecked."""
        if not places or set(map(len, places)) != {3}:
            return None
        topics, ids, offsets = zip(*places, strict=True)
        kinds = {*map(type, ids), *map(type, offsets)}
        if set(map(type, topics)) != {str} or kinds != {int}:
            return None
        try:
            id_column, offset_column = np.array(ids, np.int64), np.array(offsets, np.int64)
        except OverflowError:
            return None
        if not 0 <= int(id_column.min()) <= int(id_column.max()) <= INT32_MAX:
            return None
        if int(offset_column.min()) < 0:
            return None
        distinct = dict.fromkeys(topics)
        numbers = {topic: number for number, topic in enumerate(distinct)}
        index = np.fromiter(map(numbers.__getitem__, topics), np.uint32, len(topics))
        return cls(list(distinct), index, id_column.astype(np.int32), offset_column)


def read_together(
    columns: Columns, file: LiveFile, limits: ReadLimits, *, is_only_file: bool
) -> tuple[_Found, np.ndarray] | None:
    """Return what the journal holds, and the places (i8) that it does not answer; None when it cannot.

    The caller holds the file.
    """
    journal = file.journal
    limit = file.limit(limits.level)
    mapping = journal.mapped_or_none
    if mapping is None or limit > journal.published:  # staged rows do not stay where they are
        return None
    words, arrays = journal.tables.snapshot
    names = BinaryColumn.from_values(topic.encode() for topic in columns.topics)
    wanted = np.array(
        [
            address(names.data), address(names.offsets) + names.offsets.itemsize,
            address(columns.topic_index), address(columns.queue_ids), address(columns.offsets),
            limits.max_count, limits.max_bytes, limit,
        ]
    )  # fmt: skip
    table = np.zeros((len(columns.offsets), k.PLACE_WORDS), np.int64)
    rows = np.empty(int(k.find_many(words, wanted, table)), np.int64)
    counts = table[:, k.P_COUNT].copy()
    total = int(k.gather_many(words, journal.stage_words, wanted, table, address(rows)))
    memory = np.empty(total, np.uint8)
    k.copy_many(words, table, counts, address(rows), address(memory))
    unknown = (table[:, k.P_QUEUE] < 0) | (table[:, k.P_ORDINAL] < 0)
    if not is_only_file:
        unknown |= table[:, k.P_FIRST] > 0
    del mapping, arrays, names  # alive until here: kernels were given addresses
    return _Found(table, memory.data, file.generation), np.flatnonzero(unknown)
