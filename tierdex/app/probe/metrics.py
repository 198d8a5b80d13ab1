"""The prober's results as Prometheus metrics, for a file (node_exporter) or a port.

Each prober has a registry of its own.

Depends on prober and prometheus_client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tierdex.app.probe.prober import Outcome, gravest

if TYPE_CHECKING:
    from tierdex.app.probe.prober import Canary, Step

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class ProbeMetrics:
    """Counters of one prober."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._steps = Counter(
            "tierdex_probe_steps",
            "what the prober did, by verb (put, lookup, publish), the file's state, and outcome",
            ["verb", "state", "outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tierdex_probe_seconds",
            "time a step took",
            ["verb", "state"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._is_well = Gauge(
            "tierdex_probe_well",
            "1 when the last round found all as it was put",
            registry=self.registry,
        )
        self._ended = Gauge(
            "tierdex_probe_last_round_timestamp_seconds", "end of the last round",
            registry=self.registry,
        )  # fmt: skip
        self._last_well = Gauge(
            "tierdex_probe_last_well_timestamp_seconds", "end of the last round in which all was well",
            registry=self.registry,
        )  # fmt: skip
        self._canaries = Gauge(
            "tierdex_probe_canaries", "canaries remembered, by the state they were last seen in",
            ["state"], registry=self.registry,
        )  # fmt: skip
        self._oldest = Gauge(
            "tierdex_probe_oldest_canary_seconds", "age of the oldest canary remembered",
            registry=self.registry,
        )  # fmt: skip

    def note(self, steps: list[Step], canaries: list[Canary], now_ms: int) -> None:
        """Count one round that ended at `now_ms`."""
        for step in steps:
            self._steps.labels(step.verb, step.state, step.outcome.value).inc()
            self._seconds.labels(step.verb, step.state).observe(step.seconds)
        is_well = gravest(steps) is Outcome.OK
        self._is_well.set(is_well)
        self._ended.set(now_ms / 1000)
        if is_well:
            self._last_well.set(now_ms / 1000)
        self._canaries.clear()
        for canary in canaries:
            self._canaries.labels(canary.state).inc()
        self._oldest.set((now_ms - canaries[0].put_ms) / 1000 if canaries else 0)

    def render(self) -> bytes:
        """Return all of it in Prometheus' text form."""
        text: bytes = generate_latest(self.registry)
        return text
