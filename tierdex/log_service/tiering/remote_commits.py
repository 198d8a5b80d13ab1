"""The level `remote`: commits that wait until the files that held anything then are published.

::

    commit at `disk` --add--> the unpublished files at that moment: all of them must go up
    step     roll the journal, at most once every `remote_interval`: all who wait share it
             the index beside it catches up, compactor and publisher are woken
    settle   all files published -> `remote`; one damaged, or `remote_timeout` over -> an error: the messages
             are at `disk` all the same, and go up when the store answers. A file that went by its age before
             it was published delays no commit: its messages are read no more

The files are a set of uuids and no position: a file may be given another number at its publication.

Depends on clock, disk_errors, errors and the rest of log_service.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from tierdex.clock import Bell
from tierdex.disk_errors import disk_error
from tierdex.errors import CorruptFileError, TierdexError, UnavailableError
from tierdex.log_service.levels import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tierdex.lifecycle.table.file_handle import FileHandle
    from tierdex.log_service.append.appender import Appender
    from tierdex.log_service.append.commit import Commit
    from tierdex.log_service.tiering.log_kind import LogKind, LogWork

_LOOK_S = 0.05
_IDLE_S = 60.0


class _Waiting(NamedTuple):
    """A commit, the journals (uuids) that must be published for it, and until when (monotonic s)."""

    commit: Commit
    uuids: frozenset[bytes]
    deadline: float


class RemoteCommits:
    """The commits that wait for `remote`, and the worker that advances them. Any thread may call it."""

    name = "log-remote"

    def __init__(
        self, work: LogWork, kind: LogKind, appender: Appender, check_accepts: Callable[[], None]
    ) -> None:
        """`check_accepts` raises when nothing is published any more: the log is closed, or fenced."""
        self._settings, self._clock, self._table = work.settings, work.clock, work.table
        self._kind = kind
        self._appender = appender
        self._check_accepts = check_accepts
        # Lets what was rolled come closer to the store: wakes the threads, or does the work without.
        self.advance: Callable[[], object] = lambda: None
        self.wake: Callable[[], None] | None = (
            None  # of the thread; None: the waiting thread does it
        )
        self._lock = threading.Lock()  # of the list
        self._stepping = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._rolled_at = float("-inf")
        self._trouble: TierdexError | None = None  # of the last step
        self._is_closed = False

    def add(self, commit: Commit) -> None:
        """Take a commit that is at `disk`. Called by the one who commits."""
        local = self._local()
        uuids = frozenset(each for each in local if local[each].uuid not in self._kind.damaged)
        deadline = self._clock.monotonic() + self._settings.remote_timeout
        with self._lock:
            self._waiting = [*self._waiting, _Waiting(commit, uuids, deadline)]
        if self._is_closed:
            self._settle()
        self.note_published()

    def wait(self, commit: Commit) -> None:
        """Return once the commit is settled; without a thread do the work here."""
        while not commit.is_settled(Level.REMOTE):
            if self.wake is not None:
                commit.wait(Level.REMOTE)
                return
            pause = self.step()
            if commit.is_settled(Level.REMOTE):
                return
            if self._trouble is not None:
                self._fail(commit, self._trouble)  # no other thread works at it
            else:
                self._clock.wait(Bell(), pause)

    def note_published(self) -> None:
        """Make the list due: a file was published, or a caller waits."""
        if self.wake is not None:
            self.wake()

    def refuse_damaged(self) -> None:
        """Raise CorruptFileError when a file is damaged and stays here: its messages do not go up."""
        for handle in self._local().values():
            reason = self._kind.damaged.get(handle.uuid)
            if reason is not None:
                raise _damage(handle, reason)

    def step(self) -> float:
        """Advance the waiting commits; return the seconds until the next step."""
        with self._stepping:
            self._settle()
            if not self._waiting:
                return _IDLE_S
            try:
                pause = self._roll_when_due()
                self.advance()
            except TierdexError as error:
                self._trouble = error
            except OSError as error:
                self._trouble = disk_error(error)
            else:
                self._trouble = None
                self._settle()
                return min(pause, self._until_deadline())
            return _LOOK_S

    def close(self) -> None:
        """Release all waiting callers, now and later: this opening publishes nothing more."""
        self._is_closed = True
        self._settle()

    # -- private ------------------------------------------------------------------------------------------

    def _local(self) -> dict[bytes, FileHandle]:
        """Return the unpublished files that hold anything, by the uuid of each journal in them."""
        local: dict[bytes, FileHandle] = {}
        with self._table.snapshot() as snapshot:
            for handle in snapshot.file_list.local():
                if handle.item_count:
                    local.update((part.uuid, handle) for part in handle.reader.parts)
        return local

    def _roll_when_due(self) -> float:
        """Roll the journal if a caller waits and a roll is due; return seconds until the next check."""
        active = self._appender.active_uuid
        if active is None or not any(active in each.uuids for each in self._waiting):
            return _LOOK_S
        left = self._rolled_at + self._settings.remote_interval - self._clock.monotonic()
        if left > 0:
            others = any(each.uuids - {active} for each in self._waiting)
            return _LOOK_S if others else left
        if self._appender.roll_active("remote"):
            self._rolled_at = self._clock.monotonic()
        return _LOOK_S

    def _until_deadline(self) -> float:
        now = self._clock.monotonic()
        return max(0.0, min((each.deadline - now for each in self._waiting), default=_IDLE_S))

    def _settle(self) -> None:
        """Release the callers whose files are published, or never will be."""
        waiting = self._waiting
        if not waiting:
            return
        refusal, local, now = self._refusal(), self._local(), self._clock.monotonic()
        settled = set()
        for each in waiting:
            try:
                if refusal is not None:
                    raise refusal
                if not self._is_published(each.uuids, local):
                    if now < each.deadline:
                        continue
                    raise self._too_late()
            except TierdexError as error:
                each.commit.fail(error)
            else:
                each.commit.reach(Level.REMOTE)
            settled.add(each.commit)
        with self._lock:
            self._waiting = [each for each in self._waiting if each.commit not in settled]

    def _is_published(self, uuids: frozenset[bytes], local: Mapping[bytes, FileHandle]) -> bool:
        """Return whether all journals are published, False while one is on its way.

        Raises CorruptFileError, UnavailableError for one that never will be.
        """
        still_here = [local[uuid] for uuid in uuids if uuid in local]
        for handle in still_here:
            reason = self._kind.damaged.get(handle.uuid)
            if reason is not None:
                raise _damage(handle, reason)
        log_index, gone = self._kind.log_index, self._kind.gone_files
        left = [uuid for uuid in uuids if uuid not in gone]
        if not still_here and not all(
            log_index is not None and log_index.is_published(uuid) for uuid in left
        ):
            raise UnavailableError("was not published: its file is no longer in the log")
        return not still_here

    def _refusal(self) -> TierdexError | None:
        try:
            self._check_accepts()
        except TierdexError as error:
            return error
        return None

    def _too_late(self) -> UnavailableError:
        trouble = self._trouble or self._kind.last_failure()
        why = "" if trouble is None else f"; the last failure: {trouble}"
        return UnavailableError(
            f"not published within remote_timeout ({self._settings.remote_timeout:g} s){why}. It is on "
            "disk, has its offset, and will be published: do not append it again, `flush('remote')`",
            retry_after_s=5.0,
        )

    def _fail(self, commit: Commit, error: TierdexError) -> None:
        with self._lock:
            self._waiting = [each for each in self._waiting if each.commit is not commit]
        commit.fail(error)


def _damage(handle: FileHandle, reason: str) -> CorruptFileError:
    return CorruptFileError(handle.path or handle.file_id, f"is not published: {reason}")
