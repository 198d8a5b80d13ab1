"""Requests that pass h11 by, and those that do not, on one connection: the same answers, in order."""

from __future__ import annotations

import re
import socket

import pytest

from tests.hostile_http.cases import ENTRY, post_json, request
from tests.hostile_http.raw_http import send_raw
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex

PUT = post_json("/v1/entries", {"entries": [ENTRY]})


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_tierdex(tmp_path_factory.mktemp("plain"), max_body_bytes=200_000) as server:
        yield server
        assert server.stop() == 0


def made_odd(data):
    """Return the same request with a space behind a value: h11 reads that."""
    return data.replace(b"Host: localhost\r\n", b"Host: localhost \r\n", 1)


@pytest.mark.parametrize(
    "data",
    [
        request("GET", "/healthz"),
        request("GET", "/v1/topics"),
        request("GET", "/v1/entries?topic=orders&key=absent"),
        request("GET", "/nothing"),
        request("GET", "/console.js", None, ["If-None-Match: x"]),
        request("GET", "/docs"),
        request("POST", "/v1/topics", b""),
        request("POST", "/v1/entries", b"no JSON", ["Content-Type: application/json"]),
        request("POST", "/v1/entries", b"x" * 250_000, ["Content-Type: application/json"]),
        PUT,
    ],
)
def test_both_ways_answer_the_same_bytes(server, data):
    plain, odd = (send_raw(server.address, [form]).data for form in (data, made_odd(data)))
    own = rb'(date: |x-request-id: |"request_id":")[^"\r]*|"as_of":\d+'
    assert re.sub(own, b"", plain) == re.sub(own, b"", odd)
    assert re.search(own, plain)


def test_either_kind_waits_for_the_other(server):
    kinds = [request("GET", "/healthz"), made_odd(request("GET", "/nothing")), PUT, made_odd(PUT)]
    answer = send_raw(server.address, [b"".join(kinds) * 10])
    assert answer.statuses == [200, 404, 200, 200] * 10


@pytest.mark.parametrize("step", [1, 7, 100])
def test_pieces_of_any_size_are_put_together(server, step):
    data = PUT + request("GET", "/nothing") + made_odd(PUT) + PUT
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


def test_garbage_behind_a_plain_request_is_refused_after_its_answer(server):
    answer = send_raw(server.address, [PUT + b"\x00garbage\r\n\r\n"], ends="leave")
    assert answer.statuses == [200, 400]
