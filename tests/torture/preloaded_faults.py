"""System calls of a real process that fail (EIO, ENOSPC, EMFILE, late renames), over acknowledged entries.

A library that is preloaded (failing_calls.c) strikes calls on files below the index's folder and its
store, from any layer: Python, numpy, the kernel's own wrappers. The model is a dictionary: what was
put and what was acknowledged. Held against it: an error is a TierdexError; an answer never holds what
was not put, nor an entry twice; a complete answer lacks nothing that was acknowledged or received; and
when the disk is well again, all of that is there, once, in files that verify.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from tests.patience import PATIENCE_S
from tests.torture.quick_folder import quick_folder
from tierdex import Index
from tierdex.errors import TierdexError

STEPS = 400
_SOURCE = Path(__file__).with_name("failing_calls.c")
_KEYS = 40
_SETTINGS = {
    "slot_count": 64,
    "item_capacity": 300,
    "disk_reserve_bytes": 0,
    "merge_min_files": 3,
    "merge_below_items": 1000,
    "compact_interval": 0.01,
    "refresh_interval": 0.05,
    "remote_interval": 0.0,
    "remote_timeout": 0.3,
    "backoff_max": 0.05,
    "store_attempts": 2,
    "checkpoint_every": 5,
    "grace_time": 3600.0,
}


def find_compiler():
    """Return a C compiler of this machine, None where there is none."""
    return shutil.which("gcc") or shutil.which("cc")


@functools.cache
def _library():
    """Compile the library once a process; it is removed with the process."""
    folder = tempfile.TemporaryDirectory(prefix="tierdex-shim-")
    path = Path(folder.name) / "failing_calls.so"
    subprocess.run(
        [find_compiler(), "-shared", "-fPIC", "-O1", "-o", path, _SOURCE, "-ldl"], check=True
    )
    return path, folder


def fail_system_calls(seed, steps=STEPS):
    """Let one process work while its system calls fail; return how many did, by the process's word."""
    with quick_folder() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.torture.preloaded_faults", folder, str(seed), str(steps)],
            env={**os.environ, "LD_PRELOAD": str(_library()[0])},
            stdout=subprocess.PIPE, timeout=PATIENCE_S + 3 * steps,
        )  # fmt: skip
    assert done.returncode == 0, f"the process ended with {done.returncode}"
    return json.loads(done.stdout)["struck"]


# -- in the process --------------------------------------------------------------------------------


class Model:
    """Entry n has the key K<n % 40> and the offset n."""

    def __init__(self):
        self.tried = 0
        self.sure = set()  # acknowledged at `os` or above
        self.received = set()  # in memory: sure while the index is open

    def take(self, count):
        numbers = range(self.tried, self.tried + count)
        self.tried += count
        return numbers

    def check(self, key, answer):
        """Hold an answer against what was put."""
        found = [entry.offset for entry in answer.entries]
        assert len(found) == len(set(found)), f"doubled: {found}"
        assert all(n < self.tried and n % _KEYS == key for n in found), f"never put: {found}"
        if answer.complete:
            lost = {n for n in self.sure | self.received if n % _KEYS == key} - set(found)
            assert not lost, f"complete, and lacks {sorted(lost)}"


