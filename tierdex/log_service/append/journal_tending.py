"""Keeps the active journal young: rolls an old one, makes the next one ahead of time.

What keeps the log from taking appends is tried again here, so that it ends when its cause does, whether
messages are appended or not. Depends on index_service.health and the rest of log_service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierdex.index_service.health import NO_FILE, NotReady
from tierdex.log_service.append.next_journal import AHEAD

if TYPE_CHECKING:
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.log_service.append.appender import Appender
    from tierdex.log_service.append.committer import Committer
    from tierdex.log_service.append.next_journal import NextJournal

_INTERVAL_S = 0.5


class JournalTending:
    """The worker of one thread."""

    name = "log-tend"

    def __init__(
        self, active: ActiveJournal, appender: Appender, committer: Committer, next_journal: NextJournal
    ) -> None:  # fmt: skip
        self._active = active
        self._appender = appender
        self._committer = committer
        self._next_journal = next_journal

    def step(self) -> float:
        """Do what is due; return the seconds until the next look. Raises UnavailableError."""
        self._mend()
        self._roll_when_old()
        self._make_ahead()
        return _INTERVAL_S

    def health(self) -> list[NotReady]:
        """Return why appends are refused until it is mended; empty when they are not."""
        if self._committer.is_suspect:
            return [
                NotReady(NO_FILE, "a sync of the log failed: its journal is to be read back first")
            ]
        trouble = self._next_journal.trouble
        if trouble is not None and self._active.journal is None:
            return [NotReady(NO_FILE, trouble)]
        return []

    def _mend(self) -> None:
        if self._committer.is_suspect:
            with self._committer.commit_lock, self._committer.append_lock:
                if self._committer.is_suspect:
                    self._committer.mend()

    def _roll_when_old(self) -> None:
        with self._committer.commit_lock, self._committer.append_lock:
            journal = self._active.journal
            if journal is not None and self._active.is_old and journal.message_count:
                self._appender.roll("old")

    def _make_ahead(self) -> None:
        if self._next_journal.is_made:
            return
        journal = self._active.journal
        if journal is None:
            is_due = self._next_journal.trouble is not None  # and appends wait for it
        else:
            is_full = journal.bytes_used >= AHEAD * journal.header.capacity
            is_due = is_full or self._active.age_share >= AHEAD
        if is_due:
            with self._next_journal.lock:
                if journal is not None:
                    self._next_journal.come_after(journal)
                self._next_journal.make_ahead(self._active.generation)
