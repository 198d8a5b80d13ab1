"""The columns of a DataFrame that make an entry, checked by name and type before it is read.

Columns of a sink::

    topic string · key string, or keys array<string> · message_id string · timestamp bigint or timestamp
    and one location: queue_id, offset, size | source, offset, size | source, row_group, row

Depends on errors and indexfile only: Spark plans in a process of its own, which loads no kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tierdex.errors import InvalidRequestError
from tierdex.indexfile.schema import (
    MESSAGE_SCHEMA,
    PARQUET_ROW_SCHEMA,
    TABLE_ROW_SCHEMA,
    TEXT_LINE_SCHEMA,
    Schema,
    message_schema,
)

LOCATION_SCHEMAS: Final = (
    MESSAGE_SCHEMA,
    PARQUET_ROW_SCHEMA,
    TEXT_LINE_SCHEMA,
    TABLE_ROW_SCHEMA,  # rows of a lake's tables, which `index_table` writes
)
_STRINGS = frozenset({"string", "varchar", "char"})
_INTEGERS = frozenset({"byte", "tinyint", "short", "smallint", "integer", "int", "long", "bigint"})
_TIMES = frozenset({"timestamp", "long", "bigint", "integer", "int"})


@dataclass(frozen=True, slots=True)
class EntryForm:
    """The columns of a DataFrame, and the item schema of its location."""

    schema: Schema
    has_key: bool
    has_keys: bool
    has_message_id: bool

    @classmethod
    def of(cls, types: dict[str, str], offsets: str = "bytes") -> EntryForm:
        """Choose by column names; `types` are Spark's simple type names, `offsets` is the option.

        Raises InvalidRequestError naming the column that is missing, unknown or of a wrong type.
        """
        schema = next(
            (one for one in LOCATION_SCHEMAS if set(one.field_names) <= types.keys()), None
        )
        if schema is None:
            lacking = min(
                (set(s.field_names) - types.keys() for s in LOCATION_SCHEMAS[:3]), key=len
            )
            raise InvalidRequestError(
                "is missing; a location is queue_id, offset, size (or source with offset, size or "
                "with row_group, row)",
                field=min(lacking),
            )
        if schema.is_message:
            schema = message_schema(offsets)
        elif offsets != "bytes":
            raise InvalidRequestError("goes with queue_id, offset and size only", field="offsets")
        form = cls(schema, "key" in types, "keys" in types, "message_id" in types)
        form._check(types)
        return form

    def _check(self, types: dict[str, str]) -> None:
        allowed: dict[str, frozenset[str]] = {
            "topic": _STRINGS,
            "timestamp": _TIMES,
            "key": _STRINGS,
            "keys": frozenset({"array<string>"}),
            "message_id": _STRINGS,
        }
        for field in self.schema.fields:
            allowed[field.name] = _STRINGS if field.dictionary else _INTEGERS
        for name in ("topic", "timestamp"):
            if name not in types:
                raise InvalidRequestError("is missing", field=name)
        if self.has_key and self.has_keys:
            raise InvalidRequestError("give key or keys, not both", field="keys")
        if not (self.has_key or self.has_keys or self.has_message_id):
            raise InvalidRequestError("give key, keys or message_id", field="key")
        for name, kind in types.items():
            if name not in allowed:
                raise InvalidRequestError(
                    f"is no column of an entry; known: {', '.join(sorted(allowed))}", field=name
                )
            if kind.split("(")[0] not in allowed[name]:
                raise InvalidRequestError(
                    f"is {kind}; expected {' or '.join(sorted(allowed[name]))}", field=name
                )
