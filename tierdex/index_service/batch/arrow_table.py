"""From the matches of a batch to one Arrow table of entries, column by column.

No object a row and, in the plain case (one file, a match a lookup), no pass that orders or drops
anything: most of the time of a call of 1,000 lookups is spent in the file. Columns are made straight
from numpy's memory: Arrow's compute functions cost more than the rows here, for they are many.

Depends on collected, answer, repeats; pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.index_service.requests.repeats import first_of_each
from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.newest_columns import OFFSETS, PLACES, QUEUES, SIZES, TIMES
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tierdex.index_service.answer import Answer
    from tierdex.index_service.batch.lookups import LookupBatch
    from tierdex.index_service.batch.matches import Collected, FileMatches
    from tierdex.index_service.batch.uniform import Newest
    from tierdex.lifecycle.file_handle import FileHandle

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [
        ("lookup", pa.int64()),
        ("topic", _TEXT),
        ("queue_id", pa.int32()),
        ("offset", pa.int64()),
        ("size", pa.uint32()),
        ("timestamp", pa.int64()),
        ("file_id", _TEXT),
        ("state", _TEXT),
        ("node", _TEXT),
    ]
)
_KEPT_ROWS = 4096
_from_buffers = pa.Array.from_buffers
_I32, _I64, _U32 = pa.int32(), pa.int64(), pa.uint32()
_LOCATION = (("queue_id", np.int32), ("offset", np.int64), ("size", np.uint32))


@lru_cache(maxsize=1)
def _schema_as_of(as_of: int) -> Any:
    """Return the schema; `as_of` changes every few seconds only."""
    return _SCHEMA.with_metadata({"as_of": str(as_of)})


class _Place(NamedTuple):
    """Where a row was found."""

    file_id: str
    state: str
    node: str


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of the table to be. `location` are queue, offset and size, each with None or a mask."""

    lookup: np.ndarray  # i8
    topic: np.ndarray  # i4, into the topics of all
    place: np.ndarray  # i4, into the places of all
    timestamp: np.ndarray  # i8
    location: tuple[np.ndarray, ...]
    known: tuple[np.ndarray | None, ...]  # b1, None: every row has the value

    def taken(self, which: np.ndarray) -> _Rows:
        """Return some rows, by number or by mask."""
        return _Rows(
            self.lookup[which],
            self.topic[which],
            self.place[which],
            self.timestamp[which],
            tuple(column[which] for column in self.location),
            tuple(None if mask is None else mask[which] for mask in self.known),
        )


class _Names:
    """Distinct values in order of their first mention."""

    def __init__(self, names: Sequence[Any] = ()) -> None:
        self.names = list(names)
        self._numbers: dict[Any, int] | None = None

    def number_of(self, name: Any) -> int:
        if self._numbers is None:
            self._numbers = {each: number for number, each in enumerate(self.names)}
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


def table_of(
    collected: Collected,
    exact: Mapping[int, Answer],
    hides: Callable[[FileHandle, str], bool],
    as_of: int,
) -> Any:
    """Return the entries as an Arrow table, ordered by lookup, newest first within one.

    Columns: `lookup` int64, `topic`, `queue_id` int32, `offset` int64, `size` uint32, `timestamp`
    int64, `file_id`, `state`, `node`; queue, offset and size are null where the file's schema has
    none. `exact` holds whole answers of single lookups, which replace what was collected for them.
    The schema's metadata says `as_of`.
    """
    topics, places = _Names(collected.batch.topics), _Names()
    pieces = [
        _rows_of_file(found, collected.batch, hides, topics, places) for found in collected.matches
    ]
    if exact:
        numbers = np.fromiter(exact, np.int64, len(exact))
        pieces = [rows.taken(~np.isin(rows.lookup, numbers)) for rows in pieces]
        pieces.append(_rows_of_answers(exact, topics, places))
    schema = _schema_as_of(as_of)
    if not pieces:
        return schema.empty_table()
    rows = _in_order(_joined(pieces), collected.batch)
    return _as_arrow(rows, topics.names, places.names, schema)


def table_of_uniform(
    topic: str, found: list[FileMatches], max_count: int, as_of: int
) -> Any | None:
    """Return the same for lookups of keys in one topic; None when an answer may be cut short.

    `found` holds no hidden rows. With `max_count` 1 each lookup has one row at most.
    """
    schema = _schema_as_of(as_of)
    if not found:
        return schema.empty_table()
    places = _Names()
    rows = _joined([_rows_of_topic(matches, places, max_count) for matches in found])
    if max_count > 1 or len(found) > 1:
        rows = _by_lookup(rows)
    if max_count > 1 and len(rows.lookup) > 1 and not np.diff(rows.lookup).all():
        if not _first_of_each_entry(rows).all():
            return None  # with repeats left out, more may lie behind what was asked for
        rank = np.arange(len(rows.lookup)) - np.searchsorted(rows.lookup, rows.lookup, side="left")
        rows = rows.taken(rank < max_count)
    return _as_arrow(rows, [topic], places.names, schema)


