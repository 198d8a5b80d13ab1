"""Writing a journal: messages into the stage, batches to the file, syncs, and the seal.

    stage   -> rows in memory, indexed: readable at level `received`, nothing of it survives this process
    close   -> the stage becomes a batch; the other stage is open from then on
    write   -> checksum, one pwrite; then published: level `os`
    sync    -> fdatasync: level `disk`

The order of a batch: entries and rows lie in memory, the checksum makes them a batch, one write brings
them to the file with a zeroed record behind (what a batch before a crash left there must not look like
the next one), then `published` moves. Never a store into a mapping: the mapping is read-only.

One thread at a time stages, closes and defines (the caller locks); one thread at a time writes and syncs,
beside them. Sizes are bytes. Depends on columns, predecessor, filesystem, fileparts, layout, reader, scan,
seal, tables and kernels.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tierdex.errors import ReadOnlyError, RequestTooLargeError, TierdexError
from tierdex.fileparts.layout import BLOCK_BYTES, PREDECESSOR_POSITION
from tierdex.fileparts.memory import address
from tierdex.fileparts.predecessor import Predecessor, encode_predecessor
from tierdex.logfile import layout
from tierdex.logfile.journal.kernels import batch_record as record_k
from tierdex.logfile.journal.kernels import define as define_k
from tierdex.logfile.journal.kernels import stage_rows as k
from tierdex.logfile.journal.kernels import state as s
from tierdex.logfile.journal.reader import JournalReader
from tierdex.logfile.journal.scan import bounds_of
from tierdex.logfile.journal.seal import encode_tail

if TYPE_CHECKING:
    from collections.abc import Mapping as Dictionary
    from collections.abc import Sequence
    from pathlib import Path

    from tierdex.filesystem import Mapping, OpenFile
    from tierdex.logfile.columns import MessageColumns, QueueColumns
    from tierdex.logfile.header import LogHeader
    from tierdex.logfile.journal.scan import BatchScan
    from tierdex.logfile.journal.tables import Tables

STAGE_BYTES = 4 << 20
_PIECE_BYTES = 1 << 20  # of a call that does not fit one stage
_RECORD = layout.RECORD_BYTES
_ENTRY_MAX = layout.ENTRY_BYTES + layout.TOPIC_BYTES_MAX


class JournalFullError(TierdexError):
    """The rows do not fit the journal any more: roll. Nothing was applied."""


class StageFullError(TierdexError):
    """The stage has no room: close it and write it, then try again. Nothing was applied."""


class ClosedStage(NamedTuple):
    """A batch that is to be written: `memory` holds it, a zeroed record behind, until it is published."""

    memory: memoryview
    address: int
    position: int
    length: int
    message_count: int
    bounds_before: tuple[int, int]


class JournalWriter(JournalReader):
    """The writing half of a journal. Owns its descriptor, mapping and stages."""

    def __init__(
        self, path: Path, header: LogHeader, file: OpenFile, mapping: Mapping, tables: Tables,
        scan: BatchScan, *, writable: bool, stage_bytes: int = STAGE_BYTES, synced: int = 0,
    ) -> None:  # fmt: skip
        """Take over an open file whose batches are those of `scan`."""
        super().__init__(path, header, file, mapping, tables, scan)
        self.suspect = False  # a sync failed, or an interrupt came: recover it
        self.sealed = False
        self.synced = synced  # bytes of the file that are durable
        self._writable = writable
        self._closed_stage: ClosedStage | None = None
        self._stage_bytes = stage_bytes
        self._next_number = scan.end.number  # of the batch that is closed next
        self._bounds_closed = bounds_of(
            tables
        )  # messages and greatest time in batches that are closed
        if writable:
            self._close = record_k.load_close_stage()
            # Each with the zeroed record behind the batch.
            stages = [np.empty(stage_bytes + _RECORD, np.uint8) for _ in range(2)]
            self._memory = [stage.data for stage in stages]
            self._addresses = [address(stage) for stage in stages]
            self._entries = np.empty(stage_bytes, np.uint8)
            self._stage[s.V_ENTRIES] = address(self._entries)
            self._stage[s.V_ENTRY_LIMIT] = stage_bytes
            record_k.open_stage(
                self._stage, scan.end.position, self._addresses[0], stage_bytes, header.capacity
            )

    # -- order of files --------------------------------------------------------------------------------

    @property
    def end_of_batches(self) -> Predecessor:
        """Where this file's batches end now, for the file that takes over from it."""
        end = self.end
        return Predecessor(self.uuid, end.number, end.crc)

    def follow(self, predecessor: Predecessor) -> None:
        """Note which journal this one takes over from; before the first write. Durable with `sync`."""
        self.refuse_unless_writable()
        self._file.write_at(PREDECESSOR_POSITION, encode_predecessor(predecessor, self.uuid))

    # -- room ------------------------------------------------------------------------------------------

    @property
    def bytes_used(self) -> int:
        """Bytes of the batches that are closed, and of the rows that are staged."""
        state = self._state
        return state[s.V_BEGIN] + state[s.V_USED] + state[s.V_ENTRY_USED]

    @property
    def staged_count(self) -> int:
        """Messages in the open stage."""
        return self._state[s.V_COUNT]

    @property
    def closed_stage(self) -> ClosedStage | None:
        """The batch that is closed and not written yet."""
        return self._closed_stage

    def fits_stage(self, row_bytes: int) -> bool:
        """Return whether rows of so many bytes find room in the open stage, and hence in one batch."""
        stage = self._stage
        used = int(stage[s.V_USED] + stage[s.V_ENTRY_USED])
        return used + row_bytes <= int(stage[s.V_LIMIT])

    def fits(self, row_bytes: int, largest_row: int) -> bool:
        """Return whether rows of so many bytes find room in the file, in as many batches as they take."""
        usable = self._stage_bytes - _RECORD - layout.BATCH_UNIT - largest_row
        batches = 1 + row_bytes // max(1, usable)
        record = _RECORD + layout.BATCH_UNIT
        # A row may be too large for what is left of the open stage; its record is counted once more.
        return self.bytes_used + row_bytes + (batches + 1) * record <= self.header.capacity

    # -- staging ---------------------------------------------------------------------------------------

    def define(
        self, queues: QueueColumns, first_offsets: np.ndarray, hints: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the number (u4) of each queue in this file; those that are new begin at `first_offsets`.

        `first_offsets` i8; `hints` u4: messages to expect here. A queue may stand there twice. Raises
        StageFullError, JournalFullError; then none is defined.
        """
        self.refuse_unless_writable()
        count = len(queues)
        assert len(first_offsets) == count, "one first offset a queue"
        out = np.empty(count, np.uint32)
        first_offsets = np.ascontiguousarray(first_offsets, np.int64)
        entries = count * layout.ENTRY_BYTES + int(queues.topics.offsets[-1])
        self._make_entry_room(entries, count)
        self.tables.reserve(count, len(queues.topics), int(queues.topics.offsets[-1]))
        hints = None if hints is None else np.ascontiguousarray(hints, np.uint32)
        define_k.add_queues(
            self.tables.words, self._stage, *queues.addresses(), address(first_offsets),
            0 if hints is None else address(hints), count, address(out),
        )  # fmt: skip
        return out

    def reserve_one(self, name_bytes: int) -> None:
        """Make room in the tables for a row, and for its queue and topic. Raises OSError."""
        self.refuse_unless_writable()
        self.tables.reserve(1, 1, name_bytes)
        self.tables.reserve_slots()

    @property
    def most_queues(self) -> int:
        """How many queues one call of `define` may name, whatever their topics are called."""
        return (self._stage_bytes - _RECORD - layout.BATCH_UNIT) // _ENTRY_MAX

    def stage(self, columns: MessageColumns, first: int = 0) -> int:
        """Stage messages from row `first` on; return how many were. Fewer: the stage is full.

        The caller asked `fits`. Their queues are defined. Rows are readable at once.
        """
        self.refuse_unless_writable()
        done = first
        while True:
            self.tables.reserve_slots()
            words, stage = self.tables.words, self._stage
            taken = int(k.stage_rows(words, stage, columns.words, done, columns.count))
            done += taken
            has_slots = words[s.W_NEXT_SLOT] + s.ROOM_OF_ONE <= words[s.W_SLOT_LIMIT]
            if done == columns.count or has_slots:
                return done - first

    def close_stage(self) -> ClosedStage | None:
        """Make a batch of what is staged, and open the other stage behind it; None when nothing is.

        The batch closed before it has to be written by then.
        """
        state = self._state
        if not state[s.V_COUNT] and not state[s.V_ENTRY_USED]:
            return None
        assert self._closed_stage is None, "the closed stage is not written yet"
        try:
            return self._close_stage()
        except BaseException:
            # An interrupt: which of the two stages is the open one is no longer sure.
            self.suspect = True
            raise

    def _close_stage(self) -> ClosedStage:
        state, memory, tables = self._state, self._memory[0], self.tables
        begin, count = state[s.V_BEGIN], state[s.V_COUNT]
        place, other = self._addresses
        length = self._close(
            tables.words, self._stage, self._next_number, self._scan.uuid_address,
            self.synced // BLOCK_BYTES, other, self._stage_bytes, self.header.capacity,
        )  # fmt: skip
        closed = ClosedStage(memory, place, begin, length, count, self._bounds_closed)
        self._bounds_closed = bounds_of(tables)
        self._next_number += 1
        self._memory.reverse()
        self._addresses = [other, place]
        self._closed_stage = closed
        return closed

    # -- to the file -----------------------------------------------------------------------------------

    def write(self, closed: ClosedStage) -> None:
        """Write a closed stage and publish it. Raises OSError; then the same may be written again."""
        self.refuse_unless_writable()
        assert closed is self._closed_stage, "written before, or another journal's"
        assert closed.position == self._scan.position, "batches are written in order"
        crc = self._scan.seal_record(closed.address, closed.length)
        behind = min(_RECORD, self.header.capacity - closed.position - closed.length)
        self._file.write_at(closed.position, closed.memory[: closed.length + max(0, behind)])
        try:
            self._scan.step(closed.length, crc, closed.bounds_before)
            # Published before the stage may be reused: a reader finds each row in one of the two.
            self._publish(closed.position + closed.length)
            self._state[s.V_CLOSED_ADDRESS] = 0
            self._closed_stage = None
        except BaseException:
            self.suspect = True  # an interrupt: the batch is in the file, and not known to be
            raise

    def flush(self) -> None:
        """Write everything that is staged. Raises OSError; call again when the disk has room."""
        if self._closed_stage is not None:
            self.write(self._closed_stage)
        closed = self.close_stage()
        if closed is not None:
            self.write(closed)

    def append(self, columns: MessageColumns) -> None:
        """Stage and write all messages, in as many batches as they take: level `os` on return.

        What fits one stage is one batch, and atomic across a crash; of more, a prefix of each queue may
        survive. Raises JournalFullError (roll) and RequestTooLargeError, nothing applied; OSError: what
        was staged is written by the next `flush`.
        """
        if columns.largest_row + _RECORD + layout.BATCH_UNIT > self._stage_bytes:
            raise RequestTooLargeError(
                f"a message of {columns.largest_row} bytes does not fit a stage of {self._stage_bytes}",
                field="body",
            )
        if not self.fits(columns.row_bytes, columns.largest_row):
            raise JournalFullError(f"{self.path}: {columns.row_bytes} more bytes do not fit")
        if self.staged_count and not self._fits_stage(columns):
            self.flush()
        if self._fits_stage(columns):
            self.stage(columns)
            self.flush()
            return
        done = 0
        while done < columns.count:
            self._cut_stage(columns.largest_row)
            done += self.stage(columns, done)
            self.flush()

    def sync(self) -> int:
        """Make everything published now durable; return the bytes of the file that are.

        Raises OSError; the journal is then `suspect`: it takes no more appends, and has to be recovered
        (close it, `recover_journal`), which writes anew what was not known as durable.
        """
        if self.sealed:
            return self.published
        self.refuse_unless_writable()
        published = self.published
        if published > self.synced:
            try:
                self._file.sync_data()
            except OSError:
                self.suspect = True
                raise
            self.synced = published
        return self.synced

    def seal(self, extra: Dictionary[str, Any] | None = None) -> None:
        """Make the file immutable: slots, queues, parts and footer, durable; then cut to its length.

        `extra` is JSON's, for readers of the sealed file. Everything staged was written. Raises
        OSError: after a full disk the file is as it was; after a failed sync it is suspect. After a
        crash within, recovery finds either an unsealed journal with all its batches, or a sealed one.
        """
        if self.sealed:
            return
        self.refuse_unless_writable()
        assert self._closed_stage is None, "a closed stage is not written"
        assert not self.staged_count, "rows are staged"
        assert not self._stage[s.V_ENTRY_USED], "queues are defined and not written"
        end = self.published
        pieces, ending = encode_tail(
            self.header, np.asarray(self._mapped), self.tables, self._scan, extra or {}
        )
        length = end + sum(piece.nbytes for piece in pieces)
        is_longer = length + len(ending) > self.header.capacity
        try:
            self._write_pieces(end, pieces)
            # A length above the capacity is a sealed file's at once: all else is durable before it.
            if is_longer:
                self._sync_whole()
            self._file.write_at(length, ending)
            self._sync_whole()
            if not is_longer:
                # Durable before: batches, slots, queues, parts, footer. Only then the sealed length.
                self._file.truncate(length + len(ending))
                self._sync_whole()
        except OSError:
            self._cut_back()
            raise
        self.synced = end
        self._writable = False
        self.sealed = True

    # -- private ---------------------------------------------------------------------------------------

    def _write_pieces(self, position: int, pieces: Sequence[memoryview]) -> None:
        for piece in pieces:
            if piece.nbytes:
                self._file.write_at(position, piece)
                position += piece.nbytes

    def _sync_whole(self) -> None:
        try:
            self._file.sync()
        except OSError:
            self.suspect = True
            raise

    def _cut_back(self) -> None:
        """Give an unsealed journal its length again: after what failed, only that tells its state."""
        with suppress(OSError):  # the first error is the one to tell
            self._file.truncate(self.header.capacity)

    def _fits_stage(self, columns: MessageColumns) -> bool:
        """Return whether a call surely fits the open stage: then it is one batch."""
        stage = self._stage
        used = int(stage[s.V_USED] + stage[s.V_ENTRY_USED])
        return bool(used + columns.row_bytes <= int(stage[s.V_LIMIT]))

    def _cut_stage(self, largest_row: int) -> None:
        """Keep a batch of a large call small enough for the cache, which it passes three times."""
        stage = self._stage
        used = int(stage[s.V_USED] + stage[s.V_ENTRY_USED])
        stage[s.V_LIMIT] = min(int(stage[s.V_LIMIT]), used + max(_PIECE_BYTES, largest_row))

    def _make_entry_room(self, entry_bytes: int, count: int) -> None:
        """Refuse entries that find no room in the stage, or in the file."""
        stage = self._stage
        most = min(entry_bytes, count * _ENTRY_MAX)
        if int(stage[s.V_USED] + stage[s.V_ENTRY_USED]) + most <= int(stage[s.V_LIMIT]):
            return
        if int(stage[s.V_BEGIN]) + _RECORD + most + layout.BATCH_UNIT > self.header.capacity:
            raise JournalFullError(f"{self.path}: {count} more queues do not fit")
        if not stage[s.V_COUNT] and not stage[s.V_ENTRY_USED]:
            raise RequestTooLargeError(
                f"{count} queues in one call, at most {self.most_queues}", field="queues"
            )
        raise StageFullError(f"{self.path}: the stage has no room for {count} more queues")

    def refuse_unless_writable(self) -> None:
        """Raise ReadOnlyError, or OSError after a failed sync or an interrupt."""
        if not self._writable:
            raise ReadOnlyError(f"{self.path} is open for reading only")
        if self.suspect:
            raise OSError(
                f"{self.path} takes no more after a failed sync or an interrupt: recover it"
            )
