"""Reading the batches of a journal: from its bytes to the index in memory, or to rows in their order.

Batches are a journal's own write-ahead log: everything mutable is derived from them, here and only here.
Bytes come through pread in pieces, never through a mapping: another process may cut the file. A scan ends
at the first batch that does not verify. That is the torn end of a kill or a power cut, behind which nothing
was acknowledged at `disk`, unless a later batch knew the place as durable: then it is damage.

Depends on layout, fileparts, kernels and tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.checksums import part_seed
from tierdex.fileparts.layout import HEADER_BYTES, Part
from tierdex.fileparts.memory import address
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels import scan as k
from tierdex.logfile.journal.kernels import state as s
from tierdex.logfile.journal.kernels.batch_record import batch_crc, load_seal_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.logfile.header import LogHeader
    from tierdex.logfile.journal.tables import Tables

    ReadAt = Callable[[int, int], bytes]

_PIECE_BYTES = 4 << 20
_CHECKPOINTS_FIRST = 16
# How far behind the end, or behind the last record that was found there, another record is looked for. It
# is more than a batch may have, and what the log leaves without a sync.
_SEARCHED_BYTES = 65 << 20
_SEARCHED_PIECE = 1 << 20
_SECTOR_BYTES = 512  # what a disk writes whole or not at all
_UUID_PLACE = layout.places(layout.RECORD)["uuid"]


class BatchEnd(NamedTuple):
    """Where the batches of a journal end: what the next one is numbered, and goes on from."""

    position: int
    number: int
    crc: int


EMPTY_END = BatchEnd(HEADER_BYTES, 0, 0)


class BatchScan:
    """One pass over batches: where it is, and the checkpoints that it passed. One thread."""

    def __init__(self, header: LogHeader, end: BatchEnd = EMPTY_END) -> None:
        """Begin behind `end`."""
        self._uuid = np.frombuffer(header.uuid, np.uint8)
        self._checkpoints = np.zeros(_CHECKPOINTS_FIRST, layout.CHECKPOINT)
        words = self.words = np.zeros(k.SCAN_WORDS, np.int64)
        self._numbers = words.data  # the same, for Python
        self._seal: Any = None  # loads with the first batch that is written,
        self._step: Any = None  # as this does
        words[k.X_POSITION], words[k.X_NUMBER], words[k.X_CRC] = end
        words[k.X_SEED] = part_seed(header.uuid, Part.BATCH)
        words[k.X_UUID] = address(self._uuid)
        self._bind()

    @property
    def end(self) -> BatchEnd:
        words = self.words
        return BatchEnd(*(int(words[w]) for w in (k.X_POSITION, k.X_NUMBER, k.X_CRC)))

    @property
    def position(self) -> int:
        """The byte behind the last batch."""
        return self._numbers[k.X_POSITION]

    @property
    def uuid_address(self) -> int:
        """Where kernels find the file's uuid, as long as the scan lives."""
        return self._numbers[k.X_UUID]

    @property
    def synced_to(self) -> int:
        """Bytes of the file that were known to be durable when the last batch was written."""
        return int(self.words[k.X_SYNCED_TO]) * HEADER_BYTES

    @property
    def checkpoints(self) -> np.ndarray:
        """Return a copy of the checkpoints so far (layout.CHECKPOINT)."""
        count = -(-int(self.words[k.X_NUMBER]) // layout.CHECKPOINT_BATCHES)
        return self._checkpoints[:count].copy()

    def seal_record(self, record: int, length: int) -> int:
        """Set the checksum of the batch at the address `record`, the next one; return it."""
        if self._seal is None:
            self._seal = load_seal_record()
        numbers = self._numbers
        crc: int = self._seal(
            record, length, numbers[k.X_SEED], numbers[k.X_NUMBER], numbers[k.X_CRC]
        )
        return crc

    def step(self, length: int, crc: int, tables_before: tuple[int, int]) -> None:
        """Scan a batch that was written; `tables_before` are messages and greatest time before it."""
        if self._step is None:
            self._step = k.load_step_over()
        if not self._step(self.words, length, crc, *tables_before):
            self._grow()
            self._step(self.words, length, crc, *tables_before)

    def take_file(
        self, read_at: ReadAt, tables: Tables, path: object, limit: int, piece: int = _PIECE_BYTES
    ) -> None:
        """Take every batch from here on, and before byte `limit`, into `tables`.

        Raises CorruptFileError when a batch that verifies breaks a rule all the same.
        """
        for data, begin in self._pieces(read_at, limit, piece):
            base = address(data) - begin
            while True:
                answer = k.take_batches(tables.words, self.words, base, begin + len(data))
                if answer == k.SCAN_END:
                    break
                if answer == k.SCAN_BROKEN:
                    raise CorruptFileError(path, f"batch {self.end.number - 1} breaks a rule")
                self._make_room(tables)

    def pass_file(self, read_at: ReadAt, limit: int, piece: int = _PIECE_BYTES) -> None:
        """Scan every batch from here to byte `limit` for its end alone."""
        for data, begin in self._pieces(read_at, limit, piece):
            k.pass_batches(self.words, address(data) - begin, begin + len(data))

    def find_durable_behind(
        self, read_at: ReadAt, limit: int, piece: int = _SEARCHED_PIECE
    ) -> int | None:
        """Return the place of a later batch's record that knows the end as durable; None: there is none.

        Looks before byte `limit`, for the file's uuid: batches and lengths in between may be damaged. Only
        records within one sector count: of others a power cut may keep the uuid beside stale bytes. Blind
        for damage in what was synced last: `synced_to` are whole blocks, and the last batch has none behind.
        `piece` bytes are read at a time: a multiple of 8.
        """
        end, begin = self.end, self.position
        until = begin + _SEARCHED_BYTES
        while begin < min(until, limit):
            data = read_at(begin, min(piece, limit - begin))
            for at in self._later_records(data, end.number):
                place = begin + at
                until = place + _SEARCHED_BYTES
                synced_to = int(np.frombuffer(data, layout.RECORD, 1, at)["synced_to"][0])
                is_whole = place % _SECTOR_BYTES + layout.RECORD_BYTES <= _SECTOR_BYTES
                if is_whole and end.position < synced_to * HEADER_BYTES <= place:
                    return place
            if len(data) < piece:
                return None
            begin += piece - layout.RECORD_BYTES  # a record may lie across the end of a piece
        return None

    def _later_records(self, data: bytes, number: int) -> Iterator[int]:
        """Yield where in `data` records of the file lie that may be of batches behind the `number`-th."""
        words = np.frombuffer(data, "<u8", len(data) // layout.BATCH_UNIT)
        for word in np.flatnonzero(words == self._uuid.view("<u8")[0]):
            at = int(word) * layout.BATCH_UNIT - _UUID_PLACE
            if at < 0 or at + layout.RECORD_BYTES > len(data):
                continue
            record = np.frombuffer(data, layout.RECORD, 1, at)[0]
            if (
                record["magic"] == layout.RECORD_MAGIC
                and record["uuid"].tobytes() == self._uuid.tobytes()
                and record["flags"] == 0
                and record["number"] > number
            ):
                yield at

    def _pieces(self, read_at: ReadAt, limit: int, least: int) -> Iterator[tuple[np.ndarray, int]]:
        """Yield (bytes, their place in the file) until no further batch can follow."""
        wanted = least
        while True:
            begin = int(self.words[k.X_POSITION])
            data = np.frombuffer(read_at(begin, min(wanted, limit - begin)), np.uint8)
            yield data, begin
            position = int(self.words[k.X_POSITION])
            left = begin + len(data) - position
            if begin + len(data) >= limit or len(data) < min(wanted, limit - begin):
                return  # there is no more to read
            # What comes next is the end, or a batch of which the piece holds only a part.
            if left >= layout.RECORD_BYTES:
                place = address(data) + position - begin
                length = int(k.batch_length(self.words, place, limit - position))
                if length <= left:
                    return
                wanted = max(least, length)
            else:
                wanted = least

    def _make_room(self, tables: Tables) -> None:
        entry_bytes = int(self.words[k.X_ENTRY_BYTES])
        entries = entry_bytes // layout.ENTRY_BYTES
        tables.reserve(entries, entries, entry_bytes)
        tables.reserve_slots()
        if self.end.number // layout.CHECKPOINT_BATCHES >= len(self._checkpoints):
            self._grow()

    def _grow(self) -> None:
        larger = np.zeros(2 * len(self._checkpoints), layout.CHECKPOINT)
        larger[: len(self._checkpoints)] = self._checkpoints
        self._checkpoints = larger
        self._bind()

    def _bind(self) -> None:
        self.words[k.X_CHECKPOINTS] = self._checkpoints.ctypes.data
        self.words[k.X_CHECKPOINT_LIMIT] = len(self._checkpoints)


class ArrivedRows(NamedTuple):
    """The rows of one batch in order of arrival. `queues` are numbers in the file."""

    end: BatchEnd  # of the batch: what an index notes that covers it
    addresses: np.ndarray  # i8, in `memory`
    queues: np.ndarray  # i8
    memory: np.ndarray


def scan_rows(
    read_at: ReadAt, header: LogHeader, path: object, *, queue_count: int, begin: BatchEnd, end: BatchEnd
) -> Iterator[ArrivedRows]:  # fmt: skip
    """Yield the rows of each batch from `begin` to `end`, verified.

    Raises CorruptFileError: these batches were read before.
    """
    scan = BatchScan(header, begin)
    words = scan.words
    while scan.end.number < end.number:
        number, position, _ = scan.end.number, scan.end.position, scan.end.crc
        head = np.frombuffer(read_at(position, layout.RECORD_BYTES), np.uint8)
        length = 0
        if len(head) == layout.RECORD_BYTES:
            length = int(k.batch_length(words, address(head), end.position - position))
        data = np.frombuffer(read_at(position, length), np.uint8)
        record = data[: layout.RECORD_BYTES].view(layout.RECORD)
        crc = -1
        if length and len(data) == length:
            seed = np.uint32(words[k.X_SEED])
            crc = int(batch_crc(address(data), length, seed, number, words[k.X_CRC]))
        if crc < 0 or crc != int(record["crc"][0]):
            raise CorruptFileError(path, f"batch {number} at byte {position} does not verify")
        count = int(record["message_count"][0])
        addresses, queues = np.empty(count, np.int64), np.empty(count, np.int64)
        sound = k.list_rows(address(data), count, queue_count, address(addresses), address(queues))
        if sound != count:
            raise CorruptFileError(path, f"row {int(sound)} of batch {number} breaks a rule")
        scan.step(length, crc, (0, 0))
        yield ArrivedRows(scan.end, addresses, queues, data)


def bounds_of(tables: Tables) -> tuple[int, int]:
    """Return (messages, greatest time) as a checkpoint notes them."""
    words = tables.words.data
    return words[s.W_MESSAGES], words[s.W_MAX_TIME]


def position_before(checkpoints: np.ndarray, timestamp: int) -> int:
    """Return a byte before which no message has a time >= `timestamp`: a checkpoint's, or the first."""
    place = int(np.searchsorted(checkpoints["max_time"], timestamp, side="left")) - 1
    return int(checkpoints["position"][place]) if place >= 0 else HEADER_BYTES
