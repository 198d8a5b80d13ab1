"""What a server holds after it refused large bodies: no more than the budget allows, for any form."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.app.http.hostile.cases import ARROW, request
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex

MIB = 1 << 20
BUDGET = 128 * MIB
JSON_BYTES, ARROW_BYTES = 15 * MIB, 60 * MIB  # of the weight 8 and 1: one, or two, fit the budget

BODIES = {  # made where they are sent: every process of the tests imports this
    "json that never closes": ("application/json", lambda: b"[" * JSON_BYTES),
    "json of a wrong kind": (
        "application/json", lambda: b'{"lookups":"' + b"x" * (JSON_BYTES - 14) + b'"}',
    ),
    "json with a wrong value": (
        "application/json",
        lambda: b'{"lookups":[{"topic":"t","key":"k","begin":"' + b"x" * (JSON_BYTES - 50) + b'"}]}',
    ),
    "json with many values": ("application/json", lambda: b'{"lookups":[' + b"1," * 500_000 + b"1]}"),
    "json of small objects": (
        "application/json",
        lambda: b'{"x":[' + b'{"a":1},' * ((JSON_BYTES - 20) // 8) + b"{}]}",
    ),
    "arrow that is none": (ARROW, lambda: b"x" * ARROW_BYTES),
    "too long": ("application/json", lambda: b" " * (17 * MIB)),
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_tierdex(
        tmp_path_factory.mktemp("memory"), max_bodies_bytes=BUDGET, forked=False
    ) as server:
        for kind, body in BODIES.values():  # what is loaded with the first request of a form
            refused(server, kind, body()[:100])
        server.idle_bytes = server.memory_bytes("RssAnon")
        yield server
        assert server.stop() == 0


def refused(server, kind, body, path="/v1/entries:batchGet", length=None):
    """Send a request and return the status of its answer; None when the body was cut on the way."""
    head = [f"Content-Type: {kind}", f"Content-Length: {length or len(body)}"]
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(request("POST", path, None, head))
            connection.sendall(body)
            if length is not None:
                return None
            return int(connection.recv(65536)[9:12])
        except ConnectionError:
            return None


def peak_begins_anew(server):
    """Let VmHWM be the most from here on: the kernel forgets what was before."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def assert_little_is_held(server):
    """Once the last of them is over: a caller may have left before the server has."""
    most = server.idle_bytes + 1.2 * BUDGET
    for _ in range(60):
        held = server.memory_bytes("RssAnon")
        if held <= most:
            return
        time.sleep(1)
    pytest.fail(f"{held / MIB:.0f} MiB are held, at most {most / MIB:.0f} may be")


@pytest.mark.parametrize("path", ["/v1/entries:batchGet", "/v1/entries"])
@pytest.mark.parametrize("name", BODIES)
def test_refused_bodies_are_not_kept(server, name, path):
    kind, made = BODIES[name]
    body = made()
    for _ in range(2):  # of 14 cases: 530 MB, many times what may be held at their end
        assert refused(server, kind, body, path) in (None, 400, 413)
    assert_little_is_held(server)


def test_bodies_whose_callers_left_are_not_kept(server):
    for kind, made in BODIES.values():
        body = made()
        for _ in range(4):
            refused(server, kind, body[:-1], length=len(body))
    assert_little_is_held(server)


def test_bodies_that_arrive_together_stay_within_the_budget(server):
    """Those that do not fit it are refused with 503, whatever they would have been refused for."""
    kind, made = BODIES["arrow that is none"]
    body = made()
    statuses = []

    def send():
        statuses.append(refused(server, kind, body))

    peak_begins_anew(server)
    for _ in range(2):  # each round leaves other pieces behind in the allocator
        threads = [threading.Thread(target=send) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert set(statuses) <= {400, 503, None}
    assert server.memory_bytes("VmHWM") <= server.memory_bytes("VmRSS") + 2 * BUDGET, (
        server.memory_bytes("VmHWM") / MIB
    )
    assert_little_is_held(server)
