"""The lookups of one batch of a task as checked lookups, sorted by hash.

Depends on batch, options, requests and indexfile.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.index_service.batch.id_times import narrowed
from tierdex.index_service.requests.id_time import OFF
from tierdex.index_service.requests.lookups import NO_TOPIC, Lookups
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.pipeline.jobs.options import MAX_TIME, MIN_TIME

ORDER: Final = "__tierdex_order"
_SIGN: Final = np.uint64(1 << 63)


class IdTime(NamedTuple):
    """The form of message IDs with their time inside, and how far (s) an entry's time may be off it."""

    form: str
    slack_s: float


def lookups_of_batch(
    batch: pa.RecordBatch, *, by_id: bool, max_count: int, id_time: IdTime
) -> tuple[Lookups, np.ndarray]:
    """Return the lookups, and which of them have no null (b1): one with a null finds nothing."""
    count = batch.num_rows
    names = ("message_id",) if by_id else ("topic", "key")
    is_valid = np.ones(count, bool)
    for name in names:
        column = batch.column(name)
        if column.null_count:
            is_valid &= column.is_valid().to_numpy(zero_copy_only=False)
    topics: list[str] = []
    topic_index = np.full(count, NO_TOPIC, np.int64)
    if not by_id:
        encoded = pc.dictionary_encode(batch.column("topic"))
        topics = encoded.dictionary.to_pylist()
        topic_index = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
    texts = batch.column(names[-1])
    lookups = Lookups(
        np.asarray(batch.column(ORDER)).view(np.uint64) ^ _SIGN,
        np.full(count, KIND_MESSAGE_ID if by_id else KIND_KEY, np.uint8),
        topics,
        topic_index,
        _times(batch, "begin", MIN_TIME),
        _times(batch, "end", MAX_TIME),
        np.full(count, max_count, np.int64),
        lambda number: str(texts[number]),
    )
    if by_id and id_time.form != OFF:
        lookups = narrowed(lookups, *id_time, np.arange(count), texts)
    return lookups, is_valid


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
