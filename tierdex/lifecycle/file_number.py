"""The number of the next file: the clock's milliseconds, but always above the highest known number.

Numbers order the files of a node by birth and tell nothing about the times of entries. Since the
highest known number wins over the clock, ids rise even when the clock steps back or two files are
made in one millisecond.

Depends on clock only.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.clock import Clock


class NextNumber:
    """The source of file numbers of one node. Safe to share between threads."""

    def __init__(self, clock: Clock, highest_known: int = 0) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._highest = highest_known

    @property
    def highest_known(self) -> int:
        return self._highest

    def take(self) -> int:
        """Return a number above every one taken or seen so far."""
        with self._lock:
            self._highest = max(self._clock.now_ms(), self._highest + 1)
            return self._highest

    def see(self, number: int) -> None:
        """Note a number that is in use (in a folder, a manifest): later numbers lie above it."""
        with self._lock:
            self._highest = max(self._highest, number)
