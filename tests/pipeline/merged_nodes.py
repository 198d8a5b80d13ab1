"""Owners of several nodes of one store, and a model of what every reader must answer while runs are made."""

from __future__ import annotations

import random

from tierdex import Index
from tierdex.clock import ManualClock
from tierdex.compactor.expire import expire
from tierdex.ids import SeededIds
from tierdex.pipeline.jobs.snapshot import open_log
from tierdex.pipeline.merging.merge_job import merge_runs
from tierdex.storage_layer.memory import MemoryStore
from tierdex.testing.components import components_of

NODES = ("a", "b", "c")
KEYS = [f"K{number}" for number in range(12)]


class Fleet:
    """Owners of several nodes of one store, a reader, and the model: all entries in their order."""

    def __init__(self, folder, store=None):
        self.folder, self.clock = folder, ManualClock()
        self.store = store or MemoryStore(clock=self.clock)
        self.opened = []
        self.owners = {name: self.open(name) for name in NODES}
        self.open_files = {name: [] for name in NODES}
        self.files = []  # (number, node, entries) of published files
        self.places = {}  # of the sources of a run: where it stands
        self.offset = 0

    def open(self, name=None, **more):
        own = {} if name is None else {"node": name}
        index = Index.open(
            None if name is None else self.folder / name, store=self.store, clock=self.clock,
            ids=SeededIds(len(self.opened) + 1), slot_count=64, item_capacity=1000,
            background=False, disk_reserve_bytes=0, merge_below_items=0, **own, **more,
        )  # fmt: skip
        self.opened.append(index)
        return index

    def put(self, name, key):
        self.owners[name].put(
            topic="t", keys=[key], queue_id=0, offset=self.offset, size=1, timestamp=self.offset
        )
        self.open_files[name].append((key, self.offset))
        self.offset += 1

    def publish(self, name):
        """Publish what the node has as one file; numbers rise by seconds over all nodes."""
        if self.open_files[name]:
            self.clock.advance(5)
            index = self.owners[name]
            index.roll()
            index.run_compaction()
            index.refresh()
            number = max(int(file.file_id[:20]) for file in index.files() if file.node == name)
            self.files.append((number, name, self.open_files[name]))
            self.open_files[name] = []

    def expected(self, key):
        """The offsets of published entries, newest file first, newest arrival first.

        A run has the place of its newest source: a file that is published late goes behind it.
        """
        ordered = sorted(
            self.files, key=lambda file: (self.places.get(file[:2], file[:2]), file[:2])
        )
        ordered.reverse()
        return [at for _, _, own in ordered for name, at in reversed(own) if name == key]

    def merge(self, **more):
        report = merge_runs(lambda: self.store, **{"older_than_ms": 0, "piece_items": 7, **more})
        self.learn_runs()
        return report

    def learn_runs(self):
        """Take from the manifest which runs there are."""
        for row in open_log(self.store, "runs").load().files.values():
            sources = {(part.number, part.node) for part in row.parts}
            self.places |= dict.fromkeys(sources, (max(sources)[0], "runs"))

    def close(self):
        for index in self.opened:
            index.close()


def fill(fleet, files=9, seed=1):
    source = random.Random(seed)
    for _ in range(files):
        name = source.choice(NODES)
        for _ in range(source.randint(1, 9)):
            fleet.put(name, source.choice(KEYS))
        fleet.publish(name)


def found(reader, key, **more):
    answer = reader.query("t", key=key, max_count=1000, **more)
    assert answer.complete
    return [entry.offset for entry in answer.entries]


def check(fleet, reader):
    for key in KEYS:
        assert found(reader, key) == fleet.expected(key)
    answers = reader.query_batch([{"topic": "t", "key": key, "max_count": 1000} for key in KEYS])
    assert [[e.offset for e in a.entries] for a in answers] == [fleet.expected(k) for k in KEYS]


def expire_oldest(fleet, count):
    """Expire the oldest files of the owners that no run took."""
    listed = {
        (row.number, name)
        for name in NODES
        for row in open_log(fleet.store, name).load().files.values()
    }
    runs = open_log(fleet.store, "runs").load()
    replaced = {(ref.number, ref.node) for ref in runs.replaced}
    gone = sorted(listed - replaced)[:count]
    for number, name in gone:
        files = open_log(fleet.store, name).load().files.values()
        components = components_of(fleet.owners[name]).writing.compactor.components
        expire(components, [row for row in files if row.number == number])
        fleet.files = [file for file in fleet.files if file[:2] != (number, name)]
