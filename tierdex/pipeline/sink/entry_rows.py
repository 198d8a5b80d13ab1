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
from tierdex.index_service.requests.put_columns import make_entry_columns
from tierdex.indexfile.columns import StringColumn
from tierdex.indexfile.hashing import key_hashes, message_id_hashes
from tierdex.indexfile.layout import KIND_BIT
from tierdex.indexfile.schema import TOPIC_DICTIONARY, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.requests.put_columns import EntryColumns
    from tierdex.pipeline.sink.entry_form import EntryForm
    from tierdex.settings import Settings

_FIELD = re.compile(r"entries\[(\d+)\]\.(.*)")


def rows_of(
    form: EntryForm, batch: pa.RecordBatch, dictionaries: Dictionaries, settings: Settings
) -> Iterator[np.ndarray]:
    """Yield the items of `batch`, in its order: those of keys, then those of message IDs.

    New strings are staged in `dictionaries`. Raises InvalidRequestError (``entries[row].field``).
    """
    named = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    try:
        columns = make_entry_columns(
            settings,
            form.schema,
            topic=named["topic"],
            keys=named["keys"] if form.has_keys else named.get("key"),
            message_id=named.get("message_id"),
            timestamp=_milliseconds(named["timestamp"]),
            fields={name: named[name] for name in form.schema.field_names},
        )
    except InvalidRequestError as error:
        raise _placed(error, named) from None
    yield from _rows_of_columns(columns, form.schema, dictionaries)


def _placed(error: InvalidRequestError, named: dict[str, Any]) -> InvalidRequestError:
    """Return the error with the file and the place in it, where rows are of files."""
    found = _FIELD.fullmatch(error.field or "")
    if found is None or "source" not in named:
        return error
    place = {
        name: named[name][int(found[1])].as_py()
        for name in ("source", "row_group", "row", "offset")
        if name in named
    }
    at = (
        f"row group {place['row_group']}, row {place['row']}"
        if "row" in place
        else f"byte {place.get('offset')}"
    )
    return InvalidRequestError(f"{error.detail} ({place['source']}: {at})", field=error.field)


def name_row(error: InvalidRequestError, partition: int, first_row: int) -> InvalidRequestError:
    """Return the error with its row counted from the start of the partition."""
    found = _FIELD.fullmatch(error.field or "")
    if found is None:
        return InvalidRequestError(f"partition {partition}: {error.detail}", field=error.field)
    return InvalidRequestError(
        f"partition {partition}, row {first_row + int(found[1])}: {error.detail}", field=found[2]
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
    for texts, kind_bit, places in (
        (columns.keys, 0, columns.key_rows),
        (columns.message_ids, KIND_BIT, None),
    ):
        if texts is None or len(texts) == texts.null_count:
            continue
        strings = StringColumn.from_values(texts)
        of_each: Any = slice(None) if places is None else places
        index = None if columns.topic_index is None else columns.topic_index[of_each]
        if kind_bit:
            hashes = message_id_hashes(strings)
        else:
            hashes = key_hashes(strings, columns.topics, index)
        rows = np.zeros(len(texts), schema.dtype)
        rows["key_hash"] = hashes
        rows["tag"] = (topics[0] if index is None else topics[index]) | np.uint32(kind_bit)
        rows["timestamp"] = columns.timestamp[of_each]
        for name, values in columns.fields.items():
            if isinstance(values, tuple):
                listed, numbers = values
                values = dictionaries.stage(name, listed).astype(np.uint32)[numbers]
            rows[name] = values[of_each]
        yield rows if strings.valid is None else rows[strings.valid]
