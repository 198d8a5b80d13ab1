"""What a file knows about its rows as a whole: bounds of every column, queues, topics, counts.

`RowBounds` must be known before the first page is packed, since they decide how columns are packed;
`RowMeasure` finds them in one pass over rows in any order, and the bounds of several files join
without a pass. They may be wider than the rows, never narrower: the writer refuses what lies outside.

Depends on layout, schema, batch_proof and row_scan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels.batch_proof import (
    P_MEASURES,
    P_QUEUES,
    PROOF_END,
    PROOF_WORDS,
    prove_batches,
)
from tierdex.indexfile.kernels.row_scan import (
    QUEUE_FREE,
    measure_columns,
    measure_queues,
    measure_tags,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tierdex.indexfile.schema import Schema

KEYS = 1  # RowBounds.kinds: some items stand for keys
MESSAGE_IDS = 2  # ... some for message IDs
_SIGN = 1 << 63
_START_QUEUES = 1024


@dataclass(frozen=True)
class RowBounds:
    """Least and greatest value of every column of some rows, and of every queue.

    `least` and `greatest` have the keys `topic` (the index), `timestamp` and the schema's fields;
    both are empty when there are no rows. `queues` is an array of `layout.QUEUE` in the order of
    (topic, queue_id), empty when the schema has no end offsets.
    """

    kinds: int = 0
    least: Mapping[str, int] = field(default_factory=dict)
    greatest: Mapping[str, int] = field(default_factory=dict)
    queues: np.ndarray = field(default_factory=lambda: np.zeros(0, layout.QUEUE))

    @property
    def is_empty(self) -> bool:
        return not self.least

    @classmethod
    def measure(cls, schema: Schema, chunks: Iterable[np.ndarray]) -> RowBounds:
        """Return the bounds of all rows in `chunks` (arrays of the schema's item dtype)."""
        measure = RowMeasure(schema)
        for rows in chunks:
            measure.add(rows)
        return measure.bounds()

    @classmethod
    def join(
        cls, bounds: Sequence[RowBounds], remaps: Sequence[Mapping[str, np.ndarray]]
    ) -> RowBounds:
        """Return bounds that hold for the rows of all files, with dictionary indexes remapped.

        `remaps[i]` maps dictionary names to the new index (i8) of each old one, for file i.
        """
        kinds = 0
        least: dict[str, int] = {}
        greatest: dict[str, int] = {}
        queues = []
        for one, remap in zip(bounds, remaps, strict=True):
            kinds |= one.kinds
            for name in one.least:
                low, high = one.least[name], one.greatest[name]
                if name in remap:
                    used = remap[name][low : high + 1]
                    low, high = int(used.min()), int(used.max())
                least[name] = min(low, least.get(name, low))
                greatest[name] = max(high, greatest.get(name, high))
            moved = one.queues.copy()
            if len(moved):
                moved["topic"] = remap["topic"][moved["topic"]]
            queues.append(moved)
        joined = np.concatenate(queues) if queues else np.zeros(0, layout.QUEUE)
        return cls(kinds, least, greatest, _join_queues(joined))


def _join_queues(rows: np.ndarray) -> np.ndarray:
    """Return one row a queue, in order, from rows of any number a queue."""
    if not len(rows):
        return rows
    rows = rows[np.lexsort((rows["queue_id"], rows["topic"]))]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows["topic"][1:] != rows["topic"][:-1]) | (
        rows["queue_id"][1:] != rows["queue_id"][:-1]
    )
    starts = np.flatnonzero(fresh)
    joined = rows[starts].copy()
    joined["base"] = np.minimum.reduceat(rows["base"], starts)
    joined["end"] = np.maximum.reduceat(rows["end"], starts)
    return joined


