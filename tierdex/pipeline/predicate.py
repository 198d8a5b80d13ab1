"""What a scan wants: pushed filters and options as one value that is asked of files, pages and rows.

Spark's filters on topic, kind, file_id and node are evaluated on the few distinct strings of a file;
equality, IN and ranges on key_hash and timestamp become sorted hashes and bounds. Whatever cannot be
answered exactly stays with Spark. No column here is ever null, so NOT needs no third truth value.

Hashes are compared unsigned inside files and are signed in Spark. Depends on indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import datasource as spark

from tierdex.indexfile.layout import KIND_BIT, TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY
from tierdex.pipeline.options import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.indexfile.compacted import CompactedFile
    from tierdex.pipeline.snapshot import ListedFile

KINDS: Final = ("key", "message_id")
TEXT_COLUMNS: Final = ("topic", "kind", "file_id", "node")
_COMPARISONS: Final[dict[type, Callable[[Any, Any], bool]]] = {
    spark.EqualTo: lambda value, other: value == other,
    spark.EqualNullSafe: lambda value, other: value == other,
    spark.GreaterThan: lambda value, other: value > other,
    spark.GreaterThanOrEqual: lambda value, other: value >= other,
    spark.LessThan: lambda value, other: value < other,
    spark.LessThanOrEqual: lambda value, other: value <= other,
    spark.StringStartsWith: lambda value, other: value.startswith(other),
    spark.StringEndsWith: lambda value, other: value.endswith(other),
    spark.StringContains: lambda value, other: other in value,
}


@dataclass(frozen=True)
class Predicate:
    """A conjunction. `hashes` are sorted u8, None for any; bounds are inclusive."""

    texts: tuple[tuple[str, Any], ...] = ()  # (column, filter)
    topics: frozenset[str] | None = None
    hashes: np.ndarray | None = None
    hash_bounds: tuple[int, int] = (MIN_TIME, MAX_TIME)  # signed
    begin: int = MIN_TIME
    end: int = MAX_TIME
    is_never: bool = field(default=False)

    def push(self, filters: Iterable[Any]) -> tuple[Predicate, list[Any]]:
        """Return the conjunction with those of `filters` that are answered here, and the others."""
        found, left = self, []
        for one in filters:
            pushed = found._with(one)
            if pushed is None:
                left.append(one)
            else:
                found = pushed
        return found, left

    def _with(self, one: Any) -> Predicate | None:
        inner = one.child if isinstance(one, spark.Not) else one
        column = ".".join(getattr(inner, "attribute", ()))
        if column in TEXT_COLUMNS:
            return replace(self, texts=(*self.texts, (column, one))) if _is_known(inner) else None
        if column not in ("key_hash", "timestamp") or inner is not one:
            return None
        if isinstance(one, spark.IsNotNull):
            return self
        if isinstance(one, spark.IsNull):
            return replace(self, is_never=True)
        bounds = _bounds_of(one)
        if column == "timestamp":
            return None if bounds is None else self.between(*bounds)
        values = _values_of(one)
        if values is not None:
            return self.with_hashes(_unsigned(values))
        if bounds is None:
            return None
        low, high = self.hash_bounds
        return replace(self, hash_bounds=(max(low, bounds[0]), min(high, bounds[1])))

    def between(self, begin: int, end: int) -> Predicate:
        return replace(self, begin=max(self.begin, begin), end=min(self.end, end))

    def with_hashes(self, hashes: np.ndarray) -> Predicate:
        """Return the predicate with key_hash among `hashes` (u8)."""
        hashes = np.unique(hashes)
        if self.hashes is not None:
            hashes = np.intersect1d(self.hashes, hashes)
        return replace(self, hashes=hashes)

    # -- files -----------------------------------------------------------------------------------

    def why_not(self, file: ListedFile) -> str | None:
        """Return `never`, `time` or `topic` when no row of the file can match; None otherwise."""
        low, high = self.hash_bounds
        if self.is_never or low > high or (self.hashes is not None and not len(self.hashes)):
            return "never"
        if file.row.min_time > self.end or file.row.max_time < self.begin:
            return "time"
        for column, value in (("file_id", file.file_id), ("node", file.node)):
            if not self._text_matches(column, value):
                return "never"
        if not any(self._text_matches("kind", kind) for kind in KINDS):
            return "never"
        topics = file.row.topics
        if topics is not None and not any(self.wants_topic(file, topic) for topic in topics):
            return "topic"
        return None

    def wants_topic(self, file: ListedFile, topic: str) -> bool:
        if topic in file.hidden or (self.topics is not None and topic not in self.topics):
            return False
        return self._text_matches("topic", topic)

    def _text_matches(self, column: str, value: str) -> bool:
        return all(_matches(one, value) for name, one in self.texts if name == column)

    # -- pages -----------------------------------------------------------------------------------

    def pages(self, file: CompactedFile, first: int, last: int) -> np.ndarray:
        """Return which pages of [first, last) may hold a match, ascending (i8).

        With hashes the filter is asked, so its partitions must be there. Raises CorruptFileError.
        """
        entries = file.directory.entries
        mine = entries[first:last]
        wanted = (mine["min_time"] <= self.end) & (mine["max_time"] >= self.begin)
        if self.hashes is not None:
            ranges = file.plan_pages(self.hashes)
            steps = np.zeros(file.page_count + 1, np.int64)
            some = ranges[ranges[:, 1] >= ranges[:, 0]]
            np.add.at(steps, some[:, 0], 1)
            np.add.at(steps, some[:, 1] + 1, -1)
            wanted &= (np.cumsum(steps)[:-1] > 0)[first:last]
        if self.hash_bounds != (MIN_TIME, MAX_TIME):
            lowest, highest = mine["first_hash"], entries["first_hash"][first + 1 : last + 1]
            within = np.zeros(len(mine), bool)
            for low, high in _unsigned_ranges(*self.hash_bounds):
                within |= (lowest <= np.uint64(high)) & (highest >= np.uint64(low))
            wanted &= within
        return np.flatnonzero(wanted) + first

    # -- rows ------------------------------------------------------------------------------------

    def rows(self, rows: np.ndarray, file: CompactedFile, listed: ListedFile) -> np.ndarray | None:
        """Return a mask of the rows that match; None: all of them."""
        masks = []
        names = file.dictionaries.strings(TOPIC_DICTIONARY)
        topics = np.array([self.wants_topic(listed, name) for name in names], bool)
        if not topics.all():
            masks.append(topics[rows["tag"] & np.uint32(TOPIC_MASK)])
        kinds = [self._text_matches("kind", kind) for kind in KINDS]
        if not all(kinds):
            masks.append((rows["tag"] >= KIND_BIT) == kinds[1] if any(kinds) else _none(rows))
        if self.begin > file.min_time or self.end < file.max_time:
            times = rows["timestamp"]
            masks.append((times >= self.begin) & (times <= self.end))
        if self.hashes is not None:
            masks.append(_among(rows["key_hash"], self.hashes))
        if self.hash_bounds != (MIN_TIME, MAX_TIME):
            signed = rows["key_hash"].astype(np.int64)
            masks.append((signed >= self.hash_bounds[0]) & (signed <= self.hash_bounds[1]))
        if not masks:
            return None
        return np.asarray(np.logical_and.reduce(masks), bool)


def _none(rows: np.ndarray) -> np.ndarray:
    return np.zeros(len(rows), bool)


def _among(values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return which of `values` are in `wanted`, which is sorted."""
    if not len(wanted):
        return np.zeros(len(values), bool)
    place = np.searchsorted(wanted, values)
    return np.asarray(wanted[np.minimum(place, len(wanted) - 1)] == values)


