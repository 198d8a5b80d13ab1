"""The plain batch of lookups: keys of one topic, any time, the same `max_count` for all.

Most batches are of this kind, and for them a call of 1,000 keys can cost little more than the walk
through the files. Of columns only the newest entry of each key is wanted, or all when that is nearly
always one. Whatever is out of the ordinary (several topics, nulls, keys beyond ASCII, message
IDs, a published file that has to be asked, a file in trouble, an answer that may be cut short) makes
these functions return None: then the general path starts from the beginning.

Depends on lookup_batch, collected, indexfile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.index_service.batch.lookups import plain_keys_of, topics_and_keys_of
from tierdex.index_service.batch.matches import FileMatches
from tierdex.index_service.requests.entry_rules import check_integer
from tierdex.index_service.requests.query import DEFAULT_MAX_COUNT
from tierdex.indexfile.chained.reader import ChainedReader
from tierdex.indexfile.compacted.file import CompactedFile
from tierdex.indexfile.layout import KIND_KEY, TAG_NONE
from tierdex.indexfile.newest_columns import NewestColumns, newest_bytes
from tierdex.indexfile.plain_keys import NotPlainError
from tierdex.indexfile.schema import MESSAGE_SCHEMA
from tierdex.lifecycle.topic_set import may_hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.indexfile.plain_keys import PlainKeys
    from tierdex.indexfile.work_limit import WorkLimit
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.settings import Settings

_INDEX = pa.int32()
_TEXT = pa.dictionary(_INDEX, pa.string())
_STRING = pa.string()
_OFFSET_BYTES = {_STRING: 4, pa.large_string(): 8}
_FEW = 8  # one key in so many may have several entries before columns do not pay


class UniformBatch(NamedTuple):
    """Lookups of keys in `topic`, up to `max_count` entries each, of any time."""

    topic: str
    keys: PlainKeys  # not looked at yet
    max_count: int


def uniform_batch_of(settings: Settings, table: Any, max_count: int) -> UniformBatch | None:
    """Return an Arrow table's lookups, None when they are not plain. Raises InvalidRequestError.

    That each key is plain is found when they are hashed.
    """
    count = table.num_rows
    if not 0 < count <= settings.max_lookups:
        return None
    names = table.column_names
    if names == ["topic", "key"]:
        topics, keys = 0, 1
    elif names == ["key", "topic"]:
        topics, keys = 1, 0
    else:
        return None
    check_integer(max_count, "max_count", 1, settings.max_count_limit)
    pieces = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    if len(pieces) != 1:
        return None
    topic = _one_topic(pieces[0].column(topics))
    if topic is None:
        return None
    try:
        texts = pieces[0].column(keys)
        plain = plain_keys_of(texts, topic, settings.max_key_bytes, is_text=False)
    except NotPlainError:
        return None
    return UniformBatch(topic, plain, max_count)


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


def uniform_batch_of_dicts(settings: Settings, lookups: object) -> UniformBatch | None:
    """Return the same of lookups as dicts, of which all entries are wanted."""
    plain = topics_and_keys_of(settings, lookups)
    if plain is None:
        return None
    topics, keys = plain
    if type(topics[0]) is not str or topics.count(topics[0]) != len(topics):
        return None
    try:
        texts = pa.array(keys, pa.string())
        found = plain_keys_of(texts, topics[0], settings.max_key_bytes, is_text=True)
    except (InvalidRequestError, NotPlainError, UnicodeEncodeError, pa.ArrowException):
        return None
    return UniformBatch(topics[0], found, DEFAULT_MAX_COUNT)


class Newest(NamedTuple):
    """The newest entry of each key, as columns; places[i] is the file that a row's place i means."""

    columns: NewestColumns
    places: list[FileHandle]


def ask_newest(
    batch: UniformBatch,
    files: Iterable[FileHandle],
    hides: Callable[[FileHandle, str], bool],
    most: WorkLimit,
) -> Newest | None:
    """Return the newest entry of each key; like `ask_uniform`.

    With a `max_count` above 1 it is told apart where it is not the only one. Raises NotPlainError, also
    when that are many keys, and BudgetExceededError.
    """
    count = batch.keys.key_count
    memory = pa.allocate_buffer(newest_bytes(count))
    most_again = None if batch.max_count == 1 else count // _FEW
    columns = NewestColumns(batch.keys, memory, memory.address, most.items, most_again)
    places: list[FileHandle] = []
    for handle in files:
        if handle.item_count == 0 or not may_hold(handle.topics, batch.topic):
            continue
        reader = handle.reader
        if not isinstance(reader, ChainedReader | CompactedFile):
            return None
        if reader.schema != MESSAGE_SCHEMA:
            return None
        if handle.sealed_at_ms is not None and hides(handle, batch.topic):
            continue
        tag = reader.tag_of(batch.topic, KIND_KEY)
        if tag == TAG_NONE:
            continue
        columns.take_from(reader, tag, len(places))
        places.append(handle)
        if columns.is_complete and batch.max_count == 1:
            break
    columns.hash_keys()  # when no file was asked, nobody has looked at them
    return Newest(columns, places)


def ask_uniform(
    batch: UniformBatch,
    files: Iterable[FileHandle],
    hides: Callable[[FileHandle, str], bool],
    most: WorkLimit,
) -> list[FileMatches] | None:
    """Return what the files hold, newest first; None when it takes the general path.

    Goes on to the next file with the lookups that still want entries. Raises NotPlainError,
    BudgetExceededError.
    """
    found: list[FileMatches] = []
    all_hashes = hashes = batch.keys.hashes()
    wanted = np.arange(len(hashes))
    counts = np.zeros(len(hashes), np.int64)
    for handle in files:
        if handle.item_count == 0 or not may_hold(handle.topics, batch.topic):
            continue
        reader = handle.reader
        if not isinstance(reader, ChainedReader | CompactedFile):
            return None
        if handle.sealed_at_ms is not None and hides(handle, batch.topic):
            continue
        tag = reader.tag_of(batch.topic, KIND_KEY)
        if tag == TAG_NONE:
            continue
        tags = np.full(len(hashes), tag, np.uint32)
        if isinstance(reader, ChainedReader):
            matches = reader.find_many(hashes, tags, limit=batch.max_count, most=most)
            offsets, rows = matches.offsets, reader.rows(matches.rows)
            most = most._replace(items=most.items - matches.walked)
        else:
            offsets, rows = reader.find_many(hashes, tags, limit=batch.max_count, most=most)
        most = most._replace(rows=most.rows - len(rows))
        if not len(rows):
            continue
        found.append(FileMatches(handle, reader.schema, reader.dictionaries, wanted, offsets, rows))
        if len(rows) == len(hashes) and batch.max_count == 1:
            break  # each has its one
        counts[wanted] += offsets[1:] - offsets[:-1]
        wanted = np.flatnonzero(counts < batch.max_count)
        if not len(wanted):
            break
        hashes = all_hashes[wanted]
    return found
