"""One batch on its way into an unsealed file: item columns in, rows, chains and a checksum out.

    prepare   item columns -> sources (addresses that the kernels read), new strings staged; all checks
    write     record, dictionary entries, items and links, slots; the checksum last: it makes the batch real

`prepare` may refuse; after it nothing in the input can go wrong. Making the batch visible is the
file's step.

Record, dictionary entries and items lie in line: one append writes to one place, and recovery reads one
region front to back; a second log would need an order between both. The queue id is a column: a dictionary of
queues would need an entry, hence the slow path, for each new queue.

Depends on columns, dictionary, hashing, layout, batch_record, batch_statistics, item_rows,
message_rows, fileparts, schema and errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.memory import address
from tierdex.indexfile import layout
from tierdex.indexfile.chained.kernels import batch_statistics as statistics_k
from tierdex.indexfile.chained.kernels import item_rows as k
from tierdex.indexfile.chained.kernels.batch_record import begin_batch, finish_batch
from tierdex.indexfile.chained.kernels.message_rows import write_messages
from tierdex.indexfile.columns import ItemColumns, ItemRows
from tierdex.indexfile.hashing import MESSAGE_ID_SEED, column_hashes, topic_seeds
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.chained.batch_statistics import BatchStatistics
    from tierdex.indexfile.schema import Schema
    from tierdex.indexfile.source import Source

_STRIDE, _WIDTH = 1, 2  # columns of the table of columns


class StagedItems(NamedTuple):
    """Items of one kind, ready for a kernel: `rows`, else `messages`, else `places` and `columns`.

    `keep` holds every array whose address is in the others.
    """

    size: int  # items
    keep: tuple[object, ...] = ()
    rows: int = 0  # address of gathered rows, whose tags and dictionary fields are the file's
    messages: np.ndarray | None = None  # i8[MESSAGE_COLUMNS]: what `write_messages` takes
    places: np.ndarray | None = None  # i8[SOURCE_LENGTH]
    columns: np.ndarray | None = None  # i8[k, 4]: address, stride, width, position in the item


def prepare(
    batch: Sequence[ItemColumns | ItemRows], schema: Schema, dictionaries: Dictionaries
) -> list[StagedItems]:
    """Check all items and stage their new strings. Raises InvalidRequestError, with some staged."""
    sources = []
    for items in batch:
        if isinstance(items, ItemRows):
            source = _of_rows(items, schema, dictionaries)
        else:
            source = _of_columns(items, schema, dictionaries)
        if source.size:
            sources.append(source)
    return sources


def _of_columns(items: ItemColumns, schema: Schema, dictionaries: Dictionaries) -> StagedItems:
    missing = set(schema.field_names) ^ set(items.fields)
    if missing:
        raise InvalidRequestError("fields and schema differ", field=", ".join(sorted(missing)))
    picked = items.picked()
    count = items.row_count if picked is None else len(picked)
    if not count:
        return StagedItems(0)
    tags = dictionaries.stage(TOPIC_DICTIONARY, items.topic_list).astype(np.uint32)
    tags |= np.uint32(layout.KIND_BIT if items.kind == layout.KIND_MESSAGE_ID else 0)
    if items.kind == layout.KIND_MESSAGE_ID:
        seeds = np.full(len(tags), MESSAGE_ID_SEED, np.uint64)
    else:
        seeds = topic_seeds(items.topic_list)
    places = np.zeros(k.SOURCE_LENGTH, np.int64)
    hashes, strings = items.hashes, items.strings
    if strings is not None and len(tags) == 1 and strings.indices is None and picked is None:
        hashes = column_hashes(strings, int(seeds[0]))  # all at once: half of what one by one takes
    if hashes is not None:
        places[k.S_HASHES] = address(hashes)
    else:
        assert strings is not None
        places[k.S_OFFSETS : k.S_INDICES + 1] = strings.addresses()
    places[k.S_PICK] = address(picked) if picked is not None else 0
    if items.topic_index is not None and len(tags) > 1:
        places[k.S_TOPIC_INDEX] = address(items.topic_index)
    places[k.S_SEEDS] = address(seeds)
    places[k.S_TAGS] = address(tags)
    columns, arrays = _columns(items, schema, dictionaries)
    messages = None
    if picked is None and hashes is not None and len(tags) == 1 and schema.is_message:
        messages = _message_columns(columns, address(hashes), int(tags[0]))
    keep = (items, picked, tags, seeds, hashes, arrays)
    return StagedItems(count, keep, messages=messages, places=places, columns=columns)


def _message_columns(columns: np.ndarray, hashes: int, tag: int) -> np.ndarray | None:
    """Return what `write_messages` takes; None when a column has gaps, or one value for all rows."""
    if (columns[:, _STRIDE] != columns[:, _WIDTH]).any():
        return None
    times, offsets, sizes, queues = columns[:, 0].tolist()  # in the order of the schema
    return np.array([hashes, times, offsets, sizes, queues, tag], np.int64)


def _columns(
    items: ItemColumns, schema: Schema, dictionaries: Dictionaries
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the table of columns, timestamp first, and the arrays that it points into."""
    wanted = [("timestamp", "<i8"), *((field.name, field.code) for field in schema.fields)]
    table = np.zeros((len(wanted), 4), np.int64)
    arrays = []
    for row, (name, code) in zip(table, wanted, strict=True):
        array, stride = items.column(name, code)
        if name in schema.dictionary_names:
            array = _file_indexes(name, array, items.dictionaries.get(name, ()), dictionaries)
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


