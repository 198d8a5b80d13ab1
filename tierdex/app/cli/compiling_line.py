"""A line on a terminal while kernels are compiled: with a cold cache a command would be silent for seconds.

    compiling kernels, once: 7 in 4 s

The line is there while one is compiled, and leaves nothing behind. Depends on compilation.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TextIO

from tierdex.compilation import compilations

_ERASED = "\r\x1b[K"


class CompilingLine:
    """Shows on a terminal how many kernels were compiled, and in how many seconds."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal

    def begun(self, count: int, seconds: float) -> None:
        self._write(f"{_ERASED}compiling kernels, once: {count + 1} in {seconds:.0f} s")

    def ended(self, count: int, seconds: float) -> None:
        self._write(_ERASED)

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that went away stops no compilation
            self._terminal.write(text)
            self._terminal.flush()


def show_compilations() -> None:
    """Show it if stderr is a terminal. Call this before anything loads a kernel."""
    if sys.stderr.isatty():
        compilations.watchers.append(CompilingLine(sys.stderr))
