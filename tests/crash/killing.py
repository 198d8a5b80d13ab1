"""The real file system and any store, whose process kills itself or stops itself at one of the calls."""

from __future__ import annotations

import os
import signal
import threading

from tierdex.filesystem import LocalFileSystem


class Trap:
    """Counts calls; at the nth, on one side of it, sends a signal to its own process."""

    def __init__(self, number=signal.SIGKILL, last_words=lambda: None):
        self.calls = 0
        self.number, self.last_words = number, last_words
        self._lock = threading.Lock()
        self._nth, self._after = 0, False

    def set(self, nth, *, after):
        """Count from now on; 0 is never."""
        self.calls, self._nth, self._after = 0, nth, after

    def around(self, call, *arguments, **named):
        with self._lock:
            self.calls += 1
            is_here = self.calls == self._nth
        if is_here and not self._after:
            self._strike()
        try:
            return call(*arguments, **named)
        finally:
            if is_here and self._after:
                self._strike()

    def _strike(self):
        self.last_words()
        os.kill(os.getpid(), self.number)


class KillingFileSystem:
    """Every call of the `FileSystem`, of its files and mappings goes through a trap; closing does not."""

    def __init__(self, trap=None):
        self.trap = trap or Trap()
        self._inner = LocalFileSystem()

    def kill_at(self, nth, *, after):
        self.trap.set(nth, after=after)

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        return lambda *arguments, **named: self.trap.around(call, *arguments, **named)

    def open(self, *arguments, **named):
        return TrappedFile(self.trap, self.trap.around(self._inner.open, *arguments, **named))

    def lock(self, *arguments, **named):
        return self.trap.around(self._inner.lock, *arguments, **named)


class TrappedFile:
    def __init__(self, trap, file):
        self._trap, self._file = trap, file

    def __getattr__(self, name):
        call = getattr(self._file, name)
        return lambda *arguments, **named: self._trap.around(call, *arguments, **named)

    def map(self, *arguments, **named):
        return TrappedMapping(self._trap, self._trap.around(self._file.map, *arguments, **named))

    def close(self):
        self._file.close()


class TrappedMapping:
    def __init__(self, trap, mapping):
        self._trap, self._mapping = trap, mapping

    @property
    def array(self):
        return self._mapping.array

    @property
    def is_shared(self):
        return self._mapping.is_shared

    def populate(self, position, length):
        self._mapping.populate(position, length)

    def write_back(self, position, length):
        self._trap.around(self._mapping.write_back, position, length)

    def sync(self, position, length):
        self._trap.around(self._mapping.sync, position, length)

    def close(self):
        self._mapping.close()


class TrappedStore:
    """Every request of a store goes through a trap."""

    def __init__(self, inner, trap):
        self._inner, self._trap = inner, trap

    @property
    def url(self):
        return self._inner.url

    def __getattr__(self, name):
        call = getattr(self._inner, name)
        if name == "close":
            return call
        return lambda *arguments, **named: self._trap.around(call, *arguments, **named)
