"""The plain batch of lookups: keys of one topic, any time, the same `max_count` for all.

Most batches are of this kind, and for them a call of 1,000 keys can cost little more than the walk
through the files. Whatever is out of the ordinary (several topics, nulls, keys beyond ASCII, message
IDs, a published file that has to be asked, a file in trouble, an answer that may be cut short) makes
these functions return None: then the general way is gone from the start.

Depends on lookup_batch, collected, indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.index_service.collected import FileMatches
from tierdex.index_service.request import check_integer, check_topic
from tierdex.indexfile.chained_reader import ChainedReader
from tierdex.indexfile.columns import address
from tierdex.indexfile.compacted import CompactedFile
from tierdex.indexfile.hashing import topic_seed
from tierdex.indexfile.kernels.plain_keys import hash_plain_keys
from tierdex.indexfile.layout import KIND_KEY, TAG_NONE
from tierdex.indexfile.newest_columns import NewestColumns
from tierdex.indexfile.schema import MESSAGE_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tierdex.indexfile.work_limit import WorkLimit
    from tierdex.lifecycle.file_handle import FileHandle
    from tierdex.settings import Settings

_NAMES = ["key", "topic"]
_STRING, _LARGE_STRING = pa.string(), pa.large_string()


class UniformBatch(NamedTuple):
    """Lookups of keys in `topic`, up to `max_count` entries each, of any time."""

    topic: str
    hashes: np.ndarray  # u8
    max_count: int


def uniform_batch_of(settings: Settings, table: Any, max_count: int) -> UniformBatch | None:
    """Return an Arrow table's lookups, None when they are not plain. Raises InvalidRequestError."""
    count = table.num_rows
    if not 0 < count <= settings.max_lookups or sorted(table.column_names) != _NAMES:
        return None
    check_integer(max_count, "max_count", 1, settings.max_count_limit)
    topic = _one_topic(_one_chunk(table.column("topic")))
    keys = _one_chunk(table.column("key"))
    if topic is None or keys is None or keys.null_count:
        return None
    width = 4 if keys.type == _STRING else 8 if keys.type == _LARGE_STRING else 0
    if not width:
        return None
    _, offsets, data = keys.buffers()
    if data is None or offsets.size < width * (keys.offset + count + 1):
        return None
    hashes = np.empty(count, np.uint64)
    seed = topic_seed(check_topic(topic, "topic"))
    is_plain = hash_plain_keys(
        offsets.address + width * keys.offset,
        width,
        data.address,
        data.size,
        count,
        settings.max_key_bytes,
        seed - (1 << 64) if seed >> 63 else seed,  # kernels take i8
        address(hashes),
    )
    return UniformBatch(topic, hashes, max_count) if is_plain else None


def _one_chunk(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else None
    return column


def _one_topic(column: Any) -> str | None:
    """Return the topic of every row, None when there are several, or nulls."""
    if column is None or column.null_count:
        return None
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if len(column.dictionary) != 1 or np.asarray(column.indices).any():
        return None
    topic = column.dictionary[0].as_py()
    return topic if isinstance(topic, str) else None


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
    """Return the newest entry of each key; like `ask_uniform`, for a `max_count` of 1.

    Raises BudgetExceededError.
    """
    columns = NewestColumns(batch.hashes, most.items)
    places: list[FileHandle] = []
    for handle in files:
        if handle.item_count == 0 or not (handle.topics is None or batch.topic in handle.topics):
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
        if columns.is_complete:
            break
    return Newest(columns, places)


def ask_uniform(
    batch: UniformBatch,
    files: Iterable[FileHandle],
    hides: Callable[[FileHandle, str], bool],
    most: WorkLimit,
) -> list[FileMatches] | None:
    """Return what the files hold, newest first; None when it takes the general way.

    Goes on to the next file with the lookups that still want entries. Raises BudgetExceededError.
    """
    found: list[FileMatches] = []
    hashes, wanted = batch.hashes, np.arange(len(batch.hashes))
    counts = np.zeros(len(hashes), np.int64)
    for handle in files:
        if handle.item_count == 0 or not (handle.topics is None or batch.topic in handle.topics):
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
        hashes = batch.hashes[wanted]
    return found
