"""Ctrl-C as a request: the running work stops at its next safe place. A second Ctrl-C interrupts it at once.

Depends on nothing.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield what says whether Ctrl-C was pressed. Only the main thread hears of it."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def hear(_number: int, _frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
