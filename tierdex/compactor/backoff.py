"""Pauses after failures: doubling, bounded, with jitter. Attempts never end, since no work is dropped.

Depends on the seams only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tierdex.clock import Clock
    from tierdex.ids import IdSource

_FIRST_S = 0.2


class Backoff:
    """Pauses after failures of one kind of work."""

    def __init__(self, clock: Clock, ids: IdSource, longest_s: float) -> None:
        self._clock = clock
        self._ids = ids
        self._longest_s = longest_s
        self._failures = 0
        self._until = float("-inf")

    def fail(self) -> None:
        """Note one more failure in a row; the next attempt waits longer."""
        pause = min(_FIRST_S * 2.0 ** min(self._failures, 30), self._longest_s)
        self._failures += 1
        self._until = self._clock.monotonic() + pause * (0.5 + self._ids.random() / 2)

    def succeed(self) -> None:
        self._failures = 0
        self._until = float("-inf")

    def remaining_s(self) -> float:
        """Return the seconds still to wait; 0 when an attempt may be made."""
        return max(0.0, self._until - self._clock.monotonic())
