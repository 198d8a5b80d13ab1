"""Several requests on one connection, whole and in pieces: each answered, in order."""

from __future__ import annotations

import socket

import pytest

from tests.app.http.hostile.cases import ENTRY, post_json, request
from tests.app.http.hostile.raw_http import send_raw
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex

PUT = post_json("/v1/entries", {"entries": [ENTRY]})


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_tierdex(tmp_path_factory.mktemp("pipelining"), max_body_bytes=200_000) as server:
        yield server
        assert server.stop() == 0


def test_requests_are_answered_in_their_order(server):
    kinds = [request("GET", "/healthz"), request("GET", "/nothing"), PUT, PUT]
    answer = send_raw(server.address, [b"".join(kinds) * 10])
    assert answer.statuses == [200, 404, 200, 200] * 10


@pytest.mark.parametrize("step", [1, 7, 100])
def test_pieces_of_any_size_are_put_together(server, step):
    data = PUT + request("GET", "/nothing") + PUT + PUT
    pieces = [data[i : i + step] for i in range(0, len(data), step)]
    assert send_raw(server.address, pieces).statuses == [200, 404, 200, 200]


def test_body_that_nobody_reads_is_passed_over(server):
    """The answer comes at once; what the caller still sends is no request."""
    body = request("GET", "/healthz") * 5000
    head = request("POST", "/v1/entries", None, ["Content-Type: text/plain"])
    head = head.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(body))
    half = len(body) // 2
    with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
        connection.sendall(head + body[:half])
        assert b" 415 " in connection.recv(65536)[:20]
        connection.sendall(body[half:] + request("GET", "/v1/topics"))
        answer = connection.recv(65536)
        assert b" 200 " in answer[:20]
        assert b"topics" in answer
        assert answer.count(b"HTTP/1.1") == 1


def test_large_body_in_pieces_is_read_whole(server):
    entries = [{**ENTRY, "offset": number} for number in range(1500)]
    data = post_json("/v1/entries", {"entries": entries})
    assert len(data) > 100_000
    pieces = [data[i : i + 9000] for i in range(0, len(data), 9000)]
    answer = send_raw(server.address, [*pieces, request("GET", "/v1/topics")])
    assert answer.statuses == [200, 200]
    assert b'"accepted":1500' in answer.data


def test_garbage_behind_a_request_is_refused_after_its_answer(server):
    answer = send_raw(server.address, [PUT + b"\x00garbage\r\n\r\n"], ends="leave")
    assert answer.statuses == [200, 400]
