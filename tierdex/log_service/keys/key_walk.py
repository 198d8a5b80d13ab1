"""One file walked from end to end: the keys of its messages as items of the index, piece by piece.

The same walk feeds the index of a running log and fills it in after a crash: it reads what is written,
from the mapping, never what is only staged, in order of arrival. The journal may be sealed meanwhile: its
bytes stay. A compacted file is walked only when the index has lost what it had of it, queue by queue.

Depends on errors, fileparts, indexfile, logfile, log_file and kernels.keyed_rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.fileparts.memory import address
from tierdex.indexfile.columns import ItemColumns
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, signed_bits, topic_seed
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.indexfile.source import Source
from tierdex.log_service.files.log_file import GroupedLogFile, SealedFile
from tierdex.log_service.kernels import keyed_rows as k
from tierdex.logfile.grouped.sources import GroupedSource
from tierdex.logfile.journal.kernels.state import W_BASE_TIME
from tierdex.logfile.journal.tables import STATE

if TYPE_CHECKING:
    from tierdex.log_service.files.log_file import LiveFile, LogFile
    from tierdex.logfile.journal.sealed import SealedJournal

PIECE_ITEMS = 65_536  # of one piece: more than one message's keys and IDs, which are at most 32 KiB

_GROUPED_MESSAGES = 8192  # that are opened at once
_COLUMN_WORDS = (
    k.K_HASHES, k.K_TIMES, k.K_OFFSETS, k.K_SIZES, k.K_IDS_OF_QUEUES, k.K_TOPICS, k.K_KINDS,
)  # fmt: skip


class KeyedPiece(NamedTuple):
    """Items by kind, and up to where a log has the messages that they and all before them come from."""

    items: list[ItemColumns]
    source: Source


class _Columns(NamedTuple):
    """The columns of a piece, one element an item."""

    hashes: np.ndarray  # u8
    times: np.ndarray  # i8
    offsets: np.ndarray  # i8
    sizes: np.ndarray  # u4
    queue_ids: np.ndarray  # i4
    topics: np.ndarray  # u4: numbers in the file
    kinds: np.ndarray  # u1: 1 a message ID

    @classmethod
    def of(cls, count: int) -> _Columns:
        codes = ("<u8", "<i8", "<i8", "<u4", "<i4", "<u4", "u1")
        return cls(*(np.empty(count, code) for code in codes))

    def picked(self, places: Any) -> _Columns:
        return _Columns(*(column[places] for column in self))


class _Queues(NamedTuple):
    """The queues of a journal by number (STATE), where its bytes lie, and what keeps both alive."""

    states: int
    queue_count: int
    base: int
    base_time: int
    end: int
    owners: tuple[object, ...]


class KeyWalk:
    """A walk over one journal. One thread."""

    def __init__(self, uuid: bytes, begin: Source | None = None) -> None:
        """Give the items of the batches behind `begin`; of all without it."""
        self.uuid = uuid
        words = self._words = np.zeros(k.WALK_WORDS, np.int64)
        words[k.K_POSITION] = HEADER_BYTES
        words[k.K_ID_SEED] = signed_bits(MESSAGE_ID_SEED)
        if begin is not None:
            words[k.K_EMIT_FROM] = begin.batch_count
        self._seen = np.zeros(0, np.uint32)  # rows of each queue that the walk went over
        self._seeds = np.zeros(0, np.int64)  # of each topic
        self._reader: object = None  # whose topics these are, once they were read
        self._sealed_states = np.zeros(0, STATE)
        self._grouped: GroupedSource | None = None
        self._room: _Columns | None = None
        self._message = 0  # of a compacted file, that comes next
        self.has_ended = False  # all of it was given, and there will be no more

    @property
    def position(self) -> int:
        """The first byte that the walk did not go over."""
        return int(self._words[k.K_POSITION])

    def take(self, reader: LogFile) -> KeyedPiece | None:
        """Return the next items, None when all that is written was gone over. Raises CorruptFileError."""
        if isinstance(reader, GroupedLogFile):
            return self._take_grouped(reader)
        queues = self._bind(reader)
        words = self._words
        while self.position < queues.end:
            self._make_room()
            count = int(k.items_of_rows(words, queues.end, PIECE_ITEMS))
            if words[k.K_BROKEN]:
                raise CorruptFileError(
                    reader.journal.path, f"a row of batch {words[k.K_NUMBER]} breaks a rule"
                )
            if count:
                return KeyedPiece(self._items(reader, count), self._source(queues))
        return None

    def _take_grouped(self, reader: GroupedLogFile) -> KeyedPiece | None:
        """Return the next items of a compacted file: all of a piece come from one run of messages."""
        words, file = self._words, reader.file
        if self._reader is not reader:
            self._leave()
            source = GroupedSource(file)
            self._learn(reader, len(file.topics))
            words[k.K_SEEDS] = address(self._seeds)
            if words[k.K_POSITION] > HEADER_BYTES:
                self._message = 0  # it was a journal when the walk began: all of it once more
            self._reader, self._grouped = reader, source
        assert self._grouped is not None
        source, end = self._grouped, reader.end_of_batches
        while self._message < file.message_count:
            first = self._message
            count = min(_GROUPED_MESSAGES, file.message_count - first)
            rows = source.rows(first, count)
            topics, ids, offsets = source.queues.of_messages(first, count)
            columns = np.array([address(a) for a in (rows.addresses, topics, ids, offsets)])
            self._make_room()
            taken, items = k.items_of_listed(words, columns, count, PIECE_ITEMS)
            self._message += int(taken)
            if items:
                is_last = self._message == file.message_count
                known = Source(end.uuid, end.batch_count, end.batch_crc, partial=not is_last)
                return KeyedPiece(self._items(reader, int(items)), known)
        return None

    # -- private ------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        if self._room is None:
            self._room = _Columns.of(PIECE_ITEMS)
            for word, column in zip(_COLUMN_WORDS, self._room, strict=True):
                self._words[word] = address(column)

    def _source(self, queues: _Queues) -> Source:
        words = self._words
        number, crc = int(words[k.K_NUMBER]), int(words[k.K_CRC])
        if not words[k.K_ROW]:
            return Source(self.uuid, number, crc)
        return Source(self.uuid, number + 1, 0, partial=True)

    def _items(self, reader: LogFile, count: int) -> list[ItemColumns]:
        """Return the first items of the room: keys, then message IDs."""
        assert self._room is not None
        items = self._room.picked(slice(0, count))
        ids = int(self._words[k.K_IDS])
        if ids in (0, count):
            return [self._of_kind(reader, items, KIND_MESSAGE_ID if ids else KIND_KEY)]
        keys, with_ids = (np.flatnonzero(items.kinds == kind) for kind in (0, 1))
        return [
            self._of_kind(reader, items.picked(keys), KIND_KEY),
            self._of_kind(reader, items.picked(with_ids), KIND_MESSAGE_ID),
        ]

    def _of_kind(self, reader: LogFile, items: _Columns, kind: int) -> ItemColumns:
        """Return items of one kind, with the names of their topics alone."""
        first = int(items.topics[0])
        topics, index = [first], None
        if len(self._seeds) > 1 and (items.topics != first).any():
            used = np.zeros(len(self._seeds), np.bool_)
            used[items.topics] = True
            topics = np.flatnonzero(used).tolist()
            index = (np.cumsum(used, dtype=np.int32) - np.int32(1))[items.topics]
        return ItemColumns(
            topics=[self._name(reader, topic) for topic in topics], topic_index=index, kind=kind,
            hashes=items.hashes, timestamp=items.times,
            fields={"offset": items.offsets, "size": items.sizes, "queue_id": items.queue_ids},
        )  # fmt: skip

    @staticmethod
    def _name(reader: LogFile, topic: int) -> str:
        if isinstance(reader, GroupedLogFile):
            return reader.file.topics.name(topic).decode()
        if isinstance(reader, SealedFile):
            return reader.journal.topics.name(topic).decode()
        return reader.journal.tables.name(topic).decode()

    def _bind(self, reader: LiveFile | SealedFile) -> _Queues:
        """Make the walk read `reader`; return what it may read."""
        if self._reader is not reader:
            self._leave()
            if isinstance(reader, SealedFile):
                self._sealed_states = self._states_of(reader.journal)
            self._reader = reader
        queues = self._queues(reader)
        words = self._words
        if queues.queue_count > len(self._seen):
            seen = np.zeros(2 * queues.queue_count, np.uint32)
            seen[: len(self._seen)] = self._seen
            self._seen = seen
        words[k.K_QUEUE_COUNT] = queues.queue_count
        words[k.K_BASE], words[k.K_STATES] = queues.base, queues.states
        words[k.K_BASE_TIME] = queues.base_time
        words[k.K_SEEN], words[k.K_SEEDS] = address(self._seen), address(self._seeds)
        return queues

    def _queues(self, reader: LiveFile | SealedFile) -> _Queues:
        if isinstance(reader, SealedFile):
            journal = reader.journal
            begin, end = self.position, journal.end.position
            journal.blocks.verify(begin - HEADER_BYTES, end - HEADER_BYTES)
            self._learn(reader, len(journal.topics.rows))
            data, states = journal.mapped_bytes, self._sealed_states
            return _Queues(
                address(states), len(states), address(data), journal.base_time, end, (data, states)
            )
        live = reader.journal
        end = live.published  # before the tables, which then know all queues up to there
        snapshot = live.tables.snapshot
        self._learn(reader, live.tables.topic_count)
        data = live.mapped_bytes
        return _Queues(
            address(snapshot.arrays.states), live.queue_count, address(data),
            int(snapshot.words[W_BASE_TIME]), end, (data, snapshot),
        )  # fmt: skip

    def _leave(self) -> None:
        """Forget the reader: the next one is bound whole or, where a read of it fails, not at all."""
        self._reader, self._grouped, self._seeds = None, None, np.zeros(0, np.int64)

    def _learn(self, reader: LogFile, topics: int) -> None:
        known = len(self._seeds)
        if topics > known:
            names = [self._name(reader, topic) for topic in range(known, topics)]
            more = np.array([signed_bits(topic_seed(name)) for name in names], np.int64)
            self._seeds = np.concatenate([self._seeds, more])

    @staticmethod
    def _states_of(journal: SealedJournal) -> np.ndarray:
        """Return the queues of a sealed journal by number."""
        queues = journal.queues()
        states = np.zeros(int(queues["number"].max(initial=0)) + 1, STATE)
        for name in ("first_offset", "topic", "queue_id"):
            states[name][queues["number"]] = queues[name]
        return states
