"""What one lookup costs a reader of 100, 1,000 and 10,000 published files, with runs and without.

    python -m benchmarks.many_files [--files 100 1000 10000]

Real files of twenty nodes, 480 a day, in a store in memory that counts requests and bytes. A file has few
keys, so that ten thousand fit; its sidecar is divided into hash groups all the same. So the requests are
those of files of any size; `constants` has the bytes of a file of the default sizes. From both comes the
row for a million files, on paper.

Depends on tierdex.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex import Index
from tierdex.compactor.file_row import make_row
from tierdex.fileparts.dictionary import Dictionaries
from tierdex.ids import SeededIds
from tierdex.indexfile.compacted.hash_group import GROUP_SIZES, GroupSizes
from tierdex.indexfile.compacted.writer import CompactedWriter, FilePlan
from tierdex.indexfile.hashing import key_hash
from tierdex.indexfile.row_bounds import RowBounds
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY
from tierdex.lifecycle.paths import StorePaths
from tierdex.pipeline.jobs.publishing import JobNode
from tierdex.pipeline.merging.merge_job import merge_runs
from tierdex.storage_layer.memory import MemoryStore

if TYPE_CHECKING:
    from tierdex.indexfile.compacted.writer import CompactedSummary
    from tierdex.lifecycle.manifests.file_row import FileRow

NODES: Final = 20
FILES_A_DAY: Final = 480
KEYS: Final = 400  # of a file
SMALL_GROUPS: Final = GroupSizes(keys=100, whole_bytes=0)
GETS_USD: Final = 0.4e-6
_FIRST_MS: Final = 1_700_000_000_000
DAY_MS: Final = 86_400_000
_TIMES: Final = 20


class CountingStore(MemoryStore):
    """Counts the reads of files' objects."""

    requests = 0
    size = 0

    def get(self, key: str, position: int | None = None, length: int | None = None) -> bytes:
        data = super().get(key, position, length)
        if "/files/" in key:
            self.requests += 1
            self.size += len(data)
        return data

    def taken(self) -> tuple[int, int]:
        """Return requests and bytes since the last look."""
        taken = self.requests, self.size
        self.requests = self.size = 0
        return taken


def plan_of(uuid: bytes, rows: np.ndarray, sizes: GroupSizes = GROUP_SIZES) -> FilePlan:
    """Return the plan of a file of these rows, all of one topic."""
    dictionaries = Dictionaries(MESSAGE_SCHEMA.dictionary_names)
    dictionaries.stage(TOPIC_DICTIONARY, ["t"])
    dictionaries.keep()
    return FilePlan(
        uuid=uuid,
        schema=MESSAGE_SCHEMA,
        dictionaries=dictionaries,
        slot_count=1,
        bounds=RowBounds.measure(MESSAGE_SCHEMA, [rows]),
        expected_items=len(rows),
        group_sizes=sizes,
    )


def make_file(
    number: int, keys: int, uuid: bytes, sizes: GroupSizes
) -> tuple[bytes, CompactedSummary]:
    """Return a compacted file of the keys `number`-0 ... and its summary."""
    rows = np.zeros(keys, MESSAGE_SCHEMA.dtype)
    rows["key_hash"] = [key_hash("t", f"{number}-{key}") for key in range(keys)]
    rows["offset"] = number * keys + np.arange(keys)
    rows["size"], rows["timestamp"] = 100, _FIRST_MS + np.arange(keys)
    rows = rows[np.argsort(rows["key_hash"], kind="stable")]
    data, plan = bytearray(), plan_of(uuid, rows, sizes)
    writer = CompactedWriter(data.extend, plan, filter_bits=16, created_ms=0)  # type: ignore[arg-type]
    writer.append(rows)
    summary = writer.finish()
    return bytes(data), summary


def fill(store: MemoryStore, count: int) -> None:
    """Publish `count` files, those of a node by one commit."""
    ids = SeededIds(1)
    rows: dict[str, list[FileRow]] = {}
    for number in range(count):
        node, uuid = f"n{number % NODES:02}", ids.uuid()
        data, written = make_file(number, KEYS, uuid, SMALL_GROUPS)
        path = StorePaths(node).file_object(0, uuid)
        store.put(path, data)
        sealed = _FIRST_MS + number * DAY_MS // FILES_A_DAY
        dates = {"begin_ms": sealed - 1, "sealed_at_ms": sealed}
        row = replace(make_row(written, uuid, path, dates), number=sealed)
        rows.setdefault(node, []).append(row)
    for node, own in rows.items():
        JobNode(store, node).shared.publish(own)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def ask(index: Index, store: CountingStore, key: str) -> tuple[int, int, float]:
    """Return requests, bytes and seconds of a lookup."""
    store.taken()
    begin = time.perf_counter()
    answer = index.query("t", key=key)
    seconds = time.perf_counter() - begin
    assert answer.complete, answer.missing[:2]
    return (*store.taken(), seconds)


def measure(store: CountingStore, count: int, what: str) -> dict[str, Any]:
    """Look keys up cold and warm; return one row of the table."""
    row: dict[str, Any] = {"files": count, "store": what}
    for name, key in (("present", f"{count // 2}-7"), ("absent", f"nobody-{count}")):
        before = resident_bytes()
        options = {"background": False, "query_max_requests": 1_000_000}
        with Index.open(None, store=store, **options) as index:  # type: ignore[arg-type]
            opened, listed = resident_bytes(), len(index.files())
            for state in ("cold", "warm"):
                requests, size, seconds = ask(index, store, key)
                row[f"{name} {state}"] = requests
                row[f"{name} {state} bytes"] = size
                row[f"{name} {state} ms"] = round(seconds * 1000, 1)
            row["objects"] = listed
            row["memory, KiB an object"] = round((opened - before) / 1024 / max(1, listed), 1)
            row["memory of a lookup, KiB"] = (resident_bytes() - opened) // 1024
    return row


def constants() -> dict[str, int]:
    """Return the bytes of one lookup's reads in a file of a million keys, in groups of the default size."""
    data, written = make_file(0, 1_000_000, bytes(16), GROUP_SIZES)
    assert written.groups is not None
    return {
        "group": written.groups.stride,
        "head": written.groups.head_end - written.sidecar_position,
        "sidecar": len(data) - written.sidecar_position,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", nargs="*", type=int, default=[100, 1000, 10_000])
    arguments = parser.parse_args()
    table = []
    for count in arguments.files:
        store = CountingStore()
        fill(store, count)
        table.append(measure(store, count, "files"))
        print(table[-1], flush=True)
        merge_runs(lambda store=store: store, older_than_ms=0, piece_items=50_000, min_files=2)
        table.append(measure(store, count, "runs"))
        print(table[-1], flush=True)
    sizes = constants()
    print(sizes)
    days = 1_000_000 // FILES_A_DAY
    for what, objects in (("files", 1_000_000), ("runs", days + FILES_A_DAY)):
        size = objects * sizes["group"] + sizes["head"] + 4096
        print(
            f"10^6 files on paper, {what}: {objects:,} requests, {size / 1e9:.2f} GB cold, "
            f"{objects * GETS_USD:.4f} USD a cold lookup"
        )


if __name__ == "__main__":
    main()
