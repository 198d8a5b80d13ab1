"""One group commit: its waiters and its progress, and the staged appends that wait for it.

Threads wait at the gate of a level, a lock that is opened once and that each passes on; coroutines have
themselves called back, so one future serves all of a commit. A commit that fails opens every gate.

Depends on clock, errors and levels.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from tierdex.clock import Bell
from tierdex.errors import raised_anew
from tierdex.log_service.levels import Level

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from tierdex.errors import TierdexError

_FOR_EVER = -1.0


class Commit:
    """What is written and synced in one go. Safe to share between threads."""

    __slots__ = ("_callbacks", "_gates", "_lock", "error", "is_called_for", "level", "wanted")

    def __init__(self) -> None:
        self.wanted = Level.RECEIVED  # the highest level that a caller waits for
        self.is_called_for = False  # the thread that commits was told of it
        self.level = Level.RECEIVED
        self.error: TierdexError | None = None
        self._lock = threading.Lock()
        # A caller that commits alone needs neither: none is made.
        self._gates: dict[Level, Bell] | None = None
        self._callbacks: list[tuple[Level, Callable[[Commit], object]]] | None = None

    def is_settled(self, level: Level) -> bool:
        """Return whether the level is reached, or never will be."""
        return self.level >= level or self.error is not None

    def wait(self, level: Level) -> None:
        """Wait until the level is settled."""
        with self._lock:
            if self.is_settled(level):
                return
            if self._gates is None:
                self._gates = {}
            gate = self._gates.get(level)
            if gate is None:  # the first waiting caller makes it
                gate = self._gates[level] = Bell()
        gate.wait(_FOR_EVER)

    def add_callback(self, level: Level, callback: Callable[[Commit], object]) -> None:
        """Call `callback(self)` once the level is settled: now, or in the thread that commits.

        It must return soon and raise nothing: `loop.call_soon_threadsafe(...)`, say.
        """
        with self._lock:
            if not self.is_settled(level):
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append((level, callback))
                return
        callback(self)

    def reach(self, level: Level) -> None:
        """Release the callers that wait for `level` or a lower one."""
        with self._lock:
            self.level = level
            due = self._take_settled()
        for callback in due:
            callback(self)

    def fail(self, error: TierdexError) -> None:
        """Release all waiting callers with an error."""
        with self._lock:
            self.error = error
            due = self._take_settled()
        for callback in due:
            callback(self)

    def raise_error(self, level: Level) -> None:
        """Raise why the level was not reached, if it was not."""
        if self.level < level and self.error is not None:
            raise raised_anew(self.error)

    def _take_settled(self) -> list[Callable[[Commit], object]]:
        """Open the gates that are settled, and return whom to call. Holding the lock."""
        if self._gates is not None:
            for level, gate in self._gates.items():
                if self.is_settled(level):
                    gate.set()
        if self._callbacks is None:
            return []
        due = [callback for level, callback in self._callbacks if self.is_settled(level)]
        self._callbacks = [each for each in self._callbacks if not self.is_settled(each[0])]
        return due


class PendingAppend(NamedTuple):
    """An append that was staged: its offset, and the commit that brings it to the level asked for."""

    offset: int
    commit: Commit
    level: Level


class PendingBatch(NamedTuple):
    """A batch that was staged: the offset of each row (i8), and the commit that brings all to the level."""

    offsets: np.ndarray
    commit: Commit
    level: Level
