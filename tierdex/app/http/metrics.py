"""The service's Prometheus metrics. Each application has a registry of its own.

Gauges of files and compaction are read from index and log at each scrape, so that requests do not
pay for them. Requests are counted by the event loop alone, in plain integers that a scrape reads:
prometheus_client's own counters lock each of the four values that a request changes, which took 6
us of its 180.

Depends on prometheus_client, documents, metric_families, clock, errors, histogram, index_service and
log_service.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from tierdex.app.documents import file_document
from tierdex.app.http.metric_families import (
    INDEX_ROOM,
    LOG_ROOM,
    add,
    by_state,
    cache_families,
    compaction_families,
    not_ready,
    room_families,
    store_families,
    times_family,
)
from tierdex.clock import SystemClock
from tierdex.errors import InvalidRequestError, ReadOnlyError, TierdexError
from tierdex.histogram import Histogram
from tierdex.index_service.query.stages import STAGES
from tierdex.index_service.shown_message import OUTCOMES
from tierdex.log_service.read_policy import READ_SOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client.core import Metric

    from tierdex.index_service.index import Index
    from tierdex.index_service.shown_message import ShownMessage
    from tierdex.log_service.message_log import MessageLog
    from tierdex.log_service.read_policy import ReadExplain

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one application. Safe to share between threads, but for `count_request`."""

    def __init__(
        self, index: Callable[[], Index], version: str, log: MessageLog | None = None
    ) -> None:
        """`index` returns the present index: a log may reopen its own."""
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = _RequestCollector()
        self.registry.register(self._requests)
        self.count_request = self._requests.count
        self._in_flight = Gauge(
            "tierdex_http_requests_in_flight", "requests being served", registry=self.registry
        )
        self._entries = Counter(
            "tierdex_entries_accepted", "entries put", ["durability"], registry=self.registry
        )
        lookups = Counter(
            "tierdex_lookups",
            "lookups answered, by outcome: found, absent, incomplete",
            ["outcome"],
            registry=self.registry,
        )
        self._found, self._absent, self._incomplete = map(
            lookups.labels, ("found", "absent", "incomplete")
        )
        self._shown = Counter(
            "tierdex_messages_shown", "messages fetched to be shown, by outcome", ["outcome"],
            registry=self.registry,
        )  # fmt: skip
        for outcome in OUTCOMES:
            self._shown.labels(outcome)
        self._shown_bytes = Counter(
            "tierdex_message_bytes_shown",
            "bytes of messages that were shown",
            registry=self.registry,
        )
        started = Gauge(
            "tierdex_start_time_seconds", "start of the counters", registry=self.registry
        )
        started.set(SystemClock().now_ms() / 1000)
        info = Gauge("tierdex_info", "version", ["version"], registry=self.registry)
        info.labels(version).set(1)
        self.registry.register(_IndexCollector(index))
        if log is not None:
            self._messages = Counter(
                "tierdex_messages_appended", "messages appended", ["durability"],
                registry=self.registry,
            )  # fmt: skip
            self._messages_read = Counter(
                "tierdex_messages_read", "messages answered by reads", registry=self.registry
            )
            self._bytes_read = Counter(
                "tierdex_messages_read_bytes", "bytes of the answers of reads, by source",
                ["source"], registry=self.registry,
            )  # fmt: skip
            self._waiting = Gauge(
                "tierdex_message_waits", "callers that wait for messages", registry=self.registry
            )
            self.registry.register(_LogCollector(log))

    def count_lookups(self, lookups: int, *, found: bool, complete: bool) -> None:
        outcome = self._incomplete if not complete else self._found if found else self._absent
        outcome.inc(lookups)

    def count_shown(self, message: ShownMessage) -> None:
        self._shown.labels(message.outcome).inc()
        self._shown_bytes.inc(len(message.body or b""))

    def show_in_flight(self, count: Callable[[], int]) -> None:
        """Read the number of running requests from `count` at each scrape."""
        self._in_flight.set_function(count)

    def count_entries(self, entries: int, durability: str) -> None:
        self._entries.labels(durability).inc(entries)

    def count_appended(self, messages: int, durability: str) -> None:
        self._messages.labels(durability).inc(messages)

    def count_read(self, messages: int, explain: ReadExplain) -> None:
        self._messages_read.inc(messages)
        for source in READ_SOURCES:
            length = getattr(explain, source)
            if length:
                self._bytes_read.labels(source).inc(length)

    def show_waiting(self, count: Callable[[], int]) -> None:
        """Read the number of callers that wait for messages from `count` at each scrape."""
        self._waiting.set_function(count)

    def render(self) -> bytes:
        """Return the metrics as text. It reads files of the index: call it off the event loop."""
        text: bytes = generate_latest(self.registry)
        return text


