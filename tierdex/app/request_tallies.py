"""How often each route was asked, how it answered, and how long it took.

Counted in plain numbers, which cost a request next to nothing; made into a counter and a histogram
when Prometheus asks. Counted on the event loop only, so no lock is needed; read from any thread.

Depends on prometheus_client.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

_SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
_BOUNDS = [*map(str, _SECONDS), "+Inf"]


class _Tally:
    """Requests by the bucket that their time falls into, and all their seconds."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * len(_BOUNDS)
        self.seconds = 0.0

    def add(self, other: _Tally) -> None:
        self.buckets = [ours + more for ours, more in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class RequestTallies:
    """A collector of Prometheus' client: register it, count, and let it be asked."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, int], _Tally] = {}

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        tally = self._tallies.get((route, method, status))
        if tally is None:
            tally = self._tallies[route, method, status] = _Tally()
        tally.buckets[bisect_left(_SECONDS, seconds)] += 1
        tally.seconds += seconds

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "tierdex_http_requests", "requests answered", labels=["route", "method", "status"]
        )
        times = HistogramMetricFamily(
            "tierdex_http_request_seconds",
            "time from the request's head to the response's end",
            labels=["route"],
        )
        by_route: dict[str, _Tally] = {}
        for (route, method, status), tally in list(self._tallies.items()):
            requests.add_metric([route, method, str(status)], sum(tally.buckets))
            by_route.setdefault(route, _Tally()).add(tally)
        for route, tally in by_route.items():
            at_most = zip(_BOUNDS, accumulate(tally.buckets), strict=True)
            times.add_metric([route], list(at_most), tally.seconds)
        yield requests
        yield times
