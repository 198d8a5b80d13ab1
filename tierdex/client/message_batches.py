"""A read of a queue, from the Arrow stream of a service to the columns that an embedded log's reads have.

Apart from message_calls.py, since only reads need numpy and the columns. Depends on answers, arrow,
log_service, logfile, numpy and orjson.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from tierdex.client.answers import read_explain, read_missing
from tierdex.client.arrow import load_arrow, read_table
from tierdex.log_service.answer import ReadAnswer
from tierdex.logfile.extras import Extra, encode_extras
from tierdex.logfile.layout import MESSAGE_FORGOTTEN
from tierdex.logfile.messages import MessageBatch


def read_messages(body: bytes) -> ReadAnswer:
    """Return a read's answer from an Arrow stream."""
    table = read_table(body)
    about = orjson.loads(table.schema.metadata[b"answer"])
    return ReadAnswer(
        about["topic"], about["queue_id"], about["first_offset"], about["begin_offset"],
        about["end_offset"], _batch(table, about["next_offset"] - len(table)), about["from_begin"],
        read_missing(about),
        about["generation"],
        read_explain(about),
    )  # fmt: skip


def _batch(table: Any, first_offset: int) -> MessageBatch:
    """Return the rows of an answer as a log's own reads give them."""
    ends, bodies = _bodies(table)
    extras = [
        Extra(
            message_id, tuple(keys or ()), tuple((h["name"], h["value"]) for h in headers or ()), deliver_at
        )
        for keys, message_id, headers, deliver_at in zip(
            *(
                table.column(name).to_pylist()
                for name in ("keys", "message_id", "headers", "deliver_at")
            ),
            strict=True,
        )
    ]  # fmt: skip
    extra_offsets, extra_bytes = encode_extras(extras)
    batch = MessageBatch(first_offset, len(table), len(bodies), len(extra_bytes))
    if len(table):
        batch.times[:] = table.column("timestamp").to_numpy()
        is_forgotten = table.column("is_forgotten").to_numpy()
        batch.flags[:] = np.where(is_forgotten, MESSAGE_FORGOTTEN, 0)
        batch.body_offsets[:] = ends
        batch.bodies[:] = bodies
        batch.extra_offsets[:] = extra_offsets
        batch.extras[:] = extra_bytes
    return batch


def _bodies(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the bodies as (offsets i8[n + 1], bytes u1)."""
    pa = load_arrow()
    column = table.column("body").cast(pa.large_binary()).combine_chunks()
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
    bodies = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    return ends - ends[0], bodies
