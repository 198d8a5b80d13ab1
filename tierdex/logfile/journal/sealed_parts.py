"""What a sealed journal says of itself: its statistics, topics, queues, slots and checkpoints.

The file is mapped and immutable. Small parts are verified when it is opened, blocks of batches, slots and
queues when first used: damage raises CorruptFileError and is never an answer.

Depends on blocks, fileparts, header, scan, topics, layout and kernels.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import ClosedError, CorruptFileError
from tierdex.fileparts.footer import Footer, read_part
from tierdex.fileparts.layout import BLOCK_BYTES, HEADER_BYTES, Part, round_up
from tierdex.fileparts.memory import address
from tierdex.fileparts.predecessor import Predecessor
from tierdex.logfile import layout
from tierdex.logfile.blocks import CheckedBlocks
from tierdex.logfile.header import decode_extra
from tierdex.logfile.journal.kernels import sealed as k
from tierdex.logfile.journal.scan import EMPTY_END, BatchEnd
from tierdex.logfile.layout import Form
from tierdex.logfile.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from tierdex.filesystem import Mapping, OpenFile
    from tierdex.logfile.header import LogHeader


class DenseIndex(NamedTuple):
    """The mapped file, its checked blocks, and what kernels know of it. Keeps the file mapped."""

    data: np.ndarray
    blocks: CheckedBlocks
    words: np.ndarray


class SealedParts:
    """The parts of an immutable journal. Owns descriptor and mapping."""

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
        return decode_extra(self._part(Part.EXTRA), self.path)

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

    def checkpoint(self, batch: int) -> BatchEnd:
        """Return the last noted end that is not behind batch `batch`, to begin a scan there."""
        place = min(batch // layout.CHECKPOINT_BATCHES, len(self.checkpoints) - 1)
        if place < 0:
            return EMPTY_END
        row = self.checkpoints[place]
        number = place * layout.CHECKPOINT_BATCHES
        return BatchEnd(int(row["position"]), number, int(row["crc"]))

    def close(self) -> None:
        """Give descriptor and mapping back, these once the last read is done. Idempotent.

        Until then the file is not recycled: its lock lies on the mapping, too.
        """
        if self._mapping is not None:
            self._open_index = None
            self._mapping.close()
            self._mapping = None
            self._file.close()

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
