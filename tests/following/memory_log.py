"""A log in memory: a source with knobs, which keeps the contract like any other."""

from __future__ import annotations

import numpy as np

from tierdex.errors import UnavailableError
from tierdex.following.records import Bounds, Record, RecordBatch


class MemoryLog:
    """Partitions of records; `lose` and `cut` do to it what retention and an unclean election do to a log."""

    def __init__(self, partitions=(0,), topic="orders"):
        self.topic = topic
        self.identity = "log-1"
        self.records = {partition: {} for partition in partitions}
        self.first = dict.fromkeys(partitions, 0)
        self.end = dict.fromkeys(partitions, 0)
        self.down = 0  # calls that fail from now on
        self.reads = 0
        self.before_read = lambda: None  # called before each read

    def add_partition(self, partition):
        self.records[partition], self.first[partition], self.end[partition] = {}, 0, 0

    def append(self, partition, value, key=None, headers=(), timestamp=1_700_000_000_000, skip=0):
        offset = self.end[partition] + skip
        self.records[partition][offset] = Record(partition, offset, timestamp, key, value, headers)
        self.end[partition] = offset + 1
        return offset

    def lose(self, partition, first):
        self.first[partition] = first
        self.end[partition] = max(first, self.end[partition])
        kept = self.records[partition]
        self.records[partition] = {o: r for o, r in kept.items() if o >= first}

    def cut(self, partition, end):
        kept = self.records[partition]
        self.records[partition] = {o: r for o, r in kept.items() if o < end}
        self.end[partition] = end

    def source(self):
        return MemorySource(self)


class MemorySource:
    has_times = True
    is_dense = True

    def __init__(self, log):
        self._log = log
        self.name = f"memory:{log.topic}"
        self.topic = log.topic
        self._positions = {}
        self.is_closed = False

    def _ask(self):
        if self._log.down:
            self._log.down -= 1
            raise UnavailableError("the log is down")

    def identity(self):
        self._ask()
        return self._log.identity

    def partitions(self):
        self._ask()
        return sorted(self._log.records)

    def name_of(self, partition):
        return f"{self.topic}[{partition}]"

    def place_of(self, partition, offset):
        return f"{self.name_of(partition)}, offset {offset}"

    def bounds(self, positions):
        self._ask()
        log = self._log
        return {p: Bounds(log.first[p], log.end[p]) for p in positions if p in log.records}

    def open(self, positions, wanted):
        self._ask()
        self._positions = dict(positions)

    def read(self, max_records, timeout_s):
        self._log.reads += 1
        self._log.before_read()
        self._ask()
        found = []
        for partition, position in self._positions.items():
            every = self._log.records.get(partition, {})
            found += [every[o] for o in sorted(every) if o >= position][:max_records]
        if not found:
            return None
        for record in found:
            self._positions[record.partition] = record.offset + 1
        return RecordBatch(
            np.array([r.partition for r in found], np.int32),
            np.array([r.offset for r in found], np.int64),
            np.array([len(r.value or b"") for r in found], np.uint32),
            np.array([r.timestamp for r in found], np.int64),
            dict(self._positions),
            [r.key for r in found],
            [r.value for r in found],
            [r.headers for r in found],
        )

    def fetch(self, partition, offset):
        self._ask()
        return self._log.records.get(partition, {}).get(offset)

    def close(self):
        self.is_closed = True
