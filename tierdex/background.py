"""Background work: one thread a worker, each a loop over `step()`.

A worker does one bounded unit of work and returns the seconds until it wants to run again. Errors
do not end a thread: the worker handles those it expects; any other is logged with its traceback,
remembered for the status, and followed by a pause. A simulation runs no thread: a seeded scheduler
calls `step()`.

Depends on clock only.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Protocol

from tierdex.clock import Bell

if TYPE_CHECKING:
    from tierdex.clock import Clock

logger = logging.getLogger(__name__)

_PAUSE_AFTER_ERROR_S = 5.0


class Worker(Protocol):
    """Something that has work now and then."""

    name: str

    def step(self) -> float:
        """Do one unit of work; return the seconds until the next one is wanted."""
        ...


class WorkerThread:
    """Runs one worker until told to stop."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._wake = Bell()
        self._stopping = False
        self.last_error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"tierdex-{worker.name}", daemon=True
        )

    @property
    def name(self) -> str:
        return self._worker.name

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Wake the worker now, not after its pause."""
        self._wake.set()

    def ask_to_stop(self) -> None:
        """Ask the thread to end after its unit of work."""
        self._stopping = True
        self._wake.set()

    def stop(self, timeout_s: float) -> bool:
        """Ask the thread to end and wait for it; return whether it ended."""
        self.ask_to_stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            try:
                pause = self._worker.step()
                self.last_error = None
            except Exception as error:
                logger.exception("worker failed", extra={"worker": self._worker.name})
                self.last_error = error
                pause = _PAUSE_AFTER_ERROR_S
            if pause > 0 and not self._stopping:
                self._clock.wait(self._wake, pause)
