"""A real server process: started, used over a socket, stopped by a signal."""

from __future__ import annotations

import re
import signal
import socket

import orjson
import pytest

from tests.patience import PATIENCE_S
from tests.servers.forked_tierdex import run_tierdex
from tests.servers.tierdex_server import running_tierdex
from tierdex import errors
from tierdex.client.remote import Client
from tierdex.index_service.index import Index

ENTRY = {"topic": "orders", "queue_id": 0, "offset": 1, "size": 2, "timestamp": 3}


def test_acknowledged_entries_are_there_after_an_orderly_stop(tmp_path):
    with running_tierdex(tmp_path, forked=False) as server, Client(server.url) as client:
        assert client.put(**ENTRY, keys=["k"], durability="received") == "received"
        assert client.put_batch(**ENTRY, keys=[f"b{n}" for n in range(100)]) == "os"
        assert client.query("orders", key="k").entries
        with pytest.raises(errors.InvalidRequestError) as caught:
            client.put(**{**ENTRY, "offset": -1}, keys=["k"])
        assert caught.value.field == "entries[0].offset"
        assert server.stop() == 0
    requests = [line for line in server.log() if line["event"] == "request"]
    assert [line["status"] for line in requests] == [200, 200, 200, 400]
    assert server.log()[-1]["event"] == "stopped"
    with Index.open(tmp_path, read_only=True) as index:
        assert index.query("orders", key="k").entries
        assert all(index.query("orders", key=f"b{n}").entries for n in range(100))


def test_request_under_way_is_finished_while_stopping(tmp_path):
    body = orjson.dumps({"entries": [{**ENTRY, "keys": ["late"]}]})
    with running_tierdex(tmp_path) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            head = (
                f"POST /v1/entries HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body[:10])
            while not _is_serving(server):
                pass
            server.process.send_signal(signal.SIGTERM)
            connection.sendall(body[10:])
            assert b"200 OK" in connection.recv(4096)
        assert server.process.wait(timeout=PATIENCE_S) == 0
    with Index.open(tmp_path, read_only=True) as index:
        assert index.query("orders", key="late").entries


def _is_serving(server):
    with Client(server.url) as client:
        return client.topics() is not None


def test_second_server_on_the_same_folder_is_refused(tmp_path):
    with running_tierdex(tmp_path) as server:
        with running_tierdex(tmp_path) as second:
            assert second.process.wait(timeout=PATIENCE_S) == 1
        assert "pid" in "".join(second.lines)
        assert server.stop(signal.SIGINT) == 0


def test_keys_decide_once_there_are_any(tmp_path):
    with running_tierdex(tmp_path) as server:
        made = run_tierdex("keys", "create", "--scope", "read", "--data", tmp_path)
        key = made.stdout.strip()
        with Client(server.url, api_key=key) as client:
            assert client.topics() == []
            with pytest.raises(errors.PermissionDeniedError):
                client.put(**ENTRY, keys=["k"])
        with Client(server.url) as client, pytest.raises(errors.AuthenticationError):
            client.topics()
        assert server.stop() == 0
    assert key not in "".join(server.lines)


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /v1/entries HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/json\r\n\r\nZZ\r\nx\r\n0\r\n\r\n",
        b"POST /v1/entries HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /%ff%fe?%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
    ],
    ids=[
        "garbage", "huge_header", "bad_chunk", "negative_length", "nul", "not_utf8", "no_host",
        "foreign_host", "websocket",
    ],
)  # fmt: skip
def test_raw_bytes_neither_fail_nor_stop_the_server(shared_server, raw):
    host, port = shared_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass  # it did not read all that was sent, which is its right
    assert not re.match(rb"HTTP/1.1 5", answer), answer[:200]
    with Client(shared_server.url) as client:
        assert client.topics() == []


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory):
    with running_tierdex(tmp_path_factory.mktemp("server")) as server:
        yield server
        assert server.stop() == 0


LOG = {"log": True, "journal_bytes": 16 << 20}


def test_message_log_is_served_with_its_index_and_found_again_without_being_asked_for(tmp_path):
    with running_tierdex(tmp_path, **LOG) as server, Client(server.url) as client:
        assert client.append(topic="orders", queue_id=7, body=b"\x00x", keys=["k"]) == 0
        assert client.append_batch(topic="orders", queue_id=7, body=[b"y"]).offsets.tolist() == [1]
        assert [m.body for m in client.get("orders", key="k")] == [b"\x00x"]
        assert client.query("orders", key="k").entries[0].queue_id == 7
        assert server.stop() == 0
    with running_tierdex(tmp_path, journal_bytes=16 << 20) as server, Client(server.url) as client:
        assert [m.body for m in client.read("orders", 7, 0).messages] == [b"\x00x", b"y"]
        assert client.append(topic="orders", queue_id=7, body=b"z", expect_offset=2) == 2
        assert server.stop() == 0


def test_wait_for_messages_ends_when_the_service_stops(tmp_path):
    with (
        running_tierdex(tmp_path, **LOG) as server,
        socket.create_connection(server.address) as caller,
    ):
        caller.settimeout(PATIENCE_S)
        caller.sendall(
            b"GET /v1/messages?topic=a&queue_id=0&wait_ms=60000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        with Client(server.url) as client:
            waits = "tierdex_message_waits 1.0"
            while waits not in client._connected().get("/metrics").text:
                pass
        server.process.send_signal(signal.SIGTERM)
        answer = b""
        while b'"messages":[]' not in answer:
            received = caller.recv(65536)
            assert received, answer
            answer += received
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.stop() == 0
