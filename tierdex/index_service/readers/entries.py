"""From rows (structured arrays of a file) to locations with the file's dictionaries resolved, and
from locations to the entries of an answer.

Depends on answer and indexfile.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tierdex.index_service.answer import Entry
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.row_identity import row_fingerprints
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    import numpy as np

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.index_service.answer import Identity
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.table.file_handle import FileHandle

_entry_of: Any = partial(tuple.__new__, Entry)  # from all of its fields; several times faster


class RowDecoder:
    """Decodes rows of one file. The dictionaries may grow meanwhile; indices never change."""

    __slots__ = ("_columns", "_dictionaries", "_schema", "_topics", "names")

    def __init__(self, schema: Schema, dictionaries: Dictionaries) -> None:
        self._schema, self._dictionaries = schema, dictionaries
        self.names = schema.field_names
        self._topics = dictionaries.strings(TOPIC_DICTIONARY)
        self._columns = [
            (field.name, dictionaries.strings(field.name) if field.dictionary else None)
            for field in schema.fields
        ]

    def decode(self, rows: np.ndarray) -> list[Identity]:
        """Return each row's location (topic, then the schema's fields) and time."""
        topics = self._topics
        columns: list[list[object]] = [[topics[tag & TOPIC_MASK] for tag in rows["tag"].tolist()]]
        for name, strings in self._columns:
            values = rows[name].tolist()
            columns.append(values if strings is None else [strings[value] for value in values])
        return list(zip(zip(*columns, strict=True), rows["timestamp"].tolist(), strict=True))

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        """Return the fingerprints (u8[n, 2]) of the rows' identities, with no object a row."""
        return row_fingerprints(self._schema, self._dictionaries, rows)


def entries_of(
    handle: FileHandle,
    schema: Schema,
    dictionaries: Dictionaries,
    rows: np.ndarray,
    hash_function: str | None = None,
) -> list[Entry]:
    """Return the entries of one file's rows, in order."""
    place = handle.file_id, handle.state.value, handle.node
    if not schema.is_message:
        decoder = RowDecoder(schema, dictionaries)
        return [
            _make_entry(decoder.names, location, timestamp, place, hash_function)
            for location, timestamp in decoder.decode(rows)
        ]
    names = dictionaries.strings(TOPIC_DICTIONARY)
    columns = (
        repeat(names[0])
        if len(names) == 1
        else [names[number] for number in (rows["tag"] & TOPIC_MASK).tolist()],
        *(rows[name].tolist() for name in ("queue_id", "offset", "size", "timestamp")),
    )
    same = (*place, None, None, hash_function, None)
    return list(map(_entry_of, zip(*columns, *map(repeat, same), strict=False)))


def _make_entry(
    names: tuple[str, ...],
    location: tuple[Any, ...],
    timestamp: int,
    place: tuple[str, str, str],
    hash_function: str | None,
) -> Entry:
    """Return the entry of another schema; `names` are its fields, `location` topic and values."""
    fields = dict(zip(names, location[1:], strict=True))
    numbers = [fields.get(name) for name in ("queue_id", "offset", "size")]
    source = fields.get("source")
    made: Entry = _entry_of(
        (location[0], *numbers, timestamp, *place, fields, source, hash_function, None)
    )
    return made
