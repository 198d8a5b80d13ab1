"""`Histogram`: how many entries of one key lie in each part of their time.

query/time_counts.py makes one of an index's rows; a client reads one of a service's answer.

Depends on answer.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tierdex.index_service.answer import Missing, Unasked

DEFAULT_BUCKETS: Final = 60
BUCKETS_LEAST: Final = 10  # fewer would be wider than an int64 tells
BUCKETS_MOST: Final = 1000


@dataclass(slots=True)
class Histogram:
    """The entries of one lookup by time, in buckets of `width_ms` from `begin` on.

    `begin` and `end` are the times (int64 ms) of the first and the last entry, None without entries; the last
    bucket ends with `end`. `more`: the newest files had as many entries as were to be counted, and
    older ones are left out. `complete`, `missing`, `as_of` and `unasked` are those of an `Answer`.
    """

    begin: int | None = None
    end: int | None = None
    width_ms: int = 1
    counts: list[int] = field(default_factory=list)
    more: bool = False
    complete: bool = True
    missing: list[Missing] = field(default_factory=list)
    as_of: int = 0
    unasked: tuple[Unasked, ...] = ()

    @property
    def count(self) -> int:
        """The entries that are counted."""
        return sum(self.counts)

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "count": self.count,
            "missing": [missing.to_dict() for missing in self.missing],
            "unasked": [unasked._asdict() for unasked in self.unasked],
        }
