"""A connection on the wire: how it ends, and what it makes of requests that are out of the ordinary."""

from __future__ import annotations

import os
import re
import select
import socket
import struct
from importlib.metadata import version

import orjson
import pytest

from tests.app.http.hostile.cases import ENTRY, post_json
from tests.app.http.hostile.cases import request as http_request
from tests.app.http.hostile.raw_http import KeptConnection, send_raw
from tests.patience import PATIENCE_S
from tests.servers.lowest_versions import install_lowest, server_requirements
from tests.servers.tierdex_server import running_tierdex

PUT = post_json("/v1/entries", {"entries": [ENTRY]})
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk")


@pytest.fixture(scope="module", params=["installed", "lowest"])
def server(request, tmp_path_factory):
    """A server on the libraries that are installed, and on the oldest that pyproject.toml allows."""
    environment = {}
    if request.param == "lowest":
        libraries = install_lowest(tmp_path_factory.mktemp("lowest"))
        path = f"{libraries}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environment = {"PYTHONPATH": path.rstrip(os.pathsep)}
    with running_tierdex(
        tmp_path_factory.mktemp("connection"), max_json_bytes=100_000, environment=environment
    ) as server:
        yield server
        assert server.stop() == 0


def test_installed_uvicorn_is_within_its_range():
    """Above the range the connection is untested: raise the bound with these tests passing."""
    below = re.search(r"<([0-9.]+)", server_requirements()["uvicorn"])[1]
    newest = tuple(map(int, version("uvicorn").split(".")[:2]))
    assert newest < tuple(map(int, below.split(".")[:2]))


def send_until_gone(connection):
    for _ in range(int(10 * PATIENCE_S)):
        connection.sendall(b"x")
        select.select([], [], [], 0.1)


def answers_of(data):
    """Return (status, body) of each answer."""
    answers = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        answers.append((int(head[9:12]), data[:length]))
        data = data[length:]
    return answers


def exchange(server, first, second=b""):
    """Send `first`, and `second` when the answer is on its way; return all, or fail on a reset."""
    data = b""
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.sendall(first)
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        if second:
            try:
                connection.sendall(second)
            except (BrokenPipeError, ConnectionResetError) as error:
                pytest.fail(f"reset while sending: {error}")
        while chunk := connection.recv(65536):
            data += chunk
    return answers_of(data)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nothing", (), 404),
        ("/v1/topics", (), 405),
        ("/v1/entries", ("Content-Type: text/plain",), 415),
        ("/v1/entries", ("Content-Type: application/json", "Content-Encoding: gzip"), 415),
        ("/v1/entries", ("Content-Type: application/json", "Authorization: Bearer x"), 401),
    ],
)
@pytest.mark.parametrize("size", [70_000, 5_000_000])
def test_answer_before_the_body_is_read_is_not_lost_when_the_connection_closes(
    server, path, headers, status, size
):
    """With bytes unread, closing at once makes the system reset the connection, and the answer is lost."""
    head = http_request(
        "POST", path, None, [f"Content-Length: {size}", "Connection: close", *headers]
    )
    for _ in range(5):
        ((got, body),) = exchange(server, head + b"x" * 10_000, b"x" * (size - 10_000))
        assert got == status
        assert orjson.loads(body)["status"] == status


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 40_000, 431),
        (
            http_request("POST", "/v1/entries", None, ["Transfer-Encoding: chunked"]) + b"ZZ\r\n",
            400,
        ),
    ],
)
def test_refusal_of_bytes_that_are_not_http_is_not_lost(server, raw, status):
    for _ in range(5):
        answers = exchange(server, raw, b"x" * 3_000_000)
        assert [found for found, _ in answers] == [status]


def test_caller_that_never_closes_is_left_soon(server):
    """A connection that lingers is no way to hold the server's descriptors."""
    head = http_request("POST", "/nothing", None, ["Content-Length: 9", "Connection: close"])
    files = server.open_files()
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        while connection.recv(65536):
            pass
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            send_until_gone(connection)  # though we never closed
    assert server.open_files() <= files + 1


