"""The only place where time is read or waited for.

Wall time is int64 milliseconds since the epoch (it names files and stamps manifests, and may step
back); monotonic time is float seconds (it measures and schedules). Components take a `Clock` as an
argument, so that tests and the simulation decide what time it is.

Depends on nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Source of time. Safe to share between threads."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since the epoch; it may step back."""
        ...

    def now_s(self) -> float:
        """Return the same in seconds; quicker where it is asked for with every query."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""
        ...

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set, at most `timeout_s` seconds; say whether it is set."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # No function of ours around these: it would double what they cost.
    now_s = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


class ManualClock:
    """A clock that moves only when told to; waiting moves it, so nothing ever sleeps."""

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

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        with self._lock:
            self._now_ms += round(seconds * 1000)
            self._monotonic_ms += seconds * 1000

    def step(self, milliseconds: int) -> None:
        """Set the wall clock forwards or back, as an operator or NTP would; no time passes."""
        with self._lock:
            self._now_ms += milliseconds
