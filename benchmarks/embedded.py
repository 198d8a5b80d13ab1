"""Targets 1 and 2: many at a time, side by side with the stores that one would otherwise embed.

One run loads everything once, in rounds; the same files and stores then answer the lookups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks import singles
from benchmarks.bench import compact_only, newest_file, store_that_is_down, warm_memory
from benchmarks.data import TOPIC, Block
from benchmarks.floor import FloorTable, floor_get, floor_get_compacted, load_floor
from benchmarks.measure import Row, seconds, take_turns
from benchmarks.peers import SHARES, InMemory, Lmdb, open_peers
from tierdex.filesystem import LocalFileSystem
from tierdex.indexfile.chained.file import ChainedFile
from tierdex.indexfile.hashing import topic_seed
from tierdex.indexfile.schema import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench
    from benchmarks.measure import Timings
    from benchmarks.peers import Peer
    from tierdex import Lookup

NS = 1e9
MANY = 1000
BLOCKS = 10
_BYTES_A_KEY = 256  # of new memory that any contestant may want while it puts a key


class Loaded:
    """Everybody, filled with the same keys."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        self.folder = folder
        self.library = load_floor()
        self.blocks = [Block(number, bench.size(1_000_000)) for number in range(BLOCKS)]
        self.index = bench.open_index(folder / "ours")
        self.peers: list[Peer] = open_peers(folder)
        self.dict = InMemory()
        self.seed = topic_seed(TOPIC)
        self.rng = np.random.default_rng(11)
        self.floor_file = ChainedFile.create(
            LocalFileSystem(), folder / "floor", uuid=b"the floor's file", schema=MESSAGE_SCHEMA,
            slot_count=bench.size(5_000_000), item_capacity=bench.size(20_000_000), created_ms=0,
        )  # fmt: skip
        self.floor: FloorTable | None = None
        if self.library is not None:
            self.floor = FloorTable(self.library, self.floor_file, self.seed)

    def pick(self, count: int, share: int = 1) -> list[tuple[int, np.ndarray]]:
        """Return (block, rows) of random keys that a store with such a share has been given."""
        block = self.rng.integers(0, BLOCKS, count)
        row = self.rng.integers(0, self.blocks[0].count // share, count)
        return [(number, row[block == number]) for number in range(BLOCKS)]

    def arrow_keys(self, count: int) -> Any:
        parts = [self.blocks[number].some(rows) for number, rows in self.pick(count)]
        keys = pa.concat_arrays(parts)
        return keys.take(pa.array(self.rng.permutation(len(keys))))

    def texts(self, count: int, share: int = 1) -> list[str]:
        picked = self.pick(count, share)
        texts = [self.blocks[number].texts[row] for number, rows in picked for row in rows.tolist()]
        self.rng.shuffle(texts)
        return texts

    def close(self) -> None:
        self.index.close()
        self.floor_file.close()
        for peer in self.peers:
            peer.close()


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        warm_up(bench, folder)
        loaded = Loaded(bench, folder)
        try:
            put_batch(loaded)
            query_batch(loaded)
            singles.run(loaded)
        finally:
            loaded.close()
    with bench.folder() as folder:
        query_compacted(bench, folder)


def warm_up(bench: Bench, folder: Path) -> None:
    """Compile (or load) every kernel on a small index, and compare the floor's rows with ours."""
    block = Block(0, 20_000)
    index = bench.open_index(folder / "warm", slot_count=5000, item_capacity=50_000)
    index.put_batch(**block.entries)
    table = pa.table(
        {"topic": pa.array([TOPIC] * 100).dictionary_encode(), "key": block.keys[:100]}
    )
    assert index.query_batch_arrow(table).num_rows == 100
    assert index.query_batch([{"topic": TOPIC, "key": block.texts[0]}])[0].entries
    assert index.query(TOPIC, key=block.texts[0]).entries
    library = load_floor()
    if library is not None:
        file: Any = newest_file(index).reader
        found = floor_get(library, file, block.keys, topic_seed(TOPIC), file.tag_of(TOPIC, 0))
        assert np.array_equal(found.offset, block.columns["offset"])
    index.put(topic=TOPIC, keys=["one"], queue_id=0, offset=0, size=1, timestamp=0, durability="os")
    index.close()


# -- target 1 ---------------------------------------------------------------------------------------


def put_batch(loaded: Loaded) -> None:
    bench, blocks = loaded.bench, loaded.blocks
    contestants: dict[str, Callable[[int], float]] = {
        "ours": lambda n: per_key(blocks[n], lambda: loaded.index.put_batch(**blocks[n].entries)),
        "dict": lambda n: per_key(blocks[n], lambda: loaded.dict.put_many(blocks[n])),
    }
    if loaded.floor is not None:
        table = loaded.floor
        contestants["C floor"] = lambda n: per_key(
            blocks[n], lambda: table.put(blocks[n].keys, blocks[n].columns)
        )
    for peer in loaded.peers:
        contestants[peer.name] = put_many_of(peer, blocks)
    for block in blocks:  # nobody pays for making the data
        _ = block.keys, block.columns, block.raw_keys, block.raw_values, block.texts, block.tuples
    timings = take_turns(contestants, BLOCKS)
    ours = timings.median("ours")
    for name, limit, better in (("C floor", 1.4, "<="), ("dict", 8.0, ">=")):
        bench.add_ratio(1, "put_batch, Arrow keys", "ns/key", timings, name, limit, better)
    stores = [peer.name for peer in loaded.peers]
    if stores:
        name, best = timings.best(stores)
        row = Row(
            1, "put_batch, best embedded store", "ns/key", ours, name, best, best / ours, 30.0, ">="
        )
        row.note = ", ".join(f"{each} {timings.median(each):.0f}" for each in stores)
        bench.add(row)
    bench.plots["put_batch"] = {name: timings.median(name) for name in contestants}


def put_many_of(peer: Peer, blocks: list[Block]) -> Callable[[int], float]:
    def put(number: int) -> float:
        block = blocks[number]
        if peer.name in SHARES:
            block = first_part(block, block.count // SHARES[peer.name])
        return per_key(block, lambda: peer.put_many(block))

    return put


def first_part(block: Block, count: int) -> Block:
    """Return the first `count` entries of a block as a block whose bytes are made already."""
    part = Block(block.number, count)
    part.__dict__["raw_keys"] = block.raw_keys[:count]
    part.__dict__["raw_values"] = block.raw_values[:count]
    return part


def per_key(block: Block, action: Callable[[], Any]) -> float:
    """Return the nanoseconds a key of putting a block, into memory that the machine really has."""
    warm_memory(block.count * _BYTES_A_KEY)
    return seconds(action) / block.count * NS


# -- target 2 ---------------------------------------------------------------------------------------


def query_batch(loaded: Loaded) -> None:
    bench, index = loaded.bench, loaded.index
    file: Any = newest_file(index).reader
    tag = file.tag_of(TOPIC, 0)
    calls = 50 if bench.is_quick else 100
    few = 10

    def ours(_round: int) -> float:
        tables = tables_of(loaded.arrow_keys(calls * MANY))
        found = 0

        def ask() -> None:
            nonlocal found
            for table in tables:
                found += index.query_batch_arrow(table).num_rows

        taken = seconds(ask)
        assert found == calls * MANY, found
        return taken / (calls * MANY) * NS

    contestants: dict[str, Callable[[int], float]] = {"ours": ours}
    library = loaded.library
    if library is not None:

        def floor(_round: int) -> float:
            keys = loaded.arrow_keys(calls * MANY)
            parts = [keys[i : i + MANY] for i in range(0, len(keys), MANY)]
            return (
                seconds(lambda: [floor_get(library, file, p, loaded.seed, tag) for p in parts])
                / len(keys)
                * NS
            )

        contestants["C floor"] = floor
    for peer in loaded.peers:
        contestants[peer.name] = get_many_of(peer, loaded, few)

    def plain(_round: int) -> float:
        lookups: list[Lookup] = [{"topic": TOPIC, "key": key} for key in loaded.texts(few * MANY)]
        parts = [lookups[i : i + MANY] for i in range(0, len(lookups), MANY)]
        return seconds(lambda: [index.query_batch(part) for part in parts]) / len(lookups) * NS

    def absent(_round: int) -> float:
        other = Block(0, loaded.blocks[0].count, letter="Z")
        tables = tables_of(other.some(loaded.rng.integers(0, other.count, few * MANY)))
        return seconds(lambda: [index.query_batch_arrow(t) for t in tables]) / (few * MANY) * NS

    contestants["ours, Python objects"] = plain
    contestants["ours, absent keys"] = absent
    for peer in loaded.peers:
        if isinstance(peer, Lmdb):
            contestants["LMDB, columns"] = get_columns_of(peer, loaded, few)
            contestants["LMDB, entries"] = get_entries_of(peer, loaded, few)
    timings = take_turns(contestants)
    name = "query_batch_arrow, 1,000 a call, chained"
    bench.add_ratio(2, name, "ns/key", timings, "C floor", 2.0)
    stores = [peer.name for peer in loaded.peers]
    if stores:
        best, theirs = timings.best(stores)
        note = "bytes out: " + ", ".join(f"{each} {timings.median(each):.0f}" for each in stores)
        if "LMDB, columns" in contestants and best == "LMDB":
            best, theirs = "LMDB, columns", timings.median("LMDB, columns")
            note = f"Arrow in, columns of integers out, both; {note}"
        mine = timings.median("ours")
        row = Row(2, name, "ns/key", mine, best, theirs, theirs / mine, 20.0, ">=", note)
        bench.add(row)
    add_objects(bench, timings)
    bench.add(
        Row(2, "query_batch_arrow, absent keys", "ns/key", timings.median("ours, absent keys"))
    )
    bench.plots["query_batch"] = {name: timings.median(name) for name in contestants}


def add_objects(bench: Bench, timings: Timings) -> None:
    """Add the row of `query_batch`, beside LMDB when it is there."""
    row = Row(2, "query_batch, Python objects", "ns/key", timings.median("ours, Python objects"))
    if "LMDB, entries" in timings.rounds and row.ours is not None:
        row.peer_name, row.peer = "LMDB, entries", timings.median("LMDB, entries")
        row.ratio = row.peer / row.ours
        row.note = "dicts in, answers out; LMDB: texts in, entries out"
    bench.add(row)


def tables_of(keys: Any) -> list[Any]:
    """Return tables of 1,000 lookups each."""
    topic = pa.DictionaryArray.from_arrays(np.zeros(MANY, np.int32), pa.array([TOPIC]))
    starts = range(0, len(keys), MANY)
    return [pa.table({"topic": topic, "key": keys[i : i + MANY]}) for i in starts]


def get_many_of(peer: Peer, loaded: Loaded, calls: int) -> Callable[[int], float]:
    def get(_round: int) -> float:
        count = calls * MANY
        keys = [text.encode() for text in loaded.texts(count, SHARES.get(peer.name, 1))]
        parts = [keys[i : i + MANY] for i in range(0, count, MANY)]
        return seconds(lambda: [peer.get_many(part) for part in parts]) / count * NS

    return get


def get_columns_of(lmdb: Lmdb, loaded: Loaded, calls: int) -> Callable[[int], float]:
    def get(_round: int) -> float:
        keys = loaded.arrow_keys(calls * MANY)
        parts = [keys[i : i + MANY] for i in range(0, len(keys), MANY)]
        return seconds(lambda: [lmdb.get_table(part) for part in parts]) / len(keys) * NS

    return get


def get_entries_of(lmdb: Lmdb, loaded: Loaded, calls: int) -> Callable[[int], float]:
    def get(_round: int) -> float:
        texts = loaded.texts(calls * MANY)
        parts = [texts[i : i + MANY] for i in range(0, len(texts), MANY)]
        return seconds(lambda: [lmdb.get_entries(part) for part in parts]) / len(texts) * NS

    return get


def query_compacted(bench: Bench, folder: Path) -> None:
    """A compacted file that lies here, all of its pages verified before."""
    library = load_floor()
    store = store_that_is_down()
    index = bench.open_index(folder / "compacted", store=store)
    blocks = [Block(number, bench.size(1_000_000)) for number in range(BLOCKS)]
    for block in blocks:
        index.put_batch(**block.entries)
    index.roll()
    with store.outage():
        compact_only(index)
    file: Any = newest_file(index).reader
    rng = np.random.default_rng(5)
    for block in blocks:  # first use: every page is verified
        for table in tables_of(block.keys)[: block.count // MANY]:
            index.query_batch_arrow(table)
    calls = 50

    def some() -> Any:
        parts = [
            block.some(rng.integers(0, block.count, calls * MANY // BLOCKS)) for block in blocks
        ]
        keys = pa.concat_arrays(parts)
        return keys.take(pa.array(rng.permutation(len(keys))))

    def ours(_round: int) -> float:
        tables = tables_of(some())
        return seconds(lambda: [index.query_batch_arrow(t) for t in tables]) / (calls * MANY) * NS

    contestants: dict[str, Callable[[int], float]] = {"ours": ours}
    if library is not None:
        seed, tag = topic_seed(TOPIC), file.tag_of(TOPIC, 0)

        def floor(_round: int) -> float:
            keys = some()
            parts = [keys[i : i + MANY] for i in range(0, len(keys), MANY)]
            found = 0

            def ask() -> None:
                nonlocal found
                for part in parts:
                    found += floor_get_compacted(library, file, part, seed, tag)[0]

            taken = seconds(ask)
            assert found == len(keys), (found, len(keys))
            return taken / len(keys) * NS

        contestants["C floor"] = floor
    timings = take_turns(contestants)
    name = "query_batch_arrow, compacted, pages verified"
    bench.add_ratio(2, name, "ns/key", timings, "C floor", 4.0)
    with store.outage():
        index.close()
