"""Jobs over a store that fails: a clear error, nothing half done to see, and a retry that works."""

from __future__ import annotations

import re

import pytest

from tests.pipeline.conftest import append, key_rows, read
from tests.pipeline.test_credentials import CREDENTIALS
from tests.pipeline.test_stream import start
from tests.servers.bad_proxy import Fault, running_bad_proxy
from tierdex.errors import StoreUnavailableError, TierdexError
from tierdex.pipeline import collect_garbage, last_scan, lookup, plain_errors
from tierdex.pipeline.jobs.snapshot import open_log
from tierdex.storage_layer.open import open_store

FAILED = r"(?i)503|slow ?down|as planned|not available|unavailable"
FILES, MANIFESTS = "/nodes/spark/files/", "/nodes/spark/manifest/"


@pytest.fixture
def proxy(moto_server):
    with running_bad_proxy(moto_server.endpoint_url) as proxy:
        yield proxy


@pytest.fixture
def urls(proxy, moto_server):
    """One store by two urls: over the proxy, for jobs; and straight, for looking at what is there."""
    straight = moto_server.make_url("spark")
    return proxy.url_of(straight), straight


def refuse(proxy, method, part, *, after=0, fault=Fault.STATUS_503):
    """Let every `method` on objects below `part` fail, but the first `after` of them."""
    seen = set()

    def plan(request):
        if request.method != method or part not in request.target:
            return None
        seen.add(request.target)
        return fault if len(seen) > after else None

    proxy.plan = plan


def heal(proxy):
    proxy.plan = lambda _request: None


def objects(url):
    return list(open_store(url).list("nodes/spark/files/"))


def test_failed_uploads_fail_the_job_show_nothing_and_are_collected(
    spark, proxy, urls, monkeypatch
):
    url, straight = urls
    rows = key_rows(spark, [f"k{n}" for n in range(9)])
    refuse(proxy, "PUT", FILES, after=2)
    with pytest.raises(TierdexError, match=FAILED), plain_errors():
        append(rows, url, targetEntries="3", **CREDENTIALS)
    assert len(objects(straight)) == 2  # uploaded, and seen by no reader
    assert open_log(open_store(straight), "spark").load().files == {}
    heal(proxy)
    append(rows, url, targetEntries="3", **CREDENTIALS)
    assert read(spark, straight, **CREDENTIALS).count() == 9
    assert len(objects(straight)) == 5
    monkeypatch.setenv("TIERDEX_GRACE_TIME", "0")
    collect_garbage(straight)  # commits the floor
    assert collect_garbage(straight) == 2
    assert read(spark, straight, **CREDENTIALS).count() == 9


def test_failed_commit_publishes_nothing_and_an_unsure_one_publishes_once(spark, proxy, urls):
    url, straight = urls
    rows = key_rows(spark, ["a", "b", "c"])
    append(rows, straight, **CREDENTIALS)
    before = open_log(open_store(straight), "spark").load()
    refuse(proxy, "PUT", MANIFESTS)
    with pytest.raises(TierdexError, match=FAILED), plain_errors():
        append(rows, url, **CREDENTIALS)
    assert open_log(open_store(straight), "spark").load() == before
    # The commit takes effect, and the driver hears of a reset: it finds its own success.
    struck = []

    def reset_once(request):
        if struck or request.method != "PUT" or MANIFESTS not in request.target:
            return None
        struck.append(request.target)
        return Fault.RESET_AFTER

    proxy.plan = reset_once
    append(rows, url, **CREDENTIALS)
    assert struck
    state = open_log(open_store(straight), "spark").load()
    assert len(state.files) == len(before.files) + 1
    assert read(spark, straight, **CREDENTIALS).count() == 6


def test_stream_goes_on_with_the_batch_that_failed(spark, proxy, urls, tmp_path):
    url, straight = urls
    source = tmp_path / "source"
    for number in range(2):
        rows = key_rows(spark, [f"k{number}-{n}" for n in range(20)], first=100 * number)
        rows.write.mode("append").parquet(str(source))
    refuse(proxy, "PUT", FILES, after=1)  # the second batch's
    with pytest.raises(TierdexError, match=FAILED), plain_errors():
        start(spark, source, url, tmp_path, **CREDENTIALS)
    state = open_log(open_store(straight), "spark").load()
    assert list(state.streams.values()) == [0]
    assert read(spark, straight, **CREDENTIALS).count() == 20
    heal(proxy)
    query = start(spark, source, url, tmp_path, **CREDENTIALS)
    assert query.lastProgress["batchId"] == 1
    assert list(open_log(open_store(straight), "spark").load().streams.values()) == [1]
    assert read(spark, straight, **CREDENTIALS).count() == 40


def test_scan_and_lookup_fail_or_name_what_is_missing(spark, proxy, urls):
    url, straight = urls
    rows = key_rows(spark, ["a", "b", "c"])
    append(rows, straight, **CREDENTIALS)
    keys = rows.select("topic", "key")
    refuse(proxy, "GET", FILES)
    with pytest.raises(TierdexError, match=FAILED), plain_errors():
        read(spark, url, **CREDENTIALS).count()
    with pytest.raises(StoreUnavailableError, match=FAILED):
        lookup(spark, url, keys, options=CREDENTIALS)  # it fetches directories when it is planned
    assert read(spark, url, onError="partial", **CREDENTIALS).count() == 0
    (missing,) = last_scan().missing
    assert re.search(FAILED, missing)
    partial = lookup(spark, url, keys, on_error="partial", options=CREDENTIALS).collect()
    assert [(row.offset, row.complete) for row in partial] == [(None, False)] * 3
    assert len(last_scan().missing) == 1
    heal(proxy)
    assert (
        lookup(spark, url, keys, on_error="partial", options=CREDENTIALS).where("complete").count()
        == 3
    )
    # Manifests that cannot be read are never an empty store.
    refuse(proxy, "GET", MANIFESTS)
    with pytest.raises(TierdexError, match=FAILED), plain_errors():
        read(spark, url, onError="partial", **CREDENTIALS).count()