def table_of_newest(topic: str, newest: Newest, as_of: int) -> Any:
    """Return the same for one entry a lookup at most, which lies in columns already."""
    columns, count = newest.columns, newest.columns.count
    schema = _schema_as_of(as_of)
    if not newest.places:
        return schema.empty_table()
    if columns.is_complete:
        memory = columns.memory
        lookup, queue, offset, size, timestamp, place = (
            _kept_lookups(count) if count <= _KEPT_ROWS else _new_lookups(count),
            _from_buffers(_I32, count, [None, memory.slice(QUEUES * count, 4 * count)]),
            _from_buffers(_I64, count, [None, memory.slice(OFFSETS * count, 8 * count)]),
            _from_buffers(_U32, count, [None, memory.slice(SIZES * count, 4 * count)]),
            _from_buffers(_I64, count, [None, memory.slice(TIMES * count, 8 * count)]),
            memory.slice(PLACES * count, 4 * count),
        )
    else:
        found = np.flatnonzero(columns.found)
        count = len(found)
        lookup, queue, offset, size, timestamp = (
            _plain(kind, values, None)
            for kind, values in (
                (_I64, found),
                (_I32, columns.column(QUEUES, np.int32)[found]),
                (_I64, columns.column(OFFSETS, np.int64)[found]),
                (_U32, columns.column(SIZES, np.uint32)[found]),
                (_I64, columns.column(TIMES, np.int64)[found]),
            )
        )
        place = pa.py_buffer(columns.column(PLACES, np.int32)[found])
    places = [(each.file_id, each.state.value, each.node) for each in newest.places]
    if len(places) == 1:
        named = [_constant(text, count) for text in places[0]]
    else:
        named = [_dictionary(place, count, texts) for texts in zip(*places, strict=True)]
    arrays = [lookup, _constant(topic, count), queue, offset, size, timestamp, *named]
    return pa.Table.from_arrays(arrays, schema=schema)


def _new_lookups(count: int) -> Any:
    return _plain(_I64, np.arange(count), None)


_kept_lookups = lru_cache(maxsize=16)(_new_lookups)


def _constant(text: str, count: int) -> Any:
    """Return `count` times the same text; Arrow's arrays never change, so they may be shared."""
    make = _kept_constant if count <= _KEPT_ROWS else _new_constant
    return make(text, count)


def _new_constant(text: str, count: int) -> Any:
    return _dictionary(pa.py_buffer(np.zeros(count, np.int32)), count, (text,))


_kept_constant = lru_cache(maxsize=256)(_new_constant)


# -- rows of one source -----------------------------------------------------------------------------


def _rows_of_file(
    found: FileMatches,
    batch: LookupBatch,
    hides: Callable[[FileHandle, str], bool],
    topics: _Names,
    places: _Names,
) -> _Rows:
    handle, lookup = found.handle, found.lookups()
    if batch.has_topics:  # then a match has the topic that was asked for
        topic = batch.topic_index[lookup]
    else:
        topic = _file_topics(found, topics)
    rows = _rows_of(found, lookup, topic, places)
    if handle.sealed_at_ms is None:  # retention counts from the sealing
        return rows
    used = [0] if len(topics.names) == 1 else np.unique(topic).tolist()
    hidden = [number for number in used if hides(handle, topics.names[number])]
    return rows.taken(~np.isin(topic, hidden)) if hidden else rows


def _rows_of_topic(found: FileMatches, places: _Names, max_count: int) -> _Rows:
    """Return the rows of lookups that all name the topic number 0."""
    each_has_one = max_count == 1 and len(found.rows) == len(found.wanted)
    lookup = found.wanted if each_has_one else found.lookups()
    return _rows_of(found, lookup, np.zeros(len(found.rows), np.int32), places)


def _rows_of(found: FileMatches, lookup: np.ndarray, topic: np.ndarray, places: _Names) -> _Rows:
    raw, handle = found.rows, found.handle
    place = places.number_of(_Place(handle.file_id, handle.state.value, handle.node))
    location: list[np.ndarray] = []
    known: list[np.ndarray | None] = []
    for name, dtype in _LOCATION:
        if name in found.schema.field_names:
            location.append(np.ascontiguousarray(raw[name], dtype))
            known.append(None)
        else:
            location.append(np.zeros(len(raw), dtype))
            known.append(np.zeros(len(raw), bool))
    return _Rows(
        lookup,
        topic,
        np.full(len(raw), place, np.int32),
        np.ascontiguousarray(raw["timestamp"]),
        tuple(location),
        tuple(known),
    )


