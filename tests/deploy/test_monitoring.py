"""What we ship for Prometheus and Grafana: checked by promtool and Grafana's own types."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry, generate_latest

from tests.deploy.conftest import DEPLOY, ROOT
from tierdex import MessageLog
from tierdex.app.cli.terminal.follow_metrics import _FollowCollector
from tierdex.app.http.metrics import Metrics
from tierdex.app.probe.metrics import ProbeMetrics
from tierdex.app.probe.prober import Outcome, Step
from tierdex.following.status import FollowStatus
from tools.alerts import ALERTS
from tools.document_dashboard import ROWS

_METRIC = re.compile(r"\b(?:tierdex|process)_[a-z_]+")


def run(*command, cwd=DEPLOY / "prometheus", given=None):
    done = subprocess.run(command, cwd=cwd, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return what a service, a prober and a follower show, as text."""
    folder = tmp_path_factory.mktemp("watched")
    settings = {"store": str(folder / "store"), "background": False}
    with MessageLog.open(folder / "log", **settings, journal_bytes=16 << 20) as log:
        log.append(topic="orders", queue_id=0, body=b"x", keys=["k"])
        log.index.roll()
        log.index.run_compaction()
        service = Metrics(lambda: log.index, "0", log)
        service.count_request("/v1/entries", "GET", 200, 0.1)
        texts = {"service": service.render()}
    prober = ProbeMetrics()
    prober.note([Step("lookup", "uploaded", Outcome.OK, 0.1)], [], 1)
    texts["prober"] = generate_latest(prober.registry)
    follower = CollectorRegistry()
    follower.register(_FollowCollector(FollowStatus("here", "orders", ends={0: 7})))
    texts["follower"] = generate_latest(follower)
    return {name: text.decode() for name, text in texts.items()}


def test_promtool_finds_nothing_in_the_metrics(promtool, shown):
    for text in shown.values():
        assert run(promtool, "check", "metrics", given=text) == ""


def test_alerts_fire_and_are_silent_as_their_tests_say(promtool):
    run(promtool, "check", "rules", "alerts.yaml")
    run(promtool, "test", "rules", "alerts_test.yaml")


def test_every_alert_has_a_heading_in_the_runbook():
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    assert headings == [alert.name for alert in ALERTS]


def test_dashboard_loses_nothing_in_grafanas_own_types():
    written = json.loads((DEPLOY / "grafana" / "tierdex.json").read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(written)))
    assert _lost(written, read) == []


def _lost(written, read, path=""):
    if isinstance(written, dict):
        return [
            name
            for key, value in written.items()
            for name in (
                _lost(value, read[key], f"{path}/{key}") if key in read else [f"{path}/{key}"]
            )
        ]
    if isinstance(written, list):
        assert len(written) == len(read), path
        pairs = enumerate(zip(written, read, strict=True))
        return [name for i, pair in pairs for name in _lost(*pair, f"{path}/{i}")]
    return [] if written == read else [path]


def test_alerts_and_dashboard_name_metrics_that_are_there(shown):
    there = {*_METRIC.findall("".join(shown.values()))}
    expressions = [alert.expression for alert in ALERTS]
    expressions += [line for _, row in ROWS for panel in row for line, _ in panel.lines]
    named = {name for text in expressions for name in _METRIC.findall(re.sub(r'"[^"]*"', "", text))}
    assert len(named) > 20
    assert named - there == set()
