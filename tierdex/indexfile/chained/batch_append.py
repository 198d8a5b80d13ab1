"""One batch on its way into an unsealed file: parts in, rows, chains and a CRC out.

    prepare   parts -> sources (addresses that the kernels read), new strings staged; all checks
    write     record, dictionary entries, items and links, slots; the CRC last: it makes the batch real

`prepare` may refuse; after it nothing in the input can go wrong. Making the batch visible is the
file's step. Depends on columns, dictionary, hashing, layout, kernels, fileparts and schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.kernels.checksum import crc32c
from tierdex.fileparts.layout import round_up
from tierdex.fileparts.memory import address
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels import batch_statistics as statistics_k
from tierdex.indexfile.chained.kernels import insert as k
from tierdex.indexfile.chained.kernels import message_rows as quick_k
from tierdex.indexfile.columns import ItemColumns, ItemRows
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, column_hashes, topic_seeds
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.chained.batch_statistics import BatchStatistics
    from tierdex.indexfile.schema import Schema

_STRIDE, _WIDTH = 1, 2  # columns of the table of columns

# `write_messages` knows these by heart.
assert MESSAGE_SCHEMA.item_bytes == quick_k.MESSAGE_BYTES
assert [MESSAGE_SCHEMA.position(name) for name in MESSAGE_SCHEMA.field_names] == [
    quick_k.OFFSET_POSITION,
    quick_k.SIZE_POSITION,
    quick_k.QUEUE_POSITION,
]


class Source(NamedTuple):
    """One part, ready for the kernel. `keep` holds every array whose address is in the others."""

    size: int  # items
    places: np.ndarray  # i8[SOURCE_LENGTH]
    columns: np.ndarray  # i8[k, 4]: address, stride, width, position in the item
    rows: (
        np.ndarray | None
    )  # a part of gathered rows, tags and dictionary fields already the file's
    keep: tuple[object, ...]
    messages: np.ndarray | None = None  # i8[MESSAGE_WORDS]: the quick way may be gone


def prepare(
    parts: Sequence[ItemColumns | ItemRows], schema: Schema, dictionaries: Dictionaries
) -> list[Source]:
    """Check all parts and stage their new strings. Raises InvalidRequestError, with some staged."""
    sources = []
    for part in parts:
        if isinstance(part, ItemRows):
            source = _of_rows(part, schema, dictionaries)
        else:
            source = _of_columns(part, schema, dictionaries)
        if source.size:
            sources.append(source)
    return sources


def _of_columns(part: ItemColumns, schema: Schema, dictionaries: Dictionaries) -> Source:
    missing = set(schema.field_names) ^ set(part.fields)
    if missing:
        raise InvalidRequestError("fields and schema differ", field=", ".join(sorted(missing)))
    picked = part.picked()
    count = part.row_count if picked is None else len(picked)
    if not count:
        return Source(0, np.empty(0, np.int64), np.empty((0, 4), np.int64), None, ())
    tags = dictionaries.stage(TOPIC_DICTIONARY, part.topic_list).astype(np.uint32)
    tags |= np.uint32(layout.KIND_BIT if part.kind == layout.KIND_MESSAGE_ID else 0)
    if part.kind == layout.KIND_MESSAGE_ID:
        seeds = np.full(len(tags), MESSAGE_ID_SEED, np.uint64)
    else:
        seeds = topic_seeds(part.topic_list)
    places = np.zeros(k.SOURCE_LENGTH, np.int64)
    hashes, strings = part.hashes, part.strings
    if strings is not None and len(tags) == 1 and strings.indices is None and picked is None:
        hashes = column_hashes(strings, int(seeds[0]))  # all at once: half of what one by one takes
    if hashes is not None:
        places[k.S_HASHES] = address(hashes)
    else:
        assert strings is not None
        places[k.S_OFFSETS : k.S_INDICES + 1] = strings.addresses()
    places[k.S_PICK] = address(picked) if picked is not None else 0
    if part.topic_index is not None and len(tags) > 1:
        places[k.S_TOPIC_INDEX] = address(part.topic_index)
    places[k.S_SEEDS] = address(seeds)
    places[k.S_TAGS] = address(tags)
    columns, arrays = _columns(part, schema, dictionaries)
    messages = None
    if picked is None and hashes is not None and len(tags) == 1 and schema == MESSAGE_SCHEMA:
        messages = _message_words(columns, address(hashes), int(tags[0]))
    keep = (part, picked, tags, seeds, hashes, arrays)
    return Source(count, places, columns, None, keep, messages)


def _message_words(columns: np.ndarray, hashes: int, tag: int) -> np.ndarray | None:
    """Return what `write_messages` takes; None when a column has gaps, or one value for all rows."""
    if (columns[:, _STRIDE] != columns[:, _WIDTH]).any():
        return None
    times, offsets, sizes, queues = columns[:, 0].tolist()  # in the order of the schema
    return np.array([hashes, times, offsets, sizes, queues, tag], np.int64)


def _columns(
    part: ItemColumns, schema: Schema, dictionaries: Dictionaries
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the table of columns, timestamp first, and the arrays that it points into."""
    wanted = [("timestamp", "<i8"), *((field.name, field.code) for field in schema.fields)]
    table = np.zeros((len(wanted), 4), np.int64)
    arrays = []
    for row, (name, code) in zip(table, wanted, strict=True):
        array, stride = part.column(name, code)
        if name in schema.dictionary_names:
            array = _file_indexes(name, array, part.dictionaries.get(name, ()), dictionaries)
            stride = array.strides[0] if array.ndim else 0
        arrays.append(array)
        row[:] = (address(array), stride, array.itemsize, schema.position(name))
    return table, arrays


