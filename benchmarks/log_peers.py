"""The message log beside other logs and queues, in the same rounds, over the same file system.

Embedded: SQLite (WAL) and LMDB as queues, RocketMQ's message store and Kafka's log (log_peers_java). Over
loopback: Redis Streams and NATS JetStream beside the HTTP door (log_peers_served). Each row names the level
that its contestants acknowledge: *durable* is synced, *written* survives the process and no power cut. A peer
that offers another level than the row's is named with its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import struct
import time
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from benchmarks.log_peers_java import JavaLog, PeerUnavailableError, build
from benchmarks.log_peers_served import Nats, OurDoor, Redis
from benchmarks.measure import Row, take_turns
from tierdex import MessageLog

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from benchmarks.bench import Bench
    from benchmarks.measure import Timings
    from tierdex import Durability

TARGET = 13
SIZE = 150  # bytes of a body
TOPIC = "bench"
ROUNDS = 5
READ = 10
CALL = 1000  # messages of a batch
_KEY = struct.Struct(">IQ")


class Queues(Protocol):
    """A log of many queues. Each verb returns seconds of one append, one message, one read."""

    def single(self, in_flight: int, count: int, size: int) -> float: ...
    def batch(self, calls: int, messages: int, size: int) -> float: ...
    def tail(self, reads: int) -> float: ...
    def close(self) -> None: ...


class Ours:
    """`MessageLog`: coroutines wait for the disk, batches go to the queues in turn."""

    def __init__(self, folder: Path, queues: int, *, sync: bool) -> None:
        self._log = MessageLog.open(folder, index=False)
        self._queues = queues
        self._durability: Durability = "disk" if sync else "os"

    def single(self, in_flight: int, count: int, size: int) -> float:
        body, log = b"x" * size, self._log
        if in_flight == 1:
            began = time.perf_counter()
            for number in range(count):
                log.append(topic=TOPIC, queue_id=number % self._queues, body=body)
            return (time.perf_counter() - began) / count
        began = time.perf_counter()
        asyncio.run(self._together(in_flight, count, body))
        return (time.perf_counter() - began) / count

    async def _together(self, in_flight: int, count: int, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        futures: dict[Any, asyncio.Future[None]] = {}

        def settle(commit: Any) -> None:
            futures.pop(commit).set_result(None)

        async def append(first: int) -> None:
            for number in range(first, count, in_flight):
                pending = self._log.append_nowait(
                    topic=TOPIC, queue_id=number % self._queues, body=body
                )
                future = futures.get(pending.commit)
                if future is None:
                    future = futures[pending.commit] = loop.create_future()
                    pending.commit.add_callback(
                        pending.level, lambda commit: loop.call_soon_threadsafe(settle, commit)
                    )
                await future
                pending.commit.raise_error(pending.level)

        await asyncio.gather(*(append(first) for first in range(in_flight)))

    def batch(self, calls: int, messages: int, size: int) -> float:
        body = pa.array([b"x" * size] * messages, pa.binary())
        began = time.perf_counter()
        for call in range(calls):
            ids = ((np.arange(messages) + call * messages) % self._queues).astype(np.int32)
            self._log.append_batch(
                topic=TOPIC, queue_id=ids, body=body, durability=self._durability
            )
        return (time.perf_counter() - began) / (calls * messages)

    def tail(self, reads: int) -> float:
        ends = [self._log.end_offset(TOPIC, q % self._queues, level="os") for q in range(reads)]
        began = time.perf_counter()
        for queue, end in enumerate(ends):
            self._log.read(
                TOPIC, queue % self._queues, max(0, end - READ), max_count=READ, visible="os"
            )
        return (time.perf_counter() - began) / reads

    def close(self) -> None:
        self._log.close()


class Sqlite:
    """A table by (queue, offset), in WAL mode: `synchronous=FULL` where commits are to be durable."""

    def __init__(self, folder: Path, queues: int, *, sync: bool) -> None:
        folder.mkdir(parents=True)
        self._store = sqlite3.connect(folder / "queues.db", isolation_level=None)
        self._store.execute("PRAGMA journal_mode=WAL")
        self._store.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
        self._store.execute(
            "CREATE TABLE messages (queue INTEGER, place INTEGER, body BLOB, PRIMARY KEY (queue, place)) "
            "WITHOUT ROWID"
        )
        self._queues = queues
        self._next = [0] * queues

    def _row(self, number: int, body: bytes) -> tuple[int, int, bytes]:
        queue = number % self._queues
        self._next[queue] += 1
        return queue, self._next[queue] - 1, body

    def single(self, in_flight: int, count: int, size: int) -> float:
        assert in_flight == 1  # one writer at a time: more of them wait for each other
        began = time.perf_counter()
        for number in range(count):
            self._store.execute(
                "INSERT INTO messages VALUES (?, ?, ?)", self._row(number, b"x" * size)
            )
        return (time.perf_counter() - began) / count

    def batch(self, calls: int, messages: int, size: int) -> float:
        body, number = b"x" * size, 0
        began = time.perf_counter()
        for _ in range(calls):
            rows = [self._row(number + place, body) for place in range(messages)]
            number += messages
            self._store.execute("BEGIN")
            self._store.executemany("INSERT INTO messages VALUES (?, ?, ?)", rows)
            self._store.execute("COMMIT")
        return (time.perf_counter() - began) / (calls * messages)

    def tail(self, reads: int) -> float:
        began = time.perf_counter()
        for queue in range(reads):
            self._store.execute(
                "SELECT place, body FROM messages WHERE queue = ? ORDER BY place DESC LIMIT ?",
                (queue % self._queues, READ),
            ).fetchall()
        return (time.perf_counter() - began) / reads

    def close(self) -> None:
        self._store.close()


class Lmdb:
    """Keys of queue and offset; a transaction an append, or a batch; synced where it is to be durable."""

    def __init__(self, folder: Path, queues: int, *, sync: bool) -> None:
        import lmdb

        folder.mkdir(parents=True)
        self._store = lmdb.open(
            str(folder), map_size=32 << 30, sync=sync, metasync=sync, writemap=not sync
        )
        self._queues = queues
        self._next = [0] * queues

    def _key(self, number: int) -> bytes:
        queue = number % self._queues
        self._next[queue] += 1
        return _KEY.pack(queue, self._next[queue] - 1)

    def single(self, in_flight: int, count: int, size: int) -> float:
        assert in_flight == 1  # one writer at a time
        began = time.perf_counter()
        for number in range(count):
            with self._store.begin(write=True) as transaction:
                transaction.put(self._key(number), b"x" * size)
        return (time.perf_counter() - began) / count

    def batch(self, calls: int, messages: int, size: int) -> float:
        body, number = b"x" * size, 0
        began = time.perf_counter()
        for _ in range(calls):
            rows = [(self._key(number + place), body) for place in range(messages)]
            number += messages
            with self._store.begin(write=True) as transaction, transaction.cursor() as cursor:
                cursor.putmulti(rows)
        return (time.perf_counter() - began) / (calls * messages)

    def tail(self, reads: int) -> float:
        began = time.perf_counter()
        for queue in range(reads):
            with self._store.begin() as transaction, transaction.cursor() as cursor:
                place = max(0, self._next[queue % self._queues] - READ)
                cursor.set_range(_KEY.pack(queue % self._queues, place))
                for _, _body in zip(range(READ), cursor.iternext(), strict=False):
                    pass
        return (time.perf_counter() - began) / reads

    def close(self) -> None:
        self._store.close()


def run(bench: Bench) -> None:
    try:
        class_path = build()
    except PeerUnavailableError as error:
        class_path = ""
        bench.skip("RocketMQ's store and Kafka's log", str(error))
    durable(bench, class_path)
    for queues in (1_000, 100_000):
        written(bench, class_path, queues)
    over_loopback(bench)


def _opened(
    bench: Bench, stack: ExitStack, class_path: str, queues: int, *, sync: bool
) -> dict[str, Queues]:
    """Open every contestant that can run here; ours is the first."""
    folder = stack.enter_context(bench.folder())
    makers: dict[str, Callable[[], Queues]] = {
        "ours": lambda: Ours(folder / "ours", queues, sync=sync),
        "SQLite": lambda: Sqlite(folder / "sqlite", queues, sync=sync),
        "LMDB": lambda: Lmdb(folder / "lmdb", queues, sync=sync),
    }
    if class_path:
        # RocketMQ maps a file a queue, and the system allows 65,530 mappings: its other store is for more.
        kind = "rocketmq" if queues <= 1_000 else "rocketmq-rocksdb"
        makers["RocketMQ"] = lambda: JavaLog(
            class_path, kind, folder / "rocketmq", queues, sync=sync
        )
        if queues <= 1_000:  # three files a queue, two of them mapped
            makers["Kafka"] = lambda: JavaLog(
                class_path, "kafka", folder / "kafka", queues, sync=sync
            )
    found: dict[str, Queues] = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except (PeerUnavailableError, ImportError) as error:
            bench.skip(f"{name}, {queues:,} queues", str(error))
        else:
            stack.callback(found[name].close)
    return found


def durable(bench: Bench, class_path: str) -> None:
    """Single appends that are synced before they are acknowledged."""
    with contextlib.ExitStack() as stack:
        peers = _opened(bench, stack, class_path, 1_000, sync=True)
        for in_flight in (1, 16, 64):
            count = bench.size(200) * in_flight
            # one writer at a time, and no commit that several share: more in flight change nothing
            kept = (
                peers
                if in_flight == 1
                else {n: p for n, p in peers.items() if n not in ("SQLite", "LMDB")}
            )
            name = f"append {SIZE} B, durable, {in_flight} in flight"
            _compare(bench, name, kept, lambda peer, n=in_flight, c=count: peer.single(n, c, SIZE))


def written(bench: Bench, class_path: str, queues: int) -> None:
    """Batches that are written and not synced, then reads at the end of queues."""
    with contextlib.ExitStack() as stack:
        peers = _opened(bench, stack, class_path, queues, sync=False)
        calls = bench.size(100)
        _compare(
            bench, f"{CALL} messages of {SIZE} B a call, written, {queues:,} queues", peers,
            lambda peer: peer.batch(calls, CALL, SIZE),
        )  # fmt: skip
        _compare(
            bench, f"read {READ} at the end, {queues:,} queues", peers,
            lambda peer: peer.tail(bench.size(2_000)),
        )  # fmt: skip


def over_loopback(bench: Bench) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(bench.folder())
        makers: dict[str, Callable[[], Any]] = {
            "ours": lambda: OurDoor.open(folder / "ours"),
            "Redis": lambda: Redis.open(folder / "redis", sync=True),
            "NATS (written only)": lambda: Nats.open(folder / "nats"),
        }
        peers = {}
        for name, make in makers.items():
            try:
                peers[name] = stack.enter_context(make())
            except PeerUnavailableError as error:
                bench.skip(name, str(error))
        for in_flight in (1, 16, 64):
            count = bench.size(200) * in_flight
            name = f"append {SIZE} B over loopback, durable, {in_flight} in flight"
            _compare(bench, name, peers, lambda peer, n=in_flight, c=count: peer.single(n, c, SIZE))
        _compare(
            bench, f"{10 * CALL} messages of {SIZE} B at once over loopback, durable", peers,
            lambda peer: peer.batch(2, 10 * CALL, SIZE),
        )  # fmt: skip


def _compare(
    bench: Bench, name: str, peers: dict[str, Any], measure: Callable[[Any], float]
) -> None:
    """Measure in turns; add a row for each peer: its time beside ours."""
    for peer in peers.values():
        measure(peer)  # compiles, fills caches
    turns = {each: lambda _round, peer=peer: measure(peer) for each, peer in peers.items()}
    timings: Timings = take_turns(turns, rounds=ROUNDS)
    ours = timings.median("ours") * 1e6
    for each in timings.rounds:
        if each != "ours":
            theirs = timings.median(each) * 1e6
            bench.add(Row(TARGET, name, "us", ours, each, theirs, ours / theirs, better=""))
