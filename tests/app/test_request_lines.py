"""The log lines of requests: all of them, each once, few writes when many come at a time."""

from __future__ import annotations

import io

import anyio
import orjson

from tests.app.small_index import SmallIndex
from tests.patience import PATIENCE_S
from tierdex.app import front_door
from tierdex.app.logs import make_logger
from tierdex.app.server_settings import ServerSettings
from tierdex.app.service import create_app

MANY = 200


class CountingLog(io.BytesIO):
    writes = 0

    def write(self, data):
        self.writes += 1
        return super().write(data)

    def lines(self):
        return [orjson.loads(line) for line in self.getvalue().splitlines()]


async def ask(app, path="/healthz"):
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        pass

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    await app(scope, receive, send)


def make(log):
    return create_app(SmallIndex(), ServerSettings(), logger=make_logger(log))


def test_line_of_a_single_request_is_written_at_once():
    log = CountingLog()
    anyio.run(ask, make(log))
    assert [line["route"] for line in log.lines()] == ["/healthz"]


def test_lines_of_many_requests_are_written_together_and_in_order(monkeypatch):
    monkeypatch.setattr(front_door, "_BETWEEN_WRITES_S", 1.0)  # many requests, however slow
    log = CountingLog()
    app = make(log)

    async def ask_many():
        for _ in range(MANY):
            await ask(app)
        with anyio.fail_after(PATIENCE_S):
            while len(log.lines()) < MANY:
                await anyio.sleep(0.01)

    anyio.run(ask_many)
    ids = [line["request_id"] for line in log.lines()]
    assert len(ids) == MANY
    assert ids == sorted(set(ids))
    assert log.writes < MANY / 2


def test_lines_that_wait_are_written_when_the_service_ends():
    log = CountingLog()
    app = make(log)

    async def live():
        coming = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))
        told = []

        async def receive():
            message = next(coming)
            if message["type"] == "lifespan.shutdown":
                for _ in range(3):
                    await ask(app)
            return message

        async def send(message):
            told.append(message["type"])

        await app({"type": "lifespan", "state": {}}, receive, send)
        assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        assert [line["event"] for line in log.lines()].count("request") == 3

    anyio.run(live)
