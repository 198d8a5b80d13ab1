"""deploy/grafana/tierdex.json: a dashboard of what to look at first, a row for each question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_HERE = 'job=~"$job",instance=~"$instance"'
_WIDTH, _HEIGHT = 8, 7  # three panels a row


class Panel(NamedTuple):
    """One graph: its title, the unit as Grafana calls it, and (expression, legend) of each line."""

    title: str
    unit: str
    lines: tuple[tuple[str, str], ...]


def _rate(metric: str, by: str = "instance", labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{_HERE}{labels}}}[$__rate_interval]))"


def _quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, {_rate(metric + '_bucket', f'le, {by}')})"


def _gauge(metric: str, labels: str = "") -> str:
    return f"{metric}{{{_HERE}{labels}}}"


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    ("Is it well?", (
        Panel("Not ready, by reason", "short", (
            (_gauge("tierdex_index_not_ready") + " > 0", "index {{instance}} {{reason}}"),
            (_gauge("tierdex_log_not_ready") + " > 0", "log {{instance}} {{reason}}"),
        )),
        Panel("Lookups, by outcome", "ops", ((_rate("tierdex_lookups_total", "outcome"), "{{outcome}}"),)),
        Panel("Requests that failed", "ops", (
            (_rate("tierdex_http_requests_total", "route, status", ',status=~"5.."'), "{{status}} {{route}}"),
        )),
    )),
    ("How quick is it?", (
        Panel("Lookup over HTTP", "s", tuple(
            (_quantile(share, "tierdex_http_request_seconds", "route"), f"p{share * 100:g} {{{{route}}}}")
            for share in (0.5, 0.99)
        )),
        Panel("Requests", "reqps", ((_rate("tierdex_http_requests_total", "route, method"), "{{method}} {{route}}"),)),
        Panel("In flight", "short", (
            (_gauge("tierdex_http_requests_in_flight"), "{{instance}}"),
            (_gauge("tierdex_message_waits"), "waits {{instance}}"),
        )),
    )),
    ("Where does a lookup's time go?", (
        Panel("Seconds a lookup, by stage", "s", (
            (
                _rate("tierdex_lookup_stage_seconds_sum", "stage") + " / ignoring (stage) group_left "
                + f'sum(rate(tierdex_lookup_stage_seconds_count{{{_HERE},stage="plan"}}[$__rate_interval]))',
                "{{stage}}",
            ),
        )),
        Panel("A stage (p99)", "s", ((_quantile(0.99, "tierdex_lookup_stage_seconds", "stage"), "{{stage}}"),)),
        Panel("Pages and sidecars", "ops", (
            (_rate("tierdex_page_cache_lookups_total", "outcome"), "page {{outcome}}"),
            (_rate("tierdex_sidecar_fetches_total", "instance"), "sidecar fetched {{instance}}"),
        )),
    )),
    ("What comes in?", (
        Panel("Entries accepted", "ops", ((_rate("tierdex_entries_accepted_total", "durability"), "{{durability}}"),)),
        Panel("Messages", "ops", (
            (_rate("tierdex_messages_appended_total", "durability"), "appended {{durability}}"),
            (_rate("tierdex_messages_read_total"), "read {{instance}}"),
        )),
        Panel("Followed logs: offsets behind", "short", (
            (f'sum by (topic) ({_gauge("tierdex_follow_lag")})', "{{topic}}"),
        )),
    )),
    ("Does it reach the store?", (
        Panel("Oldest unpublished", "s", (
            (_gauge("tierdex_compaction_oldest_unpublished_age_seconds"), "index {{instance}}"),
            (_gauge("tierdex_log_compaction_oldest_unpublished_age_seconds"), "log {{instance}}"),
        )),
        Panel("Disk", "bytes", (
            (_gauge("tierdex_disk_waiting_bytes"), "index waiting {{instance}}"),
            (_gauge("tierdex_log_disk_waiting_bytes"), "log waiting {{instance}}"),
            (_gauge("tierdex_disk_budget_bytes"), "budget {{instance}}"),
            (_gauge("tierdex_disk_free_bytes"), "free {{instance}}"),
        )),
        Panel("Files, by state", "short", (
            (f'sum by (state) ({_gauge("tierdex_index_files")})', "index {{state}}"),
            (f'sum by (state) ({_gauge("tierdex_log_files")})', "log {{state}}"),
        )),
    )),
    ("What does the compactor do?", (
        Panel("Time of a unit (p90), by job", "s", (
            (_quantile(0.9, "tierdex_compaction_seconds", "job"), "index {{job}}"),
            (_quantile(0.9, "tierdex_log_compaction_seconds", "job"), "log {{job}}"),
        )),
        Panel("Share of the time at work", "percentunit", (
            (_rate("tierdex_compaction_seconds_sum", "job"), "index {{job}}"),
            (_rate("tierdex_log_compaction_seconds_sum", "job"), "log {{job}}"),
        )),
        Panel("Failures", "ops", (
            (_rate("tierdex_compaction_failures_total"), "index {{instance}}"),
            (_rate("tierdex_log_compaction_failures_total"), "log {{instance}}"),
        )),
    )),
    ("What does the store do?", (
        Panel("Requests, by purpose and verb", "reqps", (
            (_rate("tierdex_store_requests_total", "purpose, verb"), "{{purpose}} {{verb}}"),
        )),
        Panel("Time of a request (p99)", "s", ((_quantile(0.99, "tierdex_store_request_seconds", "verb"), "{{verb}}"),)),
        Panel("Failures, by error", "ops", ((_rate("tierdex_store_failures_total", "verb, error"), "{{verb}} {{error}}"),)),
    )),
    ("The process", (
        Panel("Memory", "bytes", ((_gauge("process_resident_memory_bytes"), "{{instance}}"),)),
        Panel("CPU", "percentunit", ((_rate("process_cpu_seconds_total"), "{{instance}}"),)),
        Panel("Age of what is read from the store", "s", ((_gauge("tierdex_manifest_age_seconds"), "{{instance}}"),)),
    )),
)  # fmt: skip


def generate(root: Path) -> dict[Path, str]:
    """Return the dashboard, as Grafana imports it."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    return {root / "deploy" / "grafana" / "tierdex.json": text}


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's model of schema version 39."""
    return {
        "uid": "tierdex",
        "title": "Tierdex",
        "tags": ["tierdex"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": list(_panels()),
    }


def _variables() -> list[dict[str, Any]]:
    source = {"type": "prometheus", "uid": "${source}"}
    return [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "source"},
        *(
            {
                "name": name,
                "type": "query",
                "datasource": source,
                "query": f"label_values(tierdex_info{narrowed}, {name})",
                "includeAll": True,
                "multi": True,
                "refresh": 2,
            }
            for name, narrowed in (("job", ""), ("instance", '{job=~"$job"}'))
        ),
    ]


def _panels() -> Any:
    number, top = 0, 0
    for title, panels in ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": 3 * _WIDTH, "h": 1}
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "gridPos": place,
            "collapsed": False,
            "panels": [],
        }
        for column, panel in enumerate(panels):
            number += 1
            place = {"x": column * _WIDTH, "y": top + 1, "w": _WIDTH, "h": _HEIGHT}
            yield _panel(number, panel, place)
        top += 1 + _HEIGHT


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "gridPos": place,
        "datasource": source,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + row),
                "datasource": source,
                "expr": expression,
                "legendFormat": legend,
            }
            for row, (expression, legend) in enumerate(panel.lines)
        ],
    }
