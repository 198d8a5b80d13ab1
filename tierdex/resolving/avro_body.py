"""Avro payloads, by fastavro: shown as the producer wrote them.

fastavro makes Python's own types of logical types, which round, rewrite, or fail: a decimal beyond the
schema's precision, a UUID in capitals, a time beyond 9999. So logical types get names of ours before fastavro
sees them, and readers of ours: what is beyond them is shown as its underlying type (as Avro's specification
says), with the reason beside it. A float has its own digits, not those of the double next to it.

Depends on json_text, stored_times, registry, numpy and fastavro.
"""

from __future__ import annotations

import io
import json
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import fastavro
import fastavro.read
import numpy as np

from tierdex.resolving.json_text import Odd, plain_decimal, tree_of
from tierdex.resolving.stored_times import clock_text, date_text, is_in_calendar, timestamp_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.resolving.registry import Schema

_OURS: Final = "tierdex-"
_FLOAT: Final = f"{_OURS}float"


def avro_reader(schema: Schema) -> Callable[[bytes], tuple[Any, list[str]]]:
    """Return what reads one payload: its tree, and notes about fields that are shown by other types.

    It raises where bytes are left over, or lacking.
    """
    named: dict[str, Any] = {}
    _take_in(schema, named, set())
    parsed = fastavro.parse_schema(_with_types_of_ours(json.loads(schema.text)), named)

    def read(payload: bytes) -> tuple[Any, list[str]]:
        notes: list[str] = []
        try:
            value = _read(payload, parsed, "strict")
        except UnicodeDecodeError:
            value = _read(payload, parsed, "backslashreplace")
            notes.append("a text is not UTF-8, its odd bytes are shown as \\xNN")
        return tree_of(value, notes), notes

    return read


def _read(payload: bytes, parsed: Any, unicode_errors: str) -> Any:
    stream = io.BytesIO(payload)
    value = fastavro.schemaless_reader(stream, parsed, None, handle_unicode_errors=unicode_errors)
    if stream.read(1):
        raise ValueError("bytes are left over")
    return value


def _take_in(schema: Schema, named: dict[str, Any], done: set[str]) -> None:
    """Parse what a schema refers to, the deepest first, each once."""
    for name, referred in schema.references.items():
        _take_in(referred, named, done)
        if name not in done:
            done.add(name)
            fastavro.parse_schema(_with_types_of_ours(json.loads(referred.text)), named)


def _with_types_of_ours(schema: Any) -> Any:
    """Return a schema whose logical types have names of ours, and floats one as well."""
    if isinstance(schema, list):
        return [_with_types_of_ours(each) for each in schema]
    if not isinstance(schema, dict):
        return {"type": "float", "logicalType": _FLOAT} if schema == "float" else schema
    made = dict(schema)
    for name in ("items", "values"):
        if name in made:
            made[name] = _with_types_of_ours(made[name])
    if isinstance(made.get("fields"), list):
        made["fields"] = [
            {**each, "type": _with_types_of_ours(each["type"])} for each in made["fields"]
        ]
    if isinstance(made.get("type"), dict | list):
        made["type"] = _with_types_of_ours(made["type"])
    if made.get("type") == "float":
        made["logicalType"] = _FLOAT
    elif isinstance(made.get("logicalType"), str):
        made["logicalType"] = _OURS + made["logicalType"]
    return made


# -- logical types: each takes a value of the underlying type, and the schemas ------------------------------


def _float(value: float, *_schemas: Any) -> float:
    return float(str(np.float32(value)))


def _decimal(data: bytes, schema: Any, *_schemas: Any) -> Any:
    scale = schema.get("scale", 0)
    text = plain_decimal(data, scale) if isinstance(scale, int) and scale >= 0 else None
    return Odd(data, "is no decimal that can be shown, but bytes") if text is None else text


def _date(days: int, *_schemas: Any) -> Any:
    return date_text(days) if is_in_calendar(days * 86_400, "s") else _beyond(days)


def _time(unit: str, value: int, *_schemas: Any) -> Any:
    return clock_text(value, unit)


def _timestamp(unit: str, zone: str | None, value: int, *_schemas: Any) -> Any:
    if not is_in_calendar(value, unit):
        return _beyond(value)
    return timestamp_text(value, unit, zone).replace("T", " ")


def _beyond(value: int) -> Odd:
    return Odd(value, "is beyond the years 1 to 9999, and shown as its number")


def _uuid(data: bytes, *_schemas: Any) -> Any:
    return str(uuid.UUID(bytes=data)) if len(data) == 16 else data


_READERS: Final[dict[str, Callable[..., Any]]] = {
    f"float-{_FLOAT}": _float,
    f"bytes-{_OURS}decimal": _decimal,
    f"fixed-{_OURS}decimal": _decimal,
    f"fixed-{_OURS}uuid": _uuid,  # a string stays as its producer wrote it
    f"int-{_OURS}date": _date,
    f"int-{_OURS}time-millis": partial(_time, "ms"),
    f"long-{_OURS}time-micros": partial(_time, "us"),
}
for _unit, _name in (("ms", "millis"), ("us", "micros"), ("ns", "nanos")):
    _READERS[f"long-{_OURS}timestamp-{_name}"] = partial(_timestamp, _unit, "UTC")
    _READERS[f"long-{_OURS}local-timestamp-{_name}"] = partial(_timestamp, _unit, None)
fastavro.read.LOGICAL_READERS.update(_READERS)
