"""Callers that are slow, half gone or many: each is ended within the server's limits."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import orjson
import pytest

from tests.app.http.hostile.cases import ENTRY, post_json, request
from tests.app.http.hostile.raw_http import KeptConnection, send_raw
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex

MANY = 60


@contextlib.contextmanager
def running_with_patience(data, seconds):
    with running_tierdex(
        data,
        connection_timeout=seconds,
        body_timeout=seconds,
        body_rate=1_000_000,
        max_connections=MANY,
        max_bodies_bytes=8 << 20,
    ) as server:
        yield server
        assert server.stop() == 0


@pytest.fixture(scope="module")
def impatient_server(tmp_path_factory):
    """It ends whom it waits for: for callers that are slow on purpose."""
    with running_with_patience(tmp_path_factory.mktemp("impatient"), 1.0) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """It waits: a caller that the machine alone makes slow is none of the tests' subjects."""
    with running_with_patience(tmp_path_factory.mktemp("patient"), PATIENCE_S) as server:
        yield server


def assert_well(server):
    with contextlib.closing(KeptConnection(server.address)) as good:
        assert good.get("/v1/topics")[0] == 200


def settled_memory(server):
    """Return what the server holds once it has loaded what it loads beside the first requests."""
    held, before = server.memory_bytes(), 0
    while abs(held - before) > 1 << 20:
        time.sleep(1)
        held, before = server.memory_bytes(), held
    return held


def connect(server):
    return socket.create_connection(server.address, timeout=PATIENCE_S)


def read_to_end(connection):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            data += chunk
    return data


@pytest.mark.parametrize(
    "begun", [b"", b"G", b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nX: 1\r\n"]
)
def test_head_that_does_not_come_ends_the_connection(impatient_server, begun):
    answer = send_raw(impatient_server.address, [begun], ends="leave")
    assert answer.statuses == ([408] if begun else [])
    assert_well(impatient_server)


def test_next_request_that_stops_halfway_ends_a_kept_connection(impatient_server):
    answer = send_raw(
        impatient_server.address, [request("GET", "/healthz"), b"GET /he"], ends="leave"
    )
    assert answer.statuses == [200, 408]


def test_head_that_drips_ends_too(impatient_server):
    """A byte now and then does not prolong the time for the whole."""
    with connect(impatient_server) as connection:
        connection.settimeout(0.05)
        answer = b""
        for byte in request("GET", "/v1/topics", None, ["X: " + "a" * 5000]):
            try:
                connection.sendall(bytes([byte]))
                answer = connection.recv(4096)
                break
            except TimeoutError:
                continue
            except OSError:
                break
    assert answer == b"" or b" 408 " in answer[:20]


def test_body_that_stops_is_a_408(impatient_server):
    pieces = [post_json("/v1/entries", {"entries": [ENTRY]})[:-5]]
    assert send_raw(impatient_server.address, pieces, ends="leave").statuses == [408]


def test_body_that_drips_is_a_408(impatient_server):
    """Each byte comes in time; all of them together do not."""
    body = b" " * 5000
    data = post_json("/v1/entries", body)
    with connect(impatient_server) as connection:
        connection.sendall(data[: -len(body)])
        connection.settimeout(0.1)
        answer = b""
        for _ in range(100):
            try:
                connection.sendall(b" ")
                answer = connection.recv(4096)
                break
            except TimeoutError:
                continue
    assert b" 408 " in answer[:20]
    assert_well(impatient_server)


def test_endless_body_of_a_request_without_one_is_cut(impatient_server):
    head = request("GET", "/healthz", None, ["Transfer-Encoding: chunked"])
    answer = send_raw(impatient_server.address, [head, b"5\r\nhello\r\n"], ends="leave")
    assert answer.statuses[0] == 200


def test_giant_chunked_body_is_refused_while_it_arrives(server):
    head = request(
        "POST",
        "/v1/entries",
        None,
        ["Transfer-Encoding: chunked", "Content-Type: application/json"],
    )
    before = settled_memory(server)
    chunk = b"40000\r\n" + b" " * 0x40000 + b"\r\n"
    answer = send_raw(server.address, [head, *[chunk] * 400])  # 100 MiB
    assert answer.reset or answer.statuses in ([413], [503])
    assert server.memory_bytes() - before < 32 << 20
    assert_well(server)


def test_caller_that_closed_its_half_gets_every_answer(server):
    pieces = [request("GET", "/healthz") * 20 + post_json("/v1/entries", {"entries": [ENTRY]})]
    assert send_raw(server.address, pieces).statuses == [200] * 21


def test_pipelined_requests_are_answered_in_order(server):
    paths = ["/healthz", "/nothing", "/version", "/v1/topics", "/readyz?x=1"] * 5
    answer = send_raw(server.address, [b"".join(request("GET", path) for path in paths)])
    assert answer.statuses == [200, 404, 200, 200, 200] * 5


def test_callers_that_reset_in_the_middle_leave_nothing_behind(server):
    assert_well(server)
    files = server.open_files()
    whole = post_json("/v1/entries", {"entries": [ENTRY] * 50})
    for length in range(1, len(whole), len(whole) // 40):
        with connect(server) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(whole[:length])
    for _ in range(1000):  # it hears of each reset, sooner or later
        assert_well(server)
        if server.open_files() <= files:
            break
    assert server.open_files() <= files + 2
    assert not [line for line in server.log() if line.get("status") == 500]


def test_caller_that_reads_nothing_is_cut_off(impatient_server):
    """Its answers wait in the server's memory: not for ever."""
    entries = [{**ENTRY, "keys": ["hot"], "offset": n} for n in range(3000)]
    assert send_raw(
        impatient_server.address, [post_json("/v1/entries", {"entries": entries})]
    ).statuses == [200]
    ask = request("GET", "/v1/entries?topic=orders&key=hot&max_count=3000")
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE_S)
        connection.connect(impatient_server.address)
        with contextlib.suppress(OSError):
            for _ in range(2000):  # ends when the server's end is gone
                connection.sendall(ask)
    assert_well(impatient_server)


def test_more_connections_than_allowed_are_told_so(server):
    assert_well(server)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(server)) for _ in range(MANY + 5)]
        told = [read_to_end(connection) for connection in held[MANY:]]
    assert all(b" 503 " in answer[:20] for answer in told), told
    problem = orjson.loads(told[0].partition(b"\r\n\r\n")[2])
    assert problem["type"] == "urn:tierdex:problem:unavailable"
    assert_well(server)


@pytest.mark.parametrize(
    ("raw", "status", "kind"),
    [
        (b"GARBAGE\r\n\r\n", 400, "invalid-request"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", 431, "head-too-large"),
        (request("GET", "/", None, ["Transfer-Encoding: gzip"]), 400, "invalid-request"),
    ],
)
def test_bytes_that_are_not_http_get_a_problem(server, raw, status, kind):
    answer = send_raw(server.address, [raw], ends="leave")
    assert answer.statuses == [status]
    head, _, body = answer.data.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    problem = orjson.loads(body)
    assert (problem["status"], problem["type"]) == (status, f"urn:tierdex:problem:{kind}")
