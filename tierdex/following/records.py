"""Records: the messages of a followed log, as its source delivers them.

A batch holds columns, one value a record, in the order of offsets within each partition::

    partitions  offsets  sizes  timestamps | keys  values  headers      the last three where wanted
        0         17      211    17000...  | b"A"  b"{.."  [("region", b"eu")]
        0         18        0    17000...  | b"A"  None    None         a record without a value

Depends on value_rules and numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tierdex.value_rules import INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    Headers = Sequence[tuple[str, bytes]]


NO_TIME: Final = INT64_MIN  # of a record that has none


class Parts(NamedTuple):
    """Which parts of a record are wanted; a source need not fetch or decode the others."""

    key: bool = True
    value: bool = True
    headers: bool = True


class Bounds(NamedTuple):
    """What a partition holds: `first` is the least position still kept, `end` the one behind the last."""

    first: int
    end: int


@dataclass(frozen=True)
class Record:
    """One message. `value` is None where the log holds a key without one (Kafka's tombstone)."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(frozen=True)
class RecordBatch:
    """Records of one or more partitions: `partitions` int32, `offsets` int64, `sizes` uint32 (bytes of the
    value), `timestamps` int64 ms, each [n].

    `positions` is where each partition that moved is read on: behind its last record here, or further
    where what follows is no record. `passed_over` counts records that have no place in an index.
    """

    partitions: np.ndarray
    offsets: np.ndarray
    sizes: np.ndarray
    timestamps: np.ndarray
    positions: Mapping[int, int]
    keys: Sequence[bytes | None] | None = None
    values: Sequence[bytes | None] | None = None
    headers: Sequence[Headers | None] | None = None
    passed_over: int = 0

    @classmethod
    def without_records(cls, positions: Mapping[int, int], passed_over: int = 0) -> Self:
        """Return a batch that only moves positions."""
        none = np.empty(0, np.int64)
        return cls(
            none.astype(np.int32), none, none.astype(np.uint32), none, positions, [], [], [],
            passed_over,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.offsets)

    def first_offsets(self) -> dict[int, int]:
        """Return the offset of each partition's first record here."""
        begins = _run_begins(self.partitions)[::-1]  # an earlier one replaces a later one
        return dict(
            zip(self.partitions[begins].tolist(), self.offsets[begins].tolist(), strict=True)
        )


def _run_begins(column: np.ndarray) -> np.ndarray:
    """Return the rows whose value is not that of the row before."""
    is_first = np.ones(len(column), bool)
    np.not_equal(column[1:], column[:-1], out=is_first[1:])
    return np.flatnonzero(is_first)
