"""Shows a follower's progress on stderr: one changing line on a terminal, else a line when a problem ends.

The trouble itself is a warning of the follower, which every form of stderr has.

Depends on stderr_lines, following.status, clock and rich.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierdex.app.cli.terminal.stderr_lines import shown_by
from tierdex.clock import Bell, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tierdex.following.status import FollowStatus

_INTERVAL_S = 0.5


@contextmanager
def follow_display(status: FollowStatus, say: Callable[[str], None]) -> Iterator[None]:
    """Show `status` until the block ends; `say` reports the end of a problem."""
    ended = Bell()
    shown = threading.Thread(
        target=_show, args=(status, say, ended), name="tierdex-follow-display", daemon=True
    )
    shown.start()
    try:
        yield
    finally:
        ended.set()
        shown.join()


def _show(status: FollowStatus, say: Callable[[str], None], ended: Bell) -> None:
    clock = SystemClock()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        last, at = status.messages, clock.monotonic()
        compiling = [""]  # the last are the words of now
        with (
            Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live,
            shown_by(compiling.append),
        ):
            while not clock.wait(ended, _INTERVAL_S):
                now = clock.monotonic()
                rate = (status.messages - last) / max(now - at, 1e-9)
                last, at = status.messages, now
                live.update(compiling[-1] or _line(status, rate), refresh=True)
        return
    is_over, retries = False, 0
    while not is_over:
        is_over = clock.wait(ended, _INTERVAL_S)
        if status.retries > retries and status.trouble is None:
            retries = status.retries
            say("going on")


def _line(status: FollowStatus, rate: float) -> str:
    parts = [
        f"{status.source} -> {status.topic}: {status.messages:,} messages, {rate:,.0f}/s",
        f"{status.total_lag():,} behind",
    ]
    if status.lost:
        parts.append(f"{status.lost:,} lost by the log")
    if status.trouble:
        parts.append(f"waiting: {status.trouble}")
    return ", ".join(parts)
