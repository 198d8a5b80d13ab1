"""The store's time as far as it was asked, for owners and for readers: never ahead, never back.

::

    the store dates an object of ours     at least so late is it there     `measure`
    since then, on this machine           the lesser of what its two clocks say went by

Clocks of machines are wrong: they are minutes off, are set, stand still while a machine sleeps. What is
said here of an entry's acknowledgement is compared with what other machines say, so it is counted in
the one clock that all of them share. It lags behind that one, by a second perhaps and by what a sleep
took until the next measurement, and a time that is too early only makes an answer look older than it is.

Depends on clock.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.clock import Clock


class StoreTime:
    """The store's time (ms) for one opening. Safe to share between threads.

    An owner counts its acknowledgements in it, a reader the readings of manifests.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin: nothing of this opening is acknowledged, or read, before."""
        self._clock = clock
        self._lock = threading.Lock()
        self._wall = clock.now_ms()
        self._monotonic = clock.monotonic()
        self._passed = 0.0  # ms since the beginning, as far as both clocks agree
        self._measured: int | None = None
        self._measured_at = 0.0
        self._given = 0
        self.opened_ms = self._wall  # the beginning; by our own clock until the store's is known
        self.skew_ms: int | None = None  # how far our clock was ahead of the store's

    def measure(self, store_ms: int) -> None:
        """Record that the store's time is at least `store_ms`, the date of an object there."""
        with self._lock:
            self._tick()
            if self._measured is None:
                self.opened_ms = store_ms - round(self._passed)
            self._measured, self._measured_at = store_ms, self._passed
            self.skew_ms = self._wall - store_ms

    def is_due(self, every_s: float) -> bool:
        """Return whether the store was not asked for so many seconds, or never."""
        with self._lock:
            self._tick()
            return self._measured is None or self._passed - self._measured_at >= every_s * 1000

    def now_ms(self) -> int:
        """Return the store's time, or somewhat less; our own clock's while it was never measured."""
        with self._lock:
            self._tick()
            if self._measured is None:
                return self._wall
            now = self._measured + int(self._passed - self._measured_at)
            self._given = max(self._given, now)
            return self._given

    def _tick(self) -> None:
        wall, monotonic = self._clock.now_ms(), self._clock.monotonic()
        passed = min(wall - self._wall, (monotonic - self._monotonic) * 1000)
        self._passed += max(0.0, passed)
        self._wall, self._monotonic = wall, monotonic
