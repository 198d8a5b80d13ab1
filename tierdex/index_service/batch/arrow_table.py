"""From matches to one Arrow table of entries, column by column, and what it says about the missing ones.

No object a row and, where one file has a match a lookup, no pass that orders anything: most of the time of
a call of 1,000 lookups is spent in the file. Columns are made straight from numpy's memory: Arrow's compute
functions cost more than the rows here, for they are many.

The metadata of the table's schema has `as_of`, and `missing` when some answer is not complete: a JSON array
of `{"file": …, "reason": …, "lookups": [numbers] or null}`, null for every lookup. It travels with the
table, over HTTP too.

Depends on indexfile and pyarrow.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.indexfile.layout import TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tierdex.index_service.answer import Missing
    from tierdex.index_service.query.executor import Result
    from tierdex.index_service.query.matches import FileMatches, Matches

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
SCHEMA: Final = pa.schema(
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
_LOCATION = (("queue_id", np.int32), ("offset", np.int64), ("size", np.uint32))


@lru_cache(maxsize=1)
def schema_as_of(as_of: int) -> Any:
    """Return the schema; `as_of` changes every few seconds only."""
    return SCHEMA.with_metadata({"as_of": str(as_of)})


def table_of(result: Result) -> Any:
    """Return the entries as an Arrow table, ordered by lookup, newest first within one.

    Columns: `lookup` int64, `topic`, `queue_id` int32, `offset` int64, `size` uint32, `timestamp`
    int64, `file_id`, `state`, `node`; queue, offset and size are null where the file's schema has
    none.
    """
    files, schema = result.matches.files, schema_as_of(result.as_of)
    if not files:
        return _with_missing(schema.empty_table(), result)
    numbers = _joined([found.numbers for found in files])
    is_ordered = bool((numbers[1:] >= numbers[:-1]).all())
    # Stable: within a lookup the newest file's rows stay first.
    order = slice(None) if is_ordered else np.argsort(numbers, kind="stable")

    def column(name: str, dtype: Any) -> np.ndarray:
        return _joined([_values(found, name, dtype) for found in files])[order]

    known = _joined([_has_location(found) for found in files])[order]
    topic, topics = _topics(result.matches)
    places = [np.full(len(found.rows), number, np.int32) for number, found in enumerate(files)]
    place = pa.py_buffer(_joined(places)[order])
    names = [(f.handle.file_id, f.handle.state.value, f.handle.node) for f in files]
    arrays = [
        plain(pa.int64(), numbers[order]),
        dictionary(pa.py_buffer(topic[order]), len(numbers), tuple(topics)),
        *(plain(schema.field(name).type, column(name, dtype), known) for name, dtype in _LOCATION),
        plain(pa.int64(), column("timestamp", np.int64)),
        *(dictionary(place, len(numbers), texts) for texts in zip(*names, strict=True)),
    ]
    return _with_missing(pa.Table.from_arrays(arrays, schema=schema), result)


def _joined(pieces: Sequence[np.ndarray]) -> np.ndarray:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _values(found: FileMatches, name: str, dtype: Any) -> np.ndarray:
    if name != "timestamp" and name not in found.schema.field_names:
        return np.zeros(len(found.rows), dtype)
    return np.ascontiguousarray(found.rows[name], dtype)


def _has_location(found: FileMatches) -> np.ndarray:
    has_it = all(name in found.schema.field_names for name, _ in _LOCATION)
    return np.full(len(found.rows), has_it)


def _topics(matches: Matches) -> tuple[np.ndarray, list[str]]:
    """Return each row's topic (i4), and what the numbers mean."""
    lookups = matches.lookups
    numbers = [found.numbers for found in matches.files]
    if lookups.names_topics:  # then a match has the topic that was asked for
        return _joined([lookups.topic_index[each] for each in numbers]), lookups.topics
    known: dict[str, int] = {}
    pieces = []
    for found in matches.files:
        names = found.dictionaries.strings(TOPIC_DICTIONARY)
        own, index = np.unique(found.rows["tag"] & np.uint32(TOPIC_MASK), return_inverse=True)
        of_all = [known.setdefault(names[number], len(known)) for number in own.tolist()]
        pieces.append(np.array(of_all, np.int32)[index])
    return _joined(pieces), list(known)


# -- what is missing --------------------------------------------------------------------------------


def _with_missing(table: Any, result: Result) -> Any:
    told = list(_missing(result))
    if not told:
        return table
    text = json.dumps(told, separators=(",", ":"))
    return table.replace_schema_metadata({**(table.schema.metadata or {}), "missing": text})


def _missing(result: Result) -> Iterator[dict[str, Any]]:
    for everywhere in dict.fromkeys(result.everywhere):
        yield {**everywhere.to_dict(), "lookups": None}
    of_files: dict[Missing, list[int]] = {}
    for missing, lookups in result.matches.missing:
        of_files.setdefault(missing, []).extend(lookups.tolist())
    for missing, numbers in of_files.items():
        yield {**missing.to_dict(), "lookups": numbers}


# -- arrow ------------------------------------------------------------------------------------------


def plain(kind: Any, values: np.ndarray, known: np.ndarray | None = None) -> Any:
    """Return numbers as an array; null where `known` (b1) is false."""
    valid = None
    if known is not None and not known.all():
        valid = pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def dictionary(indices: Any, count: int, texts: tuple[str, ...]) -> Any:
    """Return `count` strings by their index (a buffer of i4) in `texts`."""
    return pa.DictionaryArray.from_buffers(_TEXT, count, [None, indices], _texts(texts))


@lru_cache(maxsize=256)
def _texts(texts: tuple[str, ...]) -> Any:
    return pa.array(texts, pa.string())
