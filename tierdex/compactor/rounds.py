"""When it is time to look for work again, and to try again what failed.

A worker asks for its units after each unit that it did. What is costly to look for, or needs requests, is
looked for in rounds: until nothing is found, then not for a while. After failures the pauses double,
bounded, with jitter; attempts never end, since no work is dropped. Depends on the seams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tierdex.clock import Clock
    from tierdex.ids import IdSource

HOUSEKEEPING_S: Final = 30.0  # between two looks for merges, and for what retention lets go


class Rounds:
    """Tells one worker whether a round is due. The first is at once."""

    def __init__(self, clock: Clock, pause_s: float = HOUSEKEEPING_S) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._ended_at = float("-inf")

    @property
    def is_due(self) -> bool:
        """Return whether a round is under way, or may begin."""
        return self._clock.monotonic() - self._ended_at >= self._pause_s

    def end(self) -> None:
        """Nothing is left to do: the pause begins."""
        self._ended_at = self._clock.monotonic()

    def ask(self) -> None:
        """Make a round due at once."""
        self._ended_at = float("-inf")


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
