"""Lines on stderr: one while kernels compile, which is silent for seconds otherwise; and warnings.

    compiling kernels, once: 7 in 4 s

The line is there while one is compiled, and leaves nothing behind. What draws on the terminal itself shows
the words in its own line (`shown_by`), or it would draw over this one. Depends on compilation.
"""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

from tierdex.compilation import compilations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ERASED = "\r\x1b[K"


class CompilingLine:
    """Shows how many kernels were compiled, and in how many seconds; `show("")` takes it away."""

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show

    def begun(self, count: int, seconds: float) -> None:
        self._show(f"compiling kernels, once: {count + 1} in {seconds:.0f} s")

    def ended(self, count: int, seconds: float) -> None:
        self._show("")


def on_terminal(terminal: TextIO) -> Callable[[str], None]:
    """Return what shows a text as a line of a terminal, in place of the text before."""

    def show(text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that went away stops no compilation
            terminal.write(f"{_ERASED}{text}")
            terminal.flush()

    return show


def show_compilations() -> None:
    """Show it if stderr is a terminal. Call this before anything loads a kernel."""
    if sys.stderr.isatty():
        compilations.watchers.append(CompilingLine(on_terminal(sys.stderr)))


@contextmanager
def shown_by(show: Callable[[str], object]) -> Iterator[None]:
    """Show it by `show` instead, until the block ends."""
    before, compilations.watchers = compilations.watchers, [CompilingLine(show)]
    try:
        yield
    finally:
        compilations.watchers = before


_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def show_warnings_with_fields() -> None:
    """Write unhandled warnings with their fields, which Python's default handler omits."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Line())


class _Line(logging.Formatter):
    """`message: name=value ...`, and the traceback where there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [
            f"{name}={value}" for name, value in vars(record).items() if name not in _STANDARD
        ]
        return ": ".join(each for each in (record.message, " ".join(fields)) if each)
