"""What a run of a day costs the process that merges it: memory, GETs and bytes read of the sources.

    python -m benchmarks.runs [--files 480] [--items 50000]

Files of random hashes in a folder; the merge is that of `tierdex merge`, in a process of its own, whose
kernels a small merge has loaded before. Of a source a merge keeps what does not grow with its items, so files
of a million items take the same memory; their requests are in proportion to their pages.

Depends on memory and many_files of this folder, and on tierdex.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.many_files import DAY_MS, NODES, plan_of
from benchmarks.memory import PeakMemory, anonymous_bytes
from tierdex.compactor.file_row import make_row
from tierdex.compactor.upload import upload_file
from tierdex.ids import SeededIds
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.merging.merge_job import merge_runs
from tierdex.storage_layer.open import open_store

if TYPE_CHECKING:
    from tierdex.lifecycle.manifests.file_row import FileRow

_DAY = 1_700_006_400_000  # a midnight


def fill(url: str, count: int, items: int) -> None:
    """Publish the files of one day."""
    store, ids, random = open_store(url), SeededIds(1), np.random.default_rng(1)
    rows: dict[str, list[FileRow]] = {}
    for number in range(count):
        uuid, node = ids.uuid(), f"n{number % NODES:02}"
        entries = np.zeros(items, MESSAGE_SCHEMA.dtype)
        entries["key_hash"] = np.sort(random.integers(0, 1 << 64, items, dtype=np.uint64))
        sealed = _DAY + number * DAY_MS // count
        entries["timestamp"] = sealed - random.integers(1, 3_600_000, items)
        entries["queue_id"] = random.integers(0, 16, items)
        entries["offset"], entries["size"] = random.integers(0, 1 << 40, items), 300
        key = StorePaths(node).file_object(0, uuid)
        written = upload_file(
            store, key, [entries], plan_of(uuid, entries), filter_bits=16, created_ms=sealed
        )
        dates = {"begin_ms": sealed - 1, "sealed_at_ms": sealed}
        row = replace(make_row(written, uuid, key, dates), number=sealed)
        rows.setdefault(node, []).append(row)
    for node, own in rows.items():
        JobNode(store, node).shared.publish(own)


def merge(url: str) -> dict[str, Any]:
    """Merge the day; return what it took."""
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, 2, 40_000)
        merge_runs(lambda: open_store(folder), older_than_ms=0)
    store, loaded = open_store(url), anonymous_bytes()
    with PeakMemory() as memory:
        begin = time.perf_counter()
        report = merge_runs(lambda: store, older_than_ms=0)
        seconds = time.perf_counter() - begin
    return {
        "files": report.files_merged,
        "items": report.items,
        "pieces": report.files_written,
        "memory of the process before, MB": round(loaded / 1e6, 1),
        "and of the merge, MB": round(memory.bytes / 1e6, 1),
        "GETs": store.total.gets,
        "MB read": round(store.total.bytes_read / 1e6, 1),
        "MB written": round(report.bytes / 1e6, 1),
        "s": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=480)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--merge", help="merge what is at this address, and print it")
    arguments = parser.parse_args()
    if arguments.merge:
        print(json.dumps(merge(arguments.merge)))
        return
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, arguments.files, arguments.items)
        command = [sys.executable, "-m", "benchmarks.runs", "--merge", folder]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
