"""How many lookups were answered, by outcome.

Counted in plain numbers, which cost a lookup less than a Prometheus counter does; made into one when
Prometheus asks. Safe to share between threads. Depends on prometheus_client.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric


class LookupTallies:
    """A collector of Prometheus' client: register it, count, and let it be asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"found": 0, "absent": 0, "incomplete": 0}

    def count(self, lookups: int, *, found: bool, complete: bool) -> None:
        outcome = "incomplete" if not complete else "found" if found else "absent"
        with self._lock:
            self._counts[outcome] += lookups

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(
            "tierdex_lookups",
            "lookups answered, by outcome: found, absent, incomplete",
            labels=["outcome"],
        )
        for outcome, lookups in self._counts.items():
            family.add_metric([outcome], lookups)
        yield family