class Worker:
    """Calls every public verb of an index in a random order, with faults; each must hold."""

    def __init__(self, folder, seed):
        self.folder, self.source, self.model = folder, random.Random(seed), Model()
        self.seed, self.permille = seed, self.source.choice((3, 10, 40))
        self.background = self.source.random() < 0.5
        self.shim = ctypes.CDLL(None)
        self.shim.struck.restype = ctypes.c_uint64
        self.index, self.refusals = None, 0

    def arm(self, permille):
        self.shim.arm(str(self.folder).encode(), ctypes.c_uint64(self.seed), permille)

    def open(self, **more):
        settings = {"background": self.background, **_SETTINGS, **more}
        return Index.open(self.folder / "data", store=str(self.folder / "store"), **settings)

    def run(self, steps):
        self.open().close()  # the store has a manifest, and the kernels are loaded
        self.arm(self.permille)
        acts = (
            [self.put] * 8 + [self.put_batch] * 4 + [self.flush] * 4 + [self.query] * 6
            + [self.query_many] * 2 + [self.look] * 3 + [self.compact] * 3 + [self.verify]
            + [self.read_beside] * 2 + [self.close]
        )  # fmt: skip
        for _ in range(steps):
            try:
                if self.index is None:
                    self.index = self.open()
                self.source.choice(acts)()
            except TierdexError:  # whatever else it is ends the process: a finding
                self.refusals += 1
        self.settle()
        return {"struck": self.shim.struck(), "refused": self.refusals, "tried": self.model.tried}

    # -- what is done ----------------------------------------------------------------------------

    def put(self):
        level = self.source.choice(("received", "received", "os", "disk"))
        for n in self.model.take(self.source.choice((1, 5, 30))):
            self.index.put(
                topic="t", keys=[f"K{n % _KEYS}"], queue_id=0, offset=n, size=1, timestamp=n,
                durability=level,
            )  # fmt: skip
            (self.model.received if level == "received" else self.model.sure).add(n)

    def put_batch(self):
        numbers = self.model.take(self.source.choice((3, 50, 250)))
        self.index.put_batch(
            topic="t", keys=[f"K{n % _KEYS}" for n in numbers], queue_id=0,
            offset=list(numbers), size=1, timestamp=list(numbers),
        )  # fmt: skip
        self.model.sure.update(numbers)
        self.sink()  # put order is kept: what was received before is written too

    def flush(self):
        self.index.flush(self.source.choice(("os", "disk", "remote")))
        self.sink()

    def sink(self):
        self.model.sure |= self.model.received
        self.model.received.clear()

    def query(self):
        key = self.source.randrange(_KEYS)
        self.model.check(key, self.index.query("t", key=f"K{key}", max_count=10_000))

    def query_many(self):
        keys = self.source.sample(range(_KEYS), 5)
        lookups = [{"topic": "t", "key": f"K{key}", "max_count": 10_000} for key in keys]
        for key, answer in zip(keys, self.index.query_batch(lookups), strict=True):
            self.model.check(key, answer)
        table = pa.table({"topic": ["t"] * 5, "key": [f"K{key}" for key in keys]})
        found = self.index.query_batch_arrow(table, max_count=10_000)  # fails unless complete
        for row, key in enumerate(keys):
            offsets = [e["offset"] for e in found.to_pylist() if e["lookup"] == row]
            assert len(offsets) == len(set(offsets)), f"doubled: {offsets}"
            lost = {n for n in self.model.sure | self.model.received if n % _KEYS == key} - {
                *offsets
            }
            assert not lost, f"the table lacks {sorted(lost)}"

    def look(self):
        index = self.index
        verb = self.source.choice(
            (index.files, index.nodes, index.topics, index.health, index.compaction_status,
             index.refresh, lambda: index.watermark("t", 0),
             lambda: index.expire(before=0, dry_run=True))
        )  # fmt: skip
        verb()

    def compact(self):
        self.index.roll()
        if not self.background:
            self.index.run_compaction()

    def verify(self):
        for file in self.index.files():
            if file.reason is None:
                with contextlib.suppress(TierdexError):  # it moved on, or cannot be read now
                    problems = self.index.verify_file(file.file_id)
                    assert not problems, problems

    def read_beside(self):
        with self.open(read_only=True, background=False) as reader:
            key = self.source.randrange(_KEYS)
            found = reader.query("t", key=f"K{key}", max_count=10_000)
            received, self.model.received = self.model.received, set()  # in the writer's memory
            try:
                self.model.check(key, found)
            finally:
                self.model.received = received

    def close(self):
        index, self.index = self.index, None
        try:
            index.close()
        except TierdexError:
            self.model.received.clear()  # it says so: what was only received is lost
            raise
        self.sink()

    def settle(self):
        """Let the disk be well again: all that was acknowledged is there, in sound files."""
        self.arm(0)
        if self.index is not None:
            with contextlib.suppress(TierdexError):  # of a sync that had failed before
                self.close()
        self.background = False
        with self.open(remote_timeout=PATIENCE_S) as index:
            index.flush("remote")
            index.run_compaction()
            for key in range(_KEYS):
                answer = index.query("t", key=f"K{key}", max_count=10_000)
                assert answer.complete, answer.missing
                self.model.check(key, answer)
            for file in index.files():
                assert index.verify_file(file.file_id) == []
            assert [node.problem for node in index.nodes()] == [None]


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(Worker(Path(sys.argv[1]), int(sys.argv[2])).run(int(sys.argv[3]))))
