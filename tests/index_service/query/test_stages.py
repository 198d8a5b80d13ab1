"""Where the time of a lookup went: each moment belongs to one stage."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.index_service.conftest import from_memory, put
from tierdex import Index
from tierdex.index_service.query.stages import STAGES, StageTimes, Stopwatch


def counts(index):
    return {
        stage: times.buckets()[-1][1] for stage, times in index.resources()["lookup_stages"].items()
    }


def test_each_moment_is_counted_to_the_stage_that_it_was_in():
    now = 0.0
    watch = Stopwatch(lambda: now)
    for stage, until in (("manifests", 1.0), ("plan", 3.0), ("store", 4.0), ("plan", 8.0)):
        now = until
        watch.enter(stage)
    now = 16.0
    watch.enter("answer")
    assert watch.seconds == {"plan": 1.0 + 1.0 + 8.0, "manifests": 2.0, "store": 4.0}


def test_times_of_lookups_are_kept_by_stage():
    times = StageTimes()
    times.add({"plan": 0.00002, "store": 0.3})
    times.add({"plan": 0.00002})
    told = times.totals()
    assert list(told) == list(STAGES)
    assert dict(told["plan"].buckets())["2.5e-05"] == told["plan"].buckets()[-1][1] == 2
    assert (told["store"].sum, told["local"].sum) == (0.3, 0.0)


@pytest.mark.parametrize("way", ["query", "batch", "table"])
def test_a_lookup_is_counted_once_in_the_stages_that_it_was_in(make_index, tmp_path, way):
    index = make_index()
    put(index, "a", 0)
    index.roll()
    index.run_compaction()
    put(index, "b", 1)
    store = f"file://{tmp_path / 'data' / 'store'}"
    with Index.open(store=store, read_only=True, background=False) as reader:
        if way == "query":
            reader.query("orders", key="a", explain=True)
        elif way == "batch":
            reader.query_batch([{"topic": "orders", "key": k} for k in "ab"])
        else:
            reader.query_batch_arrow(pa.table({"topic": ["orders"], "key": ["a"]}), max_count=2)
        assert counts(reader) == {
            "manifests": 1, "plan": 1, "local": 0, "store": 1, "peers": 0, "answer": 1,
        }  # fmt: skip


def test_a_query_that_memory_answers_is_not_counted(index):
    put(index, "a", 0)
    for _ in range(3):
        assert index.query("orders", key="a").entries
    before = counts(index)
    assert from_memory(index, "orders", key="a").entries
    assert index.query("orders", key="a").entries
    assert counts(index) == before


def test_the_stages_of_explain_add_up_to_its_time(index):
    put(index, "a", 0)
    index.roll()
    index.run_compaction()
    put(index, "a", 1)
    explain = index.query("orders", key="a", explain=True).explain
    stages = {stage.name: stage.ms for stage in explain.stages}
    assert set(stages) == {"manifests", "plan", "local", "store", "answer"}
    assert sum(stages.values()) == pytest.approx(explain.milliseconds)
