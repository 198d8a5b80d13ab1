"""A sealed journal, for reading: by queue and offset through its dense index, whole for a compaction.

The file is mapped and immutable. Small parts are verified when it is opened, blocks of batches, slots and
queues when first used: damage raises CorruptFileError and is never an answer.

Depends on blocks, check, fileparts, header, messages, reader, scan, topics, layout and kernels.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import ClosedError, CorruptFileError
from tierdex.fileparts.footer import Footer, read_footer, read_part
from tierdex.fileparts.layout import BLOCK_BYTES, HEADER_BYTES, Part, round_up
from tierdex.fileparts.memory import address
from tierdex.fileparts.predecessor import Predecessor
from tierdex.logfile import layout
from tierdex.logfile.blocks import CheckedBlocks
from tierdex.logfile.header import LogHeader, decode_log_header
from tierdex.logfile.journal.check import check_sealed
from tierdex.logfile.journal.kernels import sealed as k
from tierdex.logfile.journal.reader import copy_messages
from tierdex.logfile.journal.scan import (
    EMPTY_END,
    ArrivedRows,
    BatchEnd,
    position_before,
    scan_rows,
)
from tierdex.logfile.kernels.blocks import SOUND
from tierdex.logfile.layout import Form
from tierdex.logfile.messages import Extent, MessageBatch
from tierdex.logfile.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem, Mapping, OpenFile

_ROOM = 4096  # messages that are looked up at first


class DenseIndex(NamedTuple):
    """The mapped file, its checked blocks, and what kernels know of it. Keeps the file mapped."""

    data: np.ndarray
    blocks: CheckedBlocks
    words: np.ndarray


class SealedJournal:
    """An immutable journal. Owns its descriptor and mapping. Safe to share between threads."""

    def __init__(self, path: Path, header: LogHeader, file: OpenFile, footer: Footer) -> None:
        """Take over an open file. Raises CorruptFileError, OSError."""
        self.path = path
        self.header = header
        self.footer = footer
        self.bytes = footer.file_bytes
        self._file = file
        if footer.form != Form.JOURNAL:
            raise CorruptFileError(path, "header and footer name different forms")
        self._statistics = self._read_statistics()
        self._mapping: Mapping | None = None
        self._check_places()
        self.topics = Topics(
            self._part(Part.TOPICS), self._part(Part.DICTIONARIES),
            queue_count=self.queue_count, path=path,
        )  # fmt: skip
        checkpoints = self._part(Part.CHECKPOINTS)
        if len(checkpoints) % layout.CHECKPOINT.itemsize:
            raise CorruptFileError(path, f"checkpoints have {len(checkpoints)} bytes")
        self.checkpoints: np.ndarray = np.frombuffer(checkpoints, layout.CHECKPOINT)
        sums = self._part(Part.BLOCK_CHECKSUMS)
        self._mapping = file.map(footer.file_bytes, writable=False)
        data = self._mapping.array.view(np.ndarray)
        blocks = CheckedBlocks(
            data[HEADER_BYTES : self._index_end], sums, uuid=header.uuid, path=path
        )
        words = np.zeros(k.DENSE_WORDS, np.int64)
        words[k.D_BASE] = address(data)
        slots, queues = footer.parts[Part.SLOTS], footer.parts[Part.QUEUES]
        words[k.D_SLOTS], words[k.D_SLOT_COUNT] = slots.position, self.message_count
        words[k.D_QUEUES], words[k.D_QUEUE_COUNT] = queues.position, self.queue_count
        words[k.D_END] = self.end.position
        self._open_index: DenseIndex | None = DenseIndex(data, blocks, words)

    @classmethod
    def open(cls, filesystem: FileSystem, path: Path) -> SealedJournal:
        """Open a sealed journal by its footer. Raises OSError, CorruptFileError, UnsupportedFormatError."""
        file = filesystem.open(path)
        try:
            file.lock_shared()  # it is not recycled while it is open here
            header = decode_log_header(file.read_at(0, HEADER_BYTES), path, form=Form.JOURNAL)
            footer = read_footer(file.read_at, file.size(), path, uuid=header.uuid)
            return cls(path, header, file, footer)
        except BaseException:
            file.close()
            raise

    # -- what the file says of itself ------------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        return self.header.uuid

    @property
    def message_count(self) -> int:
        return int(self._statistics["message_count"])

    @property
    def queue_count(self) -> int:
        return int(self._statistics["queue_count"])

    @property
    def body_bytes(self) -> int:
        return int(self._statistics["body_bytes"])

    @property
    def base_time(self) -> int:
        return int(self._statistics["base_time"])

    @property
    def min_time(self) -> int:
        return int(self._statistics["min_time"])

    @property
    def max_time(self) -> int:
        return int(self._statistics["max_time"])

    @property
    def end(self) -> BatchEnd:
        """Where the batches end."""
        row = self._statistics
        return BatchEnd(int(row["end"]), int(row["batch_count"]), int(row["batch_crc"]))

    @property
    def end_of_batches(self) -> Predecessor:
        """What the file that took over noted of this one."""
        return Predecessor(self.uuid, self.end.number, self.end.crc)

    @cached_property
    def extra(self) -> dict[str, Any]:
        """What the caller of `seal` added."""
        try:
            extra = json.loads(self._part(Part.EXTRA))
        except ValueError as error:
            raise CorruptFileError(self.path, f"extra: {error}") from error
        if not isinstance(extra, dict):
            raise CorruptFileError(self.path, "extra is not an object")
        return extra

    def queues(self) -> np.ndarray:
        """Return all queues (layout.JOURNAL_QUEUE), verified. Raises CorruptFileError."""
        entry = self.footer.parts[Part.QUEUES]
        begin, end = entry.position, entry.position + entry.length
        self.blocks.verify(begin - HEADER_BYTES, end - HEADER_BYTES)
        found: np.ndarray = self.mapped_bytes[begin:end].view(layout.JOURNAL_QUEUE)
        return found

    def slots(self) -> np.ndarray:
        """Return all slots (u4), verified. Raises CorruptFileError."""
        entry = self.footer.parts[Part.SLOTS]
        begin, end = entry.position, entry.position + entry.length
        self.blocks.verify(begin - HEADER_BYTES, end - HEADER_BYTES)
        found: np.ndarray = self.mapped_bytes[begin:end].view(np.uint32)
        return found

    @property
    def mapped_bytes(self) -> np.ndarray:
        """The whole file (u1). A reference to it keeps it mapped."""
        return self.dense_index.data

    @property
    def blocks(self) -> CheckedBlocks:
        """The blocks of batches, slots and queues; byte 0 of the range is the first batch's."""
        return self.dense_index.blocks

    @property
    def dense_index(self) -> DenseIndex:
        """What kernels need to read the file. A reference keeps it mapped. Raises ClosedError."""
        index = self._open_index
        if index is None:
            raise ClosedError(f"{self.path} was closed")
        return index

    # -- messages --------------------------------------------------------------------------------------

    def extent(self, topic: bytes, queue_id: int) -> Extent | None:
        """Return the offsets that a queue has here, None when it has none. Raises CorruptFileError."""
        index = self.dense_index
        queue = self._find(index, topic, queue_id)
        if queue < 0:
            return None
        first, count = k.queue_bounds(index.words, queue)
        return Extent(int(first), int(first + count))

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset of a queue before which no message has a time >= `timestamp`, by checkpoints.

        0 for a queue that is not here. Raises CorruptFileError.
        """
        index = self.dense_index
        queue = self._find(index, topic, queue_id)
        if queue < 0:
            return 0
        first, _ = k.queue_bounds(index.words, queue)
        position = position_before(self.checkpoints, timestamp)
        below, damaged = k.dense_below(index.words, index.blocks.words, queue, position)
        if damaged != SOUND:
            raise self._damage(int(damaged))
        return int(first + below)

    def read(
        self, topic: bytes, queue_id: int, offset: int, *, max_count: int, max_bytes: int
    ) -> MessageBatch:
        """Return messages from `offset` on: at most `max_count` and, after the first, `max_bytes`.

        Empty when the queue has no message there. Raises CorruptFileError.
        """
        index = self.dense_index
        queue = self._find(index, topic, queue_id)
        if queue < 0 or max_count <= 0:
            return MessageBatch(offset, 0, 0, 0)
        first, held = (int(value) for value in k.queue_bounds(index.words, queue))
        if not first <= offset < first + held:
            return MessageBatch(offset, 0, 0, 0)
        wanted, most = min(max_count, first + held - offset), _ROOM
        while (
            True
        ):  # rows are verified before they are measured: no more of them than may be wanted
            count = min(wanted, most)
            addresses = self._rows(index, queue, offset - first, count)
            batch = copy_messages(addresses, self.base_time, offset, max_bytes)
            if len(batch) < count or count == wanted:
                break
            most *= 16
        del index  # alive until here: kernels were given addresses
        return batch

    def row_addresses(self, queue: int, ordinal: int, count: int) -> np.ndarray:
        """Return the addresses (i8) of rows from message `ordinal` of the queue at a place on.

        Over queues, in their order; each row is verified. They lie in `mapped_bytes`. CorruptFileError.
        """
        return self._rows(self.dense_index, queue, ordinal, count)

    def arrivals(
        self, begin: BatchEnd = EMPTY_END, end: BatchEnd | None = None
    ) -> Iterator[ArrivedRows]:
        """Yield the rows of each batch from `begin` on, in order of arrival. CorruptFileError.

        Queues are numbers in the file: `queues()["number"]` says whose.
        """
        most = np.iinfo(np.uint32).max
        return scan_rows(
            self._file.read_at, self.header, self.path,
            queue_count=most, begin=begin, end=end or self.end,
        )  # fmt: skip

    def checkpoint(self, batch: int) -> BatchEnd:
        """Return the last noted end that is not behind batch `batch`, to begin a scan there."""
        place = min(batch // layout.CHECKPOINT_BATCHES, len(self.checkpoints) - 1)
        if place < 0:
            return EMPTY_END
        row = self.checkpoints[place]
        number = place * layout.CHECKPOINT_BATCHES
        return BatchEnd(int(row["position"]), number, int(row["crc"]))

    def check(self) -> list[str]:
        """Return every broken rule, in words; empty means the file is sound. Reads it whole."""
        return check_sealed(self, self._file.read_at)

    def close(self) -> None:
        """Give descriptor and mapping back, these once the last read is done. Idempotent.

        Until then the file is not recycled: its lock lies on the mapping, too.
        """
        if self._mapping is not None:
            self._open_index = None
            self._mapping.close()
            self._mapping = None
            self._file.close()

    # -- private ------------------------------------------------------------------------------------

    def _find(self, index: DenseIndex, topic: bytes, queue_id: int) -> int:
        topic_index = self.topics.find(topic)
        if topic_index < 0:
            return -1
        row = self.topics.rows[topic_index]
        first, count = int(row["first_queue"]), int(row["queue_count"])
        queue, damaged = k.find_queue_row(index.words, index.blocks.words, first, count, queue_id)
        if damaged != SOUND:
            raise self._damage(int(damaged))
        return int(queue)

    def _rows(self, index: DenseIndex, queue: int, ordinal: int, count: int) -> np.ndarray:
        """Return the addresses (i8) of rows, verified, over queues in their order."""
        addresses = np.empty(count, np.int64)
        damaged = int(
            k.dense_rows(index.words, index.blocks.words, queue, ordinal, count, address(addresses))
        )
        if damaged != SOUND:
            raise self._damage(damaged)
        return addresses

    def _damage(self, what: int) -> CorruptFileError:
        if what == k.BROKEN:
            return CorruptFileError(self.path, "a slot leads to no row of its queue")
        return CorruptFileError(self.path, f"checksum of block {what} differs")

    def _part(self, kind: Part) -> bytes:
        return read_part(self._file.read_at, self.footer, kind, self.path)

    def _read_statistics(self) -> np.void:
        data = self._part(Part.STATISTICS)
        if len(data) != layout.JOURNAL_STATISTICS.itemsize:
            raise CorruptFileError(self.path, f"statistics have {len(data)} bytes")
        row: np.void = np.frombuffer(data, layout.JOURNAL_STATISTICS)[0]
        if int(row["message_count"]) != self.footer.item_count:
            raise CorruptFileError(self.path, "footer and statistics count different messages")
        return row

    @property
    def _index_end(self) -> int:
        queues = self.footer.parts[Part.QUEUES]
        return round_up(queues.position + queues.length, BLOCK_BYTES)

    def _check_places(self) -> None:
        """Hold the places of slots and queues to what the statistics count."""
        slots, queues = (self.footer.part(kind, self.path) for kind in (Part.SLOTS, Part.QUEUES))
        sound = (
            slots.position == round_up(self.end.position, BLOCK_BYTES)
            and slots.length == layout.SLOT_BYTES * self.message_count
            and queues.position == slots.position + slots.length
            and queues.length == layout.JOURNAL_QUEUE.itemsize * self.queue_count
            and self._index_end <= self.footer.table_position
        )
        if not sound:
            raise CorruptFileError(self.path, "slots and queues do not lie where they must")
