"""`TableFollower`: keeps an index of a table's keys current, snapshot by snapshot.

::

    look    is there a snapshot after the indexed one?               every few seconds
      |
    number  files that were never seen get numbers                   synced before any entry carries one
      |
    read --> keys --> put, by file and position                      of new files alone: files never change
      |
    flush   the entries are on the disk
      |
    deletes, step   which files and rows are live from now on        synced: visible, whole, at once

A crash anywhere leaves the snapshot of before, whole. Files whose entries were durable are not read again.

A snapshot that cannot be read exactly is refused before it is numbered: `run` raises, the index stays at the
snapshot of before, and answers say how old that is.

Depends on errors, files, following.patience, following.status, index_service, indexfile, seams and the other
modules of this folder.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tierdex.clock import Bell
from tierdex.errors import CorruptFileError, InvalidRequestError, NotFoundError, UnavailableError
from tierdex.files.table_columns import TableColumns
from tierdex.following.patience import Patience
from tierdex.following.status import FollowStatus
from tierdex.following.tables.table_rows import FileRows, RowNames
from tierdex.following.tables.table_source import of_partitions
from tierdex.following.tables.table_steps import check_head, files_record, step_record
from tierdex.indexfile.schema import TABLE_ROW_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.following.tables.table_source import LiveFile, TableSource, TableStep
    from tierdex.index_service.index import Index
    from tierdex.index_service.tables.table_log import TableLog
    from tierdex.index_service.tables.table_state import TableHead, TableState
    from tierdex.seams import Seams

logger = logging.getLogger(__name__)
_FLUSH_ROWS: Final = 20_000_000  # that a crash of a first indexing may cost
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True)
class TablePlan:
    """How a table is followed. `snapshot` is the last one to be indexed, None: each that comes.

    `history_ms` is how long snapshots are kept that newer ones follow. `head` is fixed at the first time.
    """

    head: TableHead
    names: RowNames
    once: bool = False
    snapshot: str | None = None
    history_ms: int = 7 * _DAY_MS
    look_interval_s: float = 5.0


class TableFollower:
    """Follows one table into one topic. `run` in one thread; `status` and `stop` from any."""

    def __init__(self, index: Index, source: TableSource, plan: TablePlan, seams: Seams) -> None:
        self.status = FollowStatus(source.name, plan.head.topic)
        self._index = index
        self._source = source
        self._plan = plan
        self._clock = seams.clock
        self._stopping = Bell()
        self._tried = Patience(self.status, self._stopping, seams).tried
        self._tables = index.followed_tables
        self._log: TableLog = self._tables.own(plan.head.topic)
        self._pinned = False

    def stop(self) -> None:
        """Let `run` end after the file that it reads. Safe in a signal handler."""
        self._stopping.set()

    def run(self) -> FollowStatus:
        """Follow until `stop`, or with `once` to the newest snapshot; return the status.

        Raises InvalidRequestError for a table, or a snapshot of it, that is not read here.
        """
        try:
            while not self._stopping.is_set():
                done = self._tried(self._look)
                if done and (self._plan.once or self._pinned):
                    break
                if done:
                    self._clock.wait(self._stopping, self._plan.look_interval_s)
        except Exception as error:
            if self._log.state is not None:
                self._note(str(error))
            raise
        finally:
            self._source.close()
        return self.status

    # -- steps -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Index every snapshot that is new. Raises UnavailableError for what may pass."""
        with self._typed():
            looked_at = self._clock.now_ms()
            state = self._log.state
            newest = None if state is None or self._is_another(state) else state.newest
            since = None if newest is None else newest.snapshot
            behind = self._source.behind(since)
            known = -1 if newest is None else newest.version
            self.status.positions, self.status.ends = {0: known}, {0: known + behind}
            if behind or self._plan.snapshot is not None:
                if newest is not None:
                    self._note(None, looked_at)
                for step, is_last in _with_last(self._source.steps(since, self._plan.snapshot)):
                    if self._stopping.is_set():
                        return
                    self._take_or_pass(step, is_last=is_last)
            self.status.ends = dict(self.status.positions)
            self._pinned = self._plan.snapshot is not None
            self._forget_old()
            if self._log.state is not None:
                self._note(None, looked_at)

    def _is_another(self, state: TableState) -> bool:
        """Say whether a log is of another table, or of no snapshot of this one by these keys."""
        head = self._plan.head
        return state.head.identity != head.identity or (state.newest is None and state.head != head)

    def _begin(self) -> TableState:
        """Write down what is followed, before any entry of it. Raises InvalidRequestError."""
        head = self._plan.head
        # Entries lie in files that are newer than the log: a reader who sees them knows the table.
        if self._log.state is None and (adopted := self._tables.adopted(head.topic)) is not None:
            check_head(adopted, head, accept_other_log=False)
            state = adopted
        elif self._log.state is None:
            if head.topic in self._index.topics():
                raise InvalidRequestError(
                    f"topic {head.topic!r} has entries, and this data folder has no table of it: give "
                    "another topic",
                    field="topic",
                )
            state = self._log.begin(head)
        else:  # in the place of another table, which a caller has accepted: nothing of that is shown any more
            state = self._log.append(head.as_record())
        self._index.roll()
        self._tables.publish(head.topic, state)
        return state

    def _take_or_pass(self, step: TableStep, *, is_last: bool) -> None:
        """Index a snapshot; pass over one that is not to be read any more, where a newer one follows."""
        try:
            self._take(step)
        except (NotFoundError, InvalidRequestError) as error:
            if is_last:
                raise
            logger.warning(
                "snapshot passed over", extra={"snapshot": step.snapshot, "error": str(error)}
            )

    def _take(self, step: TableStep) -> None:
        columns = TableColumns.decode(step.columns)
        step = of_partitions(step, columns, self._plan.head.partitions)
        rows = self._rows_of(columns)
        if self._log.state is None or self._is_another(self._log.state):
            begun = (
                self._begin()
            )  # not before: a key that the table lacks must leave nothing behind
            if begun.newest is not None and begun.newest.snapshot == step.snapshot:
                return
            rows = self._rows_of(columns)
        state = self._numbered(step)
        counts = self._put_new(state, step, rows)
        self._index.flush("disk")
        record = step_record(self._log.state or state, step, counts, self._log.write_deletes)
        state = self._log.append(record)
        self._tables.publish(state.head.topic, state)
        self.status.positions = {0: step.version}
        logger.info(
            "snapshot indexed",
            extra={"table": state.head.table, "snapshot": step.snapshot, "files": len(step.files)},
        )

    def _numbered(self, step: TableStep) -> TableState:
        state = self._log.state
        assert state is not None
        record = files_record(state, step)
        return state if record is None else self._log.append(record)

    def _put_new(self, state: TableState, step: TableStep, rows: FileRows) -> dict[int, int]:
        """Put the entries of files that were never read; return the rows of each, by number."""
        counts: dict[int, int] = {}
        pending: list[tuple[int, int]] = []
        waiting = 0
        for path, file in step.files.items():
            number = state.number_of(path)
            assert number is not None
            known = state.files[number]
            if known.rows is not None:  # read before, in this run or in one that was cut off
                continue
            if self._stopping.is_set():
                raise UnavailableError("the follower was stopped")
            counts[number] = self._put_file(number, file, rows, step.time_ms)
            pending.append((number, counts[number]))
            waiting += counts[number]
            if waiting >= _FLUSH_ROWS:
                self._index.flush("disk")
                self._log.append({"kind": "indexed", "files": pending})
                pending, waiting = [], 0
        return counts

    def _put_file(self, number: int, file: LiveFile, rows: FileRows, time_ms: int) -> int:
        topic, total = self._plan.head.topic, 0
        with self._source.opened(file) as opened:
            for part in rows.read(opened, file, time_ms):
                total = part.end
                self.status.messages += part.rows
                self.status.too_long += part.too_long
                for name, texts in part.names:
                    self._index.put_batch(
                        topic=topic, **{name: texts.texts}, timestamp=texts.times,
                        schema=TABLE_ROW_SCHEMA, table_file=number, position=texts.positions,
                        durability="os",
                    )  # fmt: skip
                    self.status.entries += len(texts.positions)
        self.status.bytes += file.size
        return total

    def _rows_of(self, columns: TableColumns) -> FileRows:
        """Return how rows are read at a snapshot. Raises InvalidRequestError for a key that is not there."""
        state = self._log.state
        first = None
        if state is not None and state.first_columns and not self._is_another(state):
            first = TableColumns.decode(state.first_columns)
        return FileRows(columns, first, self._plan.names, self._index.settings.max_key_bytes)

    def _forget_old(self) -> None:
        """Keep no snapshot that another one has followed for longer than the history, nor its files."""
        state = self._log.state
        if state is None or not state.snapshots:
            return
        oldest = self._clock.now_ms() - self._plan.history_ms
        kept = [
            each for each, after in zip(state.snapshots, state.snapshots[1:], strict=False)
            if after.time_ms >= oldest
        ]  # fmt: skip
        first = kept[0].step if kept else state.snapshots[-1].step
        before = state
        if first > state.snapshots[0].step:
            state = self._log.append({"kind": "kept", "first": first})
        if dead := state.dead_numbers():
            state = self._log.append({"kind": "forgotten", "files": dead})
        state = self._log.tidy()
        if state is not before:
            self._tables.publish(state.head.topic, state)

    def _note(self, trouble: str | None, looked_at: int | None = None) -> None:
        """Say what the look saw, for readers; what an earlier look saw stays where this one failed."""
        said = self._log.last_look()
        if looked_at is not None:
            said = {"looked_at": looked_at, "behind": self.status.total_lag()}
        self._log.note_look({**said, "trouble": trouble})

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Turn what another look may mend into UnavailableError; with `once` nothing looks again."""
        try:
            yield
        except UnavailableError as error:
            if self._log.state is not None:
                self._note(str(error))
            raise
        except (CorruptFileError, OSError, pa.ArrowInvalid) as error:
            if self._plan.once:
                raise
            raise UnavailableError(str(error)) from error
        except NotFoundError as error:
            if self._plan.once or not self.status.positions.get(0, -1) >= 0:
                raise
            raise UnavailableError(str(error)) from error


def _with_last(steps: Iterator[TableStep]) -> Iterator[tuple[TableStep, bool]]:
    """Yield each step, and whether it is the last one."""
    before = next(steps, None)
    for step in steps:
        assert before is not None
        yield before, False
        before = step
    if before is not None:
        yield before, True
