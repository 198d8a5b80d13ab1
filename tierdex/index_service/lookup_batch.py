"""Many lookups as columns: what the batch kernels take.

From checked requests, or from an Arrow table without a Python object a row. Times are inclusive
int64 ms. Depends on errors, request, entry_columns and indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.index_service.entry_columns import make_string_column, make_topic_column
from tierdex.index_service.request import INT64_MAX, INT64_MIN, check_integer, make_request
from tierdex.indexfile import hashing
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.request import QueryRequest
    from tierdex.settings import Settings

NO_TOPIC = -1


@dataclass(frozen=True, slots=True)
class LookupBatch:
    """`count` lookups. `topic_index` i4 into `topics`, NO_TOPIC for a message ID of any topic."""

    hashes: np.ndarray  # u8
    kinds: np.ndarray  # u1
    topics: list[str]
    topic_index: np.ndarray  # i4
    begin: np.ndarray  # i8
    end: np.ndarray  # i8
    max_count: np.ndarray  # i8

    @property
    def count(self) -> int:
        return len(self.hashes)

    @property
    def has_topics(self) -> bool:
        """Say whether every lookup names its topic."""
        return self.count == 0 or int(self.topic_index.min()) > NO_TOPIC


def batch_of_requests(requests: Sequence[QueryRequest]) -> LookupBatch:
    """Return checked requests as columns."""
    topics = list(dict.fromkeys(r.topic for r in requests if r.topic is not None))
    numbers: dict[str | None, int] = {topic: number for number, topic in enumerate(topics)}
    numbers[None] = NO_TOPIC
    count = len(requests)
    return LookupBatch(
        np.fromiter((r.key_hash for r in requests), np.uint64, count),
        np.fromiter((r.kind for r in requests), np.uint8, count),
        topics,
        np.fromiter((numbers[r.topic] for r in requests), np.int32, count),
        np.fromiter((r.begin for r in requests), np.int64, count),
        np.fromiter((r.end for r in requests), np.int64, count),
        np.fromiter((r.max_count for r in requests), np.int64, count),
    )


def batch_of_table(settings: Settings, table: Any, max_count: int) -> LookupBatch:
    """Return an Arrow table's lookups: columns `topic` and `key`, or `message_id`.

    Raises InvalidRequestError naming the column or the first bad row.
    """
    names = set(table.column_names)
    if unknown := names - {"topic", "key", "message_id"}:
        raise InvalidRequestError("there is no such column", field=min(unknown))
    if ("key" in names) == ("message_id" in names) or ("key" in names and "topic" not in names):
        raise InvalidRequestError("give the columns topic and key, or message_id", field="lookups")
    count = table.num_rows
    if count > settings.max_lookups:
        raise RequestTooLargeError(
            f"{count} lookups, at most {settings.max_lookups} in one call", field="lookups"
        )
    check_integer(max_count, "max_count", 1, settings.max_count_limit)
    kind = KIND_KEY if "key" in names else KIND_MESSAGE_ID
    name = "key" if kind == KIND_KEY else "message_id"
    texts = make_string_column(table.column(name), name, settings.max_key_bytes, rows="lookups")
    column = StringColumn.from_values(texts)
    topics: list[str] = []
    topic_index = None
    if "topic" in names:
        topics, topic_index = make_topic_column(table.column("topic"), count, rows="lookups")
    if kind == KIND_KEY:
        hashes = hashing.key_hashes(column, topics, topic_index)
    else:
        hashes = hashing.message_id_hashes(column)
    if topic_index is None:
        topic_index = np.full(count, 0 if topics else NO_TOPIC, np.int32)
    return LookupBatch(
        hashes,
        np.full(count, kind, np.uint8),
        topics,
        topic_index,
        np.full(count, INT64_MIN, np.int64),
        np.full(count, INT64_MAX, np.int64),
        np.full(count, max_count, np.int64),
    )


def requests_of_rows(
    settings: Settings, table: Any, numbers: np.ndarray, max_count: int
) -> list[QueryRequest]:
    """Return some rows of a checked table as single requests."""
    rows = table.take(numbers).to_pylist() if len(numbers) else []
    return [make_request(settings, **row, max_count=max_count) for row in rows]
