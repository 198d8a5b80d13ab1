"""Reads of an unsealed journal: what it holds, and the messages of one queue.

The reading half of `Journal`. It sees what was published (level `os`), through the mapping; with
`limit=None` also what is only staged (level `received`), in the process that writes. Never waits for a
writer.

Depends on fileparts, messages, scan, tables, kernels and logfile.kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tierdex.errors import ClosedError
from tierdex.fileparts.memory import address, thread_buffer
from tierdex.logfile.journal.kernels import locate as k
from tierdex.logfile.journal.kernels import state as s
from tierdex.logfile.journal.scan import ArrivedRows, BatchEnd, position_before, scan_rows
from tierdex.logfile.kernels import rows as rows_k
from tierdex.logfile.messages import Extent, MessageBatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tierdex.filesystem import Mapping, OpenFile
    from tierdex.logfile.header import LogHeader
    from tierdex.logfile.journal.scan import BatchScan
    from tierdex.logfile.journal.tables import Tables

_EVERYTHING = np.iinfo(np.int64).max
_ROOM = 4096  # messages whose places are looked up at first


class JournalReader:
    """The reading half of a journal. Any number of threads may use it without locks."""

    def __init__(
        self, path: Path, header: LogHeader, file: OpenFile, mapping: Mapping, tables: Tables,
        scan: BatchScan,
    ) -> None:  # fmt: skip
        """Read `mapping`, of which the bytes up to the end of `scan` are published."""
        self.path = path
        self.header = header
        self.tables = tables
        self._file = file
        self._scan = scan
        self._mapping: Mapping | None = mapping
        self._stage = np.zeros(s.STAGE_WORD_COUNT, np.int64)
        self._look_at(mapping)
        # The same numbers: Python takes and sets them in half the time.
        self._state = self._stage.data
        self._state[s.V_PUBLISHED] = scan.end.position

    # -- what the file says of itself ------------------------------------------------------------------

    @property
    def uuid(self) -> bytes:
        return self.header.uuid

    @property
    def end(self) -> BatchEnd:
        """Where the batches end that are written."""
        return self._scan.end

    @property
    def published(self) -> int:
        """Bytes of the file that every reader may see."""
        return self._state[s.V_PUBLISHED]

    @property
    def message_count(self) -> int:
        """Messages in the file and in the stage."""
        return self.tables.message_count

    @property
    def queue_count(self) -> int:
        return self.tables.queue_count

    def extent(self, topic: bytes, queue_id: int, limit: int | None = None) -> Extent | None:
        """Return the offsets that a queue has below byte `limit`; None when it has none here.

        `limit` is by default what is published; `received_limit` is beyond everything.
        """
        words, _arrays = self.tables.snapshot
        number = self.tables.find(topic, queue_id)
        if number < 0:
            return None
        bound = self.published if limit is None else limit
        count = int(k.messages_below(words, number, bound))
        first = int(k.first_offset(words, number))
        return Extent(first, first + count) if count else None

    def offset_near(self, topic: bytes, queue_id: int, timestamp: int) -> int:
        """Return an offset of a queue before which no message has a time >= `timestamp`, by checkpoints.

        0 for a queue that has no message before the checkpoint.
        """
        position = position_before(self._scan.checkpoints, timestamp)
        extent = self.extent(topic, queue_id, min(position, self.published))
        return 0 if extent is None else extent.next_offset

    # -- messages --------------------------------------------------------------------------------------

    def read(
        self,
        topic: bytes,
        queue_id: int,
        offset: int,
        *,
        max_count: int,
        max_bytes: int,
        limit: int | None = None,
    ) -> MessageBatch:
        """Return messages from `offset` on: at most `max_count` and, after the first, `max_bytes`.

        Empty when the queue has no message there. `limit` as in `extent`.
        """
        array = self._mapped
        words, arrays = self.tables.snapshot
        published = self.published
        bound = published if limit is None else limit
        name = np.frombuffer(topic, np.uint8)
        if not len(name) or max_count <= 0:
            return MessageBatch(offset, 0, 0, 0)
        plan = k.plan_read if bound <= published else k.plan_staged
        room = min(max_count, _ROOM)
        while True:
            scratch, places = thread_buffer(8 * room)
            wanted = np.array(
                [
                    address(name),
                    len(name),
                    queue_id,
                    offset,
                    max_count,
                    max_bytes,
                    bound,
                    places,
                    room,
                ]
            )
            found = plan(words, self._stage, wanted)
            count, bodies, extras, is_short = found
            if not is_short:
                break
            room = min(max_count, 16 * room)
        batch = MessageBatch(offset, count, bodies, extras)
        if count and bound <= published:
            base = int(words[s.W_BASE_TIME])
            rows_k.copy_rows(places, count, base, batch.addresses())
        elif count:
            k.copy_staged(words, self._stage, wanted, count, batch.addresses())
        del array, arrays, scratch, name  # alive until here: kernels were given addresses
        return batch

    @property
    def received_limit(self) -> int:
        """The `limit` of a read that sees what is staged, in the process that writes."""
        return int(_EVERYTHING)

    def arrivals(self, begin: BatchEnd, end: BatchEnd | None = None) -> Iterator[ArrivedRows]:
        """Yield the rows of each batch between two ends, in order of arrival. CorruptFileError."""
        return scan_rows(
            self._file.read_at, self.header, self.path,
            queue_count=self.queue_count, begin=begin, end=end or self.end,
        )  # fmt: skip

    @property
    def mapped_bytes(self) -> np.ndarray:
        """The file (u1), of which what is published may be read. A reference to it keeps it mapped."""
        return self._mapped.view(np.ndarray)

    @property
    def stage_words(self) -> np.ndarray:
        """What kernels know of the stage (`kernels.state`): one array for the journal's life."""
        return self._stage

    @property
    def stage_address(self) -> int:
        """Where kernels find the words of the stage, as long as the journal lives."""
        return address(self._stage)

    @property
    def mapped_or_none(self) -> np.ndarray | None:
        """The file's bytes, which stay where they are while this is held; None: it was closed."""
        mapping = self._mapping
        array = None if mapping is None else mapping.array
        return array if array is not None and len(array) else None

    # -- private ---------------------------------------------------------------------------------------

    @property
    def _mapped(self) -> np.ndarray:
        """The file's bytes. Never empty ones: an absent file must not look like an absent message."""
        mapping = self._mapping
        if mapping is None:
            raise ClosedError(f"{self.path} was closed")
        return mapping.array

    def _publish(self, end: int) -> None:
        """Make the bytes below `end` visible to every reader."""
        self._state[s.V_PUBLISHED] = end

    def _look_at(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._stage[s.V_MAP] = address(mapping.array.view(np.ndarray))


def copy_messages(
    addresses: np.ndarray, base: int, first_offset: int, max_bytes: int
) -> MessageBatch:
    """Return the messages whose rows lie at `addresses` (i8), as many as `max_bytes` allow."""
    at = address(addresses)
    count, bodies, extras = rows_k.measure_rows(at, len(addresses), max_bytes)
    batch = MessageBatch(first_offset, count, bodies, extras)
    rows_k.copy_rows(at, count, base, batch.addresses())
    return batch
