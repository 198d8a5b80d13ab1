"""Avro payloads, by fastavro.

Depends on registry and fastavro.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro

if TYPE_CHECKING:
    from collections.abc import Callable

    from tierdex.resolving.registry import Schema


def avro_reader(schema: Schema) -> Callable[[bytes], Any]:
    """Return what reads one payload; it raises where bytes are left over, or lacking."""
    named: dict[str, Any] = {}
    _take_in(schema, named, set())
    parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)

    def read(payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.read(1):
            raise ValueError("bytes are left over")
        return value

    return read


def _take_in(schema: Schema, named: dict[str, Any], done: set[str]) -> None:
    """Parse what a schema refers to, the deepest first, each once."""
    for name, referred in schema.references.items():
        _take_in(referred, named, done)
        if name not in done:
            done.add(name)
            fastavro.parse_schema(json.loads(referred.text), named_schemas=named)
