"""Entries of a JSON or ndjson body: checked by their model, then transposed into columns.

Depends on numpy, pyarrow, put_rows, http and times.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, TypeAdapter

from tierdex.app.http.codecs.put_rows import (
    REQUIRED,
    PutRows,
    refuse_too_many,
    rows_of_entries,
)
from tierdex.app.http.models import EntriesToPut, EntryToPut
from tierdex.app.http.validation import parse_json, validate, validate_json
from tierdex.errors import InvalidRequestError
from tierdex.times import as_meant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.settings import Settings
    from tierdex.value_rules import Durability

_BATCH = TypeAdapter(EntriesToPut)
_ENTRIES: TypeAdapter[Sequence[EntryToPut]] = TypeAdapter(
    Annotated[list[EntryToPut], Field(fail_fast=True)]
)


def read_entries(body: bytes, limits: Settings) -> tuple[PutRows, Durability | None]:
    """Return the rows of a JSON body, and the level that it says. Raises InvalidRequestError."""
    batch = validate_json(_BATCH, body)
    durability = batch.durability if "durability" in batch.model_fields_set else None
    return _rows_of(batch.entries, limits), durability


def read_lines(body: bytes, limits: Settings) -> PutRows:
    """Return the rows of a body with an entry a line; blank lines are skipped."""
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    refuse_too_many(len(lines), limits)
    values = [parse_json(line, f"entries[{number}]") for number, line in enumerate(lines)]
    return _rows_of(validate(_ENTRIES, values, place="entries"), limits)


def _rows_of(entries: Sequence[EntryToPut], limits: Settings) -> PutRows:
    refuse_too_many(len(entries), limits)
    if not entries:
        return PutRows(0, {})
    columns: dict[str, Any] = {name: [entry[name] for entry in entries] for name in REQUIRED}  # type: ignore[literal-required]
    columns["topic"] = _one_topic(columns["topic"])
    columns["timestamp"] = as_meant(columns["timestamp"])
    columns["message_id"] = _optional(entries, "message_id")
    columns["keys"] = _optional(entries, "key")
    lists = _optional(entries, "keys")
    if lists is None:
        return PutRows(len(entries), columns)
    return _with_key_lists(entries, lists, columns, limits)


def _one_topic(topics: list[str]) -> str | list[str]:
    """Return one string when all topics are the same: a common and cheap case."""
    return topics[0] if topics.count(topics[0]) == len(topics) else topics


def _optional(entries: Sequence[EntryToPut], name: str) -> list[Any] | None:
    values = [entry.get(name) for entry in entries]
    return None if values.count(None) == len(values) else values


def _with_key_lists(
    entries: Sequence[EntryToPut],
    lists: list[list[str] | None],
    columns: dict[str, Any],
    limits: Settings,
) -> PutRows:
    """Return one row a key. The other columns stay lists, repeated where an entry has several."""
    if columns["keys"] is not None or None in lists:
        lists = [_key_list(entry, number) for number, entry in enumerate(entries)]
    counts = np.fromiter(map(len, lists), np.int64, len(lists))  # type: ignore[arg-type]
    flat: list[str] = list(chain.from_iterable(lists))  # type: ignore[arg-type]
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


def _key_list(entry: EntryToPut, number: int) -> list[str]:
    keys, key = entry.get("keys"), entry.get("key")
    if keys is None:
        return [] if key is None else [key]
    if key is not None:
        raise InvalidRequestError("give either `key` or `keys`", field=f"entries[{number}].key")
    return keys
