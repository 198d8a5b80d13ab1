"""The metrics of a follower, served at http://127.0.0.1:PORT/metrics while it runs.

Depends on following.status, errors and prometheus_client.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from tierdex.following.status import FollowStatus

_COUNTERS = {
    "messages": "messages read",
    "entries": "entries put",
    "bytes": "bytes of the values of messages read",
    "without_value": "messages without a value",
    "unreadable": "messages with a part that is no text or no JSON",
    "too_long": "keys above the limit, not indexed",
    "untimed": "messages without a time where it should stand",
    "passed_over": "messages that have no place in an index",
    "lost": "messages that the log lost before they were read, at most",
    "restarts": "times that a partition was cut or made anew, and read from its beginning",
    "retries": "steps that failed and were tried again",
}


@contextmanager
def follow_metrics(status: FollowStatus, port: int | None) -> Iterator[int | None]:
    """Serve the metrics on loopback until the block ends; yield the port (0: a free one)."""
    if port is None:
        yield None
        return
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise InvalidRequestError(
            f"pip install 'tierdex[server]' ({error})", field="--metrics-port"
        ) from error
    registry = CollectorRegistry()
    registry.register(_FollowCollector(status))
    try:
        server, thread = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise InvalidRequestError(
            f"{port} cannot be served: {error}", field="--metrics-port"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _FollowCollector:
    """Reads a follower's status at each scrape."""

    def __init__(self, status: FollowStatus) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status, topic = self._status, [self._status.topic]
        for name, meaning in _COUNTERS.items():
            counter = CounterMetricFamily(f"tierdex_follow_{name}", meaning, labels=["topic"])
            counter.add_metric(topic, getattr(status, name))
            yield counter
        missing = CounterMetricFamily(
            "tierdex_follow_missing", "messages without a text at a selector",
            labels=["topic", "selector"],
        )  # fmt: skip
        for selector, count in list(status.missing.items()):
            missing.add_metric([*topic, selector], count)
        yield missing
        lag = GaugeMetricFamily(
            "tierdex_follow_lag", "offsets between the follower's position and the end of the partition",
            labels=["topic", "partition"],
        )  # fmt: skip
        for partition in list(status.ends):
            lag.add_metric([*topic, str(partition)], status.lag(partition))
        yield lag
        waiting = GaugeMetricFamily(
            "tierdex_follow_waiting",
            "1 while the follower waits for the source or the index",
            labels=["topic"],
        )
        waiting.add_metric(topic, status.trouble is not None)
        yield waiting
