"""Counts times by bucket, as Prometheus' histograms do: a list of integers and a sum.

prometheus_client's own takes a lock for each of the values that one observation changes; who counts
here has a lock already, or is one thread.

Depends on nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
SHORT: Final = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, *SECONDS[:-1])  # parts of a lookup
LONG: Final = (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


class Histogram:
    """How many times fell into which bucket. The caller locks."""

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # the last: above all bounds
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def copy(self) -> Histogram:
        """Return what was counted so far."""
        made = Histogram(self._bounds)
        made._counts, made.sum = [*self._counts], self.sum
        return made

    def buckets(self) -> list[tuple[str, int]]:
        """Return each upper bound as text, `+Inf` last, and how many times were at most that."""
        return list(zip([*map(str, self._bounds), "+Inf"], accumulate(self._counts), strict=True))
