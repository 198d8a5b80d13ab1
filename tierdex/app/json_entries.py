"""Entries of a JSON or ndjson body: parsed, and transposed once into columns.

The objects of a batch have few different shapes (lists of names): names are checked once a shape,
values by the index, column by column. Depends on errors, numpy, pyarrow, orjson.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from tierdex.app.put_rows import (
    OPTIONAL,
    REQUIRED,
    PutRows,
    check_names,
    refuse_too_many,
    rows_of_entries,
)
from tierdex.app.times import parse_time
from tierdex.errors import InvalidRequestError
from tierdex.index_service.request import check_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.settings import Settings


def parse_json(body: bytes | bytearray, field: str = "body") -> Any:
    """Return what a JSON body says. Raises InvalidRequestError (bad UTF-8, too deep, not JSON)."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"is not JSON: {error}", field=field) from None


def parse_ndjson(body: bytes | bytearray, limits: Settings) -> list[Any]:
    """Return one value a line; blank lines are skipped."""
    lines = [line for line in bytes(body).split(b"\n") if line and not line.isspace()]
    refuse_too_many(len(lines), limits)
    try:
        return list(map(orjson.loads, lines))
    except orjson.JSONDecodeError:
        return [parse_json(line, f"entries[{number}]") for number, line in enumerate(lines)]


def rows_of_json(entries: object, limits: Settings) -> PutRows:
    """Return the rows of a list of entry objects. Raises InvalidRequestError naming the entry."""
    if not isinstance(entries, list):
        raise InvalidRequestError("must be a list of entries", field="entries")
    refuse_too_many(len(entries), limits)
    if not entries:
        return PutRows(0, {})
    optional = _check_shapes(entries)
    topics, queue_ids, offsets, sizes, times = (
        [entry[name] for entry in entries] for name in REQUIRED
    )
    columns: dict[str, Any] = {
        "topic": _one_topic(topics),
        "queue_id": queue_ids,
        "offset": offsets,
        "size": sizes,
        "timestamp": _milliseconds(times),
        "message_id": _values(entries, "message_id") if "message_id" in optional else None,
    }
    if "keys" not in optional:
        columns["keys"] = _values(entries, "key") if "key" in optional else None
        return PutRows(len(entries), columns)
    return _with_key_lists(entries, columns, limits)


def _check_shapes(entries: list[Any]) -> set[str]:
    """Check names once a shape; return the optional ones that any entry has."""
    if set(map(type, entries)) != {dict}:
        number = next(i for i, entry in enumerate(entries) if type(entry) is not dict)
        raise InvalidRequestError("must be an object", field=f"entries[{number}]")
    shapes = set(map(tuple, entries))
    for shape in shapes:
        # `key` and `keys` may both be there as long as one of them is null: looked at by row.
        one_of_both = [name for name in shape if name != "key" or "keys" not in shape]
        try:
            check_names(one_of_both, "entries")
        except InvalidRequestError:
            number = next(i for i, entry in enumerate(entries) if tuple(entry) == shape)
            check_names(one_of_both, f"entries[{number}]")
            raise
    return {name for shape in shapes for name in shape if name in OPTIONAL}


def _one_topic(topics: list[Any]) -> Any:
    """Return one string when all topics are the same: the common case, and the cheap one."""
    first = topics[0]
    return first if type(first) is str and topics.count(first) == len(topics) else topics


def _values(entries: list[Any], name: str) -> list[Any]:
    return [entry.get(name) for entry in entries]


def _milliseconds(values: list[Any]) -> list[Any]:
    if str not in set(map(type, values)):
        return values
    return [
        parse_time(value, field=f"entries[{number}].timestamp") if type(value) is str else value
        for number, value in enumerate(values)
    ]


def _with_key_lists(entries: list[Any], columns: dict[str, Any], limits: Settings) -> PutRows:
    """Return one row a key. The other columns stay lists, repeated where an entry has several."""
    lists = _values(entries, "keys")
    if set(map(type, lists)) != {list} or any("key" in entry for entry in entries):
        lists = [_key_list(entry, number) for number, entry in enumerate(entries)]
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    flat: list[Any] = list(chain.from_iterable(lists))
    if not set(map(type, flat)) <= {str}:
        _refuse_key(lists)
    columns["keys"] = flat
    if (counts == 1).all():
        return PutRows(len(entries), columns)
    entry_of_row, key_position, id_position = rows_of_entries(counts, limits)
    numbers = entry_of_row.tolist()
    columns["keys"] = pa.array(flat, pa.large_string()).take(key_position)
    if columns["message_id"] is not None:
        ids = columns["message_id"]
        columns["message_id"] = [None if i is None else ids[i] for i in id_position.to_pylist()]
    for name in REQUIRED:
        if isinstance(columns[name], list):
            columns[name] = [columns[name][number] for number in numbers]
    return PutRows(len(entries), columns, entry_of_row)


def _key_list(entry: dict[str, Any], number: int) -> Sequence[Any]:
    keys, key = entry.get("keys"), entry.get("key")
    if keys is None:
        return () if key is None else (key,)
    if key is not None:
        raise InvalidRequestError("give either `key` or `keys`", field=f"entries[{number}].key")
    if type(keys) is not list:
        raise InvalidRequestError("must be a list of strings", field=f"entries[{number}].keys")
    return keys


def _refuse_key(lists: list[Sequence[Any]]) -> None:
    for number, keys in enumerate(lists):
        for position, key in enumerate(keys):
            check_key(key, f"entries[{number}].keys[{position}]", len(str(key).encode()) + 1)
