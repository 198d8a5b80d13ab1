"""From entries to items: each key and each message ID of an entry becomes one item.

Pure. A batch of columns becomes at most two parts (its keys, its message IDs), so that the kernels
run over the caller's Arrow buffers without a copy. Parts keep the order of the rows; only items of
one key are ever compared by arrival, and those are in one part.

Depends on indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.indexfile.columns import ItemColumns, StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID

if TYPE_CHECKING:
    from tierdex.index_service.entry_columns import EntryColumns
    from tierdex.index_service.put_buffer import BufferedPut
    from tierdex.indexfile.schema import Schema


def parts_of_columns(columns: EntryColumns, first: int, count: int) -> list[ItemColumns]:
    """Return the parts of rows [first, first + count)."""
    rows = slice(first, first + count)
    fields = {
        name: (values[0], values[1][rows]) if isinstance(values, tuple) else values[rows]
        for name, values in columns.fields.items()
    }
    topics: Any = (
        columns.topics[0]
        if columns.topic_index is None
        else (columns.topics, columns.topic_index[rows])
    )
    return [
        ItemColumns(
            strings=StringColumn.of(texts.slice(first, count)),
            kind=kind,
            topics=topics,
            timestamp=columns.timestamp[rows],
            fields=fields,
        )
        for kind, texts in ((KIND_KEY, columns.keys), (KIND_MESSAGE_ID, columns.message_ids))
        if texts is not None
    ]


def parts_of_buffer(entries: list[BufferedPut], schema: Schema) -> list[ItemColumns]:
    """Return the parts of gathered single puts: all keys, then all message IDs."""
    by_kind: tuple[list[str], list[str]] = ([], [])
    rows: tuple[list[int], list[int]] = ([], [])
    for row, (_, keys, message_id, _, _) in enumerate(entries):
        for key in keys:
            by_kind[KIND_KEY].append(key)
            rows[KIND_KEY].append(row)
        if message_id is not None:
            by_kind[KIND_MESSAGE_ID].append(message_id)
            rows[KIND_MESSAGE_ID].append(row)
    topics, _, _, timestamps, locations = zip(*entries, strict=True)
    distinct = list(dict.fromkeys(topics))
    numbers = {topic: number for number, topic in enumerate(distinct)}
    topic_index = np.fromiter(map(numbers.__getitem__, topics), np.int32, len(topics))
    timestamp = np.array(timestamps, np.int64)
    columns = [
        _location_column(values, field)
        for field, values in zip(schema.fields, zip(*locations, strict=True), strict=True)
    ]
    parts = []
    for kind in (KIND_KEY, KIND_MESSAGE_ID):
        if not by_kind[kind]:
            continue
        chosen = np.array(rows[kind], np.intp)
        parts.append(
            ItemColumns(
                strings=StringColumn.of(by_kind[kind]),
                kind=kind,
                topics=distinct[0] if len(distinct) == 1 else (distinct, topic_index[chosen]),
                timestamp=timestamp[chosen],
                fields={
                    field.name: (column[0], column[1][chosen])
                    if isinstance(column, tuple)
                    else column[chosen]
                    for field, column in zip(schema.fields, columns, strict=True)
                },
            )
        )
    return parts


def _location_column(values: tuple[Any, ...], field: Any) -> Any:
    """Return one location field as numpy values, or as (distinct strings, indices)."""
    if not field.dictionary:
        return np.array(values, field.code)
    distinct = list(dict.fromkeys(values))
    numbers = {value: number for number, value in enumerate(distinct)}
    return distinct, np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))


def item_count(parts: list[ItemColumns]) -> int:
    """Return how many items the parts hold."""
    return sum(part.count for part in parts)