class RowMeasure:
    """Finds the bounds of rows that come in chunks, in any order. One thread."""

    def __init__(self, schema: Schema) -> None:
        self._dtype = schema.dtype
        names = ["timestamp", *schema.field_names]
        self._names = names
        rows = []
        for name in names:
            kind = self._dtype[name]
            rows.append((schema.position(name), kind.itemsize, kind.kind == "i"))
        self._columns = np.array(rows, np.int64)
        self._bounds = np.zeros((len(names), 2), np.uint64)
        self._bounds[:, 0] = np.iinfo(np.uint64).max
        ends = ("offset", "size", "queue_id") if schema.has_end_offsets else ()
        self._positions = np.array([schema.position(name) for name in ends] or [-1] * 3, np.int64)
        self._keys = np.full(_START_QUEUES, QUEUE_FREE, np.uint64)
        self._least = np.zeros(_START_QUEUES, np.int64)
        self._end = np.zeros(_START_QUEUES, np.int64)
        self._used = 0
        self._tags = np.array([layout.TOPIC_MASK, 0, 0], np.int64)  # least, greatest topic, kinds

    def add(self, rows: np.ndarray) -> None:
        """Widen the bounds by `rows`, a contiguous array of the schema's item dtype."""
        assert rows.dtype == self._dtype
        assert rows.flags.c_contiguous
        if not len(rows):
            return
        address, item_bytes, count = rows.ctypes.data, self._dtype.itemsize, len(rows)
        measure_tags(address, item_bytes, count, self._tags)
        measure_columns(address, item_bytes, count, self._columns, self._bounds)
        while self._positions[0] >= 0 and count:
            done, self._used = measure_queues(
                address,
                item_bytes,
                count,
                self._positions,
                self._keys,
                self._least,
                self._end,
                self._used,
            )
            address, count = address + done * item_bytes, count - done
            if count:
                self._grow()

    def add_batches(self, tally: np.ndarray, row_limit: int) -> None:
        """Widen the bounds by the items of all batches that verify, from the tally's next row on.

        The tally (its words) goes on behind them, and sums up their fingerprints; see `batch_proof`.
        """
        words = np.zeros(PROOF_WORDS, np.int64)
        words[P_MEASURES] = 1
        while True:
            words[P_QUEUES] = self._used
            answer = self._prove(tally, words, row_limit)
            self._used = int(words[P_QUEUES])
            if answer == PROOF_END:
                return
            self._grow()

    def verify_batches(self, tally: np.ndarray, row_limit: int) -> None:
        """Do the same without widening the bounds."""
        self._prove(tally, np.zeros(PROOF_WORDS, np.int64), row_limit)

    def _prove(self, tally: np.ndarray, words: np.ndarray, row_limit: int) -> int:
        answer: int = prove_batches(
            tally,
            words,
            row_limit,
            self._columns,
            self._bounds,
            self._tags,
            self._positions,
            self._keys,
            self._least,
            self._end,
        )
        return answer

    def _grow(self) -> None:
        """Give the table of queues twice the room."""
        filled = self._keys != QUEUE_FREE
        keys, least, end = self._keys[filled], self._least[filled], self._end[filled]
        size = 2 * len(self._keys)
        self._keys = np.full(size, QUEUE_FREE, np.uint64)
        self._least = np.zeros(size, np.int64)
        self._end = np.zeros(size, np.int64)
        place = (keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
        for i, start in enumerate(place.tolist()):
            at = start & (size - 1)
            while self._keys[at] != QUEUE_FREE:
                at = (at + 1) & (size - 1)
            self._keys[at], self._least[at], self._end[at] = keys[i], least[i], end[i]

    def bounds(self) -> RowBounds:
        """Return the bounds of all rows so far."""
        low, high, kinds = self._tags.tolist()
        if not kinds:
            return RowBounds()
        least, greatest = {"topic": low}, {"topic": high}
        for i, name in enumerate(self._names):
            low, high = (int(value) for value in self._bounds[i])
            flip = _SIGN if self._columns[i, 2] else 0
            least[name], greatest[name] = low - flip, high - flip
        filled = self._keys != QUEUE_FREE
        queues = np.zeros(self._used, layout.QUEUE)
        queues["topic"] = self._keys[filled] >> np.uint64(32)
        queues["queue_id"] = self._keys[filled].astype(np.uint32).view(np.int32)
        queues["base"] = self._least[filled]
        queues["end"] = self._end[filled]
        return RowBounds(kinds, least, greatest, _join_queues(queues))


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
