"""Target 9: opening a node that has published a thousand files, a reader of ten thousand, a query in a
process of its own, and recovering a full unsealed file.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import readers
from benchmarks.data import START_MS, TOPIC, Block
from benchmarks.measure import ROUNDS, Row, seconds, take_turns
from benchmarks.memory import anonymous_bytes, release_unused
from tierdex import Index, MessageLog
from tierdex.clock import SystemClock
from tierdex.ids import SystemIds
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.manifests.file_row import FileRow
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.nodes.shared_node import SharedNode
from tierdex.lifecycle.topic_set import topic_set
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex.storage_layer.base import Store

FILE_ITEMS = 20_000_000
FILE_BYTES = FILE_ITEMS * 15
MIB = 1 << 20
# pandas, which Spark brings into this environment, would be imported by pyarrow and take a second.
_FIRST = """
import sys
class WithoutPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, WithoutPandas())
import tierdex
with tierdex.Index.open("{folder}") as index:
    index.put(topic="t", key="k", queue_id=0, offset=1, size=1, timestamp=1)
    index.query("t", key="k")
    index.put_batch(topic="t", keys=["a", "b"], queue_id=0, offset=[1, 2], size=1, timestamp=1)
"""
_MEMORY = """
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        published(bench, folder)
    reader_without_state(bench)
    with bench.folder() as folder:
        new_process(bench, folder)
    with bench.folder() as folder:
        recovery(bench, folder)


def published(bench: Bench, folder: Path) -> None:
    """Manifests that list so many files; the objects are never touched, so they need not be there.

    The peer is Python's JSON parser, given the same rows as one text.
    """
    stores: dict[int, MeteredStore] = {}
    texts: dict[int, str] = {}
    grown: dict[int, list[float]] = {1000: [], 4000: []}
    for count in grown:
        stores[count] = MeteredStore(MemoryStore())
        text = json.dumps(
            [dataclasses.asdict(row) for row in list_files(stores[count], count)], default=str
        )
        texts[count] = text

    def open_beside(count: int) -> Callable[[int], float]:
        def measure(number: int) -> float:
            release_unused()
            before, begin = anonymous_bytes(), time.perf_counter()
            index = Index.open(
                folder / f"data-{count}-{number}", store=stores[count], node=f"n-{number}",
                background=False,
            )  # fmt: skip
            taken = time.perf_counter() - begin
            grown[count].append(anonymous_bytes() - before)
            assert len(index.files()) == count
            index.close()
            return taken

        return measure

    read_before = stores[1000].total.bytes_read
    timings = take_turns({
        "ours": open_beside(1000),
        "4,000 files": open_beside(4000),
        "json.loads of the rows": lambda _: seconds(partial(json.loads, texts[1000])),
    })  # fmt: skip
    name = "open a node beside 1,000 published files of 20 M items"
    bench.add_ratio(9, name, "s", timings, "json.loads of the rows", 20.0)
    name = "the same beside 4,000"
    bench.add_ratio(9, name, "s", timings, "ours", 6.0, ours="4,000 files")
    reads = (stores[1000].total.bytes_read - read_before) / ROUNDS / 1024
    bench.add(Row(9, "  bytes read from the store by that (no sidecar)", "KiB", reads))
    small, large = (float(np.median(grown[count])) for count in (1000, 4000))
    per_file = (large - small) / 3000 / 1024
    name = "  memory that one more published file takes"
    bench.add(Row(9, name, "KiB", per_file, ratio=per_file, limit=16.0))


def reader_without_state(bench: Bench) -> None:
    """`tierdex serve --read-only` over the files of many nodes."""
    found = readers.measure(10_000, 25)
    name = "a reader opens 10,000 files of 20 nodes: GETs a node"
    bench.add(Row(9, name, "", found["GETs a node"], ratio=found["GETs a node"], limit=3.0))
    name = "  memory that one of its files takes (20 topics)"
    bench.add(Row(9, name, "KiB", found["KiB a file"], ratio=found["KiB a file"], limit=4.0))


