"""The alerts that we ship, as one table: rules, their unit tests and the runbook's list come from it.

Each row has series that fire it (and, by default, series that are well and must not). Depends on nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class Alert(NamedTuple):
    """One alert. `wait`: how long it must be so. `fires`: series -> values of each minute, as promtool reads them.

    `labels` are those that the fired alert has beside `severity`. It is looked at after 30 minutes.
    """

    name: str
    severity: str  # page: a person now; ticket: a person today
    expression: str
    wait: str
    summary: str
    fires: dict[str, str]
    labels: dict[str, str]
    well: dict[str, str]
    also: tuple[
        dict[str, str], ...
    ] = ()  # further series, each of which fires it alone: those of the log


_AT = 'instance="a",job="tierdex"'
_HERE = {"instance": "a", "job": "tierdex"}


def _steady(
    name: str, labels: str, sick: float, well: float
) -> tuple[dict[str, str], dict[str, str]]:
    """Return a gauge that stays at a value, sick and well."""
    series = f"{name}{{{_AT}{',' if labels else ''}{labels}}}"
    return {series: f"{sick}x40"}, {series: f"{well}x40"}


def _rising(name: str, labels: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return a counter that rises each minute, and one that stands still."""
    series = f"{name}{{{_AT}{',' if labels else ''}{labels}}}"
    return {series: "0+5x40"}, {series: "7x40"}


def _against(name: str, bound: str, sick: int, well: int) -> tuple[dict[str, str], dict[str, str]]:
    """Return a gauge, sick and well, beside another that stays at 100."""
    one, other = f"{name}{{{_AT}}}", f"{bound}{{{_AT}}}"
    return {one: f"{sick}x40", other: "100x40"}, {one: f"{well}x40", other: "100x40"}


def _alert(
    name: str,
    severity: str,
    expression: str,
    wait: str,
    summary: str,
    series: tuple[dict[str, str], dict[str, str]],
    *also: tuple[dict[str, str], dict[str, str]],
    **labels: str,
) -> Alert:
    """Return an alert that each pair of `series` and `also` fires; the second of all pairs is well."""
    pairs = (series, *also)
    well = {name: values for _, quiet in pairs for name, values in quiet.items()}
    others = tuple(sick for sick, _ in also)
    return Alert(name, severity, expression, wait, summary, series[0], labels, well, others)


def _either(expression: str) -> str:
    """Return an expression about the index's metrics `tierdex_X*`, or else about the log's."""
    return f"{expression.replace('X_', 'tierdex_')} or {expression.replace('X_', 'tierdex_log_')}"


