"""The Arrow columns of a scan, made from rows of a file.

| column | type | |
|---|---|---|
| `topic` | string | |
| `kind` | string | `key` or `message_id`: how the entry is found |
| `key_hash` | bigint | the hash, signed as Spark's `xxhash64` is |
| `queue_id`, `offset`, `size` | int, bigint, bigint | null when the location is of another form |
| `timestamp` | bigint | milliseconds, exact for every time; `timestamp_millis(timestamp)` converts |
| `file_id`, `node` | string | |
| `source`, `row_group`, `row` | string, int, bigint | of indexed tables and texts; on request |
| `location` | map<string, bigint> | every number of the location, whatever the schema; on request |
| `key`, `message_id` | string | only with the option `keys`, `messageIds` |

Depends on indexfile; names Spark's types as DDL only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.indexfile.layout import KIND_BIT, TOPIC_MASK
from tierdex.indexfile.schema import TOPIC_DICTIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.indexfile.compacted.file import CompactedFile

DEFAULT_COLUMNS: Final = (
    "topic",
    "kind",
    "key_hash",
    "queue_id",
    "offset",
    "size",
    "timestamp",
    "file_id",
    "node",
)
COLUMN_DDL: Final = {
    "topic": "string",
    "kind": "string",
    "key_hash": "bigint",
    "queue_id": "int",
    "offset": "bigint",
    "size": "bigint",
    "timestamp": "bigint",
    "file_id": "string",
    "node": "string",
    "source": "string",
    "row_group": "int",
    "row": "bigint",
    "location": "map<string,bigint>",
    "key": "string",
    "message_id": "string",
}
_LOCATION = pa.map_(pa.string(), pa.int64())
_ARROW_TYPES: Final = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "map<string,bigint>": _LOCATION,
}


def ddl_of(columns: Sequence[str]) -> str:
    """Return the DDL of a scan's columns. Raises InvalidRequestError for an unknown one."""
    for name in columns:
        if name not in COLUMN_DDL:
            raise InvalidRequestError(
                f"there is no column {name}; known: {', '.join(COLUMN_DDL)}", field="columns"
            )
    return ", ".join(f"`{name}` {COLUMN_DDL[name]}" for name in columns)


def arrow_type(name: str) -> Any:
    """Return the Arrow type of a column."""
    return _ARROW_TYPES[COLUMN_DDL[name]]


class RowColumns:
    """Makes columns of one file's rows. Immutable."""

    def __init__(self, file: CompactedFile, file_id: str, node: str) -> None:
        self._schema = file.schema
        self._strings = {
            name: pa.array(file.dictionaries.strings(name), pa.string())
            for name in file.schema.dictionary_names
        }
        self._constants = {"file_id": file_id, "node": node}
        # Not a constant of the module: the first array of a process loads pandas.
        self._kinds = pa.array(["key", "message_id"], pa.string())

    def columns(self, rows: np.ndarray, names: Sequence[str]) -> list[Any]:
        """Return one Arrow array a name, of the types in COLUMN_DDL."""
        return [self._column(rows, name) for name in names]

    def _column(self, rows: np.ndarray, name: str) -> Any:
        count = len(rows)
        if name in self._constants:
            return pa.repeat(pa.scalar(self._constants[name]), count)
        if name == "topic":
            topics = (rows["tag"] & np.uint32(TOPIC_MASK)).astype(np.int32)
            return _spelled(self._strings[TOPIC_DICTIONARY], topics)
        if name == "kind":
            return _spelled(self._kinds, (rows["tag"] >= KIND_BIT).astype(np.int32))
        if name == "key_hash":
            return pa.array(np.ascontiguousarray(rows["key_hash"]).view(np.int64))
        if name == "timestamp":
            return pa.array(np.ascontiguousarray(rows["timestamp"]))
        if name == "location":
            return self._location(rows)
        if name in self._strings:
            return _spelled(self._strings[name], rows[name].astype(np.int32))
        if name == "source":
            return pa.nulls(count, pa.string())
        kind = arrow_type(name)
        if name not in self._schema.field_names:
            return pa.nulls(count, kind)
        return pa.array(rows[name].astype(kind.to_pandas_dtype()))

    def _location(self, rows: np.ndarray) -> Any:
        names = [field.name for field in self._schema.fields if not field.dictionary]
        values = np.empty((len(rows), len(names)), np.int64)
        for place, name in enumerate(names):
            values[:, place] = rows[name]
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * len(names)
        spelled = _spelled(
            pa.array(names, pa.string()), np.tile(np.arange(len(names), dtype=np.int32), len(rows))
        )
        return pa.MapArray.from_arrays(
            pa.array(offsets), spelled, pa.array(values.ravel()), _LOCATION
        )


def _spelled(strings: Any, numbers: np.ndarray) -> Any:
    """Return strings[numbers] as a plain string array."""
    if len(strings) == 1:
        return pa.repeat(strings[0], len(numbers))
    return strings.take(pa.array(numbers))
