"""Target 8: the HTTP service, one worker in a process of its own, asked over loopback.

What one worker answers in a second: it is kept busy by a few connections that one process asks in
turn, on the other core. Puts go one at a time, since each of them is a batch for the disk.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import socket
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.data import TOPIC, Block
from benchmarks.embedded import tables_of
from benchmarks.measure import Row, Timings, seconds, take_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

ARROW = "application/vnd.apache.arrow.stream"
BATCH = "/v1/entries:batchGet"
LOOKUPS = 1000
CONNECTIONS = 4
BY = f"{CONNECTIONS} connections"
GET_ROUNDS = 15


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
            measure(bench, Callers(port), blocks)
        finally:
            server.terminate()
            server.wait(30)


class Callers:
    """A few kept-alive connections in turn, so that the worker never waits for a caller.

    As little client as possible, since the server is measured: the requests' bytes are made before,
    and of an answer only status and length are looked at. What is in it is checked apart from that.
    """

    def __init__(self, port: int) -> None:
        self._host = f"127.0.0.1:{port}"
        self._address = ("127.0.0.1", port)

    def request(
        self, method: str, path: str, body: bytes = b"", kind: str = "", accept: str = ""
    ) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._host}\r\n"
        if body:
            head += f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        if accept:
            head += f"accept: {accept}\r\n"
        return head.encode() + b"\r\n" + body

    def ask(self, request: bytes) -> bytes:
        """Return the body of one answer."""
        with self._connect() as connection:
            connection.sendall(request)
            return _answer(connection)

    def seconds(self, requests: list[bytes]) -> float:
        """Return how long the server takes to answer all of them."""
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self._connect()) for _ in range(CONNECTIONS)]
            turns = itertools.cycle(connections)
            begin = time.perf_counter()
            for connection, request in zip(connections, requests, strict=False):
                connection.sendall(request)
            for request in requests[CONNECTIONS:]:
                connection = next(turns)
                _answer(connection)
                connection.sendall(request)
            for _ in requests[:CONNECTIONS]:
                _answer(next(turns))
            return time.perf_counter() - begin

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(self._address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _answer(connection: socket.socket) -> bytes:
    """Return the body of the next answer, which says its length and is the last that was asked for."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _receive(connection)
    head, body = data[:end].lower(), data[end + 4 :]
    assert head.startswith(b"http/1.1 200 "), (head, body[:500])
    length = int(head.partition(b"content-length: ")[2].split(b"\r\n", 1)[0])
    if len(body) < length:
        parts, have = [body], len(body)
        while have < length:
            parts.append(_receive(connection))
            have += len(parts[-1])
        body = b"".join(parts)
    assert len(body) == length
    return body


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 20)
    assert data, "the server hung up"
    return data


def measure(bench: Bench, callers: Callers, blocks: list[Block]) -> None:
    gets(bench, callers, blocks)
    batch_gets(bench, callers, blocks)
    ingest(bench, callers)


def gets(bench: Bench, callers: Callers, blocks: list[Block]) -> None:
    keys = blocks[0].texts
    count = 2000

    def asking(key: str) -> bytes:
        return callers.request("GET", f"/v1/entries?topic={TOPIC}&key={key}")

    expected = callers.ask(asking(keys[0]))
    (entry,) = json.loads(expected)["entries"]
    assert entry["timestamp"] == blocks[0].columns["timestamp"][0]
    callers.ask(callers.request("PUT", "/empty/answer", expected, "application/json"))
    alike = callers.request("GET", f"/empty/v1/entries?topic={TOPIC}&key={keys[0]}")
    assert len(callers.ask(alike)) >= len(expected)

    def ours(number: int) -> float:
        first = number * count % (len(keys) - count)
        return count / callers.seconds([asking(key) for key in keys[first : first + count]])

    def empty(number: int) -> float:
        first = number * count % (len(keys) - count)
        paths = [
            f"/empty/v1/entries?topic={TOPIC}&key={key}" for key in keys[first : first + count]
        ]
        return count / callers.seconds([callers.request("GET", path) for path in paths])

    timings = take_turns({"ours": ours, "empty route": empty}, GET_ROUNDS)
    got, peer = timings.median("ours"), timings.median("empty route")
    name = f"GET /v1/entries, {BY}: its time over that of an empty FastAPI route declared alike"
    bench.add(Row(8, name, "req/s", got, "empty route", peer, peer / got, 1.3, "<="))


