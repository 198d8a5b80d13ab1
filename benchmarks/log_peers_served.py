"""Redis Streams and NATS JetStream over loopback, beside the message log's HTTP door.

As little client as possible on every side: bytes that were made before, over plain sockets, and answers that
are counted. `n` in flight are `n` connections that each wait for one answer.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.log_peers_java import PeerUnavailableError
from tools.debian import has_programs
from tools.free_port import find_free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_START_S = 60.0
_ARROW = "application/vnd.apache.arrow.stream"


@contextlib.contextmanager
def running(command: list[str], port: int, executable: str | None = None) -> Iterator[None]:
    """Run a server until the block ends; wait until it answers. Raises PeerUnavailableError."""
    process = subprocess.Popen(
        command, executable=executable, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        give_up = time.monotonic() + _START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > give_up:
                    raise PeerUnavailableError(f"{command[0]} does not start") from None
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait()


class Served:
    """A server that answers one append with bytes that hold `mark` once, at their end or before."""

    mark: bytes

    def __init__(self, port: int) -> None:
        self._port = port

    def greet(self, connection: socket.socket) -> None:
        """Say what a connection begins with."""

    def one(self, body: bytes) -> bytes:
        raise NotImplementedError

    def many(self, bodies: list[bytes]) -> tuple[bytes, int]:
        """Return the bytes that append all bodies, and how many marks answer them."""
        return b"".join(map(self.one, bodies)), len(bodies)

    def single(self, in_flight: int, count: int, size: int) -> float:
        """Return the seconds of one append, `in_flight` connections waiting for one each."""
        request = self.one(b"x" * size)
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self.connected()) for _ in range(in_flight)]
            began = time.perf_counter()
            for connection in connections:
                connection.sendall(request)
            for number in range(count):
                connection = connections[number % in_flight]
                self.await_marks(connection, 1)
                if number < count - in_flight:
                    connection.sendall(request)
            return (time.perf_counter() - began) / count

    def batch(self, calls: int, messages: int, size: int) -> float:
        """Return the seconds of one message, so many sent at once and then waited for."""
        request, marks = self.many([b"x" * size] * messages)
        with self.connected() as connection:
            began = time.perf_counter()
            for _ in range(calls):
                connection.sendall(request)
                self.await_marks(connection, marks)
            return (time.perf_counter() - began) / (calls * messages)

    @contextlib.contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.greet(connection)
            yield connection

    def await_marks(self, connection: socket.socket, count: int) -> None:
        rest = b""
        while count > 0:
            data = connection.recv(1 << 18)
            assert data, "the server hung up"
            text = rest + data
            count -= text.count(self.mark)
            rest = text[text.rfind(self.mark) + len(self.mark) :][-len(self.mark) + 1 :]


class OurDoor(Served):
    """The message log over HTTP: JSON for one message, Arrow for many."""

    mark = b'"durability":"disk"'

    def one(self, body: bytes) -> bytes:
        message = {"topic": "bench", "queue_id": 0, "body": body.decode()}
        return self._post(json.dumps({"messages": [message]}).encode(), "application/json")

    def many(self, bodies: list[bytes]) -> tuple[bytes, int]:
        count = len(bodies)
        table = pa.table({
            "topic": pa.array(["bench"] * count).dictionary_encode(),
            "queue_id": pa.array([0] * count, pa.int32()),
            "body": pa.array(bodies, pa.binary()),
        })  # fmt: skip
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return self._post(sink.getvalue(), _ARROW), 1

    def _post(self, body: bytes, kind: str) -> bytes:
        head = (
            f"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path) -> Iterator[OurDoor]:
        port = find_free_port()
        command = [
            sys.executable, "-m", "tierdex.app.cli", "serve", "--port", str(port), "--data", str(folder),
            "--set", "log=true", "--set", "log_requests=false",
        ]  # fmt: skip
        with running(command, port):
            yield cls(port)


class Redis(Served):
    """Redis Streams: XADD, `appendfsync always` where each append is to be durable, else `everysec`."""

    mark = b"\n"

    def one(self, body: bytes) -> bytes:
        return _resp(b"XADD", b"bench", b"*", b"b", body)

    def await_marks(self, connection: socket.socket, count: int) -> None:
        """Count answers: each is two lines, the length of an ID and the ID."""
        lines = 2 * count
        while lines > 0:
            data = connection.recv(1 << 18)
            assert data, "the server hung up"
            assert b"-ERR" not in data, data[:200]
            lines -= data.count(b"\n")

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path, *, sync: bool) -> Iterator[Redis]:
        # The tools have the server's program under another name, and start no service.
        if not has_programs(["redis-check-rdb"], ["redis-tools"]):
            raise PeerUnavailableError("Debian's redis-tools cannot be installed here")
        folder.mkdir(parents=True)
        port = find_free_port()
        command = [
            "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
            "--appendonly", "yes", "--appendfsync", "always" if sync else "everysec",
        ]  # fmt: skip
        with running(command, port, shutil.which("redis-check-rdb")):
            yield cls(port)


def _resp(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Nats(Served):
    """NATS JetStream, files, one replica: acknowledged once written; it syncs every two minutes."""

    mark = b'"seq":'

    def greet(self, connection: socket.socket) -> None:
        stream = json.dumps(
            {"name": "bench", "subjects": ["bench"], "storage": "file", "num_replicas": 1}
        ).encode()
        connection.sendall(
            b'CONNECT {"verbose":false}\r\nSUB inbox 1\r\n'
            b"PUB $JS.API.STREAM.CREATE.bench inbox %d\r\n%s\r\n" % (len(stream), stream)
        )
        data = b""
        while b"\r\n" not in data.partition(b"MSG inbox")[2].partition(b"\r\n")[2]:
            data += connection.recv(1 << 16)

    def one(self, body: bytes) -> bytes:
        return b"PUB bench inbox %d\r\n%s\r\n" % (len(body), body)

    @classmethod
    @contextlib.contextmanager
    def open(cls, folder: Path) -> Iterator[Nats]:
        if not has_programs(["nats-server"], ["nats-server"]):
            raise PeerUnavailableError("Debian's nats-server cannot be installed here")
        port = find_free_port()
        command = [
            "nats-server", "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder),
        ]  # fmt: skip
        with running(command, port):
            yield cls(port)
