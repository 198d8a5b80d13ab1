"""The lookups of one batch of a task, as columns sorted by hash. Depends on options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.pipeline.options import MAX_TIME, MIN_TIME

ORDER: Final = "__tierdex_order"
_SIGN: Final = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class LookupBatch:
    """The lookups of a batch, sorted by hash. `topic` is an index into `topics`, -1 for an ID."""

    count: int
    hashes: np.ndarray
    topics: list[str]
    topic: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    is_valid: np.ndarray

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, by_id: bool) -> LookupBatch:
        count = batch.num_rows
        order = np.asarray(batch.column(ORDER))
        names = ("message_id",) if by_id else ("topic", "key")
        is_valid = np.ones(count, bool)
        for name in names:
            column = batch.column(name)
            if column.null_count:
                is_valid &= column.is_valid().to_numpy(zero_copy_only=False)
        topics: list[str] = []
        topic = np.full(count, -1, np.int64)
        if not by_id:
            encoded = pc.dictionary_encode(batch.column("topic"))
            topics = encoded.dictionary.to_pylist()
            topic = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
        return cls(
            count,
            order.view(np.uint64) ^ _SIGN,
            topics,
            topic,
            _times(batch, "begin", MIN_TIME),
            _times(batch, "end", MAX_TIME),
            is_valid,
        )


def _times(batch: pa.RecordBatch, name: str, default: int) -> np.ndarray:
    """Return a column of times in milliseconds; nulls and an absent column mean no bound."""
    if name not in batch.schema.names:
        return np.full(batch.num_rows, default)
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        # begin rounds up, end down: what lies within the bounds to the microsecond
        micros = column.cast(pa.int64())
        shifted = pc.add(micros, 999) if name == "begin" else micros
        values = np.asarray(shifted.fill_null(0)) // 1000
    else:
        values = np.asarray(column.fill_null(0)).astype(np.int64)
    if column.null_count:
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        values = np.where(nulls, default, values)
    return values
