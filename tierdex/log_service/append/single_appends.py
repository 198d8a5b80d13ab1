"""Single messages: one kernel call from the caller's values to a row in the stage.

The kernel takes every message. What it refuses is wrong, or finds no room: `message_columns.check_message`
tells what is wrong, and `append_checked` makes room and calls it again. A message with a `deliver_at` is
checked first: the timer says whether it waits (`Timer.append_one`).
Depends on fileparts, times, value_rules and the rest of log_service.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import RequestTooLargeError
from tierdex.fileparts.memory import address
from tierdex.log_service.append.message_columns import EXTRA_BYTES_MOST
from tierdex.log_service.kernels import single_append as k
from tierdex.times import to_ms
from tierdex.value_rules import SECONDS_BEGIN, SECONDS_END

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.appender import Appender
    from tierdex.log_service.append.commit import Commit
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.append.given_messages import GivenMessages
    from tierdex.log_service.files.queue_table import QueueTable
    from tierdex.log_service.levels import Level
    from tierdex.logfile.journal.file import Journal
    from tierdex.settings import Settings


class SingleAppends:
    """Appends one message a call, when it can. Safe to share between threads."""

    def __init__(
        self, settings: Settings, queues: QueueTable, active: ActiveJournal, committer: Committer,
        appender: Appender, check_accepts: Callable[[], None],
    ) -> None:  # fmt: skip
        self._queues = queues
        self._active = active
        self._committer = committer
        self._appender = appender
        self._check_accepts = check_accepts
        self._arguments = np.zeros(k.ARGUMENTS_LENGTH, np.int64)
        self._place = address(self._arguments)
        self._arguments[k.A_MOST_BODY] = settings.max_message_bytes
        self._arguments[k.A_MOST_KEY] = settings.max_key_bytes
        self._arguments[k.A_MOST_EXTRA] = min(settings.max_message_bytes, EXTRA_BYTES_MOST)
        self._kernel: Any = None  # loads with the first message
        # What the addresses in the arguments belong to, kept alive; others take their place in time.
        self._journal: Journal | None = None
        self._snapshots: tuple[object, object] = None, None

    @property
    def is_loaded(self) -> bool:
        """Whether the kernel was loaded: that may take seconds, where it must be compiled."""
        return self._kernel is not None

    def append(
        self, given: GivenMessages, time: int, expected: int | None, level: Level
    ) -> tuple[int, Commit] | None:
        """Stage one message; return (its offset, the commit that brings it to `level`), or None.

        Raises as `check_accepts` does.
        """
        if given.deliver_at is not None:
            return None
        with self._committer.append_lock:
            self._check_accepts()
            return None if self._active.is_old else self._taken(given, time, expected, level)

    def append_checked(
        self, given: GivenMessages, expected: int | None, level: Level, *, delivery: bytes = b"",
        guard: Callable[[], None] = lambda: None,
    ) -> tuple[int, Commit]:  # fmt: skip
        """Stage a message that `check_message` returned: make room for it.

        `delivery` are the items of its extra that tell of a `deliver_at`; `guard()` raises what keeps it
        out, under the lock under which it is staged. Raises ExpectationFailedError, UnavailableError,
        RequestTooLargeError.
        """
        appender, topic = self._appender, given.topic.encode()
        place = topic, given.queue_id, level, expected
        if not self._committer.is_suspect:
            with self._committer.append_lock:
                appender.check(*place)
                guard()
                is_old = self._active.is_old
                taken = None if is_old else self._reserved(given, topic, expected, level, delivery)
                if taken is not None:
                    return taken
        with appender.both_locks():
            appender.check(*place)
            guard()
            for make_room in appender.open_journal, appender.empty_stage, appender.open_another:
                make_room()
                taken = self._reserved(given, topic, expected, level, delivery)
                if taken is not None:
                    return taken
        raise RequestTooLargeError(
            "a message does not fit a journal: raise `journal_bytes`", field="body"
        )

    def _reserved(
        self,
        given: GivenMessages,
        topic: bytes,
        expected: int | None,
        level: Level,
        delivery: bytes,
    ) -> tuple[int, Commit] | None:
        """Stage one message, with room in the tables. Holding `append_lock`. Raises OSError."""
        journal = self._active.journal
        if journal is None:
            return None
        journal.reserve_one(len(topic))
        self._queues.reserve_one(len(topic))
        # Its time was looked at: a `datetime` early in 1970 is no number of seconds.
        given, time = given._replace(timestamp=None), given.timestamp
        return self._taken(given, time, expected, level, delivery)

    def _taken(
        self,
        given: GivenMessages,
        time: int,
        expected: int | None,
        level: Level,
        delivery: bytes = b"",
    ) -> tuple[int, Commit] | None:
        """Call the kernel with a message; None if it refuses. Holding `append_lock`."""
        topic, queue_id, body, keys, message_id, headers, timestamp, _later = given
        if headers.__class__ is dict:
            headers = list(headers.items())
        if timestamp is None:
            timestamp = time
        elif timestamp.__class__ is not int and isinstance(timestamp, str | datetime):
            timestamp = to_ms(timestamp, "timestamp")
        elif _is_like_seconds(timestamp):
            return None
        committer, journal = self._committer, self._active.journal
        if journal is None or journal.suspect or committer.is_suspect:
            return None
        self._look_at(journal)
        offset = self._kernel(
            self._place, topic, queue_id, body, keys, message_id, headers, delivery, timestamp,
            k.NO_EXPECTATION if expected is None else expected,
        )  # fmt: skip
        if offset < 0:
            return None
        committer.note_staged(level)
        return offset, committer.join(level)

    def let_go(self) -> None:
        """Keep nothing of the journal that was: its tables are large. Holding `append_lock`."""
        self._journal, self._snapshots = None, (None, None)

    def _look_at(self, journal: Journal) -> None:
        """Put the present tables into the arguments: tables are replaced when they grow."""
        of_node, of_journal = self._queues.snapshot, journal.tables.snapshot
        if (
            journal is self._journal
            and of_node is self._snapshots[0]
            and of_journal is self._snapshots[1]
        ):
            return
        if self._kernel is None:
            self._kernel = k.load()
        self._arguments[k.A_QUEUES] = address(of_node.words)
        self._arguments[k.A_TABLES] = address(of_journal.words)
        self._arguments[k.A_STAGE] = journal.stage_address
        self._arguments[k.A_TURN] = self._active.turn
        self._journal, self._snapshots = journal, (of_node, of_journal)


def _is_like_seconds(timestamp: Any) -> bool:
    """Return whether a number is no time in milliseconds; what is no number `check_message` refuses."""
    try:
        return bool(SECONDS_BEGIN <= timestamp < SECONDS_END)
    except TypeError:
        return True
