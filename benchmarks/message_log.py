"""The message log beside a bare pwrite of the same bytes: `python -m benchmarks.message_log [FOLDER]`.

Rounds alternate, ratios count. The journal is new, so its pages are new to the page cache; the floor
overwrites its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import tierdex

ROWS, QUEUES, ROUNDS, LONE = 400_000, 1000, 7, 60
SMALL = b"y" * 150
FLOOR_BYTES = 1 << 28


def timed(call) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def batches(log, floor: int) -> tuple[float, float]:
    """Return median seconds of (append_batch of 58 B at `os`, pwrite of as many bytes)."""
    body = pa.array([b"x" * 58] * ROWS, pa.binary())
    ids = (np.arange(ROWS) % QUEUES).astype(np.int32)
    payload = b"x" * (58 * ROWS)

    def append():
        log.append_batch(topic="batch", queue_id=ids, body=body, durability="os")

    append()
    for position in range(0, FLOOR_BYTES, len(payload)):
        os.pwrite(floor, payload, position)
    pairs = [
        (timed(append), timed(lambda i=i: os.pwrite(floor, payload, i * len(payload))))
        for i in range(ROUNDS)
    ]
    return tuple(statistics.median(column) for column in zip(*pairs, strict=True))


def lone(log, floor: int) -> tuple[float, float]:
    """Return median seconds of (a lone `disk` append of 150 B, pwrite of 150 B + fdatasync)."""

    def write(i):
        os.pwrite(floor, SMALL, 4096 * i)
        os.fdatasync(floor)

    pairs = [
        (
            timed(lambda: log.append(topic="lone", queue_id=0, body=SMALL)),
            timed(lambda i=i: write(i)),
        )
        for i in range(LONE)
    ]
    return tuple(statistics.median(column) for column in zip(*pairs, strict=True))


def coroutines(log, count: int, rounds: int = 20) -> tuple[float, float]:
    """Return (appends a second, appends a commit) of coroutines that each wait for `disk`."""
    futures = {}

    async def append(loop):
        for _ in range(rounds):
            pending = log.append_nowait(topic="coroutines", queue_id=0, body=SMALL)
            future = futures.get(pending.commit)
            if future is None:
                future = futures[pending.commit] = loop.create_future()
                pending.commit.add_callback(
                    pending.level,
                    lambda commit, f=future: loop.call_soon_threadsafe(settle, f, commit),
                )
            (await future).raise_error(pending.level)

    def settle(future, commit):
        if not future.done():
            future.set_result(commit)

    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(append(loop) for _ in range(count)))

    seconds = timed(lambda: asyncio.run(main()))
    return count * rounds / seconds, count * rounds / len(futures)


def main() -> None:
    folder = Path(tempfile.mkdtemp(dir=sys.argv[1] if len(sys.argv) > 1 else None))
    floor = os.open(folder / "floor", os.O_RDWR | os.O_CREAT)
    try:
        with tierdex.MessageLog.open(folder / "log") as log:
            ours, bare = batches(log, floor)
            print(
                f"append_batch 58 B, {QUEUES} queues, os: {ours / ROWS * 1e9:.0f} ns a message, "
                f"{ours / bare:.1f} x pwrite"
            )
            ours, bare = lone(log, floor)
            print(f"lone disk append: {ours * 1e6:.0f} us, {ours / bare:.2f} x pwrite + fdatasync")
            for count in (16, 64, 256):
                rate, shared = coroutines(log, count)
                print(
                    f"{count} coroutines: {rate:.0f}/s, {rate * bare:.1f} x, {shared:.0f} a commit"
                )
    finally:
        os.close(floor)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
