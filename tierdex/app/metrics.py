"""What the service counts, in Prometheus' text form. One registry an app, nothing global.

Gauges of files and compaction are read from the index when they are asked for, so that serving
requests pays nothing for them. Depends on prometheus_client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily

from tierdex.app.documents import file_document
from tierdex.app.lookup_tallies import LookupTallies
from tierdex.app.request_tallies import RequestTallies
from tierdex.index_service.health import REASONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.app.index_port import IndexPort

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of one app. Safe to share between threads."""

    def __init__(self, index: IndexPort, version: str) -> None:
        self.registry = CollectorRegistry()
        requests = RequestTallies()
        self.registry.register(requests)
        self.count_request = requests.count  # of the event loop only
        self._in_flight = Gauge(
            "tierdex_http_requests_in_flight", "requests being served", registry=self.registry
        )
        self._entries = Counter(
            "tierdex_entries_accepted", "entries put", ["durability"], registry=self.registry
        )
        lookups = LookupTallies()
        self.registry.register(lookups)
        self.count_lookups = lookups.count
        info = Gauge("tierdex_info", "version", ["version"], registry=self.registry)
        info.labels(version).set(1)
        self.registry.register(_IndexCollector(index))

    def show_in_flight(self, count: Callable[[], int]) -> None:
        """Let `count` say, when it is asked for, how many requests are being served."""
        self._in_flight.set_function(count)

    def count_entries(self, entries: int, durability: str) -> None:
        self._entries.labels(durability).inc(entries)

    def render(self) -> bytes:
        """Return all of it as text; asks the index, so call it off the event loop."""
        text: bytes = generate_latest(self.registry)
        return text


class _IndexCollector:
    """Reads files and compaction when Prometheus asks."""

    def __init__(self, index: IndexPort) -> None:
        self._index = index

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        totals: dict[str, list[int]] = {}
        for file in self._index.files():
            row = file_document(file)
            total = totals.setdefault(str(row.get("state")), [0, 0, 0])
            total[0] += 1
            total[1] += int(row.get("item_count") or 0)
            total[2] += int(row.get("bytes") or 0)
        for position, (name, meaning) in enumerate(
            [("files", "index files"), ("items", "items"), ("bytes", "bytes of index files")]
        ):
            family = GaugeMetricFamily(
                f"tierdex_index_{name}", f"{meaning} by state", labels=["state"]
            )
            for state, total in totals.items():
                family.add_metric([state], total[position])
            yield family
        yield self._not_ready()
        yield from _compaction_families(self._index.compaction_status())

    def _not_ready(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "tierdex_index_not_ready",
            "1 for a reason that keeps the index from its work, as /readyz says; else 0",
            labels=["reason"],
        )
        found = {problem.reason for problem in self._index.health()}
        for reason in REASONS:
            family.add_metric([reason], reason in found)
        return family


def _compaction_families(status: dict[str, object]) -> Iterable[GaugeMetricFamily]:
    """Every number of the compaction status, nested ones joined by an underscore."""
    for name, value in _numbers("tierdex_compaction", status):
        yield GaugeMetricFamily(name, "from the compaction status", value=value)


def _numbers(prefix: str, values: dict[str, object]) -> Iterable[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(f"{prefix}_{name}", value)
        elif isinstance(value, int | float):
            yield f"{prefix}_{name}", float(value)