def _file_topics(found: FileMatches, topics: _Names) -> np.ndarray:
    """Return each row's topic (i4, in `topics`), which the file knows under a number of its own."""
    names = found.dictionaries.strings(TOPIC_DICTIONARY)
    own, index = np.unique(found.rows["tag"] & np.uint32(TOPIC_MASK), return_inverse=True)
    numbers = [topics.number_of(names[number]) for number in own.tolist()]
    return np.array(numbers, np.int32)[index]


def _rows_of_answers(answers: Mapping[int, Answer], topics: _Names, places: _Names) -> _Rows:
    entries = [(number, entry) for number, answer in answers.items() for entry in answer.entries]
    location, known = [], []
    for name, dtype in _LOCATION:
        values = [getattr(entry, name) for _, entry in entries]
        location.append(np.array([value or 0 for value in values], dtype))
        known.append(np.array([value is not None for value in values], bool))
    place = [places.number_of(_Place(e.file_id, e.state, e.node)) for _, e in entries]
    return _Rows(
        np.array([number for number, _ in entries], np.int64),
        np.array([topics.number_of(entry.topic) for _, entry in entries], np.int32),
        np.array(place, np.int32),
        np.array([entry.timestamp for _, entry in entries], np.int64),
        tuple(location),
        tuple(known),
    )


# -- all rows ---------------------------------------------------------------------------------------


def _joined(pieces: list[_Rows]) -> _Rows:
    if len(pieces) == 1:
        return pieces[0]
    columns = range(len(_LOCATION))
    return _Rows(
        np.concatenate([rows.lookup for rows in pieces]),
        np.concatenate([rows.topic for rows in pieces]),
        np.concatenate([rows.place for rows in pieces]),
        np.concatenate([rows.timestamp for rows in pieces]),
        tuple(np.concatenate([rows.location[number] for rows in pieces]) for number in columns),
        tuple(_joined_masks(pieces, number) for number in columns),
    )


def _joined_masks(pieces: list[_Rows], number: int) -> np.ndarray | None:
    if all(rows.known[number] is None for rows in pieces):
        return None
    masks = []
    for rows in pieces:
        mask = rows.known[number]
        masks.append(np.ones(len(rows.lookup), bool) if mask is None else mask)
    return np.concatenate(masks)


def _in_order(rows: _Rows, batch: LookupBatch) -> _Rows:
    """Return the rows by lookup, repeats and what nobody asked for left out."""
    rows = _by_lookup(rows)
    if np.diff(rows.lookup).all():
        return rows
    rows = rows.taken(_first_of_each_entry(rows))
    rank = np.arange(len(rows.lookup)) - np.searchsorted(rows.lookup, rows.lookup, side="left")
    return rows.taken(rank < batch.max_count[rows.lookup])


def _by_lookup(rows: _Rows) -> _Rows:
    """Return the rows sorted by lookup; stable: within a lookup the newest file's stay first."""
    lookup = rows.lookup
    if (lookup[1:] >= lookup[:-1]).all():
        return rows
    return rows.taken(np.argsort(lookup, kind="stable"))


def _first_of_each_entry(rows: _Rows) -> np.ndarray:
    """Return a mask: False for a repeat in the same lookup.

    Only message locations repeat here: rows of other schemas are kept, their files drop repeats.
    """
    first = first_of_each([*rows.location, rows.timestamp, rows.topic, rows.lookup])
    known = rows.known[1]
    return first if known is None else first | ~known


# -- arrow ------------------------------------------------------------------------------------------


def _as_arrow(rows: _Rows, topics: list[str], places: list[_Place], schema: Any) -> Any:
    place = pa.py_buffer(rows.place)
    columns = [
        _plain(pa.int64(), rows.lookup, None),
        _dictionary(pa.py_buffer(rows.topic), len(rows.topic), tuple(topics)),
        *(
            _plain(schema.field(name).type, column, known)
            for (name, _), column, known in zip(_LOCATION, rows.location, rows.known, strict=True)
        ),
        _plain(pa.int64(), rows.timestamp, None),
        *(
            _dictionary(place, len(rows.place), tuple(getattr(each, name) for each in places))
            for name in _Place._fields
        ),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _plain(kind: Any, values: np.ndarray, known: np.ndarray | None) -> Any:
    valid = None
    if known is not None and not known.all():
        valid = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def _dictionary(indices: Any, count: int, texts: tuple[str, ...]) -> Any:
    return pa.DictionaryArray.from_buffers(_TEXT, count, [None, indices], _texts(texts))


@lru_cache(maxsize=256)
def _texts(texts: tuple[str, ...]) -> Any:
    return pa.array(texts, pa.string())
