"""The prober: all is well where it is, and each way of being ill is told from the others."""

from __future__ import annotations

import signal
import subprocess
import urllib.request

import pytest

from tests.app.conftest import open_small_files
from tests.patience import PATIENCE_S
from tests.servers.forked_tierdex import ForkedTierdex, run_tierdex
from tests.servers.tierdex_server import running_tierdex
from tierdex import Client
from tierdex.app.keys import KeyFile
from tierdex.app.probe.metrics import ProbeMetrics
from tierdex.app.probe.prober import TOPIC, Memory, Outcome, Prober, gravest
from tierdex.app.rights import Grant, Scope
from tierdex.clock import ManualClock, SystemClock
from tierdex.errors import (
    CorruptFileError,
    InvalidRequestError,
    PermissionDeniedError,
    StoreUnavailableError,
)
from tierdex.filesystem import LocalFileSystem
from tierdex.ids import SeededIds
from tierdex.index_service.answer import Answer, Missing
from tierdex.index_service.index import Index
from tools.free_port import find_free_port


@pytest.fixture
def live_index(tmp_path):
    """An index whose own threads carry files to the store."""
    with Index.open(
        tmp_path / "data", slot_count=64, item_capacity=1000, compact_interval=0.01,
        remote_interval=0.0,
    ) as index:  # fmt: skip
        yield index


def make_prober(index, memory=None, clock=None, seed=1, **options):
    return Prober(
        index, clock=clock or SystemClock(), ids=SeededIds(seed), memory=memory, **options
    )


def make_memory(tmp_path):
    return Memory(LocalFileSystem(), tmp_path / "canaries.json")


def test_canary_is_seen_unsealed_and_uploaded_and_found_by_key_and_message_id(live_index):
    steps = make_prober(live_index).probe()
    assert gravest(steps) is Outcome.OK
    states = [step.state for step in steps if step.verb == "lookup"]
    assert states[:3] == ["absent", "unsealed", "unsealed"]
    assert states[-2:] == ["uploaded", "uploaded"]
    assert {step.verb for step in steps} == {"put", "lookup", "publish"}


def test_canaries_are_brought_to_the_store_only_now_and_then(live_index):
    prober = make_prober(live_index, publish_every_s=3600)
    assert "publish" in {step.verb for step in prober.probe()}
    assert "publish" not in {step.verb for step in prober.probe()}


def test_canary_of_an_earlier_run_is_looked_up_by_the_next(tmp_path, live_index):
    make_prober(live_index, make_memory(tmp_path)).probe()
    steps = make_prober(live_index, make_memory(tmp_path), seed=2).probe()
    first = [step for step in steps if step.verb == "lookup"][:2]
    assert [(step.state, step.outcome) for step in first] == [("uploaded", Outcome.OK)] * 2


def test_lost_entries_are_missed(tmp_path, live_index):
    make_prober(live_index, make_memory(tmp_path)).probe()
    with open_small_files(tmp_path / "another") as empty:
        steps = make_prober(empty, make_memory(tmp_path), seed=2).probe()
    assert gravest(steps) is Outcome.MISSED
    assert "is not found" in steps[0].detail


class IllIndex:
    """An index that answers as `ail` says."""

    def __init__(self, index, ail):
        self._index, self._ail = index, ail

    def __getattr__(self, name):
        return getattr(self._index, name)

    def query(self, topic=None, **lookup):
        return self._ail(self._index.query(topic, **lookup))


def _fail(_answer):
    raise StoreUnavailableError("no store today")


def _alter(answer):
    return Answer([entry._replace(offset=entry.offset + 1) for entry in answer.entries])


def _double(answer):
    return Answer(answer.entries * 2)


@pytest.mark.parametrize(
    ("ail", "outcome"),
    [
        (_fail, Outcome.FAILED),
        (lambda _: Answer([], complete=False, missing=[Missing("f", "gone")]), Outcome.INCOMPLETE),
        (lambda _: Answer([]), Outcome.MISSED),
        (_alter, Outcome.WRONG),
        (_double, Outcome.WRONG),
    ],
    ids=["failed", "incomplete", "missed", "altered", "doubled"],
)
def test_ill_answer_is_told_from_a_sound_one(index, ail, outcome):
    steps = make_prober(IllIndex(index, ail)).probe()
    assert gravest(steps) is outcome
    told = [step for step in steps if step.outcome is outcome]
    assert all(step.detail for step in told)


def test_entry_for_a_key_that_was_never_put_is_wrong(index):
    index.put(topic=TOPIC, keys=["other"], queue_id=0, offset=1, size=1, timestamp=1)
    stray = index.query(TOPIC, key="other")
    steps = make_prober(IllIndex(index, lambda _: stray)).probe()
    assert steps[0][:3] == ("lookup", "absent", Outcome.WRONG)


