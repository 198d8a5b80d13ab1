"""Single messages: one kernel call from the caller's values to a row in the stage.

It takes what is plain: a topic and a queue that the journal knows, bytes, keys and a message ID, no headers.
Everything else it refuses, nothing done, and the appender's general path says what is wrong or makes room.
Depends on fileparts and the other modules of this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.fileparts.memory import address
from tierdex.log_service.kernels import single_append as k
from tierdex.log_service.message_columns import EXTRA_BYTES_MOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.log_service.active_journal import ActiveJournal
    from tierdex.log_service.commit import Commit
    from tierdex.log_service.committer import Committer
    from tierdex.log_service.given_messages import GivenMessages
    from tierdex.log_service.levels import Level
    from tierdex.log_service.queue_table import QueueTable
    from tierdex.logfile.journal.file import Journal
    from tierdex.settings import Settings


class SingleAppends:
    """Appends one message a call, when it can. Safe to share between threads."""

    def __init__(
        self, settings: Settings, queues: QueueTable, active: ActiveJournal, committer: Committer,
        check_accepts: Callable[[], None],
    ) -> None:  # fmt: skip
        self._queues = queues
        self._active = active
        self._committer = committer
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
        topic, queue_id, body, keys, message_id, headers, timestamp, deliver_at = given
        if headers is not None or deliver_at is not None:
            return None
        committer = self._committer
        with committer.append_lock:
            self._check_accepts()
            journal = self._active.journal
            if (
                journal is None or journal.suspect or committer.is_suspect or self._active.is_old
            ):  # fmt: skip
                return None
            self._look_at(journal)
            offset = self._kernel(
                self._place, topic, queue_id, body, keys, message_id,
                time if timestamp is None else timestamp,
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
        """Let the arguments name the tables as they are now: they are replaced when they grow."""
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
