"""Entries of a JSON or ndjson body: checked by their model, then transposed into columns.

Depends on put_rows, http and times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter

from tierdex.app.http.codecs.put_rows import (
    REQUIRED,
    OneEntry,
    PutRows,
    refuse_too_many,
)
from tierdex.app.http.schemas.models import EntriesToPut, EntryToPut
from tierdex.app.http.schemas.validation import parse_json, validate, validate_json
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


def read_entries(body: bytes, limits: Settings) -> tuple[PutRows | OneEntry, Durability | None]:
    """Return the rows of a JSON body, and the level that it says. Raises InvalidRequestError."""
    batch = validate_json(_BATCH, body)
    durability = batch.durability if "durability" in batch.model_fields_set else None
    return _rows_of(batch.entries, limits), durability


def read_lines(body: bytes, limits: Settings) -> PutRows | OneEntry:
    """Return the rows of a body with an entry a line; blank lines are skipped."""
    lines = [line for line in body.split(b"\n") if line and not line.isspace()]
    refuse_too_many(len(lines), limits)
    values = [parse_json(line, f"entries[{number}]") for number, line in enumerate(lines)]
    return _rows_of(validate(_ENTRIES, values, place="entries"), limits)


def _rows_of(entries: Sequence[EntryToPut], limits: Settings) -> PutRows | OneEntry:
    if len(entries) == 1:
        (entry,) = entries
        (timestamp,) = as_meant([entry["timestamp"]])
        return OneEntry({**entry, "timestamp": timestamp})
    refuse_too_many(len(entries), limits)
    if not entries:
        return PutRows(0, {})
    columns: dict[str, Any] = {name: [entry[name] for entry in entries] for name in REQUIRED}  # type: ignore[literal-required]
    columns["topic"] = _one_topic(columns["topic"])
    columns["timestamp"] = as_meant(columns["timestamp"])
    columns["message_id"] = _optional(entries, "message_id")
    columns["keys"] = _keys(entries)
    return PutRows(len(entries), columns)


def _one_topic(topics: list[str]) -> str | list[str]:
    """Return one string when all topics are the same: a common and cheap case."""
    return topics[0] if topics.count(topics[0]) == len(topics) else topics


def _optional(entries: Sequence[EntryToPut], name: str) -> list[Any] | None:
    values = [entry.get(name) for entry in entries]
    return None if values.count(None) == len(values) else values


def _keys(entries: Sequence[EntryToPut]) -> list[Any] | None:
    """Return the key of each entry, or its list of keys, or None."""
    keys, lists = _optional(entries, "key"), _optional(entries, "keys")
    if keys is None or lists is None:
        return keys or lists
    for number, (key, several) in enumerate(zip(keys, lists, strict=True)):
        if key is not None and several is not None:
            raise InvalidRequestError("give either `key` or `keys`", field=f"entries[{number}].key")
    return [several if key is None else key for key, several in zip(keys, lists, strict=True)]
