"""Families of Prometheus metrics, made at a scrape of what index, log and store count.

Depends on prometheus_client, histogram and index_service.
"""

from __future__ import annotations

from collections import Counter as Counted
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from tierdex.index_service.health import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from prometheus_client.core import Metric

    from tierdex.histogram import Histogram
    from tierdex.index_service.health import NotReady
    from tierdex.index_service.ingest.disk_budget import DiskRoom
    from tierdex.index_service.readers.page_cache import CacheUse
    from tierdex.storage_layer.metered import StoreTotals


def store_families(by_purpose: dict[str, dict[str, int]], totals: StoreTotals) -> Iterable[Metric]:
    """Yield the requests to the store."""
    requests = CounterMetricFamily(
        "tierdex_store_requests",
        "requests to the store, by purpose (manifests, lookups, other) and verb",
        labels=["purpose", "verb"],
    )
    for purpose, verbs in sorted(by_purpose.items()):
        for verb, count in sorted(verbs.items()):
            requests.add_metric([purpose, verb], count)
    yield requests
    failures = CounterMetricFamily(
        "tierdex_store_failures",
        "requests to the store that failed; NotFoundError and AlreadyExistsError are answers, too",
        labels=["verb", "error"],
    )
    for (verb, error), count in sorted(totals.failures.items()):
        failures.add_metric([verb, error], count)
    yield failures
    yield times_family(
        "tierdex_store_request_seconds", "time of one request to the store", "verb", totals.times
    )
    yield CounterMetricFamily(
        "tierdex_store_read_bytes", "bytes read from the store", value=totals.bytes_read
    )
    yield CounterMetricFamily(
        "tierdex_store_written_bytes", "bytes written to the store", value=totals.bytes_written
    )


def times_family(
    name: str, meaning: str, label: str, by_label: Mapping[Any, Histogram]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, meaning, labels=[label])
    for value, times in sorted(by_label.items()):
        family.add_metric([value], buckets=times.buckets(), sum_value=times.sum)
    return family


def cache_families(pages: CacheUse, sidecar_fetches: int) -> Iterable[Metric]:
    """Yield the use of the page cache, and the fetched sidecars."""
    lookups = CounterMetricFamily(
        "tierdex_page_cache_lookups",
        "page lookups of published files: hit (in memory), miss (fetched from the store)",
        labels=["outcome"],
    )
    lookups.add_metric(["hit"], pages.hits)
    lookups.add_metric(["miss"], pages.misses)
    yield lookups
    yield GaugeMetricFamily(
        "tierdex_page_cache_bytes", "bytes of pages in memory", value=pages.bytes
    )
    yield GaugeMetricFamily(
        "tierdex_page_cache_budget_bytes", "`page_cache_bytes`", value=pages.budget_bytes
    )
    yield CounterMetricFamily(
        "tierdex_sidecar_fetches",
        "sidecars fetched from the store",
        value=sidecar_fetches,
    )


INDEX_ROOM = {
    "free": "bytes free on the disk of the data folder",
    "reserve": "`disk_reserve_bytes`: below, puts are refused",
    "waiting": "bytes of local index files that wait for the store",
    "budget": "`disk_budget_bytes`: above, puts and appends are refused",
}
LOG_ROOM = {
    "reserve": "`disk_reserve_bytes` and the next journal: below, none is made",
    "waiting": "bytes of local log files that wait for the store",
}


def room_families(prefix: str, room: DiskRoom | None, meanings: dict[str, str]) -> Iterable[Metric]:
    """Yield the room of an owner for puts; names without values for a reader."""
    for name, meaning in meanings.items():
        family = GaugeMetricFamily(f"{prefix}_{name}_bytes", meaning)
        if room is not None:
            family.add_metric([], getattr(room, f"{name}_bytes"))
        yield family


def not_ready(kind: str, reasons: Iterable[NotReady]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"tierdex_{kind}_not_ready",
        f"1 for each reason why the {kind} is not ready (see /readyz), else 0",
        labels=["reason"],
    )
    found = {problem.reason for problem in reasons}
    for reason in REASONS:
        family.add_metric([reason], reason in found)
    return family


def add(totals: dict[str, list[int]], row: dict[str, Any], count: int) -> None:
    total = totals.setdefault(str(row.get("state")), [0, 0, 0])
    total[0] += 1
    total[1] += count
    total[2] += int(row.get("bytes") or 0)


def by_state(
    kind: str, totals: dict[str, list[int]], gauges: Sequence[tuple[str, str]]
) -> Iterable[Metric]:
    """Yield a gauge by state for each sum of `totals`."""
    for position, (name, meaning) in enumerate(gauges):
        family = GaugeMetricFamily(
            f"tierdex_{kind}_{name}", f"{meaning} by state", labels=["state"]
        )
        for state, total in totals.items():
            family.add_metric([state], total[position])
        yield family


# Totals of the compaction status, as counters.
_DONE = {
    "sealed": "files sealed",
    "compacted": "files compacted",
    "published": "files published",
    "merged": "source files of merges, and files rewritten without forgotten entries",
    "expired": "files dropped: expired, or replaced by the merge of another node",
    "collected": "objects and manifest numbers that garbage collection removed",
    "scrubbed": "files verified whole in the background",
    "failures": "units of work that failed and are tried again",
    "items": "items of the files that were published",
    "bytes": "bytes of the files that were published",
    "merged_bytes": "bytes that merges wrote",
    "given_back_bytes": "bytes that merges and expiry freed",
}
# Numbers of the compaction status, as gauges: the name there, the metric's, its factor.
_NOW = (
    ("backlog_files", "backlog_files", 1.0, "files that are sealed and not published yet"),
    ("backlog_bytes", "backlog_bytes", 1.0, "bytes of the files that are sealed and not published yet"),
    (
        "oldest_unpublished_age_s", "oldest_unpublished_age_seconds", 1.0,
        "age of the oldest unpublished file, the unsealed one included; 0: there is none",
    ),
    (
        "last_done_ms", "last_done_timestamp_seconds", 0.001,
        "time of the last finished unit of work",
    ),
)  # fmt: skip


def compaction_families(
    status: dict[str, Any], prefix: str = "tierdex_compaction"
) -> Iterable[Metric]:
    """Return a counter for each total of the status, the times and jobs under way, and a gauge a number."""
    for name, value in status.get("totals", {}).items():
        yield CounterMetricFamily(
            f"{prefix}_{name}", f"{_DONE[name]}, since the start", value=value
        )
    seconds = HistogramMetricFamily(
        f"{prefix}_seconds", "time of one unit of the compactor's work, by job", labels=["job"]
    )
    running = GaugeMetricFamily(
        f"{prefix}_running_jobs", "running units of work, by job", labels=["job"]
    )
    for job, times in status.get("times", {}).items():
        seconds.add_metric(
            [job], buckets=list(times["at_most_s"].items()), sum_value=times["sum_s"]
        )
    under_way = Counted(each["job"] for each in status.get("jobs", ()))
    for job in sorted({*status.get("times", {}), *under_way}):
        running.add_metric([job], under_way[job])
    yield from (seconds, running)
    for name, shown, factor, meaning in _NOW:
        gauge = GaugeMetricFamily(f"{prefix}_{shown}", meaning)
        if status.get(name) is not None:
            gauge.add_metric([], status[name] * factor)
        yield gauge
