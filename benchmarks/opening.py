"""Target 9: opening a node that has published a thousand files, and recovering a full unsealed one."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.data import START_MS, TOPIC, Block
from benchmarks.measure import ROUNDS, Row
from benchmarks.memory import anonymous_bytes, release_unused
from tierdex import Index
from tierdex.clock import SystemClock
from tierdex.ids import SystemIds
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.manifest import FileRow
from tierdex.lifecycle.manifest_log import ManifestLog
from tierdex.lifecycle.ownership import SharedNode
from tierdex.lifecycle.topic_set import topic_set
from tierdex.storage_layer.memory import MemoryStore
from tierdex.storage_layer.metered import MeteredStore

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.bench import Bench
    from tierdex.storage_layer.base import Store

FILE_ITEMS = 20_000_000
FILE_BYTES = FILE_ITEMS * 15


def run(bench: Bench) -> None:
    with bench.folder() as folder:
        published(bench, folder)
    with bench.folder() as folder:
        recovery(bench, folder)


def published(bench: Bench, folder: Path) -> None:
    """Manifests that list so many files; the objects are never touched, so they need not be there."""
    times: dict[int, float] = {}
    grown: dict[int, float] = {}
    reads: dict[int, int] = {}
    for count in (1000, 4000):
        store = MeteredStore(MemoryStore())
        list_files(store, count)
        taken, memory = [], []
        for number in range(ROUNDS):
            read_before = store.total.bytes_read
            release_unused()
            before, begin = anonymous_bytes(), time.perf_counter()
            index = Index.open(folder / f"data-{count}-{number}", store=store, background=False)
            taken.append(time.perf_counter() - begin)
            memory.append(anonymous_bytes() - before)
            reads[count] = store.total.bytes_read - read_before
            assert len(index.files()) == count
            index.close()
        times[count], grown[count] = float(np.median(taken)), float(np.median(memory))
    name = "open a node beside 1,000 published files of 20 M items"
    bench.add(Row(9, name, "s", times[1000], ratio=times[1000], limit=1.0))
    row = Row(9, "  bytes read from the store by that (no sidecar)", "KiB", reads[1000] / 1024)
    bench.add(row)
    per_file = (grown[4000] - grown[1000]) / 3000 / 1024
    bench.add(
        Row(
            9,
            "  memory that one more published file takes",
            "KiB",
            per_file,
            ratio=per_file,
            limit=16.0,
        )
    )


def list_files(store: Store, count: int) -> None:
    """Publish rows of another node."""
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
    times = []
    for _ in range(
        ROUNDS
    ):  # an unsealed file is recovered at every opening, however the last ended
        begin = time.perf_counter()
        index = bench.open_index(data)
        times.append(time.perf_counter() - begin)
        assert index.files()[0].item_count == items
        index.close()
    taken = float(np.median(times))
    name = f"recover a full unsealed file of {items // 1_000_000} M items"
    limit = 1.5 * bench.scale
    bench.add(Row(9, name, "s", taken, ratio=taken, limit=limit))


def fill_and_die(folder: str, scale: float, items: int) -> None:
    index = Index.open(
        folder, slot_count=int(5_000_000 * scale), item_capacity=int(20_000_000 * scale),
        background=False,
    )  # fmt: skip
    for number in range(20):
        index.put_batch(**Block(number, items // 20).entries)
    os.kill(os.getpid(), signal.SIGKILL)
