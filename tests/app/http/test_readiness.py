"""`/readyz`, `/metrics` and the log say why no requests should be sent to a service."""

from __future__ import annotations

import errno

import anyio
import httpx2
import pytest

from tests.app.conftest import Caller, assert_problem
from tests.log_service.keyed_world import KeyedWorld
from tierdex.errors import FencedError, UnavailableError
from tierdex.index_service.health import NotReady
from tierdex.index_service.index import Index
from tierdex.testing.components import components_of


@pytest.fixture
def running(make_caller):
    caller = make_caller()
    caller.app.state.service.readiness.is_serving = True
    return caller


def test_service_is_ready_while_it_runs_and_not_before_or_after(make_caller):
    caller = make_caller()

    async def run():
        transport = httpx2.ASGITransport(app=caller.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            statuses = [(await client.get("/readyz")).status_code]
            async with caller.app.router.lifespan_context(caller.app):
                statuses.append((await client.get("/readyz")).status_code)
            return [*statuses, (await client.get("/readyz")).status_code]

    assert anyio.run(run) == [503, 200, 503]


def test_each_reason_is_named_by_readyz_and_metrics_and_told_once_to_the_log(running):
    assert running.get("/readyz").status_code == 200
    running.index.not_ready = [NotReady("fenced", "b has it"), NotReady("no-file", "EIO")]
    for _ in range(3):
        document = assert_problem(running.get("/readyz"), 503, "unavailable")
        assert document["detail"] == "fenced: b has it; no-file: EIO"
    metrics = running.get("/metrics").text
    assert 'tierdex_index_not_ready{reason="fenced"} 1.0' in metrics
    assert 'tierdex_index_not_ready{reason="closed"} 0.0' in metrics
    running.index.not_ready = running.index.not_ready[:1]
    assert running.get("/readyz").status_code == 503
    running.index.not_ready = []
    assert running.get("/readyz").status_code == 200
    told = [(line["event"], line["reason"]) for line in running.log_lines() if "reason" in line]
    assert told == [
        ("not ready", "fenced"),
        ("not ready", "no-file"),
        ("no longer", "no-file"),
        ("no longer", "fenced"),
    ]


def test_fenced_service_refuses_puts_and_is_not_ready(tmp_path):
    def open_index(name):
        return Index.open(
            tmp_path / name, store=str(tmp_path / "store"), slot_count=64, item_capacity=1000,
            background=False, remote_interval=0.0, disk_reserve_bytes=0, takeover=True,
        )  # fmt: skip

    entry = {"topic": "t", "key": "k", "queue_id": 0, "offset": 1, "size": 1, "timestamp": 1}
    with open_index("old") as old:
        caller = Caller(old)
        caller.app.state.service.readiness.is_serving = True
        assert caller.post("/v1/entries", json={"entries": [entry]}).status_code == 200
        assert caller.get("/readyz").status_code == 200
        with open_index("new") as new:
            new.put(topic="t", keys=["k"], queue_id=0, offset=2, size=1, timestamp=1)
            new.flush("remote")
        with pytest.raises(FencedError):
            old.flush("remote")
        refusal = caller.post("/v1/entries", json={"entries": [entry]})
        assert "taken over" in assert_problem(refusal, 503, "fenced")["detail"]
        detail = assert_problem(caller.get("/readyz"), 503, "unavailable")["detail"]
        assert detail.startswith("fenced: ")
        assert 'tierdex_index_not_ready{reason="fenced"} 1.0' in caller.get("/metrics").text
        (line,) = [line for line in caller.log_lines() if line["event"] == "not ready"]
        assert (line["reason"], line["level"]) == ("fenced", "error")


def test_message_log_without_room_for_appends_is_not_ready_until_there_is_some():
    world = KeyedWorld()
    log = world.open()
    caller = Caller(None, log=log)
    caller.app.state.service.readiness.is_serving = True
    assert caller.get("/readyz").status_code == 200
    world.disk.fail("reserve", number=errno.ENOSPC, for_ever=True)
    message = {"topic": "t", "queue_id": 0, "body": "x"}
    assert caller.post("/v1/messages", json={"messages": [message]}).status_code == 507
    document = assert_problem(caller.get("/readyz"), 503, "unavailable")
    assert document["detail"].startswith("no-file: ")
    assert 'tierdex_log_not_ready{reason="no-file"} 1.0' in caller.get("/metrics").text
    world.disk.heal()
    components_of(log).writing.tending.step()  # though no caller appends
    assert caller.get("/readyz").status_code == 200
    log.close()
    assert_problem(caller.get("/readyz"), 503, "unavailable")


def test_message_log_whose_sync_failed_is_not_ready_until_its_journal_was_read_back():
    world = KeyedWorld()
    log = world.open()
    world.append(log, ("t", 0), b"durable", [])
    world.disk.fail("sync")
    with pytest.raises(UnavailableError):
        log.append(topic="t", queue_id=0, body=b"not synced")
    assert [found.reason for found in log.health()] == ["no-file"]
    components_of(log).writing.tending.step()
    assert log.health() == []
    assert log.append(topic="t", queue_id=0, body=b"more") == 2
    log.close()
    assert [found.reason for found in log.health()] == ["closed"]
