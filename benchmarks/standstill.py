"""When the machine itself stood still, as a process of its own saw it.

A host stops a virtual machine that has used up its share (35 ms of each 100 were seen), or takes its
page tables away, and then ordinary work costs a hundred times its CPU time for a while. Inside, no
clock tells that from a program's own stall. So another process does the same few microseconds of work
each millisecond, and notes when that took milliseconds of CPU, or when it was late and the host had
taken time from all cores. That it had to wait for a core does not count: that is our own load.
"""

from __future__ import annotations

import multiprocessing
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_EVERY_S = 0.001
_LATE_S = 0.005
_LOOPS = 100  # between two looks at what the host took
_TICK_S = 0.01  # of the kernel's account


class Standstills:
    """Watches while it is entered; afterwards `spans` are (begin, end) on `time.perf_counter`."""

    def __enter__(self) -> Standstills:
        self.spans: list[tuple[float, float]] = []
        self._end, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._child = context.Process(target=_watch, args=(theirs,), daemon=True)
        self._child.start()
        theirs.close()
        self._end.recv()  # it has begun
        return self

    def __exit__(self, *_: object) -> None:
        self._end.send("stop")
        self.spans = self._end.recv()
        self._child.join()

    def overlap(self, begin: float, end: float) -> bool:
        return any(first < end and begin < last for first, last in self.spans)


def _watch(ours: Connection) -> None:
    spans: list[tuple[float, float]] = []
    pages = bytearray(1 << 18)
    stolen, loops, last = _stolen(), 0, time.perf_counter()
    ours.send("begun")
    while not ours.poll():
        cpu = time.thread_time()
        sum(pages[::4096])
        cpu = time.thread_time() - cpu
        now = time.perf_counter()
        late = now - last > _LATE_S + _EVERY_S
        loops += 1
        if late or loops % _LOOPS == 0:
            before, stolen = stolen, _stolen()
            if late and (cpu > _LATE_S or stolen - before >= _TICK_S):
                spans.append((last, now))
        last = time.perf_counter()
        time.sleep(_EVERY_S)
    ours.recv()
    ours.send(spans)


def _stolen() -> float:
    """Return the seconds that the host took from each core, on average, since the start."""
    return float(psutil.cpu_times().steal / psutil.cpu_count())