class _RequestCollector:
    """Counts requests by route, method and status, and their times by route. For the event loop."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self.times: dict[str, Histogram] = {}  # by route

    def count(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request. Must be called on the event loop."""
        series = (route, method, status)
        self._counts[series] = self._counts.get(series, 0) + 1
        times = self.times.get(route)
        if times is None:
            times = self.times[route] = Histogram()
        times.observe(seconds)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "tierdex_http_requests", "requests answered", labels=["route", "method", "status"]
        )
        for (route, method, status), count in list(self._counts.items()):
            requests.add_metric([route, method, str(status)], count)
        yield requests
        seconds = HistogramMetricFamily(
            "tierdex_http_request_seconds",
            "time from the request's head to the response's end",
            labels=["route"],
        )
        for route, times in list(self.times.items()):
            seconds.add_metric([route], buckets=times.buckets(), sum_value=times.sum)
        yield seconds


class _IndexCollector:
    """Reads files and compaction at each scrape."""

    def __init__(self, index: Callable[[], Index]) -> None:
        self._index = index

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterable[Metric]:
        totals: dict[str, list[int]] = {}
        for file in self._index().files():
            row = file_document(file)
            add(totals, row, int(row.get("item_count") or 0))
        yield from by_state(
            "index", totals, (("files", "index files"), ("items", "items"), ("bytes", "bytes of index files"))
        )  # fmt: skip
        yield not_ready("index", self._index().health())
        used = self._index().resources()
        yield from store_families(self._index().store_requests(), used["store"])
        yield from room_families("tierdex_disk", used["disk"], INDEX_ROOM)
        yield from cache_families(used["pages"], used["sidecar_fetches"])
        yield times_family(
            "tierdex_lookup_stage_seconds",
            "time of a lookup or batch in each stage, without lookups that memory answers: "
            + ", ".join(STAGES),
            "stage",
            used["lookup_stages"],
        )
        asked = CounterMetricFamily(
            "tierdex_peer_requests",
            "requests to peers, by outcome: answered, failed",
            labels=["outcome"],
        )
        for outcome, count in used["peers"].items():
            asked.add_metric([outcome], count)
        yield asked
        yield GaugeMetricFamily(
            "tierdex_manifest_age_seconds",
            "age of the manifests from which queries are answered",
            value=used["manifest_age_s"],
        )
        yield from compaction_families(self._index().compaction_status())


class _LogCollector:
    """Reads the files of the message log at each scrape."""

    def __init__(self, log: MessageLog) -> None:
        self._log = log

    def describe(self) -> list[GaugeMetricFamily]:
        return []

    def collect(self) -> Iterable[Metric]:
        totals: dict[str, list[int]] = {}
        for file in self._log.files():
            row = file_document(file)
            add(totals, row, int(row["message_count"]))
        yield not_ready("log", self._log.health())
        with suppress(TierdexError):  # the log names what it cannot read
            hours = self._log.timers()
            yield GaugeMetricFamily(
                "tierdex_log_held_messages", "delayed messages that are not delivered yet",
                value=sum(hour.message_count for hour in hours),
            )  # fmt: skip
        with suppress(ReadOnlyError):  # the owner's to know
            yield GaugeMetricFamily(
                "tierdex_log_forgettings",
                "open requests to forget messages",
                value=len(self._log.forgettings()),
            )
        waiting = GaugeMetricFamily(
            "tierdex_log_index_waiting_bytes",
            "bytes of journals that are written and not indexed yet",
        )
        with suppress(InvalidRequestError):  # a log without an index, or opened read-only
            waiting.add_metric([], self._log.waiting_bytes())
            yield waiting
        cached = GaugeMetricFamily(
            "tierdex_log_cached_bytes",
            "bytes kept for reads of published messages: decoded pages and ranges ahead of readers (memory), "
            "local copies of published files (disk)",
            labels=["where"],
        )
        for where, length in self._log.cached_bytes().items():
            cached.add_metric([where], length)
        yield cached
        room = None
        with suppress(TierdexError):
            room = self._log.disk_room()
        yield from room_families("tierdex_log_disk", room, LOG_ROOM)
        yield from compaction_families(self._log.compaction_status(), "tierdex_log_compaction")
        yield from by_state(
            "log", totals, (("files", "log files"), ("messages", "messages"), ("bytes", "bytes of log files"))
        )  # fmt: skip
