"""Target 8: the HTTP service, one worker in a process of its own, asked over loopback."""

from __future__ import annotations

import io
import json
import socket
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.data import TOPIC, Block
from benchmarks.embedded import tables_of
from benchmarks.measure import Row, take_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

ARROW = "application/vnd.apache.arrow.stream"
LOOKUPS = 1000


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        blocks = [Block(number, bench.size(1_000_000)) for number in range(2)]
        index = bench.open_index(folder / "data")
        for block in blocks:
            index.put_batch(**block.entries)
        index.close()
        command = [sys.executable, "-m", "benchmarks.serve", str(folder / "data"), str(bench.scale)]
        with (folder / "log").open("w") as log:  # a line a request, as in earnest
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            port = int(server.stdout.readline())  # type: ignore[union-attr]
            measure(bench, Connection(port), blocks)
        finally:
            server.terminate()
            server.wait(30)


class Connection:
    """One kept-alive HTTP/1.1 connection with as little client as possible: the server is measured."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = f"127.0.0.1:{port}"

    def ask(
        self, method: str, path: str, body: bytes = b"", kind: str = "", accept: str = ""
    ) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n"
        if body:
            head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        if accept:
            head += f"accept: {accept}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + body)
        return self._answer()

    def _answer(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, body = data.split(b"\r\n\r\n", 1)
        lines = head.decode().lower().split("\r\n")
        assert " 200 " in lines[0], (lines, body[:500])
        headers = dict(line.split(": ", 1) for line in lines[1:])
        if headers.get("transfer-encoding") == "chunked":
            return self._chunks(body)
        length = int(headers["content-length"])
        parts, have = [body], len(body)
        while have < length:
            parts.append(self._receive())
            have += len(parts[-1])
        return b"".join(parts)

    def _chunks(self, data: bytes) -> bytes:
        body = b""
        while True:
            while b"\r\n" not in data:
                data += self._receive()
            size, data = data.split(b"\r\n", 1)
            length = int(size, 16)
            while len(data) < length + 2:
                data += self._receive()
            body, data = body + data[:length], data[length + 2 :]
            if not length:
                return body

    def _receive(self) -> bytes:
        data = self._socket.recv(1 << 20)
        assert data, "the server hung up"
        return data


def measure(bench: Bench, connection: Connection, blocks: list[Block]) -> None:
    gets(bench, connection, blocks)
    batch_gets(bench, connection, blocks)
    ingest(bench, connection)


def gets(bench: Bench, connection: Connection, blocks: list[Block]) -> None:
    keys = blocks[0].texts
    count = 300
    expected = connection.ask("GET", f"/v1/entries?topic={TOPIC}&key={keys[0]}")
    assert json.loads(expected)["entries"]
    connection.ask("GET", f"/bare?length={len(expected)}")

    def ask(path: Callable[[str], str]) -> Callable[[int], float]:
        def rate(number: int) -> float:
            begin = time.perf_counter()
            for key in keys[number * count : (number + 1) * count]:
                connection.ask("GET", path(key))
            return count / (time.perf_counter() - begin)

        return rate

    timings = take_turns({
        "ours": ask(lambda key: f"/v1/entries?topic={TOPIC}&key={key}"),
        "bare route": ask(lambda key: "/bare"),
    })  # fmt: skip
    ours, bare = timings.median("ours"), timings.median("bare route")
    bench.add(Row(8, "GET /v1/entries", "req/s", ours, "bare route", bare, ours / bare, 0.6, ">="))


def batch_gets(bench: Bench, connection: Connection, blocks: list[Block]) -> None:
    calls = 20
    rng = np.random.default_rng(4)

    def picked() -> Any:
        return blocks[0].some(rng.integers(0, blocks[0].count, calls * LOOKUPS))

    def by_json(_round: int) -> float:
        keys = picked().to_pylist()
        bodies = [
            json.dumps({"lookups": [{"topic": TOPIC, "key": key} for key in part]}).encode()
            for part in (keys[i : i + LOOKUPS] for i in range(0, len(keys), LOOKUPS))
        ]
        begin = time.perf_counter()
        for body in bodies:
            connection.ask("POST", "/v1/entries:batchGet", body, "application/json")
        return calls * LOOKUPS / (time.perf_counter() - begin)

    def by_arrow(_round: int) -> float:
        bodies = [stream_of(table) for table in tables_of(picked())]
        begin = time.perf_counter()
        for body in bodies:
            connection.ask("POST", "/v1/entries:batchGet", body, ARROW, ARROW)
        return calls * LOOKUPS / (time.perf_counter() - begin)

    timings = take_turns({"JSON": by_json, "Arrow": by_arrow})
    for name, limit in (("JSON", 0.7), ("Arrow", 2.5)):
        rate = timings.median(name) / 1e6
        bench.add(
            Row(
                8,
                f"POST :batchGet of 1,000 keys, {name}",
                "M keys/s",
                rate,
                ratio=rate,
                limit=limit,
                better=">=",
            )
        )


def ingest(bench: Bench, connection: Connection) -> None:
    count = 100_000
    arrow_bodies, json_bodies = [], []
    for number in range(8):
        block = Block(300 + number, count)
        table = pa.table({
            "topic": pa.array([TOPIC] * count).dictionary_encode(), "key": block.keys, **block.columns,
        })  # fmt: skip
        arrow_bodies.append(stream_of(table))
        few = table.slice(0, 10_000).to_pylist()
        entries = [
            {**{k: v for k, v in row.items() if k != "key"}, "keys": [row["key"]]} for row in few
        ]
        json_bodies.append(json.dumps({"entries": entries}).encode())

    def by_arrow(number: int) -> float:
        begin = time.perf_counter()
        connection.ask("POST", "/v1/entries?durability=os", arrow_bodies[number % 8], ARROW)
        return count / (time.perf_counter() - begin)

    def by_json(number: int) -> float:
        begin = time.perf_counter()
        connection.ask("POST", "/v1/entries", json_bodies[number % 8], "application/json")
        return 10_000 / (time.perf_counter() - begin)

    timings = take_turns({"Arrow": by_arrow, "JSON": by_json}, 8)
    for name, limit in (("Arrow", 1000.0), ("JSON", 150.0)):
        rate = statistics.median(timings.rounds[name]) / 1e3
        bench.add(
            Row(
                8,
                f"POST /v1/entries, {name}",
                "k entries/s",
                rate,
                ratio=rate,
                limit=limit,
                better=">=",
            )
        )


def stream_of(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
