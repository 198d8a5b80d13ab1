"""Target 3: one put and one lookup a call, beside the same stores; `embedded` has filled them."""

from __future__ import annotations

import os
import struct
import time
from typing import TYPE_CHECKING, Any

from benchmarks.data import TOPIC, Block
from benchmarks.measure import ROUNDS, seconds, take_turns
from benchmarks.peers import SHARES
from tierdex import Entry

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.embedded import Loaded
    from benchmarks.peers import Peer
    from tierdex import Durability


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
    contestants["dict, decoded"] = get_one_of_dict(loaded, count)
    timings = take_turns(contestants)
    name = "one query, local key, decoded to an entry"
    bench.add_ratio(3, name, "us", timings, "dict, decoded", 3.0)
    notes = {
        "LMDB, decoded": "both from a str to an entry; a transaction a query, as every put is seen"
    }
    for peer_name in ("RocksDB", "LMDB, decoded"):
        if peer_name in contestants:
            note = notes.get(peer_name, "")
            bench.add_ratio(3, name, "us", timings, peer_name, 1.0, ">=", note=note)
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


def get_one_of_dict(loaded: Loaded, count: int) -> Callable[[int], float]:
    """A dict of str to tuple, and the entry: what the interpreter takes for the same answer."""

    def get(_round: int) -> float:
        keys = loaded.texts(count)

        def ask() -> None:
            get_one = loaded.dict.get_one
            for key in keys:
                queue, offset, size, timestamp = get_one(key)
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

    def put(durability: Durability, share: int) -> Callable[[int], float]:
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
    contestants["dict"] = put_one_of_dict(texts)
    contestants["pwrite of 40 bytes"] = pwrite_one(loaded.folder / "pwrite", count)
    for peer in loaded.peers:
        contestants[peer.name] = put_one_of(peer, texts, number, value)
    timings = take_turns(contestants)
    for level, name, limit in (("received", "dict", 1.5), ("os", "pwrite of 40 bytes", 1.2)):
        note = (
            "a function with the same keywords" if name == "dict" else "at the end of one open file"
        )
        title = f"one put at `{level}`"
        bench.add_ratio(3, title, "us", timings, name, limit, ours=level, note=note)
    stores = [peer.name for peer in loaded.peers]
    if stores:
        best, _ = timings.best(stores)
        name = "one put at `os`, best embedded store"
        bench.add_ratio(3, name, "us", timings, best, 1.5, ">=", ours="os")
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


def put_one_of_dict(texts: list[list[str]]) -> Callable[[int], float]:
    """A function with the keywords of `Index.put` that keeps the entry in a dict."""
    store: dict[tuple[str, str], Any] = {}

    def put(
        *, topic: str, keys: list[str], queue_id: int, offset: int, size: int, timestamp: int,
        durability: str,
    ) -> str:  # fmt: skip
        for key in keys:
            store[topic, key] = (queue_id, offset, size, timestamp)
        return durability

    def measure(round_number: int) -> float:
        key_lists = [[text] for text in texts[round_number]]

        def each() -> None:
            for place, keys in enumerate(key_lists):
                put(
                    topic=TOPIC, keys=keys, queue_id=place & 7, offset=700 * place, size=512,
                    timestamp=place, durability="received",
                )  # fmt: skip

        return seconds(each) / len(key_lists) * 1e6

    return measure


def pwrite_one(path: Path, count: int) -> Callable[[int], float]:
    """One call into the system for each item: the least that another process could be sure to see."""
    item = bytes(40)

    def measure(_round: int) -> float:
        with path.open("wb") as file:
            number = file.fileno()

            def each() -> None:
                for place in range(count // 5):
                    os.pwrite(number, item, 40 * place)

            return seconds(each) / (count // 5) * 1e6

    return measure
