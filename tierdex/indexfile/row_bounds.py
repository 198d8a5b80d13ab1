"""The bounds of rows: least and greatest value of every column, and of every queue.

`RowBounds` must be known before the first page is packed, since they decide how columns are packed;
`RowMeasure` finds them in one pass over rows in any order, and the bounds of several files join
without a pass. They may be wider than the rows, never narrower: the writer refuses what lies outside.

Depends on layout, schema and row_scan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tierdex.indexfile import layout
from tierdex.indexfile.kernels.row_scan import (
    QUEUE_FREE,
    MeasureArrays,
    QueueTable,
    measure_rows,
    put_queues,
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
        columns = [
            (schema.position(name), self._dtype[name].itemsize, self._dtype[name].kind == "i")
            for name in names
        ]
        bounds = np.zeros((len(names), 2), np.uint64)
        bounds[:, 0] = np.iinfo(np.uint64).max
        ends = ("offset", "size", "queue_id") if schema.has_end_offsets else ()
        positions = np.array([schema.position(name) for name in ends] or [-1] * 3, np.int64)
        # What kernels widen; replaced as a whole by `grow`.
        self.arrays = MeasureArrays(
            columns=np.array(columns, np.int64),
            bounds=bounds,
            tags=np.array([layout.TOPIC_MASK, 0, 0], np.int64),
            queues=_new_queues(positions, schema.end_step, _START_QUEUES),
        )

    def add(self, rows: np.ndarray) -> None:
        """Widen the bounds by `rows`, a contiguous array of the schema's item dtype."""
        assert rows.dtype == self._dtype
        assert rows.flags.c_contiguous
        place, item_bytes, count = rows.ctypes.data, self._dtype.itemsize, len(rows)
        while count:
            done = measure_rows(place, item_bytes, count, self.arrays)
            place, count = place + done * item_bytes, count - done
            if count:
                self.grow()

    def grow(self) -> None:
        """Give the table of queues twice the room: a kernel stopped since it is half full."""
        before = self.arrays.queues
        filled = before.keys != QUEUE_FREE
        queues = _new_queues(before.positions, before.step, 2 * len(before.keys))
        put_queues(queues, before.keys[filled], before.least[filled], before.end[filled])
        self.arrays = self.arrays._replace(queues=queues)

    def bounds(self) -> RowBounds:
        """Return the bounds of all rows so far."""
        columns, bounds, tags, table = self.arrays
        low, high, kinds = tags.tolist()
        if not kinds:
            return RowBounds()
        least, greatest = {"topic": low}, {"topic": high}
        for i, name in enumerate(self._names):
            low, high = (int(value) for value in bounds[i])
            flip = _SIGN if columns[i, 2] else 0
            least[name], greatest[name] = low - flip, high - flip
        filled = table.keys != QUEUE_FREE
        queues = np.zeros(int(table.used[0]), layout.QUEUE)
        queues["topic"] = table.keys[filled] >> np.uint64(32)
        queues["queue_id"] = table.keys[filled].astype(np.uint32).view(np.int32)
        queues["base"] = table.least[filled]
        queues["end"] = table.end[filled]
        return RowBounds(kinds, least, greatest, _join_queues(queues))


def _new_queues(positions: np.ndarray, step: int, capacity: int) -> QueueTable:
    return QueueTable(
        positions=positions,
        step=step,
        keys=np.full(capacity, QUEUE_FREE, np.uint64),
        least=np.zeros(capacity, np.int64),
        end=np.zeros(capacity, np.int64),
        used=np.zeros(1, np.int64),
    )
