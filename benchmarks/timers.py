"""How late held messages are delivered: a million are due within an hour (issue 13, L9).

    python -m benchmarks.timers [--messages 1000000] [--seconds 120] [--body 100]

Messages are appended with a `deliver_at` anywhere in an hour, in no order. The log's clock is set so that the
hour begins in a minute; then the timer runs while lateness is measured. In the middle the folder is copied,
as a kill leaves it, and the copy is opened and goes on: it reads the hour again before it delivers. Late is
when a message could be read at `disk`, less its `deliver_at`. Prints p50, p99 and the latest, how long
holding took, and how long it takes to catch up with what was due while nobody ran.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from tierdex import MessageLog
from tierdex.clock import SystemClock

HOUR_MS = 3_600_000
_BATCH = 100_000


class ShiftedClock(SystemClock):
    """The system's clock, so many milliseconds ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def open_log(folder: Path, clock: ShiftedClock) -> MessageLog:
    return MessageLog.open(folder, node="n", clock=clock, index=False)


def hold(log: MessageLog, count: int, begin: int, body: bytes) -> float:
    """Append messages due within the hour from `begin` on; return the seconds it took."""
    source = np.random.default_rng(1)
    started = time.perf_counter()
    for first in range(0, count, _BATCH):
        number = min(_BATCH, count - first)
        log.append_batch(
            topic="timed", queue_id=0, body=pa.array([body] * number, pa.binary()),
            deliver_at=begin + source.integers(0, HOUR_MS, number), durability="os",
        )  # fmt: skip
    log.flush("disk")
    return time.perf_counter() - started


def measure(log: MessageLog, clock: ShiftedClock, seconds: float, offset: int) -> np.ndarray:
    """Read what is delivered for so long; return (when it was due, how late it was) of each message (ms)."""
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        answer = log.read("timed", 0, offset, max_count=10_000, max_bytes=64 << 20, wait=1.0)
        now = clock.now_ms()
        due = answer.batch.times  # of a message without a timestamp
        found.append((due, now - due))
        offset = answer.next_offset
    return np.concatenate(found, axis=1)


def tell(name: str, late: np.ndarray) -> None:
    if not len(late):
        print(f"{name}: none was delivered in time to be counted")
        return
    p50, p99 = np.percentile(late, [50, 99])
    print(
        f"{name}: {len(late):,} delivered, late p50 {p50:.0f} ms, p99 {p99:.0f} ms, most {late.max():.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--body", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder, clock = Path(name, "log"), ShiftedClock()
        begin = (clock.now_ms() // HOUR_MS + 2) * HOUR_MS
        clock.ahead_ms = begin - HOUR_MS - clock.now_ms()  # the hour is not near yet
        log = open_log(folder, clock)
        took = hold(log, given.messages, begin, b"x" * given.body)
        print(
            f"{given.messages:,} held in {took:.1f} s ({took / given.messages * 1e6:.2f} us each)"
        )
        log.roll()
        clock.ahead_ms += begin - 60_000 - clock.now_ms()
        assert log._components.writing is not None
        log._components.writing.timer.wake()
        time.sleep(max(0.0, (begin - clock.now_ms()) / 1000))
        tell("first", measure(log, clock, given.seconds / 2, 0)[1])
        copy = Path(name, "copy")
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("LOCK"))  # as a kill leaves it
        log.close()
        started = time.perf_counter()
        with open_log(copy, clock) as again:
            print(f"opened after a kill in {time.perf_counter() - started:.1f} s")
            opened = clock.now_ms()
            offset = again.end_offset("timed", 0)
            due, late = measure(again, clock, given.seconds / 2, offset)
            caught_up = max(opened, int((due + late)[late > 1000].max(initial=0)))
            print(f"caught up {(caught_up - opened) / 1000:.1f} s after it")
            tell("due from then on", late[due >= caught_up])
        clock.ahead_ms += HOUR_MS
        started = time.perf_counter()
        with open_log(copy, clock) as again:
            offset = before = again.end_offset("timed", 0)
            while offset < given.messages:
                offset = again.read("timed", 0, offset, max_count=100_000, wait=5.0).next_offset
            took = time.perf_counter() - started
            print(f"{given.messages - before:,} that were overdue came in {took:.1f} s")


if __name__ == "__main__":
    main()
