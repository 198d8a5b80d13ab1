"""Keeps the active journal young: rolls an old one, makes the next one ahead of time.

Depends on the other modules of this folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.log_service.active_journal import ActiveJournal
    from tierdex.log_service.appender import Appender
    from tierdex.log_service.committer import Committer
    from tierdex.log_service.next_journal import NextJournal

_INTERVAL_S = 0.5
_AHEAD = 0.5  # of a journal, or of its time


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
        self._roll_when_old()
        self._make_ahead()
        return _INTERVAL_S

    def _roll_when_old(self) -> None:
        with self._committer.commit_lock, self._committer.append_lock:
            journal = self._active.journal
            if journal is not None and self._active.is_old and journal.message_count:
                self._appender.roll("old")

    def _make_ahead(self) -> None:
        journal = self._active.journal
        if journal is None or self._next_journal.is_made:
            return
        is_due = journal.bytes_used >= _AHEAD * journal.header.capacity
        if is_due or self._active.age_share >= _AHEAD:
            with self._next_journal.lock:
                self._next_journal.make_ahead(self._active.generation)
