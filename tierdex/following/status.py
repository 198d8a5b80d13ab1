"""The status of a follower: counts, positions, lag, the current problem.

The follower's thread writes it, others read it; each value is replaced at once, so a reader sees it whole.

Depends on nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FollowStatus:
    """Counts since the follower began.

    `messages` were read and `entries` put. Of the messages: `missing` had no text for a selector (by
    selector), `without_value` had no value at all, `unreadable` a part that is no text or no JSON,
    `untimed` no time where it should stand, or one that is not understood (theirs is the source's, a
    file's last change; an unknown spelling in a file makes no entry), `too_long` counts keys above the
    limit, `passed_over` what has no place in an index. `lost` offsets were gone before they were read;
    `restarts` counts logs begun anew, files that were replaced among them. `skipped` is what was there and is
    no log: why, by name.
    """

    source: str
    topic: str
    messages: int = 0
    entries: int = 0
    bytes: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    without_value: int = 0
    unreadable: int = 0
    too_long: int = 0
    untimed: int = 0
    passed_over: int = 0
    lost: int = 0
    restarts: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    retries: int = 0
    trouble: str | None = None
    positions: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def lag(self, partition: int) -> int:
        """Return how far the partition's end is ahead, in offsets, as of the last look."""
        return max(0, self.ends.get(partition, 0) - self.positions.get(partition, 0))

    def total_lag(self) -> int:
        return sum(self.lag(partition) for partition in list(self.ends))

    def counts(self) -> dict[str, Any]:
        """Return the counts by name, for a reader."""
        return {
            "messages": self.messages,
            "entries": self.entries,
            "missing": dict(self.missing),
            "without_value": self.without_value,
            "unreadable": self.unreadable,
            "too_long": self.too_long,
            "untimed": self.untimed,
            "passed_over": self.passed_over,
            "lost": self.lost,
            "restarts": self.restarts,
            "skipped": dict(self.skipped),
            "lag": self.total_lag(),
        }