ALERTS = (
    _alert(
        "TierdexDown", "page", 'up{job=~"tierdex.*"} == 0', "2m",
        "{{ $labels.instance }} does not answer",
        _steady("up", "", 0, 1), **_HERE,
    ),
    _alert(
        "TierdexFenced", "page", 'tierdex_index_not_ready{reason="fenced"} > 0', "0m",
        "another owner took the node of {{ $labels.instance }} over",
        _steady("tierdex_index_not_ready", 'reason="fenced"', 1, 0), **_HERE, reason="fenced",
    ),
    _alert(
        "TierdexNotReady", "page",
        'max by (job, instance, reason) ({__name__=~"tierdex_(index|log)_not_ready",reason!="fenced"}) > 0', "2m",
        "{{ $labels.instance }} takes no requests: {{ $labels.reason }}",
        _steady("tierdex_index_not_ready", 'reason="no-file"', 1, 0), **_HERE, reason="no-file",
    ),
    _alert(
        "TierdexProbeMissed", "page",
        'sum without (verb, state) (increase(tierdex_probe_steps_total{outcome=~"missed|wrong"}[15m])) > 0', "0m",
        "the prober did not find what was acknowledged, or found another entry ({{ $labels.outcome }})",
        _rising("tierdex_probe_steps_total", 'outcome="missed",state="uploaded",verb="lookup"'),
        **_HERE, outcome="missed",
    ),
    _alert(
        "TierdexProbeUnwell", "ticket",
        "time() - tierdex_probe_last_well_timestamp_seconds > 600", "2m",
        "no round of the prober was well for ten minutes",
        _steady("tierdex_probe_last_well_timestamp_seconds", "", 0, 1790), **_HERE,
    ),
    _alert(
        "TierdexDamagedFile", "page",
        'sum by (job, instance, state) ({__name__=~"tierdex_(index|log)_files",state="quarantine"}) > 0', "0m",
        "{{ $value }} damaged files of {{ $labels.instance }}: answers are incomplete",
        _steady("tierdex_index_files", 'state="quarantine"', 1, 0), **_HERE, state="quarantine",
    ),
    _alert(
        "TierdexIncompleteAnswers", "page",
        'rate(tierdex_lookups_total{outcome="incomplete"}[5m]) > 0', "5m",
        "{{ $labels.instance }} answers lookups incompletely",
        _rising("tierdex_lookups_total", 'outcome="incomplete"'), **_HERE, outcome="incomplete",
    ),
    _alert(
        "TierdexServerErrors", "page",
        'sum without (route, method, status) (rate(tierdex_http_requests_total{status=~"5.."}[5m]))'
        " / sum without (route, method, status) (rate(tierdex_http_requests_total[5m])) > 0.01", "5m",
        "more than 1 % of the requests to {{ $labels.instance }} fail",
        _rising("tierdex_http_requests_total", 'method="GET",route="/v1/entries",status="503"'),
        **_HERE,
    ),
    _alert(
        "TierdexSlowLookups", "ticket",
        'histogram_quantile(0.99, rate(tierdex_http_request_seconds_bucket{route="/v1/entries"}[10m])) > 1', "10m",
        "one of a hundred lookups of {{ $labels.instance }} takes more than {{ $value }} s",
        (
            {
                f'tierdex_http_request_seconds_bucket{{{_AT},le="1.0",route="/v1/entries"}}': "0x40",
                f'tierdex_http_request_seconds_bucket{{{_AT},le="2.5",route="/v1/entries"}}': "0+9x40",
                f'tierdex_http_request_seconds_bucket{{{_AT},le="+Inf",route="/v1/entries"}}': "0+9x40",
            },
            {
                f'tierdex_http_request_seconds_bucket{{{_AT},le="1.0",route="/v1/entries"}}': "0+9x40",
                f'tierdex_http_request_seconds_bucket{{{_AT},le="+Inf",route="/v1/entries"}}': "0+9x40",
            },
        ),
        **_HERE, route="/v1/entries",
    ),
    _alert(
        "TierdexUnpublished", "ticket",
        _either("X_compaction_oldest_unpublished_age_seconds > 7200"), "10m",
        "files of {{ $labels.instance }} do not reach the store (oldest: {{ $value }} s)",
        _steady("tierdex_compaction_oldest_unpublished_age_seconds", "", 9000, 3500),
        _steady("tierdex_log_compaction_oldest_unpublished_age_seconds", "", 9000, 3500), **_HERE,
    ),
    _alert(
        "TierdexBacklog", "page",
        _either("X_disk_waiting_bytes > 0.5 * tierdex_disk_budget_bytes"), "5m",
        "half of the disk budget of {{ $labels.instance }} waits for the store",
        _against("tierdex_disk_waiting_bytes", "tierdex_disk_budget_bytes", 60, 40),
        _against("tierdex_log_disk_waiting_bytes", "tierdex_disk_budget_bytes", 60, 40),
        **_HERE,
    ),
    _alert(
        "TierdexDiskFull", "page",
        "tierdex_disk_free_bytes < 4 * tierdex_disk_reserve_bytes"
        " or tierdex_disk_free_bytes < 2 * tierdex_log_disk_reserve_bytes", "5m",
        "{{ $value }} bytes are free on the disk of {{ $labels.instance }}",
        _against("tierdex_disk_free_bytes", "tierdex_disk_reserve_bytes", 300, 500),
        _against("tierdex_disk_free_bytes", "tierdex_log_disk_reserve_bytes", 150, 500),
        **_HERE,
    ),
    _alert(
        "TierdexCompactionFails", "ticket",
        _either("increase(X_compaction_failures_total[30m]) > 5"), "0m",
        "work of the compactor of {{ $labels.instance }} fails and is tried again",
        _rising("tierdex_compaction_failures_total", ""),
        _rising("tierdex_log_compaction_failures_total", ""), **_HERE,
    ),
    _alert(
        "TierdexManifestsOld", "page", "tierdex_manifest_age_seconds > 120", "2m",
        "{{ $labels.instance }} has not read the store's manifests for {{ $value }} s",
        _steady("tierdex_manifest_age_seconds", "", 300, 6), **_HERE,
    ),
    _alert(
        "TierdexStoreFails", "ticket",
        "sum without (verb, error) (rate(tierdex_store_failures_total"
        '{error!~"NotFoundError|AlreadyExistsError"}[5m]))'
        " / sum without (verb, purpose) (rate(tierdex_store_requests_total[5m])) > 0.05", "10m",
        "more than 5 % of the requests of {{ $labels.instance }} to the store fail",
        (
            {
                f'tierdex_store_failures_total{{{_AT},error="StoreTimeoutError",verb="get"}}': "0+1x40",
                f'tierdex_store_requests_total{{{_AT},purpose="lookups",verb="get"}}': "0+9x40",
            },
            {
                f'tierdex_store_failures_total{{{_AT},error="NotFoundError",verb="get"}}': "0+8x40",
                f'tierdex_store_requests_total{{{_AT},purpose="lookups",verb="get"}}': "0+9x40",
            },
        ),
        **_HERE,
    ),
    _alert(
        "TierdexIndexLags", "ticket", "tierdex_log_index_waiting_bytes > 268435456", "10m",
        "{{ $value }} bytes of the log of {{ $labels.instance }} are not indexed yet",
        _steady("tierdex_log_index_waiting_bytes", "", 400e6, 1e6), **_HERE,
    ),
    _alert(
        "TierdexDescriptors", "ticket",
        'process_open_fds{job=~"tierdex.*"} / process_max_fds > 0.8', "10m",
        "{{ $labels.instance }} has most of its file descriptors open",
        _against("process_open_fds", "process_max_fds", 90, 30),
        **_HERE,
    ),
    _alert(
        "TierdexFollowLost", "page", "increase(tierdex_follow_lost_total[30m]) > 0", "0m",
        "the followed log of topic {{ $labels.topic }} lost messages before they were indexed",
        _rising("tierdex_follow_lost_total", 'topic="orders"'), **_HERE, topic="orders",
    ),
    _alert(
        "TierdexFollowWaits", "ticket", "tierdex_follow_waiting > 0", "5m",
        "the follower of topic {{ $labels.topic }} waits for its source or the index",
        _steady("tierdex_follow_waiting", 'topic="orders"', 1, 0), **_HERE, topic="orders",
    ),
)  # fmt: skip
