"""Opening a reader without state over 10,000 published files of twenty nodes: requests, and memory a file.

    python -m benchmarks.readers [--files 10000] [--commits 25] [--serve]

Each node has a checkpoint and so many commits behind it. A reader opens in a process of its own; what it
takes over the opening of a store with a file a node is what the files take. Objects are never read, so none
is there. With `--serve` the process is `tierdex serve --read-only`, and answers some questions first.

Depends on memory and many_files of this folder, on tests.servers, and on tierdex.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any, Final

import httpx2

from benchmarks.many_files import NODES
from benchmarks.memory import anonymous_bytes, release_unused
from tests.servers.tierdex_server import running_tierdex
from tierdex import Index
from tierdex.clock import SystemClock
from tierdex.ids import SystemIds
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.manifests.file_row import FileRow, HashGroups
from tierdex.lifecycle.manifests.manifest import Change, Draft, NodeKind
from tierdex.lifecycle.manifests.manifest_log import ManifestLog
from tierdex.lifecycle.paths import StorePaths
from tierdex.lifecycle.topic_set import topic_set
from tierdex.storage_layer.open import open_store

ITEMS: Final = 1_000_000
_BYTES: Final = 20 * ITEMS
_SIDECAR: Final = 2_700_000
_FIRST_MS: Final = 1_700_000_000_000


def fill(url: str, files: int, commits: int) -> None:
    """Write the manifests: of each node a checkpoint, then `commits` of one file each."""
    store, ids, number = open_store(url), SystemIds(), 0
    for node in (f"n{each:02}" for each in range(NODES)):
        each = max(1, files // NODES)
        behind = min(commits, each - 1)
        for count, size, every in ((1, each - behind, 1), (behind, 1, 64)):
            log = ManifestLog(store, node, clock=SystemClock(), ids=ids, checkpoint_every=every)
            for _ in range(count):
                rows = tuple(row_of(node, number + at, ids.uuid()) for at in range(size))
                number += size
                draft = Draft(NodeKind.SHARED, 0, bytes(16), Change(add=rows))
                log.commit(lambda _, draft=draft: draft)


def row_of(node: str, number: int, uuid: bytes) -> FileRow:
    """Return the row of a file of a million items, in hash groups."""
    sealed = _FIRST_MS + 180_000 * number
    begin = _BYTES - _SIDECAR
    return FileRow(
        uuid=uuid,
        number=sealed,
        object_key=StorePaths(node).file_object(0, uuid),
        bytes=_BYTES,
        item_count=ITEMS,
        slot_count=ITEMS // 4,
        min_time=sealed - 3_600_000,
        max_time=sealed,
        begin_ms=sealed - 3_600_000,
        sealed_at_ms=sealed,
        sidecar_position=begin,
        tail_crc=number,
        topics=topic_set([f"topic-{at}" for at in range(20)]),
        schema=MESSAGE_SCHEMA.encode().decode(),
        groups=HashGroups(begin + 200_000, 30_208, 82, begin + 1600),
    )


def opened(url: str) -> dict[str, Any]:
    """Open a reader here; return its files, requests and memory."""
    release_unused()
    store = open_store(url)
    before = anonymous_bytes()
    with store.measure() as counts, Index.open(store=store, background=False) as index:
        files = len(index.files())
        release_unused()
        taken = anonymous_bytes() - before
    return {"files": files, "memory": taken, "MB read": round(counts.bytes_read / 1e6, 1),
            "requests": dict(counts.by_verb)}  # fmt: skip


def in_a_process(files: int, commits: int) -> dict[str, Any]:
    """Return what an opening over so many files took in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, files, commits)
        command = [sys.executable, "-m", "benchmarks.readers", "--open", folder]
        done = subprocess.run(command, check=True, capture_output=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def served(files: int, commits: int) -> int:
    """Return the memory of a service without state over so many files, after some questions."""
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, files, commits)
        arguments = ("--store", folder, "--read-only")
        with running_tierdex(None, *arguments, warm_up=False) as server:
            for path in (
                "/readyz",
                "/v1/admin/nodes",
                "/v1/entries?topic=topic-1&key=k&end=0",
                "/metrics",
            ):
                httpx2.get(server.url + path, timeout=60).raise_for_status()
            taken: int = server.memory_bytes("RssAnon")
            return taken


def measure(files: int, commits: int) -> dict[str, Any]:
    """Return requests and memory of an opening over so many files."""
    few, many = in_a_process(NODES, 0), in_a_process(files, commits)
    requests = many["requests"]
    return {
        "files": many["files"],
        "nodes": NODES,
        "commits since the checkpoint": commits,
        "GETs a node": requests["get"] / NODES,
        "LISTs a node": requests["list"] / NODES,
        "other requests": sum(requests.values()) - requests["get"] - requests["list"],
        "MB read": many["MB read"],
        "KiB a file": round((many["memory"] - few["memory"]) / 1024 / many["files"], 2),
        "KiB a file, all that the opening takes": round(many["memory"] / 1024 / many["files"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--commits", type=int, default=25)
    parser.add_argument("--serve", action="store_true", help="measure the memory of a service")
    parser.add_argument("--open", help="open what is at this address, and print it")
    arguments = parser.parse_args()
    if arguments.open:
        print(json.dumps(opened(arguments.open)))
    elif arguments.serve:
        taken = served(arguments.files, arguments.commits) - served(NODES, 0)
        print(json.dumps({"KiB a file": round(taken / 1024 / arguments.files, 2)}))
    else:
        print(json.dumps(measure(arguments.files, arguments.commits)))


if __name__ == "__main__":
    main()