def batch_gets(bench: Bench, callers: Callers, blocks: list[Block]) -> None:
    calls = 60
    rng = np.random.default_rng(4)

    def picked() -> tuple[np.ndarray, Any]:
        rows = rng.integers(0, blocks[0].count, calls * LOOKUPS)
        return rows, blocks[0].some(rows)

    def json_requests(keys: Any) -> list[bytes]:
        texts = keys.to_pylist()
        bodies = (
            json.dumps({"lookups": [{"topic": TOPIC, "key": key} for key in part]}).encode()
            for part in (texts[i : i + LOOKUPS] for i in range(0, len(texts), LOOKUPS))
        )
        return [callers.request("POST", BATCH, body, "application/json") for body in bodies]

    def arrow_requests(keys: Any) -> list[bytes]:
        bodies = (stream_of(table) for table in tables_of(keys))
        return [callers.request("POST", BATCH, body, ARROW, ARROW) for body in bodies]

    def times_in_json(body: bytes) -> list[int]:
        return [answer["entries"][0]["timestamp"] for answer in json.loads(body)["answers"]]

    def times_in_arrow(body: bytes) -> list[int]:
        times: list[int] = pa.ipc.open_stream(body).read_all().column("timestamp").to_pylist()
        return times

    forms = {"JSON": (json_requests, times_in_json), "Arrow": (arrow_requests, times_in_arrow)}
    for make, times_of in forms.values():
        rows, keys = picked()
        for number, request in enumerate(make(keys)):
            part = rows[number * LOOKUPS : (number + 1) * LOOKUPS]
            expected = blocks[0].columns["timestamp"][part]
            assert times_of(callers.ask(request)) == expected.tolist()

    def rate_of(make: Callable[[Any], list[bytes]]) -> Callable[[int], float]:
        return lambda _round: calls * LOOKUPS / callers.seconds(make(picked()[1]))

    timings = take_turns({name: rate_of(make) for name, (make, _) in forms.items()})
    by_json, by_arrow = timings.median("JSON") / 1e6, timings.median("Arrow") / 1e6
    name = f"POST :batchGet of 1,000 keys, {BY}: JSON over Arrow"
    bench.add(Row(8, name, "M keys/s", by_json, "Arrow", by_arrow, by_json / by_arrow, 0.3, ">="))


def ingest(bench: Bench, callers: Callers) -> None:
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
        body = arrow_bodies[number % 8]
        request = callers.request("POST", "/v1/entries?durability=os", body, ARROW)
        return count / callers.seconds([request])

    def by_json(number: int) -> float:
        body = json_bodies[number % 8]
        request = callers.request("POST", "/v1/entries", body, "application/json")
        return 10_000 / callers.seconds([request])

    def loads(number: int) -> float:
        return 10_000 / seconds(partial(json.loads, json_bodies[number % 8]))

    def put(number: int) -> float:
        return count / seconds(partial(index.put_batch, **Block(300 + number, count).entries))

    with bench.folder() as folder, bench.open_index(folder) as index:
        timings = take_turns(
            {"Arrow": by_arrow, "JSON": by_json, "json.loads": loads, "put_batch": put}, 8
        )
    rates = Timings({
        name: [rate / 1e3 for rate in rounds] for name, rounds in timings.rounds.items()
    })  # fmt: skip
    name = "POST /v1/entries, "
    for form, peer, least in (("Arrow", "put_batch", 0.2), ("JSON", "json.loads", 0.2)):
        mine, theirs = rates.median(form), rates.median(peer)
        bench.add(
            Row(8, name + form, "k entries/s", mine, peer, theirs, mine / theirs, least, ">=")
        )


def stream_of(table: Any) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
