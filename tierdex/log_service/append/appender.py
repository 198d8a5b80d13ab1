"""Appending: rows of a call get their offsets and go into the stage, or into a new journal's.

    fits the open stage    under `append_lock` alone: one batch, atomic across a crash
    else                   under both locks: what is staged is written first; in pieces of a stage each

A queue that the journal does not know yet is defined there first, with its next offset. Offsets are taken
before rows are staged, and given back for rows that were not. Depends on logfile and the
rest of log_service.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import RequestTooLargeError, UnavailableError
from tierdex.log_service.files.queue_table import TakenRows
from tierdex.logfile import layout
from tierdex.logfile.columns import ROW_BYTES_MOST, MessageColumns
from tierdex.logfile.journal.file import JournalFullError, StageFullError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.commit import Commit
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.files.queue_table import QueueTable, RowQueues
    from tierdex.log_service.levels import Level
    from tierdex.log_service.log_options import LogOptions
    from tierdex.logfile.columns import BinaryColumn
    from tierdex.logfile.journal.file import Journal

    Guard = Callable[[], None]


class AppendRows(NamedTuple):
    """The checked rows of one call. `times` (i8): one for all rows, or one each; `extras` i8 offsets.

    `held` (u1): 1 for rows that wait for the timer; None without any.
    """

    queues: RowQueues
    bodies: BinaryColumn
    times: np.ndarray
    extras: BinaryColumn | None
    held: np.ndarray | None = None

    @property
    def row_count(self) -> int:
        return self.queues.row_count

    def slice(self, first: int, end: int) -> AppendRows:
        """Return the rows [first, end)."""
        if first == 0 and end == self.row_count:
            return self
        return AppendRows(
            self.queues.slice(first, end),
            self.bodies.slice(first, end),
            self.times if len(self.times) == 1 else self.times[first:end],
            None if self.extras is None else self.extras.slice(first, end),
            None if self.held is None else self.held[first:end],
        )


class Appended(NamedTuple):
    """The offset of each row (i8), and the commit that brings them to the level asked for."""

    offsets: np.ndarray
    commit: Commit


class ExpectationFailedError(Exception):
    """`expect_offset` is not what is next. The caller is told once everything below has the level."""

    def __init__(self, commit: Commit, next_offset: int) -> None:
        super().__init__()
        self.commit = commit
        self.next_offset = next_offset


class _NoRoomError(Exception):
    """The stage or the journal has no room: come back with both locks. Nothing was applied."""


class Appender:
    """Puts rows into the active journal. Safe to share between threads."""

    def __init__(
        self, options: LogOptions, queues: QueueTable, active: ActiveJournal, committer: Committer,
        check_accepts: Callable[[], None],
    ) -> None:  # fmt: skip
        """`check_accepts` raises when no more appends are accepted."""
        self._queues = queues
        self._active = active
        self._committer = committer
        self._check_accepts = check_accepts
        self._timeout = options.settings.append_timeout
        # Of a stage: what one batch of rows may take, whatever else the batch needs.
        self.batch_bytes = options.stage_bytes - layout.RECORD_BYTES - 2 * layout.BATCH_UNIT

    def append(
        self,
        rows: AppendRows,
        level: Level,
        *,
        expect: int | None = None,
        guard: Guard | None = None,
    ) -> Appended:
        """Stage all rows, and join the commit that brings them to `level`; does not wait for it.

        `expect` is the offset that the queue of the first row has to give next; `guard()` raises what keeps
        the rows out, under the lock under which they are staged. Raises
        ExpectationFailedError, UnavailableError (also when the stage is full for `append_timeout`),
        RequestTooLargeError: then nothing was applied, unless the rows are more than a stage holds and the
        disk failed in between.
        """
        if self.is_one_batch(rows) and not self._committer.is_suspect:
            with suppress(_NoRoomError), self._committer.append_lock:  # below: with both locks
                self._check_rows(rows, level, expect, guard)
                return self._joined(self._stage(rows, can_write=False), level)
        with self.both_locks():
            self._check_rows(rows, level, expect, guard)
            offsets = [self._stage_or_roll(piece) for piece in self._pieces(rows)]
            return self._joined(offsets[0] if len(offsets) == 1 else np.concatenate(offsets), level)

    @contextmanager
    def both_locks(self) -> Iterator[None]:
        """Hold both locks, over a journal that is sound. Raises UnavailableError while the disk hangs."""
        if not self._committer.commit_lock.acquire(timeout=self._timeout):
            raise UnavailableError(
                f"a stage is full, and the disk has taken nothing for {self._timeout:g} s (`append_timeout`)"
            )
        try:
            with self._committer.append_lock:
                if self._committer.is_suspect:
                    self._committer.mend()
                yield
        finally:
            self._committer.commit_lock.release()
            self._committer.hand_over()

    def is_one_batch(self, rows: AppendRows) -> bool:
        """Return whether rows fit one batch record, and so are there together or not at all after a crash."""
        return self._bytes_of(rows, 0, rows.row_count) <= self.batch_bytes

    def check(self, topic: bytes, queue_id: int, level: Level, expect: int | None) -> None:
        """Raise when no more appends are taken, or `expect` is not next. Holding `append_lock`."""
        self._check_accepts()
        if expect is None:
            return
        found = self._queues.next_offset(topic, queue_id)
        if found != expect:
            raise ExpectationFailedError(self._committer.join(level), found)

    def _check_rows(
        self, rows: AppendRows, level: Level, expect: int | None, guard: Guard | None
    ) -> None:
        queues = rows.queues
        topic = queues.topics.value(int(queues.topic_index[0]))
        if guard is not None:
            self._check_accepts()
            guard()
        self.check(topic, int(queues.queue_ids[0]), level, expect)

    def _joined(self, offsets: np.ndarray, level: Level) -> Appended:
        self._committer.note_staged(level)
        return Appended(offsets, self._committer.join(level))

    # -- pieces ----------------------------------------------------------------------------------------

    def _pieces(self, rows: AppendRows) -> Iterator[AppendRows]:
        """Yield the rows in pieces that fit a stage each."""
        first = 0
        while first < rows.row_count:
            end = rows.row_count
            if self._bytes_of(rows, first, end) > self.batch_bytes:
                low, high = first + 1, end  # at least one row, which a stage holds
                while high - low > 1:
                    middle = (low + high) // 2
                    if self._bytes_of(rows, first, middle) <= self.batch_bytes:
                        low = middle
                    else:
                        high = middle
                end = low
            yield rows.slice(first, end)
            first = end

    @staticmethod
    def _bytes_of(rows: AppendRows, first: int, end: int) -> int:
        """Return the most bytes that rows [first, end) take in a stage."""
        total = (end - first) * ROW_BYTES_MOST
        for column in (rows.bodies, rows.extras):
            if column is not None:
                total += int(column.offsets[end]) - int(column.offsets[first])
        return total

    # -- room for one message, holding both locks ------------------------------------------------------

    def open_journal(self) -> None:
        """Open a journal that is not too old."""
        if self._active.is_old and self.active_uuid is not None:
            self.roll("old")
        if self._active.journal is None:
            self._active.open_next()

    def empty_stage(self) -> None:
        """Write what is staged."""
        assert self._active.journal is not None, "opened before"
        self._committer.write_stage(self._active.journal)

    def open_another(self) -> None:
        """Open an empty journal."""
        if self.active_uuid is not None:
            self.roll("full")
            self._active.open_next()

    # -- one piece -------------------------------------------------------------------------------------

    def _stage_or_roll(self, rows: AppendRows) -> np.ndarray:
        """Stage a piece, into the next journal when this one is full or old. Holding both locks."""
        active = self._active
        if active.journal is not None and active.is_old and active.journal.message_count:
            self.roll("old")
        if active.journal is not None:
            try:
                return self._stage(rows, can_write=True)
            except JournalFullError:
                self.roll("full")
        active.open_next()
        try:
            return self._stage(rows, can_write=True)
        except JournalFullError:
            # Its queues are too many for a journal beside the rows: fewer rows name fewer queues.
            if rows.row_count == 1:
                raise RequestTooLargeError(
                    "a message does not fit a journal: raise `journal_bytes`", field="body"
                ) from None
        half = rows.row_count // 2
        return np.concatenate(
            [self._stage_or_roll(rows.slice(0, half)), self._stage_or_roll(rows.slice(half, rows.row_count))]
        )  # fmt: skip

    @property
    def active_uuid(self) -> bytes | None:
        """The uuid of the active journal, None while none holds anything."""
        journal = self._active.journal
        return None if journal is None or not journal.message_count else journal.uuid

    def roll_active(self, reason: str) -> bool:
        """Roll the active journal, unless it is empty; return whether it was rolled."""
        committer = self._committer
        try:
            with committer.commit_lock, committer.append_lock:
                if self.active_uuid is None:
                    return False
                self.roll(reason)
                return True
        finally:
            committer.hand_over()

    def roll(self, reason: str) -> None:
        """Write what is staged and have no active journal. Holding both locks."""
        journal = self._active.journal
        if journal is not None:
            self._committer.write_stage(journal)
            self._active.retire(reason)

    def _stage(self, rows: AppendRows, *, can_write: bool) -> np.ndarray:
        """Return the offsets of the rows, all staged in the active journal. Holding `append_lock`.

        With `can_write` the caller holds both locks. Raises JournalFullError, _NoRoomError.
        """
        journal = self._active.journal
        if journal is None or (not can_write and self._active.is_old):
            raise _NoRoomError
        taken = TakenRows(rows.row_count)
        before = journal.message_count
        try:
            self._take_offsets(journal, rows, taken, can_write=can_write)
            columns = MessageColumns(
                queues=taken.numbers, bodies=rows.bodies, times=rows.times, extras=rows.extras,
                held=rows.held,
            )  # fmt: skip
            if not journal.fits(columns.row_bytes, columns.largest_row):
                if can_write:
                    raise JournalFullError
                raise _NoRoomError
            if not journal.fits_stage(columns.row_bytes):
                if not can_write:
                    raise _NoRoomError
                self._committer.write_stage(journal)
            done = 0
            while done < rows.row_count:
                done += journal.stage(columns, done)
                if done < rows.row_count:
                    self._committer.write_stage(journal)
        finally:
            staged = journal.message_count - before
            if staged < taken.count:
                self._queues.give_back(taken, staged)
        return taken.offsets

    def _take_offsets(
        self, journal: Journal, rows: AppendRows, taken: TakenRows, *, can_write: bool
    ) -> None:
        """Give all rows their offsets; queues that the journal does not know yet are defined there."""
        turn, table = self._active.turn, self._queues.rows_of(rows.queues)
        while not self._queues.take_rows(table, taken, turn):
            # Listed without those that have taken an offset here: a queue begins at the one it gives next.
            fresh = self._queues.list_unplaced(table, taken.count, turn)
            self._define(journal, fresh, can_write=can_write)

    def _define(self, journal: Journal, fresh: np.ndarray, *, can_write: bool) -> None:
        """Define queues (u4) that the journal does not know; all of them, or the error that forgets them."""
        done, turn = 0, self._active.turn
        try:
            while done < len(fresh):
                part = fresh[done : done + journal.most_queues]
                queues = self._queues.columns_of(part)
                try:
                    numbers = journal.define(*queues)
                except StageFullError:
                    if not can_write:
                        raise _NoRoomError from None
                    self._committer.write_stage(journal)
                    numbers = journal.define(*queues)
                self._queues.place(part, numbers, turn)
                done += len(part)
        except JournalFullError:
            if not can_write:
                raise _NoRoomError from None
            raise
        finally:
            if done < len(fresh):
                self._queues.forget(fresh[done:])
