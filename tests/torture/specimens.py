"""Sound files of every form, made by a real index over a simulated disk: what is then damaged.

`make_specimens(seed)` puts the same kind of messages each time and keeps the bytes of one file at each
turn of its life. Other seeds give other files, with other uuids.
"""

from __future__ import annotations

from contextlib import closing
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.compactor_steps import step
from tests.simulation.scheduler import InlineExecutor
from tests.simulation.simulated_disk import SimulatedFileSystem
from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.ids import SeededIds
from tierdex.indexfile.hashing import key_hash, message_id_hash
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of
from tierdex.testing.faulty_store import FaultyStore

DATA = Path("/data")
TOPICS = ("orders", "payments", "ünïcode-ß")
SMALL, LARGE = 800, 2100  # messages whose chained, and whose compacted file has 64 KiB
BATCHES = (1, 1, 3, 60, 200, 1, 135, 399)
NODE = "local"


class Lookups(NamedTuple):
    """What is asked: `hashes` u8 rising, `topic` an index into TOPICS or -1, `kind` 0 key, 1 ID."""

    hashes: np.ndarray
    topics: np.ndarray
    kinds: np.ndarray
    texts: tuple[str, ...] = ()


class Specimens(NamedTuple):
    """One file's bytes at each turn, and what makes them found."""

    half: bytes  # unsealed, with half of the messages
    unsealed: bytes
    sealed: bytes
    compacted: bytes
    compacted_again: bytes  # the same rows by other settings: an older generation
    row: object
    lookups: Lookups


@cache
def make_specimens(seed=0, messages=SMALL):
    """Return one life's specimens."""
    parts, again = _live(seed, messages), _live(seed, messages, filter_bits=8)
    return Specimens(*parts[:4], again[3], parts[4], _make_lookups(seed, messages))


def key_of(seed, number):
    """Return the key of a message; some are put often."""
    return f"hot-{number % 7}" if number % 5 == 0 else f"K-{seed}-{number}"


def topic_of(number):
    return TOPICS[number % 16 % 3]


def _live(seed, messages, **settings):
    clock, disk = ManualClock(), SimulatedFileSystem()
    store = FaultyStore(MemoryStore(clock=clock))
    with Index.open(
        DATA, store=store, clock=clock, ids=SeededIds(seed), filesystem=disk, background=False,
        executor=InlineExecutor(), slot_count=64, item_capacity=2 * messages, disk_reserve_bytes=0,
        node=NODE, **settings,
    ) as index:  # fmt: skip
        images, number = [], 0
        for count in (*BATCHES, messages - SMALL)[: 9 if messages > SMALL else 8]:
            if number >= SMALL // 2 and not images:
                images.append(_read(disk, "unsealed"))
            _put(index, seed, range(number, number + count))
            number += count
        assert number == messages
        index.flush("disk")
        images.append(_read(disk, "unsealed"))
        store.begin_outage()
        index.roll()
        compactor = components_of(index).writing.compactor
        step(compactor)
        images.append(_read(disk, "sealed"))
        while not disk.list_folder(DATA / "compacted"):
            step(compactor)
        images.append(_read(disk, "compacted"))
        store.end_outage()
        clock.advance(1000)
        index.run_compaction()
        log = ManifestLog(store, NODE, clock=clock, ids=SeededIds(1), checkpoint_every=8)
        (row,) = log.load().files.values()
    return [*images, row]


def _put(index, seed, numbers):
    if len(numbers) == 1:
        (n,) = numbers
        index.put(
            topic=topic_of(n), keys=[key_of(seed, n)], message_id=f"M-{seed}-{n}", queue_id=n % 3,
            offset=n, size=100 + n % 9, timestamp=1_700_000_000_000 + 1000 * n,
        )  # fmt: skip
        index.flush("os")
        return
    index.put_batch(
        topic=[topic_of(n) for n in numbers], keys=[key_of(seed, n) for n in numbers],
        message_id=[f"M-{seed}-{n}" for n in numbers], queue_id=[n % 3 for n in numbers],
        offset=list(numbers), size=[100 + n % 9 for n in numbers],
        timestamp=[1_700_000_000_000 + 1000 * n for n in numbers],
    )  # fmt: skip


def _read(disk, folder):
    names = [name for name in disk.list_folder(DATA / folder) if name.isdigit()]
    with closing(disk.open(DATA / folder / names[0])) as file:
        return file.read_at(0, file.size())


def _make_lookups(seed, messages):
    """Return a lookup of every key and message ID that was put, and of many that were not."""
    asked = {(topic_of(n), key_of(seed, n), 0) for n in range(messages)}
    asked |= {(topic, f"absent-{n}", 0) for n in range(60) for topic in TOPICS}
    asked |= {(topic_of(n + 1), key_of(seed, n), 0) for n in range(0, messages, 9)}
    ids = [(None, f"M-{seed}-{n}", 1) for n in range(messages + 60)]
    rows = sorted(
        (
            message_id_hash(key) if kind else key_hash(topic, key),
            -1 if kind else TOPICS.index(topic), kind, key,
        )
        for topic, key, kind in [*sorted(asked), *ids]
    )  # fmt: skip
    hashes, topics, kinds, texts = zip(*rows, strict=True)
    return Lookups(np.array(hashes, np.uint64), np.array(topics), np.array(kinds), texts)
