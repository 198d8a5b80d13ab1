"""How much memory of its own this process holds; the page cache and mapped files do not count."""

from __future__ import annotations

import ctypes
import gc
import threading
from pathlib import Path

import pyarrow as pa


def anonymous_bytes() -> int:
    """Return this process's resident memory that is not a file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise OSError("this system does not tell resident memory: /proc/self/status has no RssAnon")


def release_unused() -> None:
    """Give back what the allocators keep of earlier work: it would hide what comes next."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


class PeakMemory:
    """Samples this process's anonymous memory; `bytes` is how far it rose."""

    def __enter__(self) -> PeakMemory:
        release_unused()
        self._before = anonymous_bytes()
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.01):
            self.bytes = max(self.bytes, anonymous_bytes() - self._before)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self.bytes = max(self.bytes, anonymous_bytes() - self._before)
