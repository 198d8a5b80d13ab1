"""Reads of many queues at once: a few kernel calls a file for all, and answers that are made when asked for.

Files are walked oldest first, as a single read walks them: each gives what it has of every place; then the
messages of a place are copied one behind the other, whichever files they lie in. A place that no file knows,
or that damage or a gap has a part in, is answered by `reads`. Nothing is a Python object a queue, as long as
its answer is not looked at. Depends on fileparts, logfile and the rest of log_service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.memory import address
from tierdex.log_service.answer import ReadAnswer
from tierdex.log_service.files.log_file import GroupedLogFile, LiveFile, SealedFile
from tierdex.log_service.kernels.many_reads import take_places
from tierdex.log_service.notes.trim_record import Part
from tierdex.log_service.read_policy import ReadExplain
from tierdex.logfile.grouped.places import GroupedPlaces
from tierdex.logfile.journal.places import DensePlaces, GrowingPlaces
from tierdex.logfile.kernels import places as k
from tierdex.logfile.messages import MessageBatch

if TYPE_CHECKING:
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.files.log_file import LogFile
    from tierdex.log_service.files.reading import Reading
    from tierdex.log_service.read_policy import ReadLimits
    from tierdex.logfile.messages import RowsOfPlaces

_Part = GrowingPlaces | DensePlaces | GroupedPlaces
Place = tuple[str, int, int]
FloorOf = Callable[[Place, list[Part]], int]
Shown = Callable[[bytes, int, MessageBatch], MessageBatch]


def unpacked_place(place: Place, index: int) -> Place:
    """Return the parts of one of many places. Raises InvalidRequestError."""
    try:
        topic, queue_id, offset = place
    except (TypeError, ValueError):
        raise InvalidRequestError(
            "must be (topic, queue_id, offset)", field=f"places[{index}]"
        ) from None
    return topic, queue_id, offset


class ManyAnswers(Sequence[ReadAnswer]):
    """The answers of one call, in the order of its places. Each is made when it is looked at."""

    def __init__(
        self, places: Sequence[Place], others: dict[int, ReadAnswer], shown: Shown
    ) -> None:
        """`shown` returns a queue's messages (topic, queue id, batch) as they may be shown."""
        self._places = places
        self._others = others
        self._shown = shown
        self._found: Found | None = None
        self._explain: ReadExplain | None = None

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
        return self._found.answer(self._places[place], place, self._shown)

    def take(self, found: Found, explain: ReadExplain) -> None:
        """Take what was read together, and from where it came."""
        self._found = found
        self._explain = explain

    @property
    def explain(self) -> ReadExplain:
        """From where the bytes of all answers came."""
        whole = ReadExplain()
        if self._explain is not None:
            whole.add(self._explain)
        for answer in self._others.values():
            whole.add(answer.explain)
        return whole


class _Piece(NamedTuple):
    """What one file gives: a row of `chosen` a place (k.C_*), and its rows, `counts` of each place."""

    part: _Part
    chosen: np.ndarray
    counts: np.ndarray
    rows: RowsOfPlaces


class Found(NamedTuple):
    """What was read of all files: a row of `walk` a place (k.W_*), the columns of all in `memory`."""

    walk: np.ndarray
    memory: memoryview
    generations: list[int]

    @property
    def others(self) -> list[int]:
        """The places that are to be answered alone."""
        found: list[int] = self.walk[:, k.W_IS_OTHER].nonzero()[0].tolist()
        return found

    def answer(self, place: Place, index: int, shown: Shown) -> ReadAnswer:
        topic, queue_id, offset = place
        row = self.walk[index].tolist()
        first, count = row[k.W_FROM], row[k.W_COUNT]
        memory = self.memory[row[k.W_MEMORY] :]
        batch = MessageBatch(
            first, count, row[k.W_BODIES], row[k.W_EXTRAS], memory if count else None
        )
        return ReadAnswer(
            topic, queue_id, first, row[k.W_BEGIN], row[k.W_END],
            shown(topic.encode(), queue_id, batch), from_begin=first > offset,
            generation=self.generations[row[k.W_LAST_FILE]] if count else 0,
        )  # fmt: skip


def read_together(
    places: list[Place], handles: Sequence[FileHandle], limits: ReadLimits,
    floor_of: FloorOf | None, reading: Reading,
) -> Found | None:  # fmt: skip
    """Return what the files, oldest first, hold of the places; None when a file or a place is no plain one.

    `floor_of` says below which offset everything is gone (None: nothing is). The caller holds the files, and
    leaves the list alone. Raises OSError, and what the store raises.
    """
    asked = np.empty((len(places), k.ASKED_WORDS), np.int64)
    if not take_places(id(places), asked):
        return None
    files: list[LogFile] = [handle.reader for handle in handles]
    # The newest first: a journal has a level before the one behind it shows anything at that level.
    parts = [_part(file, limits, reading) for file in reversed(files)][::-1]
    found = np.empty((len(parts), len(places), k.FOUND_WORDS), np.int64)
    for part, known in zip(parts, found, strict=True):
        if part is None:
            return None
        part.find(asked, known)
    walk = np.empty((len(places), k.WALK_WORDS), np.int64)
    floors = np.zeros(len(places), np.int64)
    if floor_of is not None:
        floors[:] = [
            floor_of(place, _held(handles, found[:, i])) for i, place in enumerate(places)
        ]  # fmt: skip
    k.begin_walk(asked, found, floors, walk, limits.max_count, limits.max_bytes)
    pieces = []
    for number, (part, known) in enumerate(zip(parts, found, strict=True)):
        assert part is not None
        chosen = np.empty((len(places), k.CHOSEN_WORDS), np.int64)
        most = int(k.choose(known, walk, chosen))
        if not most:
            continue
        rows = part.rows(walk, chosen, most)
        counts = np.empty(len(places), np.int64)
        k.measure(chosen, walk, counts, address(rows.addresses), number)
        pieces.append(_Piece(part, chosen, counts, rows))
    memory = np.empty(int(k.lay_out(walk)), np.uint8)
    for part, chosen, counts, rows in pieces:
        k.copy(chosen, counts, walk, address(rows.addresses), rows.base_time, address(memory))
        if not isinstance(part, GroupedPlaces):
            reading.explain.memory += int(chosen[:, k.C_BODIES : k.C_EXTRAS + 1].sum())
    del parts  # alive until here: kernels were given addresses
    return Found(walk, memory.data, [file.generation for file in files])


def _held(handles: Sequence[FileHandle], found: np.ndarray) -> list[Part]:
    """Return which offsets of a queue its files hold, oldest first; `found` has a row (F_*) a file."""
    return [
        Part(first, end, handle.sealed_at_ms)
        for handle, (queue, first, end) in zip(handles, found.tolist(), strict=True)
        if queue >= 0 and end > first
    ]


def _part(file: LogFile, limits: ReadLimits, reading: Reading) -> _Part | None:
    """Return what reads many places of a file; None where its rows do not stay where they are."""
    if isinstance(file, LiveFile):
        journal, limit = file.journal, file.limit(limits.level)
        mapping = journal.mapped_or_none
        if mapping is None or limit > journal.published:
            return None
        return GrowingPlaces(journal, mapping, limit)
    if isinstance(file, SealedFile):
        return DensePlaces(file.journal)
    return file.places(reading) if isinstance(file, GroupedLogFile) else None
