"""`/metrics` follows the rules that `promtool check metrics` knows: names, types, units, help."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.parser import text_string_to_metric_families

from tests.app.conftest import ENTRY, Caller, open_small_files
from tierdex.app.http.metrics import _RequestCollector
from tierdex.histogram import SECONDS
from tierdex.index_service.index import Index

SHORT_UNITS = {"s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "h", "d"}


@pytest.fixture
def families(caller):
    caller.post("/v1/entries", json={"entries": [ENTRY]})
    caller.get("/v1/entries?topic=orders&key=ORDER-1")
    caller.post("/v1/admin/roll", headers={"content-type": "application/json"})
    caller.post("/v1/admin/compaction:run", headers={"content-type": "application/json"})
    return list(text_string_to_metric_families(caller.get("/metrics").text))


def test_names_are_those_of_prometheus(families):
    assert len(families) > 20
    for family in families:
        parts = family.name.split("_")
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name), family.name
        assert family.documentation, family.name
        assert not SHORT_UNITS & set(parts), f"{family.name}: units are written in full"
        assert family.type not in parts, family.name
        for sample in family.samples:
            if family.type == "counter":
                assert sample.name.endswith(("_total", "_created")), sample.name
            elif family.type == "gauge":
                assert not sample.name.endswith(("_total", "_count", "_sum", "_bucket"))


def test_totals_of_the_compactor_are_counters(families):
    kinds = {family.name: family.type for family in families}
    for name in ("sealed", "compacted", "published", "failures"):
        assert kinds[f"tierdex_compaction_{name}"] == "counter"
    assert kinds["tierdex_compaction_backlog_files"] == "gauge"
    assert kinds["tierdex_compaction_oldest_unpublished_age_seconds"] == "gauge"


def test_time_of_the_compactor_s_work_is_kept_by_job(tmp_path):
    with open_small_files(tmp_path / "data") as index:
        index.put(topic="orders", keys=["k"], queue_id=0, offset=1, size=1, timestamp=1)
        index.roll()
        index.run_compaction()
        text = Caller(index).get("/metrics").text
    for job in ("seal", "compact", "publish"):
        assert f'tierdex_compaction_seconds_count{{job="{job}"}} 1.0' in text
        assert f'tierdex_compaction_seconds_bucket{{job="{job}",le="+Inf"}} 1.0' in text


def test_requests_and_lookups_are_counted_once(families):
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
    route = ("route", "/v1/entries")
    got = ("tierdex_http_requests_total", ("method", "GET"), route, ("status", "200"))
    assert samples[got] == 1
    assert samples["tierdex_http_request_seconds_count", route] == 2
    assert samples["tierdex_lookups_total", ("outcome", "found")] == 1
    assert samples["tierdex_lookups_total", ("outcome", "absent")] == 0
    assert samples["tierdex_entries_accepted_total", ("durability", "os")] == 1


def test_times_of_requests_are_those_of_prometheus_own_histogram():
    """At a bound, between two, and above all of them."""
    seconds = (0.0, 0.0005, 0.0006, 0.25, 29.0, 30.0, 31.0)
    ours, theirs = _RequestCollector(), CollectorRegistry()
    peer = Histogram("seconds", "s", ["route"], buckets=SECONDS, registry=theirs).labels("/x")
    for value in seconds:
        ours.count("/x", "GET", 200, value)
        peer.observe(value)
    _, found = ours.collect()
    (expected,) = theirs.collect()
    shown = {s.labels.get("le", s.name.rpartition("_")[2]): s.value for s in found.samples}
    wanted = {s.labels.get("le", s.name.rpartition("_")[2]): s.value for s in expected.samples}
    wanted.pop("created")
    assert shown == wanted


def test_page_cache_tells_what_came_from_the_store_and_what_did_not(tmp_path):
    store = f"file://{tmp_path / 'store'}"
    with open_small_files(tmp_path / "data", store=store) as owner:
        owner.put(topic="orders", keys=["k"], queue_id=0, offset=1, size=1, timestamp=1)
        owner.roll()
        owner.run_compaction()
    with Index.open(store=store, read_only=True, background=False) as index:
        caller = Caller(index)
        for _ in range(3):
            (entry,) = index.query("orders", key="k").entries
            assert entry.state == "uploaded"
        text = caller.get("/metrics").text
    assert 'tierdex_page_cache_lookups_total{outcome="miss"} 1.0' in text
    assert 'tierdex_page_cache_lookups_total{outcome="hit"} 2.0' in text
    assert "tierdex_sidecar_fetches_total 1.0" in text
    assert 'tierdex_lookup_stage_seconds_count{stage="store"} 1.0' in text  # memory has the others
    assert 'tierdex_lookup_stage_seconds_count{stage="peers"} 0.0' in text
    assert re.search(r"^tierdex_page_cache_bytes [1-9]", text, re.MULTILINE)
