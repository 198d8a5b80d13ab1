"""A sealed journal, for reading: by queue and offset through its dense index, whole for a compaction.

Depends on check, fileparts, header, messages, reader, scan, sealed_parts, layout and kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.fileparts.footer import read_footer
from tierdex.fileparts.layout import HEADER_BYTES
from tierdex.fileparts.memory import address
from tierdex.logfile.header import decode_log_header
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
from tierdex.logfile.journal.sealed_parts import DenseIndex, SealedParts
from tierdex.logfile.kernels.blocks import SOUND
from tierdex.logfile.layout import Form
from tierdex.logfile.messages import Extent, MessageBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import FileSystem

_ROOM = 4096  # messages that are looked up at first


class SealedJournal(SealedParts):
    """An immutable journal. Owns its descriptor and mapping. Safe to share between threads."""

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

    def check(self) -> list[str]:
        """Return every broken rule, in words; empty means the file is sound. Reads it whole."""
        return check_sealed(self, self._file.read_at)

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
