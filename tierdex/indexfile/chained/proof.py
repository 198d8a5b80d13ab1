"""The proof of a chained file: verifies every batch and sums its items, to compare a walk with.

Depends on batch_statistics, batch_proof, row_bounds, layout and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import CorruptFileError
from tierdex.indexfile import layout
from tierdex.indexfile.chained.batch_statistics import BatchStatistics
from tierdex.indexfile.chained.kernels import batch_proof as k
from tierdex.indexfile.row_bounds import RowMeasure

if TYPE_CHECKING:
    from tierdex.indexfile.chained.view import ChainedView
    from tierdex.indexfile.header import FileHeader


class Proof(NamedTuple):
    """What the verified batches of the rows 1 .. rows hold: compare it with what a walk gives."""

    rows: int
    items: int
    fingerprint: int


def prove(
    header: FileHeader,
    path: object,
    view: ChainedView,
    row_count: int,
    measure: RowMeasure | None = None,
) -> Proof:
    """Verify every batch of the first `row_count` rows, and `measure` their items.

    Reads the rows in order, which also brings them into memory before chains jump about in them.
    Raises CorruptFileError.
    """
    statistics = BatchStatistics(header, with_ends=False)
    begin = layout.rows_position(header.slot_count)
    statistics.bind(slots=0, rows=view.data.ctypes.data + begin)
    is_measured = measure is not None
    measure = measure or RowMeasure(header.schema)
    arguments = np.zeros(k.PROOF_ARGUMENTS, np.int64)
    arguments[k.P_MEASURES] = is_measured
    while k.prove_batches(statistics.array, arguments, row_count, measure.arrays) == k.PROOF_GROW:
        measure.grow()
    if statistics.next_row <= row_count:
        raise CorruptFileError(
            path,
            f"batch {statistics.batches} at row {statistics.next_row} does not verify",
        )
    return Proof(row_count, statistics.items, statistics.fingerprint)
