"""How many requests a caller may make: a token bucket each, kept as one number (GCRA).

The number is the time at which the bucket will be full again. A request moves it on by `1 / rate`; one that
would move it further ahead than the bucket holds is refused, and takes nothing::

    now        full again           now + burst / rate
     |-------------|---- room for more ----|

Requests are counted, not lookups: a batch is one. Only callers that were identified have a bucket, so
that callers cannot fill the memory with names. Called on the event loop alone.

Depends on errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tierdex.errors import RateLimitedError

if TYPE_CHECKING:
    from tierdex.app.rights import Caller
    from tierdex.clock import Clock

_MOST_BUCKETS: Final = (
    10_000  # above it those that are full are left out: a full one is as good as none
)


class RateLimits:
    """The buckets of all callers of one service."""

    def __init__(self, clock: Clock, *, rate: float | None, burst: int) -> None:
        """`rate` are requests a second for a caller that has no rate of its own; None: no limit."""
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._full_at: dict[str, float] = {}

    def take(self, caller: Caller) -> None:
        """Count one request of a caller. Raises RateLimitedError, which says when there is room again."""
        rate = self._rate if caller.rate_limit is None else caller.rate_limit
        if rate is None:
            return
        now = self._clock.monotonic()
        name = str(caller)
        full_at = max(now, self._full_at.get(name, now)) + 1 / rate
        wait_s = full_at - now - self._burst / rate
        if wait_s > 1e-9:  # of sums of fractions
            raise RateLimitedError(
                f"more than {rate:g} requests a second: go on in {wait_s:.3g} s",
                retry_after_s=wait_s,
            )
        if len(self._full_at) >= _MOST_BUCKETS and name not in self._full_at:
            self._full_at = {known: at for known, at in self._full_at.items() if at > now}
        self._full_at[name] = full_at
