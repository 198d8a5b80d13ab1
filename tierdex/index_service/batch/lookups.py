"""Many lookups as columns: what the batch kernels take.

From checked requests, or from an Arrow table without a Python object a row. Times are inclusive
int64 ms. Depends on errors, request, entry_columns and indexfile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.index_service.requests.entry_rules import (
    INT64_MAX,
    INT64_MIN,
    check_integer,
    check_topic,
)
from tierdex.index_service.requests.put_columns import make_string_column, make_topic_column
from tierdex.index_service.requests.query import DEFAULT_MAX_COUNT, make_request
from tierdex.indexfile import hashing
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.indexfile.plain_keys import NotPlainError, PlainKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.requests.query import QueryRequest
    from tierdex.settings import Settings

NO_TOPIC = -1
_STRING, _LARGE_STRING = pa.string(), pa.large_string()
_PLAIN_FIELDS = ("topic", "key")


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


def topics_and_keys_of(settings: Settings, lookups: object) -> tuple[list[Any], list[str]] | None:
    """Return the topics and the keys of lookups that have nothing else, looked at as a whole.

    None: some lookup has something else, or something wrong; `make_requests` looks at each.
    """
    if type(lookups) is not list or not 0 < len(lookups) <= settings.max_lookups:
        return None
    if set(map(type, lookups)) != {dict} or set(map(len, lookups)) != {len(_PLAIN_FIELDS)}:
        return None
    if settings.max_count_limit < DEFAULT_MAX_COUNT:
        return None
    try:
        keys = [lookup["key"] for lookup in lookups]
        topics = [lookup["topic"] for lookup in lookups]
    except KeyError:
        return None
    return (topics, keys) if set(map(type, keys)) == {str} else None


def batch_of_plain(settings: Settings, lookups: object) -> LookupBatch | None:
    """Return lookups that are all a topic and a key, any time, checked without an object for each.

    None as `topics_and_keys_of`.
    """
    plain = topics_and_keys_of(settings, lookups)
    if plain is None:
        return None
    topics, keys = plain
    count = len(keys)
    try:
        texts = pa.array(keys, pa.string())
        if topics.count(topics[0]) == count:
            distinct, topic_index = [check_topic(topics[0], "topic")], np.zeros(count, np.int32)
            hashes = plain_keys_of(
                texts, distinct[0], settings.max_key_bytes, is_text=True
            ).hashes()
        else:
            distinct = [check_topic(topic, "topic") for topic in dict.fromkeys(topics)]
            numbers = {topic: number for number, topic in enumerate(distinct)}
            topic_index = np.fromiter(map(numbers.__getitem__, topics), np.int32, count)
            hashes = _key_hashes(texts, distinct, topic_index, settings.max_key_bytes)
    except (InvalidRequestError, NotPlainError, UnicodeEncodeError, pa.ArrowException):
        return None
    return LookupBatch(
        hashes,
        np.full(count, KIND_KEY, np.uint8),
        distinct,
        topic_index,
        np.full(count, INT64_MIN, np.int64),
        np.full(count, INT64_MAX, np.int64),
        np.full(count, DEFAULT_MAX_COUNT, np.int64),
    )


def plain_keys_of(keys: Any, topic: str, most_bytes: int, *, is_text: bool) -> PlainKeys:
    """Return an Arrow array's strings as keys of one topic; `is_text`: they are surely UTF-8.

    Raises NotPlainError when it is not an array of strings without nulls, and InvalidRequestError.
    """
    kind = keys.type
    width = 4 if kind == _STRING else 8 if kind == _LARGE_STRING else 0
    if not width or keys.null_count:
        raise NotPlainError
    _, offsets, data = keys.buffers()
    begin, count = keys.offset, len(keys)
    if data is None or offsets.size < width * (begin + count + 1):
        raise NotPlainError
    place, seed = offsets.address + width * begin, _signed_seed(topic)
    return PlainKeys(place, width, data.address, data.size, count, most_bytes, seed, is_text, keys)


@lru_cache(maxsize=1024)
def _signed_seed(topic: str) -> int:
    """Return the seed of a topic's keys as kernels take it, i8. Raises InvalidRequestError."""
    return hashing.signed_bits(hashing.topic_seed(check_topic(topic, "topic")))


def _key_hashes(
    texts: Any, topics: list[str], topic_index: np.ndarray, most_bytes: int
) -> np.ndarray:
    """Return the hashes of keys of several topics. Raises NotPlainError."""
    column = StringColumn.from_values(texts)
    lengths = column.lengths()
    if lengths.min() < 1 or lengths.max() > most_bytes:
        raise NotPlainError
    return hashing.key_hashes(column, topics, topic_index)


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
