"""What no sane server would hand on: odd ASGI scopes and messages, straight into the application."""

from __future__ import annotations

import io
import random

import anyio
import orjson
import pytest

from tests.app.http.hostile.cases import ENTRY, PATHS
from tests.app.small_index import SmallIndex
from tierdex.app.http.application import create_app
from tierdex.app.http.server_settings import ServerSettings
from tierdex.app.logs import make_logger
from tierdex.log_service.message_log import MessageLog

BODY = orjson.dumps({"entries": [ENTRY]})
JSON = (b"content-type", b"application/json")


class Asgi:
    """An application, called without a server; keeps its log."""

    def __init__(self, log=None, **settings):
        self.log = io.BytesIO()
        self.app = create_app(
            SmallIndex(), ServerSettings(**settings), log=log, logger=make_logger(self.log)
        )
        self.app.state.service.readiness.is_serving = True  # what the server's start does

    def call(self, method, path, *, query=b"", headers=(), messages=()):
        """Return (status, body); `messages` are what `receive` gives, one after the other."""
        sent = []
        coming = iter([*messages, {"type": "http.disconnect"}])

        async def receive():
            return next(coming, {"type": "http.disconnect"})

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode("utf-8", "surrogatepass"),
            "query_string": query,
            "root_path": "",
            "headers": [(b"host", b"localhost"), *headers],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        anyio.run(self.app, scope, receive, send)
        body = b"".join(message.get("body", b"") for message in sent[1:])
        return sent[0]["status"], body


@pytest.fixture(scope="module")
def asgi(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    with MessageLog.open(folder, node="n", journal_bytes=16 << 20) as log:
        yield Asgi(log)


def chunk(data, more=False):
    return {"type": "http.request", "body": data, "more_body": more}


def test_caller_that_leaves_in_the_middle_is_no_fault_of_ours(asgi):
    status, _ = asgi.call("POST", "/v1/entries", headers=[JSON], messages=[chunk(BODY[:9], True)])
    assert status == 499
    lines = [orjson.loads(line) for line in asgi.log.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["info"]
    assert asgi.app.state.body_budget.held_bytes == 0
    assert asgi.app.state.service.index.items == []


def test_body_in_empty_and_single_bytes_is_read(asgi):
    pieces = [chunk(BODY[i : i + 1], True) for i in range(len(BODY))]
    messages = [chunk(b"", True), *pieces, chunk(b"", True), chunk(b"")]
    status, body = asgi.call("POST", "/v1/entries", headers=[JSON], messages=messages)
    assert (status, orjson.loads(body)["accepted"]) == (200, 1)


@pytest.mark.parametrize("seed", range(10))
def test_random_scopes_are_answered_below_500(asgi, seed):
    rng = random.Random(seed)
    for _ in range(60):
        path = rng.choice((*PATHS, "", "no-slash", "/\ud800", "/\x00", "/" + "a/" * 2000, "*"))
        method = rng.choice(("GET", "POST", "PUT", "HEAD", "", "g\xe9t", "CONNECT", "A" * 9000))
        headers = [(rng.randbytes(3), rng.randbytes(9)) for _ in range(rng.randint(0, 9))]
        headers += [JSON] * rng.randint(0, 2)
        names = (b"content-length", b"authorization", b"host", b"content-encoding", b"x-request-id")
        headers += [(name, rng.randbytes(8)) for name in names if rng.random() < 0.2]
        messages = [chunk(rng.randbytes(20), True) for _ in range(rng.randint(0, 3))]
        status, _ = asgi.call(
            method,
            path,
            query=rng.choice((b"", b"=", b"&&", rng.randbytes(30))),
            headers=headers,
            messages=[*messages, chunk(b"")],
        )
        assert 200 <= status < 500


def test_json_takes_more_of_the_budget_than_its_bytes():
    asgi = Asgi(max_bodies_bytes=1000)
    status, _ = asgi.call(
        "POST", "/v1/entries", headers=[JSON], messages=[chunk(b"[" + b" " * 200)]
    )
    assert status == 503


def test_json_above_its_own_limit_is_refused_before_it_is_read():
    asgi = Asgi(max_json_bytes=1000)
    length = (b"content-length", b"1001")
    assert asgi.call("POST", "/v1/entries", headers=[JSON, length])[0] == 413