def _is_known(one: Any) -> bool:
    return isinstance(one, (spark.In, spark.IsNull, spark.IsNotNull, *_COMPARISONS))


def _matches(one: Any, value: str) -> bool:
    """Evaluate a filter on a string that is never null; a comparison with null is never true."""
    if isinstance(one, spark.Not):
        inner: Any = one.child
        if isinstance(inner, spark.In) and None in inner.value:
            return False
        if not isinstance(inner, (spark.In, spark.IsNull, spark.IsNotNull, spark.EqualNullSafe)):
            return inner.value is not None and not _matches(inner, value)
        return not _matches(inner, value)
    if isinstance(one, spark.IsNull):
        return False
    if isinstance(one, spark.IsNotNull):
        return True
    if isinstance(one, spark.In):
        return value in one.value
    return one.value is not None and _COMPARISONS[type(one)](value, one.value)


def _values_of(one: Any) -> list[int] | None:
    """Return the numbers that an equality or IN lists, None for other filters."""
    if isinstance(one, spark.In):
        return [value for value in one.value if value is not None]
    if isinstance(one, (spark.EqualTo, spark.EqualNullSafe)):
        return [] if one.value is None else [one.value]
    return None


def _bounds_of(one: Any) -> tuple[int, int] | None:
    """Return the inclusive bounds that a comparison with a number sets, None for other filters."""
    value = getattr(one, "value", None)
    if not isinstance(value, int):
        return None
    bounds = {
        spark.EqualTo: (value, value),
        spark.EqualNullSafe: (value, value),
        spark.GreaterThan: (value + 1, MAX_TIME),
        spark.GreaterThanOrEqual: (value, MAX_TIME),
        spark.LessThan: (MIN_TIME, value - 1),
        spark.LessThanOrEqual: (MIN_TIME, value),
    }
    return bounds.get(type(one))


def _unsigned(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64).view(np.uint64)


def _unsigned_ranges(low: int, high: int) -> list[tuple[int, int]]:
    """Return the ranges of unsigned hashes that the signed range [low, high] stands for."""
    ranges = []
    if high >= 0:
        ranges.append((max(low, 0), high))
    if low < 0:
        ranges.append((low + (1 << 64), min(high, -1) + (1 << 64)))
    return ranges
