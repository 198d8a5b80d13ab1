"""Times as options of commands: the forms of `times`, and times before now.

Depends on clock and times.
"""

from __future__ import annotations

from typing import Any

from tierdex.clock import SystemClock
from tierdex.times import parse_time


def asked_time(text: str, option: str, *, is_end: bool = False) -> int:
    """Return milliseconds. Raises InvalidRequestError that names the option."""
    return parse_time(text, field=option, now_ms=SystemClock().now_ms, is_end=is_end)


def asked_range(begin: str | None, end: str | None) -> dict[str, Any]:
    """Return `begin` and `end` of a query."""
    return {
        "begin": None if begin is None else asked_time(begin, "--begin"),
        "end": None if end is None else asked_time(end, "--end", is_end=True),
    }