def _of_rows(items: ItemRows, schema: Schema, dictionaries: Dictionaries) -> StagedItems:
    items.check(schema)
    rows = items.rows.copy()
    topics = dictionaries.stage(TOPIC_DICTIONARY, items.topics).astype(np.uint32)
    if len(rows):
        kinds = rows["tag"] & np.uint32(layout.KIND_BIT)
        rows["tag"] = topics[rows["tag"] & np.uint32(layout.TOPIC_MASK)] | kinds
        for name in schema.dictionary_names[1:]:
            rows[name] = _file_indexes(
                name, rows[name], items.dictionaries.get(name, ()), dictionaries
            )
    raw = rows.view(np.uint8)
    return StagedItems(len(rows), (raw,), rows=address(raw) if len(rows) else 0)


def write(
    statistics: BatchStatistics,
    sources: Sequence[StagedItems],
    staged: bytes,
    row_limit: int,
    position: Source | None = None,
) -> None:
    """Write a batch at the next row of the mapped file that `statistics` is bound to.

    The file has room for rows up to `row_limit`. `staged` are new strings, behind the source `position`
    when there is one. On return the batch is real: recovery will find it. If it raises, the caller undoes.
    """
    array, first_row = statistics.array, statistics.next_row
    items = sum(source.size for source in sources)
    entries = np.frombuffer(staged or b"\0", np.uint8)
    flags = 0 if position is None else layout.BATCH_HAS_SOURCE
    row = begin_batch(array, items, address(entries), len(staged), flags)
    for source in sources:
        _write_source(statistics, source, row)
        row += source.size
    finish_batch(array, row - first_row, row_limit)
    if position is not None:
        statistics.note_source(position)


def _write_source(statistics: BatchStatistics, source: StagedItems, row: int) -> None:
    array, count = statistics.array, source.size
    done = 0
    while done < count:
        if source.rows:
            done = k.link_rows(array, source.rows, row, done, count)
        elif source.messages is not None:
            done = write_messages(array, source.messages, row, done, count)
        else:
            done = k.write_items(array, source.places, source.columns, row, done, count)
        if done < count:
            statistics.grow()


def undo(
    statistics: BatchStatistics, before: np.ndarray, sources: Sequence[StagedItems], staged: bytes
) -> None:
    """Take a batch that was not finished out of the chains; `before` is the statistics' array before it.

    Its rows stay as they are, since a reader may be among them: nothing may be appended after this.
    """
    items = sum(source.size for source in sources)
    first_row = int(before[statistics_k.B_NEXT_ROW])
    length = layout.batch_rows(int(before[statistics_k.B_ITEM_BYTES]), len(staged), items)
    k.undo_links(statistics.array, first_row + length - items, items)
    statistics.array[:] = before
