"""The only access to time: reading it, and waiting for it.

Wall time is int64 milliseconds since the epoch (it names files and stamps manifests, and may step
back); monotonic time is float seconds (it measures and schedules). Components take a `Clock` as an
argument, so that tests and simulations set the time.

Depends on nothing.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Protocol


class Bell:
    """A flag that one thread sets and others wait for: `threading.Event`, safe from signal handlers.

    When a signal handler raises at the wrong place, an Event's lock stays locked and all threads
    wait for ever. Here each step is one call into C, done or not done.
    """

    __slots__ = ("_silent",)

    def __init__(self) -> None:
        self._silent = threading.Lock()  # locked until it is set
        self._silent.acquire()

    def set(self) -> None:
        with suppress(RuntimeError):  # it is set already
            self._silent.release()

    def clear(self) -> None:
        self._silent.acquire(blocking=False)

    def is_set(self) -> bool:
        return not self._silent.locked()

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, at most this many seconds; return whether it is set."""
        is_set = self._silent.acquire(timeout=timeout)
        if is_set:
            self.set()  # for other waiting threads
        return is_set


class Clock(Protocol):
    """Source of time. Safe to share between threads."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since the epoch; it may step back."""
        ...

    def now_s(self) -> float:
        """Return wall time in seconds; quicker than `now_ms`, for every query."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences have a meaning."""
        ...

    def wait(self, event: Bell, timeout_s: float) -> bool:
        """Wait until `event` is set, at most `timeout_s` seconds; return whether it is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Not wrapped in functions of ours, which would double their time.
    now_s = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def wait(self, event: Bell, timeout_s: float) -> bool:
        return event.wait(timeout_s)


class ManualClock:
    """A clock that moves only by its methods. Waiting moves it, so no test sleeps."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def now_s(self) -> float:
        return self.now_ms() / 1000

    def monotonic(self) -> float:
        return self._monotonic_ms / 1000

    def wait(self, event: Bell, timeout_s: float) -> bool:
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Advance both clocks by `seconds`."""
        with self._lock:
            self._now_ms += round(seconds * 1000)
            self._monotonic_ms += seconds * 1000

    def step(self, milliseconds: int) -> None:
        """Set the wall clock forwards or back, as an operator or NTP would; no time passes."""
        with self._lock:
            self._now_ms += milliseconds
