"""The lookups of a batch, as columns: from dicts, or from an Arrow table without a Python object a row.

Depends on id_times, requests, indexfile, value_columns and pyarrow.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.index_service.batch.id_times import may_narrow, narrow_lookups
from tierdex.index_service.requests.entry_rules import (
    INT64_MAX,
    INT64_MIN,
    check_integer,
    check_topic,
)
from tierdex.index_service.requests.lookups import NO_TOPIC, Lookups
from tierdex.index_service.requests.put_columns import make_string_column
from tierdex.index_service.requests.query import DEFAULT_MAX_COUNT, make_requests
from tierdex.indexfile import hashing
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID
from tierdex.indexfile.plain_keys import NotPlainError, PlainKeys
from tierdex.value_columns import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.settings import Settings

_STRING, _LARGE_STRING = pa.string(), pa.large_string()
_INDEX = pa.int32()
_TEXT = pa.dictionary(_INDEX, _STRING)
_OFFSET_BYTES = {_STRING: 4, _LARGE_STRING: 8}
_PLAIN_FIELDS = ["topic", "key"]


def lookups_of_dicts(settings: Settings, lookups: object, max_count: int | None = None) -> Lookups:
    """Return the lookups of one call, checked. Raises InvalidRequestError: all or none are accepted.

    `max_count` is that of lookups without one.
    """
    if max_count is None:
        max_count = DEFAULT_MAX_COUNT
    else:
        check_integer(max_count, "max_count", 1, settings.max_count_limit)
    plain = _lookups_of_plain(settings, lookups, max_count)
    if plain is not None:
        return plain
    requests = make_requests(settings, lookups, max_count)
    columns = Lookups.of(requests)
    if not requests or not may_narrow(settings):
        return columns
    return narrow_lookups(
        settings, columns, lambda rows: pa.array([requests[n].text for n in rows], _STRING)
    )


def _topics_and_keys_of(
    settings: Settings, lookups: object, max_count: int
) -> tuple[list[Any], list[str]] | None:
    """Return the topics and the keys of lookups that have nothing else, looked at as a whole.

    None: some lookup has something else, or something wrong; `make_requests` looks at each.
    """
    if type(lookups) is not list or not 0 < len(lookups) <= settings.max_lookups:
        return None
    if set(map(type, lookups)) != {dict} or set(map(len, lookups)) != {len(_PLAIN_FIELDS)}:
        return None
    if settings.max_count_limit < max_count:
        return None
    try:
        keys = [lookup["key"] for lookup in lookups]
        topics = [lookup["topic"] for lookup in lookups]
    except KeyError:
        return None
    return (topics, keys) if set(map(type, keys)) == {str} else None


def _lookups_of_plain(settings: Settings, lookups: object, max_count: int) -> Lookups | None:
    """Return lookups that are all a topic and a key, any time, checked without an object for each.

    None as `_topics_and_keys_of`.
    """
    plain = _topics_and_keys_of(settings, lookups, max_count)
    if plain is None:
        return None
    topics, keys = plain
    count = len(keys)
    try:
        texts = pa.array(keys, pa.string())
        if topics.count(topics[0]) == count:
            plain_keys = plain_keys_of(texts, topics[0], settings.max_key_bytes, is_text=True)
            return _of_one_topic(plain_keys.hashes(), topics[0], max_count, keys.__getitem__)
        distinct = [check_topic(topic, "topic") for topic in dict.fromkeys(topics)]
        numbers = {topic: number for number, topic in enumerate(distinct)}
        topic_index = np.fromiter(map(numbers.__getitem__, topics), np.int32, count)
        hashes = _key_hashes(texts, distinct, topic_index, settings.max_key_bytes)
    except (InvalidRequestError, NotPlainError, UnicodeEncodeError, pa.ArrowException):
        return None
    return _of_any_time(hashes, KIND_KEY, distinct, topic_index, max_count, keys.__getitem__)


def _of_one_topic(
    hashes: np.ndarray, topic: str, max_count: int, text_of: Callable[[int], str]
) -> Lookups:
    topic_index = np.zeros(len(hashes), np.int32)
    return _of_any_time(hashes, KIND_KEY, [topic], topic_index, max_count, text_of)


def _of_any_time(
    hashes: np.ndarray,
    kind: int,
    topics: list[str],
    topic_index: np.ndarray,
    max_count: int,
    text_of: Callable[[int], str],
) -> Lookups:
    count = len(hashes)
    return Lookups(
        hashes,
        np.full(count, kind, np.uint8),
        topics,
        topic_index,
        np.full(count, INT64_MIN, np.int64),
        np.full(count, INT64_MAX, np.int64),
        np.full(count, max_count, np.int64),
        text_of,
    )


class PlainLookups(NamedTuple):
    """Lookups of keys in one topic, of any time, as they lie in a table: no key is checked yet."""

    topic: str
    keys: PlainKeys
    max_count: int

    def columns(self) -> Lookups:
        """Return them as columns. Raises NotPlainError."""
        texts: Any = self.keys.owner
        return _of_one_topic(
            self.keys.hashes(), self.topic, self.max_count, lambda number: str(texts[number])
        )


def plain_lookups_of(settings: Settings, table: Any, max_count: int) -> PlainLookups | None:
    """Return a table's lookups if they may be plain, else None. Raises InvalidRequestError.

    That each key is plain is found when they are hashed.
    """
    if not 0 < table.num_rows <= settings.max_lookups:
        return None
    names = table.column_names
    if names != _PLAIN_FIELDS and names != _PLAIN_FIELDS[::-1]:
        return None
    check_integer(max_count, "max_count", 1, settings.max_count_limit)
    columns = table.columns
    if not isinstance(table, pa.RecordBatch):
        if columns[0].num_chunks != 1 or columns[1].num_chunks != 1:
            return None
        columns = [column.chunk(0) for column in columns]
    texts, topics = columns if names[0] == "key" else columns[::-1]
    topic = _one_topic(topics)
    if topic is None:
        return None
    try:
        keys = plain_keys_of(texts, topic, settings.max_key_bytes, is_text=False)
    except NotPlainError:
        return None
    return PlainLookups(topic, keys, max_count)


def _one_topic(column: Any) -> str | None:
    """Return the topic of every row, None when there are several, or nulls."""
    if column.null_count:
        return None
    width = _OFFSET_BYTES.get(column.type)
    if width is not None:
        return _one_text(column, width)
    if not pa.types.is_dictionary(column.type):
        return None
    if column.type != _TEXT:
        if column.type.value_type != _STRING:
            return None
        column = pa.DictionaryArray.from_arrays(column.indices.cast(_INDEX), column.dictionary)
    topics = column.dictionary.to_pylist()
    indices = column.buffers()[1].slice(4 * column.offset, 4 * len(column))
    if len(topics) != 1 or not indices.equals(_zeros(len(column))):
        return None
    return topics[0] if isinstance(topics[0], str) else None


def _one_text(column: Any, width: int) -> str | None:
    """Return the value of every row of a plain column; `width` is the bytes of an offset.

    All rows are equal when all are as long as the first, and the text equals itself moved on by one
    row: two passes over memory, where a dictionary would hash every row.
    """
    _, places, text = column.buffers()
    first, count = column.offset, len(column)
    if text is None or places.size < width * (first + count + 1):
        return None
    offsets = np.frombuffer(places, f"<i{width}", count + 1, width * first)
    begin, length = int(offsets[0]), int(offsets[1]) - int(offsets[0])
    end = begin + count * length
    # Checked before the text is read: a caller's offsets may point anywhere.
    if begin < 0 or length <= 0 or end > text.size:
        return None
    if not (offsets[1:] - offsets[:-1] == length).all():
        return None
    rest = end - begin - length
    if not text.slice(begin + length, rest).equals(text.slice(begin, rest)):
        return None
    try:
        return str(text.slice(begin, length).to_pybytes(), "utf-8")
    except UnicodeDecodeError:
        return None


@lru_cache(maxsize=16)
def _zeros(count: int) -> Any:
    return pa.py_buffer(np.zeros(count, np.int32))


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


def lookups_of_table(settings: Settings, table: Any, max_count: int) -> Lookups:
    """Return an Arrow table's lookups: columns `topic` and `key`, or `message_id`, with `topic` or without.

    A message ID whose topic is null is looked up in every topic. Raises InvalidRequestError naming the
    column or the first bad row.
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
    rows = Rows("lookups", count)
    texts = make_string_column(table.column(name), name, settings.max_key_bytes, rows)
    column = StringColumn.from_values(texts)
    topics: list[str] = []
    topic_index = None
    if "topic" in names:
        any_topic = NO_TOPIC if kind == KIND_MESSAGE_ID else None
        topics, topic_index = rows.topics(table.column("topic"), null_is=any_topic)
    if kind == KIND_KEY:
        hashes = hashing.key_hashes(column, topics, topic_index)
    else:
        hashes = hashing.message_id_hashes(column)
    if topic_index is None:
        topic_index = np.full(count, 0 if topics else NO_TOPIC, np.int32)
    lookups = _of_any_time(
        hashes,
        kind,
        topics,
        topic_index,
        max_count,
        lambda number: str(column.value(number), "utf-8"),
    )
    if kind == KIND_KEY or not count or not may_narrow(settings):
        return lookups
    return narrow_lookups(settings, lookups, lambda rows: texts.take(pa.array(rows)))
