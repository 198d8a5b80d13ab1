"""Target 3: one put and one lookup a call, beside the same stores; `embedded` has filled them."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

from benchmarks.data import TOPIC, Block
from benchmarks.measure import ROUNDS, Row, seconds, take_turns
from benchmarks.peers import SHARES
from tierdex import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.embedded import Loaded
    from benchmarks.peers import Peer


def run(loaded: Loaded) -> None:
    single_queries(loaded)
    single_puts(loaded)


def single_queries(loaded: Loaded) -> None:
    bench, index = loaded.bench, loaded.index
    count = 10_000

    def ours(_round: int) -> float:
        keys = loaded.texts(count)

        def ask() -> None:
            for key in keys:
                index.query(TOPIC, key=key)

        return seconds(ask) / count * 1e6

    contestants: dict[str, Callable[[int], float]] = {"ours": ours}
    for peer in loaded.peers:
        contestants[peer.name] = get_one_of(peer, loaded, count, decode=False)
        if peer.name == "LMDB":
            contestants["LMDB, decoded"] = get_one_of(peer, loaded, count, decode=True)
    timings = take_turns(contestants)
    mine = timings.median("ours")
    name = "one query, local key, decoded to an entry"
    bench.add(Row(3, name, "us", mine, ratio=mine, limit=5.0))
    notes = {
        "LMDB, decoded": "both from a str to an entry; a transaction a query, as every put is seen"
    }
    for peer_name in ("RocksDB", "LMDB, decoded"):
        if peer_name in contestants:
            theirs = timings.median(peer_name)
            row = Row(3, name, "us", mine, peer_name, theirs, theirs / mine, 1.0, ">=")
            row.note = notes.get(peer_name, "")
            bench.add(row)
    bench.plots["query"] = {name: timings.median(name) for name in contestants}


def get_one_of(peer: Peer, loaded: Loaded, count: int, *, decode: bool) -> Callable[[int], float]:
    unpack = struct.Struct("<qqIi").unpack

    def get(_round: int) -> float:
        # The caller has a str: turning it into the store's bytes is part of one lookup.
        keys = loaded.texts(count, SHARES.get(peer.name, 1))

        def ask() -> None:
            for key in keys:
                value = peer.get(key.encode())
                if decode and value is not None:
                    offset, timestamp, size, queue = unpack(value)
                    Entry(TOPIC, queue, offset, size, timestamp, "file", "state", "node")

        return seconds(ask) / count * 1e6

    return get


def single_puts(loaded: Loaded) -> None:
    """One message a call, each with a new key; the levels `received` and `os`."""
    bench = loaded.bench
    index = bench.open_index(loaded.folder / "singles", background=True)
    count = 50_000 if bench.is_quick else 100_000
    texts = [Block(100 + n, count).texts for n in range(3 * ROUNDS)]
    number = iter(range(3 * ROUNDS))

    def put(durability: str, share: int) -> Callable[[int], float]:
        def measure(_round: int) -> float:
            keys = texts[next(number)][: count // share]
            entries = [
                ([key], place & 7, 700 * place, 1_700_000_000_000 + place)
                for place, key in enumerate(keys)
            ]

            def each() -> None:
                put_one = index.put
                for key_list, queue_id, offset, timestamp in entries:
                    put_one(
                        topic=TOPIC, keys=key_list, queue_id=queue_id, offset=offset, size=512,
                        timestamp=timestamp, durability=durability,
                    )  # fmt: skip

            return seconds(each) / len(keys) * 1e6

        return measure

    contestants: dict[str, Callable[[int], float]] = {
        "received": put("received", 1),
        "os": put("os", 5),
    }
    value = bytes(24)
    for peer in loaded.peers:
        contestants[peer.name] = put_one_of(peer, texts, number, value)
    timings = take_turns(contestants)
    for level, limit in (("received", 0.5), ("os", 1.5)):
        mine = timings.median(level)
        bench.add(Row(3, f"one put at `{level}`", "us", mine, ratio=mine, limit=limit))
    stores = [peer.name for peer in loaded.peers]
    if stores:
        best, theirs = timings.best(stores)
        mine = timings.median("os")
        bench.add(
            Row(3, "one put at `os`, best embedded store", "us", mine, best, theirs, theirs / mine)
        )
    bench.plots["put"] = {name: timings.median(name) for name in contestants}
    begin = time.perf_counter()
    index.close()
    assert time.perf_counter() - begin < 60


def put_one_of(
    peer: Peer, texts: list[list[str]], number: Any, value: bytes
) -> Callable[[int], float]:
    def measure(round_number: int) -> float:
        keys = [b"single-" + text.encode() for text in texts[round_number][:2000]]

        def each() -> None:
            for key in keys:
                peer.put(key, value)

        return seconds(each) / len(keys) * 1e6

    return measure
