"""The committer: writes and syncs staged messages, for all callers that wait.

::

    appends join the next commit      while one is under way
    commit    close the stage, write it          -> level `os`: waiters go on
              sync older journals, the name, the journal   -> level `disk`: waiters go on
              `on_remote`, when a caller waits for more    -> level `remote`: `remote_commits`
    next      begins as soon as this one ends, when a caller waits; there is no timer: the sync is the window

A lone caller commits itself, without a change of threads; callers that come meanwhile wait for the thread
that does the next. Lock order: `commit_lock`, `append_lock`, the next journal's. `append_lock` guards stage,
queue table and the choice of the journal, never across a system call but a roll's; `commit_lock` is held by
the one who writes and syncs.

A failed sync is never tried again into a success: the journal is suspect, and `mend` reads it back and
writes it anew before anything more is appended. Depends on disk_errors, clock and the
rest of log_service.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tierdex.clock import Bell
from tierdex.disk_errors import disk_error
from tierdex.errors import TierdexError, UnavailableError
from tierdex.log_service.append.commit import Commit
from tierdex.log_service.levels import Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.clock import Clock
    from tierdex.log_service.append.active_journal import ActiveJournal
    from tierdex.logfile.journal.file import Journal

_SYNC_EVERY_BYTES = 64 << 20
_RECEIVED, _OS, _DISK = Level.RECEIVED, Level.OS, Level.DISK  # an enum's attributes cost
_IDLE_S = 1.0  # rows whose caller was interrupted before it could wait for them


class Committer:
    """Writes and syncs, one commit at a time. Also the worker that does it in the background."""

    name = "log-committer"

    def __init__(self, active: ActiveJournal, clock: Clock, stage_max_age: float) -> None:
        self._active = active
        self._clock = clock
        self._stage_max_age = stage_max_age
        self.append_lock = threading.Lock()
        self.commit_lock = threading.Lock()
        self.mend: Callable[[], None] = lambda: (
            None
        )  # brings suspect journals back; both locks held
        self.wake: Callable[[], None] | None = (
            None  # of the thread that commits; None: there is none
        )
        self.on_written: Callable[[], None] = lambda: None  # called often: it must be quick
        # Takes a commit at `disk` that is wanted at `remote`; and waits, or works, until that is settled.
        self.on_remote: Callable[[Commit], None] = lambda commit: None
        self.wait_remote: Callable[[Commit], None] = lambda commit: None
        self._next = Commit()
        self._staged_since: float | None = None
        self._arrived: dict[Level, Bell] = {}  # a bell where a caller waits for more
        self._to_tell: dict[Level, deque[Callable[[], object]]] = {
            level: deque() for level in (Level.OS, Level.DISK, Level.REMOTE)
        }
        self.is_suspect = False

    # -- for appends -----------------------------------------------------------------------------------

    def join(self, level: Level) -> Commit:
        """Return the commit that brings what was staged until now to `level`. Holding `append_lock`."""
        commit = self._next
        if commit.wanted < level:
            commit.wanted = level
        return commit

    def note_staged(self, level: Level) -> None:
        """Schedule a commit of staged messages for which no caller waits. Holding `append_lock`.

        Who wants a `level` commits, or has the thread commit, when they wait: it need not wake before.
        """
        if self._staged_since is None:
            self._staged_since = self._clock.monotonic()
            if level is Level.RECEIVED and self.wake is not None:
                self.wake()

    def wait(self, commit: Commit, level: Level) -> None:
        """Return once the commit has reached `level`. Raises why it did not."""
        self._wait_here(commit, level if level <= _DISK else _DISK)
        if level > _DISK:
            self.wait_remote(commit)
            commit.raise_error(level)

    def _wait_here(self, commit: Commit, level: Level) -> None:
        while not commit.is_settled(level):
            # Without a thread each caller commits; with one, a caller that finds no commit under way.
            if self.commit_lock.acquire(blocking=self.wake is None):
                try:
                    if not commit.is_settled(level):
                        self._run()
                finally:
                    self.commit_lock.release()
                self.hand_over()
            else:
                self._call_for(commit)  # the holder of the lock need not be at a commit
                commit.wait(level)
        commit.raise_error(level)

    def begin(self, commit: Commit, level: Level) -> None:
        """Run the commit in the thread; without one, here. Errors come with the commit."""
        if self.wake is None:
            with suppress(TierdexError):
                self.wait(commit, level)
        else:
            self._call_for(commit)

    def begin_at_once(self, commit: Commit, level: Level) -> None:
        """Run the commit as `begin` does; a commit that only has to be written is written here.

        For event loops: a write into the page cache takes less than to hand it to the thread. It waits for no
        other commit, and not for the disk.
        """
        journal = self._active.journal
        if (
            level is _OS
            and commit.wanted is _OS
            and not self.is_suspect
            and journal is not None
            and not self._has_much_unsynced(journal)
            and self.commit_lock.acquire(blocking=False)
        ):
            try:
                if self._next.wanted is _OS:
                    self._run()
            finally:
                self.commit_lock.release()
            self.hand_over()
        if not commit.is_settled(level):
            self._call_for(commit)

    def _call_for(self, commit: Commit) -> None:
        """Wake the thread for a commit, once."""
        if not commit.is_called_for:
            commit.is_called_for = True
            self.hand_over()

    def hand_over(self) -> None:
        """Let the thread commit when a caller waits: called after each release of `commit_lock`."""
        if self._next.wanted > _RECEIVED and self.wake is not None:
            self.wake()

    def write_stage(self, journal: Journal) -> None:
        """Write what is staged, to make room. Holding both locks. Raises UnavailableError."""
        try:
            journal.flush()
        except OSError as error:
            raise _write_error(error) from error
        self._staged_since = None
        self.tell_arrived(Level.OS)

    # -- for readers -----------------------------------------------------------------------------------

    def arrival(self, level: Level) -> Bell:
        """Return the bell that rings when more messages reach `level`: take it, look, then wait."""
        return self._arrived.setdefault(max(level, Level.OS), Bell())

    def call_at_arrival(self, level: Level, callback: Callable[[], object]) -> None:
        """Call `callback()` once, in the thread that commits, when more messages reach `level`.

        Register, look, then wait. It must return soon and raise nothing.
        """
        self._to_tell[max(level, Level.OS)].append(callback)

    # -- commits ---------------------------------------------------------------------------------------

    def step(self) -> float:
        """Commit when a caller waits, or rows have waited too long; return seconds until the next check."""
        if self._next.wanted > Level.RECEIVED:
            self.commit_next()
            return 0.0
        since = self._staged_since
        if since is None:
            return _IDLE_S
        left = since + self._stage_max_age - self._clock.monotonic()
        if left > 0:
            return left
        self.commit_next()
        return 0.0

    def commit_next(self) -> None:
        """Run one commit, if there is anything to commit. Its errors go to the callers that wait for it."""
        with self.commit_lock:
            if self._next.wanted > Level.RECEIVED or self._staged_since is not None:
                self._run()

    def _run(self) -> None:
        """Run the next commit. Holding `commit_lock`. Errors of the disk go to the waiting callers."""
        commit: Commit | None = None
        try:
            if self.is_suspect:
                with self.append_lock:
                    commit = self._take_next()  # what it covers is dropped by the mending
                    self.mend()
                raise UnavailableError(
                    "an earlier sync failed, and what was staged since is gone: append it again; what was "
                    "written before may be there: look at the end offset",
                    retry_after_s=1.0,
                )
            journal = self._active.journal
            if journal is not None and journal.closed_stage is not None:
                journal.write(journal.closed_stage)  # an earlier write of it failed
            with self.append_lock:
                commit = self._take_next()
                journal = self._active.journal
                closed = None if journal is None else journal.close_stage()
            if journal is not None and closed is not None:
                journal.write(closed)
            commit.reach(_OS)
            self.tell_arrived(_OS)
            if commit.wanted >= _DISK or (journal is not None and self._has_much_unsynced(journal)):
                self._sync()
                commit.reach(Level.DISK)
                self.tell_arrived(Level.DISK)
            if commit.wanted > _DISK:
                self.on_remote(commit)
        except OSError as error:
            self._fail(commit, _write_error(error))
        except TierdexError as error:
            self._fail(commit, error)
        except BaseException:
            journal = self._active.journal
            self.is_suspect |= (
                journal is not None and journal.suspect
            )  # whether it is closed or written
            self._fail(commit, UnavailableError("the commit was interrupted: append again"))
            raise

    def sync_rolled(self) -> None:
        """Make rolled journals durable, names and batches. Holding `commit_lock`. Raises OSError."""
        if self._active.unsynced:
            self._active.make_name_durable()  # of the newest, which may be one of them
        while self._active.unsynced:
            self._sync_one(self._active.unsynced[0])
            del self._active.unsynced[0]

    def _sync(self) -> None:
        """Make everything written durable: older journals, the newest one's name, then its batches.

        The newest one may be rolled already: then its name is all that is left.
        """
        self.sync_rolled()
        self._active.make_name_durable()
        journal = self._active.journal
        if journal is not None:
            self._sync_one(journal)

    def _sync_one(self, journal: Journal) -> None:
        try:
            journal.sync()
        except OSError:
            self.is_suspect = True
            raise

    def _take_next(self) -> Commit:
        commit, self._next = self._next, Commit()
        self._staged_since = None
        return commit

    def _fail(self, commit: Commit | None, error: TierdexError) -> None:
        if commit is None:
            with self.append_lock:
                commit = self._take_next()
        commit.fail(error)

    @staticmethod
    def _has_much_unsynced(journal: Journal) -> bool:
        return journal.published - journal.synced >= _SYNC_EVERY_BYTES

    def tell_arrived(self, level: Level) -> None:
        """Wake the readers that wait for more messages at a level: one thread a level calls it."""
        bell = self._arrived.pop(level, None) if self._arrived else None
        if bell is not None:
            bell.set()
        if level is _OS:
            self.on_written()
        waiting = self._to_tell[level]
        for _ in range(len(waiting)):  # not the callers that register meanwhile
            waiting.popleft()()


def _write_error(error: OSError) -> UnavailableError:
    typed = disk_error(error)
    return type(typed)(
        f"{typed}. What was not acknowledged may still be written: look at the end offset, or append with "
        "`expect_offset`",
        retry_after_s=1.0,
    )
