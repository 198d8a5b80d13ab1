"""A clock on which time passes many times as fast: for code that waits seconds before it does something."""

from __future__ import annotations

import time

from tierdex.clock import SystemClock


class HastyClock(SystemClock):
    """The machine's clock, `times` as fast from its making on."""

    def __init__(self, times=20):
        self._times, self._began, self._began_s = times, time.monotonic(), time.time()

    def monotonic(self):
        return self._began + self._passed()

    def now_s(self):
        return self._began_s + self._passed()

    def now_ms(self):
        return round(self.now_s() * 1000)

    def wait(self, event, timeout_s):
        return event.wait(timeout_s / self._times)

    def _passed(self):
        return (time.monotonic() - self._began) * self._times
