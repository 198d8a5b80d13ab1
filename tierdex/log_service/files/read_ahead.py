"""How far a reader of a queue is read ahead: one window for each, known by where its next read begins.

::

    a read alone            window 0: the pages that it needs
    goes on where it ended  + 4 MiB at each request, up to 16 MiB        (additive increase)
    of a named reader       4 MiB at once: it says that it reads on
    fetched, never read     half                                         (multiplicative decrease)

Nothing has to be opened or closed: the next read of the same queue and group, at the offset where one ended,
takes its window over. Windows that are in use share the budget, so many readers have small ones and none
starves another; of the others the oldest go.

Depends on clock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tierdex.clock import Clock

# One request brings so much: a smaller step would cost more requests than one for each 4 MiB of a replay.
STEP_BYTES: Final = 4 << 20
WINDOW_MOST: Final = 16 << 20
UNREAD_S: Final = 180.0  # as long as what was fetched for it stays
_WINDOWS_KEPT: Final = 4096


class Reader(NamedTuple):
    """Who reads on from an offset, as far as a read tells."""

    group: str | None
    topic: bytes
    queue_id: int
    offset: int


class Window:
    """How many bytes to fetch for one reader."""

    __slots__ = ("bytes", "goes_on", "seen_at")

    def __init__(self, size: int) -> None:
        self.bytes = size
        self.goes_on = False
        self.seen_at = 0.0

    def halve(self) -> None:
        """Record that a part of what was fetched was never read."""
        self.bytes //= 2

    def next_bytes(self, share: int) -> int:
        """Return how much to fetch now."""
        if self.goes_on:
            self.bytes = min(self.bytes + STEP_BYTES, WINDOW_MOST)
        self.goes_on = True
        return min(self.bytes, share)


class ReadAhead:
    """The windows of all readers of a log. Safe to share between threads."""

    def __init__(self, clock: Clock, budget_bytes: int) -> None:
        self._clock = clock
        self._budget = budget_bytes
        self._lock = threading.Lock()
        self._windows: OrderedDict[Reader, Window] = OrderedDict()  # longest unused first

    def take(self, reader: Reader) -> Window:
        """Return the window of the reader whose last read ended here, or one that begins."""
        with self._lock:
            window = self._windows.pop(reader, None)
        if window is None:
            return Window(0 if reader.group is None else STEP_BYTES)
        window.goes_on = True
        return window

    def keep(self, reader: Reader, window: Window) -> None:
        """Note where the next read of a reader begins."""
        window.seen_at = self._clock.monotonic()
        with self._lock:
            self._windows[reader] = window
            self._windows.move_to_end(reader)
            while len(self._windows) > _WINDOWS_KEPT or self._has_old(window.seen_at):
                self._windows.popitem(last=False)

    def share(self) -> int:
        """Return how many bytes one reader may have: its part of the budget."""
        with self._lock:
            others = sum(1 for window in self._windows.values() if window.bytes)
        return self._budget // (others + 1)

    def _has_old(self, now: float) -> bool:
        return next(iter(self._windows.values())).seen_at < now - UNREAD_S
