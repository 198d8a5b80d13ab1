"""From rows (structured arrays of a file) to locations with the file's dictionaries resolved, and
from locations to the entries of an answer.

Depends on answer, repeats, indexfile and lifecycle's handles.
"""

from __future__ import annotations

from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.index_service.answer import Entry
from tierdex.index_service.readers.file_reader import Candidate
from tierdex.index_service.requests.repeats import fingerprints, text_number
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.newest_columns import OFFSETS, PLACES, QUEUES, SIZES, TIMES
from tierdex.indexfile.schema import MESSAGE_SCHEMA, TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tierdex.fileparts.dictionary import Dictionaries
    from tierdex.indexfile.newest_columns import NewestColumns
    from tierdex.indexfile.schema import Schema
    from tierdex.lifecycle.file_handle import FileHandle

MESSAGE_LOCATION = MESSAGE_SCHEMA.field_names
_entry_of: Any = partial(tuple.__new__, Entry)  # from all of its fields; several times faster


class RowDecoder:
    """Decodes rows of one file. The dictionaries may grow meanwhile; indices never change."""

    __slots__ = ("_columns", "_topics", "names")

    def __init__(self, schema: Schema, dictionaries: Dictionaries) -> None:
        self.names = schema.field_names
        self._topics = dictionaries.strings(TOPIC_DICTIONARY)
        self._columns = [
            (field.name, dictionaries.strings(field.name) if field.dictionary else None)
            for field in schema.fields
        ]

    def decode(self, rows: np.ndarray) -> list[Candidate]:
        """Return each row's location (topic, then the schema's fields) and time."""
        topics = self._topics
        columns: list[list[object]] = [[topics[tag & TOPIC_MASK] for tag in rows["tag"].tolist()]]
        for name, strings in self._columns:
            values = rows[name].tolist()
            columns.append(values if strings is None else [strings[value] for value in values])
        return list(map(Candidate, zip(*columns, strict=True), rows["timestamp"].tolist()))

    def fingerprints(self, rows: np.ndarray) -> np.ndarray:
        """Return the fingerprints (u8[n, 2]) of the rows' identities, with no object a row."""
        columns = [_text_numbers(self._topics, rows["tag"] & np.uint32(TOPIC_MASK))]
        for name, strings in self._columns:
            values = rows[name]
            if strings is not None:
                columns.append(_text_numbers(strings, values))
            else:
                wide = np.int64 if values.dtype.kind == "i" else np.uint64
                columns.append(values.astype(wide).view(np.uint64))
        columns.append(np.ascontiguousarray(rows["timestamp"]).view(np.uint64))
        return fingerprints(np.column_stack(columns))


def _text_numbers(strings: Sequence[str], indices: np.ndarray) -> np.ndarray:
    """Return the numbers (u8) of `strings[indices]`; only those that occur are hashed."""
    used, places = np.unique(indices, return_inverse=True)
    numbers = np.array([text_number(strings[index]) for index in used.tolist()], np.uint64)
    return numbers[places]


def make_entry(
    handle: FileHandle,
    names: tuple[str, ...],
    location: tuple[Any, ...],
    timestamp: int,
    hash_function: str | None = None,
) -> Entry:
    """Return the entry of one item; `names` are the schema's fields, `location` topic and values."""
    file_id, state, node = handle.file_id, handle.state.value, handle.node
    if names == MESSAGE_LOCATION:
        topic, offset, size, queue_id = location
        return Entry(
            topic,
            queue_id,
            offset,
            size,
            timestamp,
            file_id,
            state,
            node,
            None,
            None,
            hash_function,
        )
    fields = dict(zip(names, location[1:], strict=True))
    return Entry(
        location[0],
        fields.get("queue_id"),
        fields.get("offset"),
        fields.get("size"),
        timestamp,
        file_id,
        state,
        node,
        fields,
        fields.get("source"),
        hash_function,
    )


def entries_of(
    handle: FileHandle, schema: Schema, dictionaries: Dictionaries, rows: np.ndarray
) -> list[Entry]:
    """Return the entries of one file's rows, in order."""
    if schema != MESSAGE_SCHEMA:
        decoder = RowDecoder(schema, dictionaries)
        return [
            make_entry(handle, decoder.names, location, timestamp)
            for location, timestamp in decoder.decode(rows)
        ]
    names = dictionaries.strings(TOPIC_DICTIONARY)
    columns = (
        repeat(names[0])
        if len(names) == 1
        else [names[number] for number in (rows["tag"] & TOPIC_MASK).tolist()],
        *(rows[name].tolist() for name in ("queue_id", "offset", "size", "timestamp")),
    )
    same = (handle.file_id, handle.state.value, handle.node, None, None, None)
    return list(map(_entry_of, zip(*columns, *map(repeat, same), strict=False)))


def entries_of_newest(
    topic: str, columns: NewestColumns, places: Sequence[FileHandle], which: np.ndarray | None
) -> Iterator[Entry]:
    """Yield the entries of the rows `which` (i8; None: all) of columns, in order; places[i] is file i."""
    numbers: list[list[int]] = [
        (values if which is None else values[which]).tolist()
        for values in (
            columns.column(QUEUES, np.int32),
            columns.column(OFFSETS, np.int64),
            columns.column(SIZES, np.uint32),
            columns.column(TIMES, np.int64),
        )
    ]
    names: list[Iterable[str]] = []
    place = columns.column(PLACES, np.int32)
    files = [(each.file_id, each.state.value, each.node) for each in places]
    if len(files) == 1:
        names = [repeat(name) for name in files[0]]
    elif files:
        of_row = (place if which is None else place[which]).tolist()
        names = [map(column.__getitem__, of_row) for column in zip(*files, strict=True)]
    nothing = repeat(None)
    rows = zip(repeat(topic), *numbers, *names, nothing, nothing, nothing, strict=False)
    return map(_entry_of, rows)
