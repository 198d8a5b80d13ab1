"""The STATISTICS part of a compacted file: what it says about its items as a whole.

Depends on layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tierdex.indexfile import layout

# In the JSON of the EXTRA part, both int64: when the file's tail was written, and how long that took.
COMPACTED_AT: Final = "compacted_at_ms"
COMPACTION_MS: Final = "compaction_ms"


@dataclass(frozen=True)
class FileStatistics:
    """The numbers of a finished file; times are 0 and -1 when it has no items."""

    item_count: int
    distinct_count: int
    min_time: int
    max_time: int
    longest_run: int
    page_count: int
    items_per_page: int
    filter_bits: int

    def encode(self) -> bytes:
        row = np.zeros((), layout.STATISTICS)
        for name, value in vars(self).items():
            row[name] = value
        return row.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> FileStatistics:
        """Return the statistics in `data`. Raises ValueError when they are not plausible."""
        if len(data) != layout.STATISTICS.itemsize:
            raise ValueError(f"statistics have {len(data)} bytes")
        row = np.frombuffer(data, layout.STATISTICS)[0]
        statistics = cls(**{name: int(row[name]) for name in cls.__dataclass_fields__})
        pages = statistics.page_count
        full = -(-statistics.item_count // max(statistics.items_per_page, 1))
        if row["reserved"] or statistics.filter_bits not in (0, 8, 16) or full != pages:
            raise ValueError(f"implausible statistics: {statistics}")
        if max(statistics.longest_run, statistics.distinct_count) > statistics.item_count:
            raise ValueError(f"implausible statistics: {statistics}")
        return statistics
