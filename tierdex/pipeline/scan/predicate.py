"""The selection of a scan: its options as one value, applied to files, pages and rows.

It holds options only, no condition of a plan: Spark up to 4.3 keeps with the relation what a reader
made of one plan's filters, and reads later plans by it
(decision 0014).

Hashes are unsigned inside files and signed in Spark.

Depends on indexfile and options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile.layout import KIND_BIT, TOPIC_MASK
from tierdex.indexfile.lookup import NO_LIMIT, Search
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.pipeline.jobs.options import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from tierdex.indexfile.compacted.file import CompactedFile
    from tierdex.pipeline.jobs.snapshot import ListedFile


@dataclass(frozen=True)
class Predicate:
    """A conjunction. `by_id`: message IDs only, keys only, or (None) both; times are inclusive."""

    topics: frozenset[str] | None = None  # None: any
    by_id: bool | None = None
    hashes: np.ndarray | None = None  # u8, sorted, distinct; None: any
    begin: int = MIN_TIME
    end: int = MAX_TIME

    # -- files -----------------------------------------------------------------------------------

    def why_not(self, file: ListedFile) -> str | None:
        """Return `time` or `topic` when no row of the file can match; None otherwise."""
        if file.row.min_time > self.end or file.row.max_time < self.begin:
            return "time"
        if file.is_faded:
            return "topic"
        if self.topics is not None and not any(map(file.shows, self.topics)):
            return "topic"
        return None

    def wants_topic(self, file: ListedFile, topic: str) -> bool:
        return file.shows(topic) and (self.topics is None or topic in self.topics)

    # -- pages -----------------------------------------------------------------------------------

    def pages(self, file: CompactedFile, first: int, last: int) -> np.ndarray:
        """Return the pages of [first, last) that may hold a match, ascending (i8).

        With hashes it probes the filter, whose partitions must be there. Raises CorruptFileError.
        """
        mine = file.directory.entries[first:last]
        wanted = (mine["min_time"] <= self.end) & (mine["max_time"] >= self.begin)
        if self.hashes is not None:
            maybe = self.hashes[file.may_contain_many(self.hashes)]
            search = Search.of(maybe, 0, begin=self.begin, end=self.end)
            ranges = file.plan_pages(search, NO_LIMIT)
            steps = np.zeros(file.page_count + 1, np.int64)
            some = ranges[ranges[:, 1] >= ranges[:, 0]]
            np.add.at(steps, some[:, 0], 1)
            np.add.at(steps, some[:, 1] + 1, -1)
            wanted &= (np.cumsum(steps)[:-1] > 0)[first:last]
        return np.flatnonzero(wanted) + first

    # -- rows ------------------------------------------------------------------------------------

    def rows(self, rows: np.ndarray, file: CompactedFile, listed: ListedFile) -> np.ndarray | None:
        """Return a mask of the rows that match; None: all of them."""
        masks = []
        names = file.dictionaries.strings(TOPIC_DICTIONARY)
        topics = np.array([self.wants_topic(listed, name) for name in names], bool)
        if not topics.all():
            masks.append(topics[rows["tag"] & np.uint32(TOPIC_MASK)])
        if self.by_id is not None:
            masks.append((rows["tag"] >= KIND_BIT) == self.by_id)
        if self.begin > file.min_time or self.end < file.max_time:
            times = rows["timestamp"]
            masks.append((times >= self.begin) & (times <= self.end))
        if self.hashes is not None:
            masks.append(_among(rows["key_hash"], self.hashes))
        if (kept := listed.remembered(file, rows)) is not None:
            masks.append(kept)
        if not masks:
            return None
        return np.asarray(np.logical_and.reduce(masks), bool)


def _among(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which of `values` are in `wanted`, which is sorted and not empty."""
    place = np.searchsorted(wanted, values)
    return np.asarray(wanted[np.minimum(place, len(wanted) - 1)] == values)