def new_process(bench: Bench, folder: Path) -> None:
    """`tierdex query --data`, from the shell's view; what an embedded index, and a new log, take at first.

    The modules' bytecode is kept in this folder, as an installed package keeps it: the environment
    may forbid it (PYTHONDONTWRITEBYTECODE), and to compile 200 modules takes 0.2 s.
    """
    block = Block(0, 1000)
    with bench.open_index(folder / "data") as index:
        index.put_batch(**block.entries)
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    query = ["query", "--data", str(folder / "data"), "-t", TOPIC, "-k", block.texts[7]]
    peer, floor = "import pyarrow", "import numpy, pyarrow"

    def running(*arguments: str) -> Callable[[int], float]:
        command = [sys.executable, *arguments]
        run = partial(subprocess.run, command, env=environment, check=True, capture_output=True)
        run()  # bytecode and kernels are there from now on
        return lambda _round: _cpu_of_children(run)

    timings = take_turns({
        "ours": running("-m", "tierdex.app.cli", *query),
        peer: running("-c", peer),
    })  # fmt: skip
    bench.add_ratio(9, "CPU of `tierdex query --data` in a new process", "s", timings, peer, 2.0)
    timings = take_turns({
        "ours": running("-c", _FIRST.format(folder=folder / "embedded")),
        floor: running("-c", floor),
    })  # fmt: skip
    name = "CPU of a new process that opens an index, puts, asks and puts a batch"
    bench.add_ratio(9, name, "s", timings, floor, 3.0)
    told = subprocess.run(
        [sys.executable, "-c", _FIRST.format(folder=folder / "embedded") + _MEMORY],
        env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    memory = int(told.stdout) / 1024
    bench.add(Row(9, "  the most memory that it takes", "MiB", memory, ratio=memory, limit=130.0))
    with MessageLog.open(folder / "log", background=False) as log:
        log.append(topic=TOPIC, queue_id=0, body=b"one")
        paths = [path for path in (folder / "log").rglob("*") if path.is_file()]
        taken = sum(path.stat().st_blocks * 512 for path in paths) / MIB
    bench.add(Row(9, "disk of a new log with one message", "MiB", taken, ratio=taken, limit=64.0))


def _cpu_of_children(run: Callable[[], object]) -> float:
    before = os.times()
    run()
    now = os.times()
    return now.children_user + now.children_system - before.children_user - before.children_system


def list_files(store: Store, count: int) -> list[FileRow]:
    """Publish rows of another node, and return them."""
    clock, ids = SystemClock(), SystemIds()
    node = SharedNode.open(
        ManifestLog(store, "others", clock=clock, ids=ids, checkpoint_every=32), ids
    )
    rows = []
    for number in range(1, count + 1):
        uuid = ids.uuid()
        key = f"nodes/others/files/{1:020d}-{uuid.hex()}"
        begin = START_MS + number * 3_600_000
        rows.append(
            FileRow(
                uuid=uuid, number=number, object_key=key, bytes=FILE_BYTES, item_count=FILE_ITEMS,
                slot_count=5_000_000, min_time=begin, max_time=begin + 3_600_000, begin_ms=begin,
                sealed_at_ms=begin, sidecar_position=FILE_BYTES - 45_000_000, tail_crc=1,
                topics=topic_set([TOPIC]), schema=MESSAGE_SCHEMA.encode().decode(),
            )
        )  # fmt: skip
    for first in range(0, count, 100):
        node.publish(rows[first : first + 100])
    return rows


def recovery(bench: Bench, folder: Path) -> None:
    """A full file whose writer was killed: the next process recovers it."""
    items = bench.size(20_000_000)
    data = folder / "data"
    writer = multiprocessing.get_context("spawn").Process(
        target=fill_and_die, args=(str(data), bench.scale, items)
    )
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL, writer.exitcode
    sizes = (bench.size(5_000_000) * 4, items * 40)  # of its slots and its items

    def recover(_round: int) -> float:  # it is unsealed at every opening, however the last ended
        begin = time.perf_counter()
        index = bench.open_index(data)
        taken = time.perf_counter() - begin
        assert index.files()[0].item_count == items
        index.close()
        return taken

    name = f"recover a full unsealed file of {items // 1_000_000} M items"
    peer = "an empty one, and memcpy"

    def empty(number: int) -> float:
        begin = time.perf_counter()
        index = bench.open_index(folder / f"empty-{number}")
        taken = time.perf_counter() - begin
        index.close()
        return taken + copy_of(sum(sizes))

    bench.add_ratio(9, name, "s", take_turns({"ours": recover, peer: empty}), peer, 10.0)


def copy_of(size: int) -> float:
    """Return the seconds that copying so many bytes takes, in blocks that the cache does not hold."""
    block = np.ones(min(size, 64 << 20), np.uint8)
    target = block.copy()
    return seconds(partial(np.copyto, target, block)) * (size / len(block))


def fill_and_die(folder: str, scale: float, items: int) -> None:
    index = Index.open(
        folder, slot_count=int(5_000_000 * scale), item_capacity=int(20_000_000 * scale),
        background=False,
    )  # fmt: skip
    for number in range(20):
        index.put_batch(**Block(number, items // 20).entries)
    os.kill(os.getpid(), signal.SIGKILL)
