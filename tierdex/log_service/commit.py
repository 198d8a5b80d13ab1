"""One group commit: who waits for it, and how far it has come.

Threads wait at the gate of a level, a lock that is opened once and that each passes on; coroutines have
themselves called back, so one future serves all of a commit. A commit that fails opens every gate.

Depends on clock and levels.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tierdex.clock import Bell
from tierdex.log_service.levels import Level

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.errors import TierdexError

_FOR_EVER = -1.0


class Commit:
    """What is written and synced in one go. Safe to share between threads."""

    __slots__ = ("_callbacks", "_gates", "_lock", "error", "level", "wanted")

    def __init__(self) -> None:
        self.wanted = Level.RECEIVED  # the highest level that somebody waits for
        self.level = Level.RECEIVED
        self.error: TierdexError | None = None
        self._lock = threading.Lock()
        self._gates = {Level.OS: Bell(), Level.DISK: Bell()}
        self._callbacks: list[tuple[Level, Callable[[Commit], object]]] = []

    def is_settled(self, level: Level) -> bool:
        """Say whether the level is reached, or never will be."""
        return self.level >= level or self.error is not None

    def wait(self, level: Level) -> None:
        """Wait until the level is settled."""
        if not self.is_settled(level):
            self._gates[level].wait(_FOR_EVER)

    def add_callback(self, level: Level, callback: Callable[[Commit], object]) -> None:
        """Call `callback(self)` once the level is settled: now, or in the thread that commits.

        It must return soon and raise nothing: `loop.call_soon_threadsafe(...)`, say.
        """
        with self._lock:
            if not self.is_settled(level):
                self._callbacks.append((level, callback))
                return
        callback(self)

    def reach(self, level: Level) -> None:
        """Let everybody go on who waits for `level` or a lower one."""
        with self._lock:
            self.level = level
        self._release()

    def fail(self, error: TierdexError) -> None:
        """Let everybody go on, with an error, who is not acknowledged yet."""
        with self._lock:
            self.error = error
        self._release()

    def raise_error(self, level: Level) -> None:
        """Raise why the level was not reached, if it was not."""
        if self.level < level and self.error is not None:
            raise type(self.error)(*self.error.args)  # a new one each time: tracebacks add up

    def _release(self) -> None:
        for level, gate in self._gates.items():
            if self.is_settled(level):
                gate.set()
        with self._lock:
            due = [callback for level, callback in self._callbacks if self.is_settled(level)]
            self._callbacks = [each for each in self._callbacks if not self.is_settled(each[0])]
        for callback in due:
            callback(self)
