"""The operator's verbs of an open message log: files, timers, due work, health, forgetting, handing it over.

`MessageLog` inherits these verbs. Each raises ClosedError once the log is closed.

Depends on compactor, disk_errors, errors, index_service, lifecycle, logfile, times, value_rules and the
rest of log_service.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tierdex.compactor.progress import describe_backlog
from tierdex.disk_errors import with_disk_errors
from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    NotFoundError,
    TierdexError,
)
from tierdex.index_service.forget.receipt import RewrittenFile, name_of_request
from tierdex.index_service.health import CLOSED, NotReady
from tierdex.lifecycle.file_state import FileState
from tierdex.log_service.answer import LogFileInfo, describe_file
from tierdex.log_service.handing_over import hand_over
from tierdex.log_service.recovery.log_recovery import open_sealed
from tierdex.log_service.timer.timer_hours import read_hours
from tierdex.logfile.check import check_log_file
from tierdex.times import to_ms
from tierdex.value_rules import check_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.index_service.forget.receipt import ForgetReceipt
    from tierdex.index_service.ingest.disk_budget import DiskRoom
    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.answer import TimerHour
    from tierdex.log_service.checked_reads import CheckedReads
    from tierdex.log_service.log_components import LogComponents, LogWriting
    from tierdex.times import Time

logger = logging.getLogger(__name__)

_ATTEMPTS = 5  # a file may be moved between the look at the table and its opening


class OperatedLog:
    """The verbs of an operator, over the components of an open log."""

    def __init__(self, components: LogComponents, reads: CheckedReads) -> None:
        self._components = components
        self._reads = reads

    @with_disk_errors
    def files(self) -> list[LogFileInfo]:
        """Return every file of the log, newest first, then those that do not open.

        `reason` says what is wrong with a file: it does not open, or this process found it damaged.
        """
        self._reads.refresh_when_due()
        with self._components.table.snapshot() as snapshot:
            writing = self._components.writing
            damaged = {} if writing is None else writing.kind.damaged
            shown = [describe_file(each, damaged.get(each.uuid)) for each in snapshot.files]
        return shown + [
            LogFileInfo(each.file, "quarantine", 0, 0, 0, -1, 0, 0, reason=each.reason)
            for each in self._components.reads.quarantined()
        ]

    def file(self, file_id: str) -> LogFileInfo:
        """Return one file, of a published one also when that was.

        Raises NotFoundError, and what the store raises.
        """
        for info in self.files():
            if info.file_id == file_id:
                return replace(info, published_at=self._published_at(file_id))
        raise NotFoundError(f"there is no log file {file_id}")

    def _published_at(self, file_id: str) -> int | None:
        with self._components.table.snapshot() as snapshot:
            handle = next((each for each in snapshot.files if each.file_id == file_id), None)
            key = None if handle is None else handle.object_key
        if key is None or self._components.tier is None:
            return None
        return self._components.tier.store.head(key).modified_ms

    @with_disk_errors
    def verify_file(self, file_id: str) -> list[str]:
        """Check every checksum and invariant of one file; return what is broken, in words.

        Of a journal that takes appends this is what was written by then. Raises NotFoundError.
        """
        self._reads.refresh_when_due()
        for _ in range(_ATTEMPTS):
            with self._components.table.snapshot() as snapshot:
                handle = next((each for each in snapshot.files if each.file_id == file_id), None)
                if handle is None:
                    break
                try:
                    return self._check(handle)
                except FileNotFoundError:
                    continue
        raise NotFoundError(f"there is no log file {file_id}")

    @with_disk_errors
    def roll(self) -> bool:
        """Roll the journal, unless it is empty; return whether it was rolled."""
        return self._writing().appender.roll_active("asked for")

    @with_disk_errors
    def run_compaction(self) -> int:
        """Do all work on files that is due, of the index as well; return the number of steps."""
        return self._writing().run_all(self._components.table)

    def health(self) -> list[NotReady]:
        """Return why this log, or its index, is not ready for use; empty when it is. Raises nothing.

        The reasons: it is closed, it can take no appends (the disk is full, or fails), or its index says one.
        """
        refusal, writing = self._components.refusal, self._components.writing
        if refusal is not None:
            return [NotReady(CLOSED, str(refusal))]
        if writing is None:
            return []
        reasons = writing.tending.health()
        return reasons if writing.log_index is None else reasons + writing.log_index.health()

    def compaction_status(self) -> dict[str, Any]:
        """Return the backlog, the running jobs, the last error and the totals of work on the log's files.

        The index counts publications, those of log files, too; without one there are none, and no backlog.
        Empty for a log that was opened read-only.
        """
        self._components.check_open()
        writing, clock = self._components.writing, self._components.seams.clock
        if writing is None:
            return {}
        status = writing.progress.describe(clock.monotonic())
        if writing.log_index is None:
            return status
        with self._components.table.snapshot() as snapshot:
            local = snapshot.file_list.local()
            return describe_backlog(local, writing.kind.is_active, clock.now_ms()) | status

    @with_disk_errors
    def disk_room(self) -> DiskRoom | None:
        """Return the bytes of log files that wait for the store, and those that the next journal needs free.

        None for a log that was opened read-only.
        """
        self._components.check_open()
        writing = self._components.writing
        return None if writing is None else writing.next_journal.room()

    def cached_bytes(self) -> dict[str, int]:
        """Return how many bytes are kept for reads of the past, by where they are.

        `arena` and `read_ahead` are memory: decoded pages, ranges of published files that are here or under
        way. `kept_copies` are local copies of published files, on disk.
        """
        self._components.check_open()
        tier = self._components.tier
        assert tier is not None  # every way to open a log gives it one
        return {
            "arena": tier.memory.arena.held_bytes,
            "read_ahead": tier.tails.fetched.held_bytes,
            "kept_copies": tier.copies.held_bytes,
        }

    @with_disk_errors
    def timers(self) -> list[TimerHour]:
        """Return the hours in which messages are to be delivered, in order, and how many each.

        Raises IncompleteAnswerError, CorruptFileError where some cannot be read.
        """
        queues = self._reads.queues()
        writing = self._components.writing
        if writing is None:
            return read_hours(self._components.reads, queues)
        return writing.timer.hours()

    @with_disk_errors
    def deliver_due(self) -> int:
        """Deliver what is due by now; return how many messages. With `background` the log does so itself.

        Raises UnavailableError, CorruptFileError: what is not delivered will be, by the next call.
        """
        return self._writing().timer.deliver_due()

    @with_disk_errors
    def expire(self, *, before: Time, dry_run: bool = False) -> list[LogFileInfo]:
        """Drop files that were sealed before `before` (int64 ms), with all their messages; return them.

        Their queues begin behind them, and offsets go on. A file with messages to be delivered stays. What
        the settings `retention` and `topic_retention` say happens without this call. Raises
        InvalidRequestError, UnavailableError.
        """
        writing, before_ms = self._writing(), to_ms(before, "before")
        if writing.log_index is not None:
            writing.log_index.catch_up()  # what is not indexed does not go
        due = writing.retention.due(before_ms)
        shown = [describe_file(handle) for handle in due]
        if due and not dry_run:
            writing.housekeeping.run_first([writing.retention.unit(due)])
        return shown

    @property
    def node(self) -> str:
        """The node whose queues these are."""
        return self._components.options.settings.node

    @with_disk_errors
    def hand_over(self, *, timeout: float = 600.0) -> None:
        """Publish everything, and release the node for another folder, which goes on with `takeover=True`.

        Appends are refused from the call on, with FencedError; reads go on. Raises UnavailableError when not
        everything is published after `timeout` seconds, CorruptFileError for a file that cannot be, and what
        the store raises: then the log goes on here. After an error of the last commit appends stay refused,
        since it may have taken effect: call it again, or open the log again.
        """
        hand_over(self._components, self._writing(), check_seconds(timeout, "timeout"))

    def unpublished_count(self) -> int:
        """Return how many messages lie in this folder and are not known to be in the store."""
        self._components.check_open()
        return self._components.unpublished_count()

    @with_disk_errors
    def forget(
        self,
        topic: str | None = None,
        *,
        key: str | None = None,
        message_id: str | None = None,
        lookups: Sequence[Mapping[str, Any]] | None = None,
        only: Sequence[tuple[int, int]] | None = None,
        now: bool = False,
        dry_run: bool = False,
    ) -> ForgetReceipt:
        """Forget what a topic's key, or a message ID, has now: its messages are not read any more.

        They are hidden, durably, when this returns: empty messages with `is_forgotten` and their time stand
        for them in `read`, so offsets stay dense; `get` and the index know nothing of them, under any of
        their keys. One that waits for its `deliver_at` is not delivered. What is appended later shows.
        The bytes go when files are written anew, with `now` at once; the receipt says which hold some.
        `lookups` are several names, {topic, key} or {message_id, topic?}, instead of one; `only` are the
        (queue_id, offset) that are meant of all that they have. With `dry_run` it only looks. Only this log's
        messages are forgotten: `elsewhere` names other nodes that have some.

        Raises InvalidRequestError, also in a log without an index, ReadOnlyError, and UnavailableError:
        then nothing was forgotten.
        """
        forgetting = self._writing().forgetting
        if lookups is None:
            given = {"topic": topic, "key": key, "message_id": message_id}
            lookups = [{name: value for name, value in given.items() if value is not None}]
        elif (topic, key, message_id) != (None, None, None):
            raise InvalidRequestError("give either `lookups` or one name", field="lookups")
        receipt = forgetting.forget(lookups, only=only, rewrites=now, dry_run=dry_run)
        return receipt if dry_run or not now else self._write_anew(receipt)

    @with_disk_errors
    def resume_forgetting(self, forgetting: str | ForgetReceipt) -> ForgetReceipt:
        """Continue a request to forget, named or by its receipt.

        Raises NotFoundError for a name of which no file holds anything any more.
        """
        name = name_of_request(forgetting)
        return self._write_anew(self._writing().forgetting.resume(name))

    @with_disk_errors
    def forgettings(self) -> list[str]:
        """Return the requests to forget of which some file may still hold something, oldest first."""
        return self._writing().forgetting.pending()

    def waiting_bytes(self) -> int:
        """Return how many bytes of journals are written and not indexed yet."""
        self._components.check_open()
        return self._writing().asked_index().waiting_bytes()

    # -- private -----------------------------------------------------------------------------------------

    def _write_anew(self, receipt: ForgetReceipt) -> ForgetReceipt:
        """Write files anew that are waited for; what cannot be now is in the receipt."""
        if not receipt.waits_for_files:
            return receipt
        forgetting = self._writing().forgetting
        try:
            self.run_compaction()
        except (TierdexError, OSError) as error:  # not swallowed: the receipt says what waits
            logger.warning("not written anew", extra={"error": str(error)})
        try:
            return forgetting.resume(receipt.forgetting)
        except NotFoundError:  # the log's own thread has ended it meanwhile: no file holds anything
            gone = [RewrittenFile(*each[:3], None) for each in receipt.holding]
            return replace(
                receipt, is_complete=True, waiting=[], holding=[], lingering=[],
                rewritten=[*receipt.rewritten, *gone],
            )  # fmt: skip

    def _check(self, handle: FileHandle) -> list[str]:
        if handle.state is FileState.UNSEALED:  # its own reader changes meanwhile
            assert handle.path is not None
            filesystem = self._components.seams.filesystem
            problems = check_log_file(filesystem, handle.path)
            if not problems:
                return problems
            try:  # a worker may have sealed it meanwhile, and renames it next
                sealed = open_sealed(filesystem, handle.node, handle.number, handle.path)
            except CorruptFileError:
                return problems
            with closing(sealed.reader):
                return list(sealed.reader.check())
        try:
            found: list[str] = handle.reader.check()
        except CorruptFileError as error:
            return [error.reason]
        return found

    def _writing(self) -> LogWriting:
        return self._components.need_writing()