@pytest.mark.parametrize("pieces", [1, 2, 40])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_wish_to_upgrade_is_passed_over_with_body_and_what_follows(server, pieces, framing):
    """Java's HttpClient asks for h2c with its first request, a POST as well."""
    body = orjson.dumps({"entries": [ENTRY]})
    kind = "Content-Type: application/json"
    if framing == "length":
        put = http_request("POST", "/v1/entries", body, [kind, *UPGRADE])
    else:
        head = http_request(
            "POST", "/v1/entries", None, [kind, "Transfer-Encoding: chunked", *UPGRADE]
        )
        put = head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    data = (
        put + http_request("GET", "/version", None, UPGRADE) + http_request("GET", "/healthz") + put
        + http_request("GET", "/healthz")
    )  # fmt: skip
    step = -(-len(data) // pieces)
    answer = send_raw(server.address, [data[i : i + step] for i in range(0, len(data), step)])
    assert [status for status, _ in answers_of(answer.data)] == [200] * 5
    assert answer.data.count(b'"accepted":1') == 2


def test_body_of_a_request_to_upgrade_is_never_a_request(server):
    body = http_request("POST", "/v1/admin/roll", b"", ["Content-Type: application/json"])
    put = http_request("POST", "/v1/entries", body, ["Content-Type: application/json", *UPGRADE])
    answer = send_raw(server.address, [put[: -len(body)], body])
    assert answer.statuses == [400]


def test_garbage_does_not_overtake_the_answers_before_it(server):
    answer = send_raw(server.address, [PUT * 5 + b"\x00garbage\r\n\r\n"], ends="leave")
    assert answer.statuses == [200] * 5 + [400]


def test_broken_body_behind_other_requests_is_refused_in_its_turn(server):
    head = http_request(
        "POST", "/v1/entries", None, ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    )  # fmt: skip
    answer = send_raw(server.address, [PUT * 3 + head + b"5\r\nab\r\nZZ\r\n"], ends="leave")
    assert answer.statuses == [200, 200, 200, 400]


def test_body_that_was_announced_and_refused_ends_the_connection(server):
    """Who knows whether the body comes, or the next request: both begin with bytes."""
    head = http_request(
        "POST", "/v1/entries", None,
        ["Content-Type: text/plain", "Expect: 100-continue", "Content-Length: 30"],
    )  # fmt: skip
    answers = exchange(server, head, http_request("GET", "/healthz"))
    assert [status for status, _ in answers] == [415]


def test_body_is_asked_for_when_it_is_wanted(server):
    body = orjson.dumps({"entries": [ENTRY]})
    head = http_request(
        "POST", "/v1/entries", None,
        ["Content-Type: application/json", "Expect: 100-continue", f"Content-Length: {len(body)}"],
    )  # fmt: skip
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert b" 200 OK" in connection.recv(65536)[:20]


def test_request_without_host_or_with_two_is_refused(server):
    assert send_raw(server.address, [b"GET /healthz HTTP/1.1\r\n\r\n"]).statuses == [400]
    two = http_request("GET", "/healthz", None, ["Host: localhost"])
    assert send_raw(server.address, [two]).statuses == [400]
    assert send_raw(server.address, [b"GET /healthz HTTP/1.0\r\n\r\n"]).statuses == [421]


@pytest.mark.parametrize(
    "framing",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: +5",
        "Content-Length: 5, 5",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: x",
        " Content-Length: 5",
    ],
)
def test_framing_that_two_servers_may_read_differently_is_refused(server, framing):
    head = http_request("POST", "/v1/entries", None, ["Content-Type: application/json", framing])
    smuggled = http_request("GET", "/version")
    answer = send_raw(server.address, [head + b"0\r\n\r\n" + smuggled])
    assert answer.statuses == [400]


def test_answer_is_one_packet(server):
    """Head and body in one write: a reader of small answers wakes up once."""
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        for _ in range(100):
            connection.sendall(http_request("GET", "/v1/topics"))
            assert connection.recv(65536).endswith(b"}")


def test_reset_in_the_middle_of_a_pipeline_stops_nothing(server):
    for length in range(1, 3 * len(PUT), 97):
        with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall((PUT * 3)[:length])
    good = KeptConnection(server.address)
    assert good.get("/v1/topics")[0] == 200
    good.close()
    assert not [line for line in server.log() if line.get("status") == 500]
    assert not [line for line in server.log() if "Exception" in line["event"]]
