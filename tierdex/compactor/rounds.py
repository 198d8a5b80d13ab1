"""When it is time to look for work again: rounds, of which one begins some time after another ended.

A worker asks for its units after each unit that it did. What is costly to look for, or needs requests, is
looked for in rounds: until nothing is found, then not for a while. Depends on the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tierdex.clock import Clock

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
