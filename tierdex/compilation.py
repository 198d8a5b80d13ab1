"""The callback for kernel compilation, which takes seconds with a cold cache and looks like a hang.

`fileparts/kernels/compile.py` tells; the command line shows it on a terminal (`stderr_lines`).
Apart from both, so that who wants to be told need not load numba. Depends on nothing.
"""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Told in the thread that compiles, one kernel at a time; what it calls may be compiled with it."""

    def begun(self, count: int, seconds: float) -> None:
        """Another kernel is being compiled, after `count` others that took so long."""

    def ended(self, count: int, seconds: float) -> None:
        """It is compiled: `count` kernels by now."""


class Compilations:
    """The kernels that this process has compiled itself, rather than loaded."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.watchers: list[Watcher] = []

    def begin(self) -> None:
        for watcher in self.watchers:
            watcher.begun(self.count, self.seconds)

    def end(self, seconds: float) -> None:
        """Count a kernel; all of them have taken `seconds`."""
        self.count += 1
        self.seconds = seconds
        for watcher in self.watchers:
            watcher.ended(self.count, self.seconds)


compilations = Compilations()