def test_refused_put_is_a_failed_step_and_nothing_is_remembered(index):
    class Full(IllIndex):
        def put(self, **_):
            raise StoreUnavailableError("full")

    prober = make_prober(Full(index, lambda answer: answer))
    steps = prober.probe()
    assert [step.outcome for step in steps if step.verb == "put"] == [Outcome.FAILED]
    assert prober.canaries == []


def test_canaries_older_than_told_are_forgotten(index, tmp_path):
    clock = ManualClock()
    prober = make_prober(index, make_memory(tmp_path), clock, remember_s=100, publish_every_s=1e9)
    prober._published_at = clock.monotonic()
    prober.probe()
    clock.advance(60)
    prober.probe()
    clock.advance(60)
    prober.probe()
    assert len(prober.canaries) == len(make_memory(tmp_path).canaries) == 2


def test_memory_stays_small_and_keeps_the_oldest(tmp_path, index):
    memory = make_memory(tmp_path)
    prober = make_prober(index)
    canaries = [prober._make_canary() for _ in range(2000)]
    memory.keep(canaries)
    kept = make_memory(tmp_path).canaries
    assert len(kept) <= 512
    assert kept[0] == canaries[0]
    assert kept[-1] == canaries[-1]


def test_damaged_memory_is_an_error(tmp_path):
    (tmp_path / "canaries.json").write_text('{"canaries": [{"token": 1}]}')
    with pytest.raises(CorruptFileError, match="canaries"):
        make_memory(tmp_path)


def test_metrics_tell_what_was_seen(index):
    metrics = ProbeMetrics()
    metrics.note(make_prober(index).probe(), [], 5000)
    well = metrics.render().decode()
    assert 'tierdex_probe_steps_total{outcome="ok",state="unsealed",verb="put"} 1.0' in well
    assert "tierdex_probe_well 1.0" in well
    metrics.note(make_prober(IllIndex(index, lambda _: Answer([]))).probe(), [], 9000)
    ill = metrics.render().decode()
    assert "tierdex_probe_well 0.0" in ill
    assert "tierdex_probe_last_well_timestamp_seconds 5.0" in ill
    assert 'outcome="missed"' in ill


def run_probe(tmp_path, *arguments):
    return run_tierdex("probe", *arguments, cwd=tmp_path)


def test_command_probes_a_service_and_its_exit_code_tells(tmp_path):
    with running_tierdex(tmp_path / "data", compact_interval=0.01) as server:
        once = ("--once", "--url", server.url, "--metrics-file", "out/probe.prom")
        well = run_probe(tmp_path, *once)
        assert (well.returncode, "uploaded" in well.stdout) == (0, True), well.stderr
        assert "tierdex_probe_well 1.0" in (tmp_path / "out" / "probe.prom").read_text()
        assert server.stop() == 0
    ill = run_probe(tmp_path, *once)
    assert ill.returncode == 1
    assert "tierdex_probe_well 0.0" in (tmp_path / "out" / "probe.prom").read_text()
    with running_tierdex(tmp_path / "empty") as server:
        missed = run_probe(tmp_path, "--once", "--url", server.url)
        assert missed.returncode == 3, missed.stderr
        assert "is not found" in missed.stderr


def test_key_of_the_probe_s_topic_alone_is_enough(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    keys = KeyFile(LocalFileSystem(), data / "keys.json", clock=SystemClock(), ids=SeededIds(3))
    key = keys.create(Grant(Scope.WRITE, TOPIC))
    with (
        running_tierdex(data, compact_interval=0.01) as server,
        Client(server.url, api_key=key) as client,
    ):
        with pytest.raises(PermissionDeniedError):
            client.query(message_id="any")
        steps = make_prober(client).probe()
    assert {step.outcome for step in steps} == {Outcome.OK}, steps
    assert {step.verb for step in steps} == {"put", "lookup", "publish"}


def test_command_serves_metrics_round_after_round_until_it_is_stopped(tmp_path):
    port = find_free_port()
    command = ["probe", "--data", "data", "--output", "ndjson"]
    command += ["--interval", "0.1", "--port", str(port), "--set", "item_capacity=100"]
    with ForkedTierdex(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        lines = (line for line in process.stdout)
        while sum('"verb":"put"' in line for line in (next(lines),)) == 0:
            pass
        while '"verb":"put"' not in next(lines):
            pass
        url = f"http://127.0.0.1:{port}/metrics"
        told = urllib.request.urlopen(url, timeout=PATIENCE_S).read().decode()
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(timeout=PATIENCE_S) == 0
    assert 'tierdex_probe_steps_total{outcome="ok",state="unsealed",verb="put"}' in told


def test_prober_topic_is_legal(index):
    with pytest.raises(InvalidRequestError):
        index.query(TOPIC + "\x00", key="k")
    assert index.query(TOPIC, key="k").complete