def _file_indexes(
    name: str, values: np.ndarray, strings: Sequence[str], dictionaries: Dictionaries
) -> np.ndarray:
    """Return a column of indexes into `strings` as indexes into the file's dictionary."""
    if values.size and int(values.max()) >= len(strings):
        raise InvalidRequestError("index out of the bounds of its dictionary", field=name)
    mapped = dictionaries.stage(name, strings).astype(np.uint32)[values]
    return np.asarray(mapped, np.uint32)


def _of_rows(part: ItemRows, schema: Schema, dictionaries: Dictionaries) -> Source:
    part.check(schema)
    rows = part.rows.copy()
    topics = dictionaries.stage(TOPIC_DICTIONARY, part.topics).astype(np.uint32)
    if len(rows):
        kinds = rows["tag"] & np.uint32(layout.KIND_BIT)
        rows["tag"] = topics[rows["tag"] & np.uint32(layout.TOPIC_MASK)] | kinds
        for name in schema.dictionary_names[1:]:
            rows[name] = _file_indexes(
                name, rows[name], part.dictionaries.get(name, ()), dictionaries
            )
    return Source(len(rows), np.empty(0, np.int64), np.empty((0, 4), np.int64), rows, ())


def write(
    statistics: BatchStatistics,
    data: np.ndarray,
    rows_begin: int,
    uuid: bytes,
    sources: Sequence[Source],
    staged: bytes,
) -> None:
    """Write a batch at the statistics' next row of `data`, the mapped file whose row 1 is at `rows_begin`.

    On return the batch is real: recovery will find it. If it raises, the caller undoes.
    """
    item_bytes = int(statistics.array[statistics_k.B_ITEM_BYTES])
    items = sum(source.size for source in sources)
    length = layout.batch_rows(item_bytes, len(staged), items)
    first_row = statistics.next_row
    begin = rows_begin + (first_row - 1) * item_bytes
    items_begin = begin + (length - items) * item_bytes
    head = data[begin:items_begin]
    head[:] = 0
    record = head[: layout.BATCH_RECORD_BYTES].view(layout.BATCH_RECORD)[0]
    record["magic"], record["number"] = layout.BATCH_MAGIC, statistics.batches
    record["item_count"], record["dictionary_bytes"] = items, len(staged)
    record["uuid"] = np.void(uuid)
    if staged:
        dictionary_begin = round_up(layout.BATCH_RECORD_BYTES, item_bytes)
        head[dictionary_begin:][: len(staged)] = np.frombuffer(staged, np.uint8)
    statistics.array[statistics_k.B_CRC] = crc32c(
        address(head), len(head), np.uint32(statistics.crc)
    )
    row = first_row + length - items
    for source in sources:
        _write_source(statistics, source, row, data, rows_begin + (row - 1) * item_bytes)
        row += source.size
    # Whatever a batch before a crash left behind must not look like the one after this.
    data[begin + length * item_bytes :][: layout.BATCH_RECORD_BYTES] = 0
    # This makes the batch real: everything above is in place before it.
    record["crc"] = statistics.crc
    statistics.array[statistics_k.B_NEXT_ROW] = first_row + length
    statistics.array[statistics_k.B_BATCHES] += 1


def _write_source(
    statistics: BatchStatistics, source: Source, row: int, data: np.ndarray, position: int
) -> None:
    if source.rows is not None:
        raw = source.rows.view(np.uint8)
        data[position : position + len(raw)] = raw
    done = 0
    while done < source.size:
        if source.rows is not None:
            done = k.link_rows(statistics.array, row, done, source.size)
        elif source.messages is not None:
            done = quick_k.write_messages(statistics.array, source.messages, row, done, source.size)
        else:
            done = k.write_items(
                statistics.array, source.places, source.columns, row, done, source.size
            )
        if done < source.size:
            statistics.grow()


def undo(
    statistics: BatchStatistics, before: np.ndarray, sources: Sequence[Source], staged: bytes
) -> None:
    """Take a batch that was not finished out of the chains; `before` is the statistics' array before it.

    Its rows stay as they are, since a reader may be among them: nothing may be appended after this.
    """
    items = sum(source.size for source in sources)
    first_row = int(before[statistics_k.B_NEXT_ROW])
    length = layout.batch_rows(int(before[statistics_k.B_ITEM_BYTES]), len(staged), items)
    k.undo_links(statistics.array, first_row + length - items, items)
    statistics.array[:] = before
