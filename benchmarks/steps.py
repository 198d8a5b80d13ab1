"""The steps that `benchmarks.paired` times, in a process that has imported one tree's `tierdex`.

    python -P -c "..." FOLDER ITEMS        started by benchmarks/paired.py only

A line "STEP ROUND" on standard input is answered by "WALL CPU" on standard output: nanoseconds a key.
Both trees must have what is used here: the public API, the fault store, and the filter's classes.
Depends on benchmarks.bench and benchmarks.data, not on modules that name the parts of an index file.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.bench import Bench, compact_only, store_that_is_down, warm_memory
from benchmarks.data import START_MS, TOPIC, Block

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex import Durability, Index, Lookup
    from tierdex.testing.faulty_store import FaultyStore

MANY = 1000  # keys of a batch
BYTES_A_KEY = 256  # of new memory that a put of a key may want
FILTER_MODULES = ("tierdex.fileparts.filter", "tierdex.indexfile.filter")  # it moved
STEPS = (
    "put_batch", "query_batch_arrow, chained", "query_batch_arrow, compacted", "query_batch, objects",
    "compaction", "one put, received", "one put, os", "one query", "filter build", "filter query",
)  # fmt: skip


class Steps:
    """One tree's indexes, filled with the same keys as the other tree's; and one method a step.

    A step takes its round's number and returns (what to time, how many keys that is).
    """

    def __init__(self, folder: Path, items: int) -> None:
        self._bench = Bench(items / 20_000_000, folder)  # an index file then holds `items`
        self._block = Block(0, max(MANY, items // 2 // MANY * MANY))
        self._rng = np.random.default_rng(1)  # the same keys for both trees
        self._growing = self._open("put")
        self._chained = self._open("chained")
        self._chained.put_batch(**self._block.entries)
        store = store_that_is_down()
        self._compacted = self._open("compacted", store=store)
        self._compacted.put_batch(**self._block.entries)
        self._compacted.roll()
        _compact(self._compacted, store)
        self._singles = self._open("singles", background=True)
        self._compacting: list[Index] = []  # the last round's
        self._filters: Any = _filter_module()
        self._filter_of(np.arange(MANY, dtype=np.uint64))

    def _open(self, name: str, **settings: Any) -> Index:
        return self._bench.open_index(self._bench.root / name, **settings)

    def close(self) -> None:
        for index in (
            self._growing,
            self._chained,
            self._compacted,
            self._singles,
            *self._compacting,
        ):
            index.close()

    def put_batch(self, number: int) -> tuple[Callable[[], Any], int]:
        """Put a block of new keys; a file takes two of them, so every other round rolls."""
        block = Block(1 + number, self._block.count)
        entries = block.entries
        warm_memory(block.count * BYTES_A_KEY)
        return lambda: self._growing.put_batch(**entries), block.count

    def query_batch_arrow_chained(self, _round: int) -> tuple[Callable[[], Any], int]:
        return self._ask_arrow(self._chained)

    def query_batch_arrow_compacted(self, _round: int) -> tuple[Callable[[], Any], int]:
        return self._ask_arrow(self._compacted)

    def _ask_arrow(self, index: Index) -> tuple[Callable[[], Any], int]:
        topic = pa.DictionaryArray.from_arrays(np.zeros(MANY, np.int32), pa.array([TOPIC]))
        tables = [pa.table({"topic": topic, "key": self._keys(MANY)}) for _ in range(20)]

        def ask() -> None:
            for table in tables:
                assert index.query_batch_arrow(table).num_rows == MANY

        return ask, len(tables) * MANY

    def query_batch_objects(self, _round: int) -> tuple[Callable[[], Any], int]:
        batches: list[list[Lookup]] = [
            [{"topic": TOPIC, "key": key} for key in self._keys(MANY).to_pylist()] for _ in range(5)
        ]

        def ask() -> None:
            for batch in batches:
                assert all(answer.entries for answer in self._chained.query_batch(batch))

        return ask, len(batches) * MANY

    def compaction(self, number: int) -> tuple[Callable[[], Any], int]:
        """Seal and compact one file; the upload that follows fails at once."""
        for index in self._compacting:
            index.close()
        store = store_that_is_down()
        index = self._open(f"compaction-{number}", store=store)
        self._compacting = [index]
        index.put_batch(**self._block.entries)
        index.roll()

        return lambda: _compact(index, store), self._block.count

    def one_put_received(self, number: int) -> tuple[Callable[[], Any], int]:
        return self._put_singly(number, "received", 5 * MANY)

    def one_put_os(self, number: int) -> tuple[Callable[[], Any], int]:
        return self._put_singly(number, "os", MANY)

    def _put_singly(
        self, number: int, level: Durability, count: int
    ) -> tuple[Callable[[], Any], int]:
        keys = Block(5000 + number, count, letter=level[0].upper()).texts
        put = self._singles.put

        def each() -> None:
            for place, key in enumerate(keys):
                put(
                    topic=TOPIC, keys=[key], queue_id=place & 7, offset=700 * place, size=512,
                    timestamp=START_MS + place, durability=level,
                )  # fmt: skip

        return each, count

    def one_query(self, _round: int) -> tuple[Callable[[], Any], int]:
        keys = self._keys(5 * MANY).to_pylist()

        def each() -> None:
            for key in keys:
                assert self._chained.query(TOPIC, key=key).entries

        return each, len(keys)

    def filter_build(self, _round: int) -> tuple[Callable[[], Any], int]:
        hashes = self._hashes()
        return lambda: self._filter_of(hashes), len(hashes)

    def filter_query(self, _round: int) -> tuple[Callable[[], Any], int]:
        hashes = self._hashes()
        fuse, asked = self._filter_of(hashes), self._rng.permutation(hashes)
        assert fuse.may_contain_many(asked).all()  # which also verifies every partition
        return lambda: fuse.may_contain_many(asked), len(asked)

    def _keys(self, count: int) -> Any:
        return self._block.some(self._rng.integers(0, self._block.count, count))

    def _hashes(self) -> np.ndarray:
        return np.unique(self._rng.integers(0, 1 << 64, self._block.count, dtype=np.uint64))

    def _filter_of(self, hashes: np.ndarray) -> Any:
        """Return a filter of 16 bit that holds ascending `hashes`."""
        uuid = b"a paired measure"
        builder = self._filters.FilterBuilder(uuid, 16, len(hashes))
        builder.add(hashes)
        table, fingerprints = builder.finish()
        return self._filters.FuseFilter(
            table, np.concatenate(fingerprints), bits=16, uuid=uuid, path="in memory"
        )


def _compact(index: Index, store: FaultyStore) -> None:
    with store.outage():
        compact_only(index)
        assert [file.state for file in index.files()] == ["compacted"]


def _filter_module() -> Any:
    for name in FILTER_MODULES:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise SystemExit(f"none of {FILTER_MODULES} is in this tree: add where the filter is now")


def method_of(step: str) -> str:
    """Return the name of the method of a step: "one put, os" is `one_put_os`."""
    return step.replace(",", "").replace(" ", "_")


def timed(action: Callable[[], Any], count: int) -> tuple[float, float]:
    """Return nanoseconds a key by the clock, and of CPU in all of this process's threads."""
    gc.disable()
    try:
        cpu, begin = time.process_time_ns(), time.perf_counter_ns()
        action()
        wall, cpu = time.perf_counter_ns() - begin, time.process_time_ns() - cpu
    finally:
        gc.enable()
    return wall / count, cpu / count


def serve() -> None:
    """Answer one step after another, until standard input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever prints must not be taken for an answer
    with tempfile.TemporaryDirectory(prefix="tierdex-paired-", dir=sys.argv[1]) as folder:
        steps = Steps(Path(folder), int(sys.argv[2]))
        for line in chain([""], sys.stdin):
            times = (0.0, 0.0)  # the answer to nobody's question: all is filled
            if line:
                step, _, number = line.rpartition(" ")
                times = timed(*getattr(steps, method_of(step))(int(number)))
            print(*times, file=answers, flush=True)
        steps.close()
