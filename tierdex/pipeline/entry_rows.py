"""Rows of an index file, made from a DataFrame's Arrow batches: checked and hashed by column.

Every batch is checked whole before any of it is used; an error names column, partition and row. No
Python code runs per row.

Depends on entry_form, indexfile and index_service.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.errors import InvalidRequestError
from tierdex.index_service.requests.entry_rules import no_name
from tierdex.index_service.requests.put_columns import EntryColumns, make_entry_columns
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.hashing import key_hashes, message_id_hashes
from tierdex.indexfile.layout import KIND_BIT
from tierdex.indexfile.schema import TOPIC_DICTIONARY, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.pipeline.entry_form import EntryForm
    from tierdex.settings import Settings

_FIELD = re.compile(r"entries\[(\d+)\]\.(.*)")


def rows_of(
    form: EntryForm, batch: pa.RecordBatch, dictionaries: Dictionaries, settings: Settings
) -> Iterator[np.ndarray]:
    """Yield the items of `batch`, in its order: those of keys, then those of message IDs.

    New strings are staged in `dictionaries`. Raises InvalidRequestError (``entries[row].field``).
    """
    for columns in _columns(form, batch, settings):
        yield from _rows_of_columns(columns, form.schema, dictionaries)


def _columns(form: EntryForm, batch: pa.RecordBatch, settings: Settings) -> Iterator[EntryColumns]:
    named = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    message_ids = named.get("message_id")
    if not form.has_keys:
        yield _make(settings, form.schema, named, named.get("key"), message_ids)
        return
    lists = named["keys"]
    _check_lists(lists, message_ids)
    parents = pc.list_parent_indices(lists)
    shared = ("topic", "timestamp", *form.schema.field_names)
    exploded = {name: named[name].take(parents) for name in shared}
    try:
        if len(parents):
            yield _make(settings, form.schema, exploded, pc.list_flatten(lists), None)
    except InvalidRequestError as error:
        found = _FIELD.fullmatch(error.field or "")
        if found is None:
            raise
        row = parents[int(found[1])].as_py()
        raise InvalidRequestError(error.detail, field=f"entries[{row}].{found[2]}") from error
    if message_ids is not None and message_ids.null_count < len(message_ids):
        some = batch.filter(pc.is_valid(message_ids))
        named = {name: some.column(i) for i, name in enumerate(some.schema.names)}
        yield _make(settings, form.schema, named, None, named["message_id"])


def _check_lists(lists: Any, message_ids: Any | None) -> None:
    """Raise InvalidRequestError for a row without a key and without a message ID."""
    empty = pc.fill_null(pc.equal(pc.list_value_length(lists), 0), fill_value=True)
    if message_ids is not None:
        empty = pc.and_(empty, pc.is_null(message_ids))
    row = pc.index(empty, True).as_py()
    if row >= 0:
        raise no_name(f"entries[{row}].keys")


def name_row(error: InvalidRequestError, partition: int, first_row: int) -> InvalidRequestError:
    """Return the error with its row counted from the start of the partition."""
    found = _FIELD.fullmatch(error.field or "")
    if found is None:
        return InvalidRequestError(f"partition {partition}: {error.detail}", field=error.field)
    return InvalidRequestError(
        f"partition {partition}, row {first_row + int(found[1])}: {error.detail}", field=found[2]
    )


def _make(
    settings: Settings, schema: Schema, named: dict[str, Any], keys: Any, message_ids: Any
) -> EntryColumns:
    return make_entry_columns(
        settings,
        schema,
        topic=named["topic"],
        keys=keys,
        message_id=message_ids,
        timestamp=_milliseconds(named["timestamp"]),
        fields={name: named[name] for name in schema.field_names},
    )


def _milliseconds(column: Any) -> Any:
    """Return times in milliseconds, rounded down; integers as they are."""
    if not pa.types.is_timestamp(column.type):
        return column
    return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms"))


def _rows_of_columns(
    columns: EntryColumns, schema: Schema, dictionaries: Dictionaries
) -> Iterator[np.ndarray]:
    topics = dictionaries.stage(TOPIC_DICTIONARY, columns.topics).astype(np.uint32)
    for texts, kind_bit in ((columns.keys, 0), (columns.message_ids, KIND_BIT)):
        if texts is None or len(texts) == texts.null_count:
            continue
        strings = StringColumn.from_values(texts)
        if kind_bit:
            hashes = message_id_hashes(strings)
        else:
            hashes = key_hashes(strings, columns.topics, columns.topic_index)
        rows = np.zeros(columns.count, schema.dtype)
        rows["key_hash"] = hashes
        tags = topics[0] if columns.topic_index is None else topics[columns.topic_index]
        rows["tag"] = tags | np.uint32(kind_bit)
        rows["timestamp"] = columns.timestamp
        for name, values in columns.fields.items():
            if isinstance(values, tuple):
                listed, index = values
                values = dictionaries.stage(name, listed).astype(np.uint32)[index]
            rows[name] = values
        yield rows if strings.valid is None else rows[strings.valid]
