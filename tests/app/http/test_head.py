"""HEAD: the status and the headers of GET, and no body."""

from __future__ import annotations

import socket

import pytest

from tests.app.conftest import ENTRY
from tests.patience import PATIENCE_S
from tests.servers.tierdex_server import running_tierdex
from tierdex.app.rights import Scope

LOOKUP = "/v1/entries?topic=orders&key=ORDER-1"
PATHS = ["/", "/healthz", "/readyz", "/v1/topics", "/openapi.json", "/v1/nothing", LOOKUP]


@pytest.mark.parametrize("path", PATHS)
def test_head_has_the_status_and_headers_of_get_and_no_body(caller, path):
    caller.post("/v1/entries", json={"entries": [ENTRY]})
    got, asked = caller.get(path), caller.request("HEAD", path)
    assert asked.content == b""
    assert asked.status_code == got.status_code
    # A problem says the request's id, which differs; its length does not.
    assert {**asked.headers, "x-request-id": ""} == {**got.headers, "x-request-id": ""}
    line = caller.log_lines()[-1]
    assert (line["method"], line["bytes"]) == ("HEAD", 0)
    assert line["route"] == caller.log_lines()[-2]["route"]


def test_head_needs_the_scope_of_get(make_caller, keys):
    key = keys.create(Scope.READ)
    caller = make_caller(keys=keys)
    assert caller.request("HEAD", "/v1/topics").status_code == 401
    assert caller.request("HEAD", "/v1/topics", key=key).status_code == 200
    assert caller.request("HEAD", "/v1/admin/files", key=key).status_code == 403


def test_connection_goes_on_after_a_head(tmp_path):
    with running_tierdex(tmp_path / "data") as server:
        with socket.create_connection(server.address, timeout=PATIENCE_S) as connection:
            asks = (b"HEAD /version", b"HEAD /nothing", b"GET /version")
            head = b" HTTP/1.1\r\nhost: localhost\r\n"
            for ask in asks[:-1]:
                connection.sendall(ask + head + b"\r\n")
            connection.sendall(asks[-1] + head + b"connection: close\r\n\r\n")
            data = b""
            while chunk := connection.recv(65536):
                data += chunk
        assert server.stop() == 0
    first, second, third, body = data.split(b"\r\n\r\n")
    assert [part.split()[1] for part in (first, second, third)] == [b"200", b"404", b"200"]
    assert body.startswith(b'{"name":"tierdex"')
    assert b"content-length: %d" % len(body) in first.lower()
