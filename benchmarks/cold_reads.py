"""What reads of the past leave in the page cache: of the tail, and of the past itself (issue 13.2).

    python -m benchmarks.cold_reads [--gib 4] [--tail-mib 64]

Messages that do not compress are appended and grouped, their files dropped from the page cache; then a tail
is appended, which writing leaves there. All of the past is read, as the log reads it, and once more by a file
system that lets go of nothing. Prints how much of tail and past is in memory before and after (fincore), how
fast the past was read, and how long reads at the tail took beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tierdex import MessageLog
from tierdex.filesystem import LocalFileSystem
from tierdex.local_file import LocalFile

if TYPE_CHECKING:
    from tierdex.setting_keywords import SettingKeywords

MIB = 1 << 20
_BODY = 16 << 10
_QUEUES = 64
_SETTINGS: SettingKeywords = {"node": "n", "background": False, "journal_bytes": 256 * MIB}


class _KeepingFile(LocalFile):
    """Keeps in the page cache what it reads, as a plain `pread` does."""

    def read_cached(self, position: int, length: int) -> bytes | None:
        return self.read_at(position, length)


class _KeepingFileSystem(LocalFileSystem):
    def open(
        self,
        path: Path,
        *,
        writable: bool = False,
        create: bool = False,
        exclusive: bool = False,
        private: bool = False,
    ) -> LocalFile:
        opened = super().open(
            path, writable=writable, create=create, exclusive=exclusive, private=private
        )
        return _KeepingFile(path, opened._descriptor)


def resident_mib(paths: list[Path]) -> float:
    """Return how much of some files is in the page cache."""
    names = [str(path) for path in paths]
    command = ["fincore", "--bytes", "--noheadings", "--raw", "--output", "RES", *names]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sum(map(int, told.split())) / MIB


def drop(paths: list[Path]) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def fill(log: MessageLog, size: int, source: np.random.Generator) -> None:
    """Append so many bytes to the queues in turn."""
    count = size // _BODY // _QUEUES * _QUEUES
    step = 4096
    for first in range(0, count, step):
        rows = min(step, count - first)
        data = source.bytes(rows * _BODY)
        offsets = np.arange(0, len(data) + 1, _BODY, dtype=np.int32)
        body = pa.BinaryArray.from_buffers(
            pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        queues = (np.arange(first, first + rows) % _QUEUES).astype(np.int32)
        log.append_batch(topic="t", queue_id=queues, body=body, durability="os")
        log.run_compaction()


def read_past(log: MessageLog, end: int) -> tuple[float, int]:
    """Read all queues up to `end`; return (seconds, bytes)."""
    started, total = time.perf_counter(), 0
    for queue_id in range(_QUEUES):
        offset = 0
        while offset < end:
            answer = log.read(
                "t", queue_id, offset, max_count=min(256, end - offset), max_bytes=4 * MIB
            )
            assert answer.complete, answer.missing
            assert len(answer)
            offset, total = answer.next_offset, total + len(answer.batch.bodies)
    return time.perf_counter() - started, total


def tail_reads(log: MessageLog, stop: threading.Event) -> list[float]:
    """Read ten messages near the end of each queue in turn until told to stop; return the times (s)."""
    took, ends = [], [log.end_offset("t", queue_id) for queue_id in range(_QUEUES)]
    while not stop.wait(0.01):
        for queue_id, end in enumerate(ends):
            started = time.perf_counter()
            log.read("t", queue_id, end - 10, max_count=10)
            took.append(time.perf_counter() - started)
    return took


def measure(folder: Path, end: int, *, keeping: bool) -> None:
    filesystem = _KeepingFileSystem() if keeping else LocalFileSystem()
    with MessageLog.open(
        folder, filesystem=filesystem, index=False, read_only=True, **_SETTINGS
    ) as log:
        past = sorted((folder / "log" / "compacted").iterdir())
        tail = sorted((folder / "log" / "unsealed").glob("[0-9]*"))
        drop(past)
        before = resident_mib(tail), resident_mib(past)
        stop, took = threading.Event(), []
        beside = threading.Thread(target=lambda: took.extend(tail_reads(log, stop)))
        beside.start()
        seconds, total = read_past(log, end)
        stop.set()
        beside.join()
        after = resident_mib(tail), resident_mib(past)
    p50, p99 = np.percentile(took, [50, 99]) * 1e6
    print(f"{'letting go of nothing' if keeping else 'as the log reads'}:")
    print(f"  tail in memory before {before[0]:,.0f} MiB, after {after[0]:,.0f}")
    print(f"  past in memory before {before[1]:,.0f} MiB, after {after[1]:,.0f}")
    print(
        f"  {total / MIB:,.0f} MiB of bodies in {seconds:.1f} s ({total / MIB / seconds:,.0f} MiB/s)"
    )
    print(f"  reads at the tail beside it: p50 {p50:.0f} us, p99 {p99:.0f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--tail-mib", type=int, default=64)
    given = parser.parse_args()
    source = np.random.default_rng(1)
    folder = Path(tempfile.mkdtemp(dir=Path.cwd(), prefix=".cold-reads-"))
    try:
        with MessageLog.open(folder, index=False, **_SETTINGS) as log:
            fill(log, round(given.gib * 1024) * MIB, source)
            log.roll()
            log.run_compaction()
            end = log.end_offset("t", 0)
            fill(log, given.tail_mib * MIB, source)
            log.flush("disk")
        for keeping in (False, True):
            measure(folder, end, keeping=keeping)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
