"""From entries to items: each key and each message ID of an entry becomes one item.

Pure. A batch of columns becomes at most two parts (its keys, its message IDs), so that the kernels
run over the caller's Arrow buffers without a copy. Parts keep the order of the rows; only items of
one key are ever compared by arrival, and those are in one part.

Depends on indexfile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tierdex.index_service.put_buffer import ENTRY_VALUES
from tierdex.indexfile.columns import ItemColumns, StringColumn
from tierdex.indexfile.layout import KIND_KEY, KIND_MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.index_service.entry_columns import EntryColumns
    from tierdex.indexfile.schema import Schema, SchemaField


def parts_of_columns(columns: EntryColumns, first: int, count: int) -> list[ItemColumns]:
    """Return the parts of rows [first, first + count)."""
    rows = slice(first, first + count)
    fields: dict[str, np.ndarray] = {}
    dictionaries: dict[str, Sequence[str]] = {}
    for name, values in columns.fields.items():
        if isinstance(values, tuple):
            dictionaries[name], values = values
        fields[name] = values[rows]
    topic_index = None if columns.topic_index is None else columns.topic_index[rows]
    parts = []
    for kind, texts, hashes in (
        (KIND_KEY, columns.keys, columns.key_hashes),
        (KIND_MESSAGE_ID, columns.message_ids, None),
    ):
        if texts is None:
            continue
        strings = None if hashes is not None else texts.slice(first, count)
        parts.append(
            ItemColumns(
                strings=None if strings is None else StringColumn.from_values(strings),
                hashes=None if hashes is None else hashes[rows],
                kind=kind,
                topics=columns.topics,
                topic_index=topic_index,
                timestamp=columns.timestamp[rows],
                fields=fields,
                dictionaries=dictionaries,
            )
        )
    return parts


def parts_of_buffer(values: list[Any], schema: Schema) -> list[ItemColumns]:
    """Return the parts of gathered single puts (see PutBuffer): all keys, then all message IDs."""
    topics, names, timestamps, *locations = (
        values[place::ENTRY_VALUES] for place in range(ENTRY_VALUES)
    )
    distinct, topic_index = topics[:1], None
    if topics.count(topics[0]) < len(topics):
        distinct = list(dict.fromkeys(topics))
        topic_index = _indexes(topics, distinct)
    timestamp = np.fromiter(timestamps, np.int64, len(timestamps))
    fields, dictionaries = _location_columns(locations, schema.fields)
    keys, key_rows, ids, id_rows = _texts(names)
    return [
        ItemColumns(
            strings=StringColumn.from_values(texts),
            kind=kind,
            topics=distinct,
            topic_index=None if topic_index is None else topic_index[rows],
            timestamp=timestamp[rows],
            fields={name: values[rows] for name, values in fields.items()},
            dictionaries=dictionaries,
        )
        for kind, texts, rows in ((KIND_KEY, keys, key_rows), (KIND_MESSAGE_ID, ids, id_rows))
        if texts
    ]


_EVERY_ROW: Final = slice(None)
_Rows = np.ndarray | slice


def _texts(names: list[Any]) -> tuple[list[str], _Rows, list[str], _Rows]:
    """Return all keys and the entry (i8) of each, then all message IDs and theirs."""
    if set(map(type, names)) == {str}:
        return names, _EVERY_ROW, [], _EVERY_ROW
    keys: list[str] = []
    ids: list[str] = []
    key_rows: list[int] = []
    id_rows: list[int] = []
    for row, name in enumerate(names):
        of_entry, message_id = ((name,), None) if type(name) is str else name
        keys.extend(of_entry)
        key_rows.extend([row] * len(of_entry))
        if message_id is not None:
            ids.append(message_id)
            id_rows.append(row)
    return keys, np.array(key_rows, np.intp), ids, np.array(id_rows, np.intp)


def _location_columns(
    columns: Any, schema_fields: Sequence[SchemaField]
) -> tuple[dict[str, np.ndarray], dict[str, Sequence[str]]]:
    """Return numpy columns by field name, and the distinct strings of dictionary fields."""
    fields: dict[str, np.ndarray] = {}
    dictionaries: dict[str, Sequence[str]] = {}
    for field, values in zip(schema_fields, columns, strict=True):
        if field.dictionary:
            dictionaries[field.name] = list(dict.fromkeys(values))
            fields[field.name] = _indexes(values, dictionaries[field.name]).astype(np.uint32)
        else:
            fields[field.name] = np.fromiter(values, field.code, len(values))
    return fields, dictionaries


def _indexes(values: Sequence[str], distinct: Sequence[str]) -> np.ndarray:
    numbers = {value: number for number, value in enumerate(distinct)}
    return np.fromiter(map(numbers.__getitem__, values), np.int32, len(values))


def item_count(parts: list[ItemColumns]) -> int:
    """Return how many items the parts hold at most (skipped rows count)."""
    return sum(part.row_count for part in parts)
