"""The columns of a scan of message logs, and their Arrow arrays.

| column | type | |
|---|---|---|
| `node`, `topic`, `queue_id`, `offset` | | each node has queues of its own |
| `timestamp` | bigint | milliseconds; `timestamp_millis(timestamp)` converts |
| `keys` | array<string> | empty without any |
| `headers` | array<struct<name:string,value:binary>> | empty without any |
| `message_id` | string | |
| `body` | binary | empty where the message was forgotten: its offset stays |
| `file_id` | string | |
| `deliver_at` | bigint | of a message that was held until then; on request |
| `size` | int | bytes of the body; on request |

Depends on errors and logfile; names Spark's types as DDL only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.logfile.grouped.columns import ExtraColumns, PageColumns, TextColumn

_HEADERS: Final = "array<struct<name:string,value:binary>>"
LOG_COLUMN_DDL: Final = {
    "node": "string",
    "topic": "string",
    "queue_id": "int",
    "offset": "bigint",
    "timestamp": "bigint",
    "keys": "array<string>",
    "headers": _HEADERS,
    "message_id": "string",
    "body": "binary",
    "file_id": "string",
    "deliver_at": "bigint",
    "size": "int",
}
DEFAULT_LOG_COLUMNS: Final = tuple(
    name for name in LOG_COLUMN_DDL if name not in {"deliver_at", "size"}
)
_OF_EXTRAS: Final = frozenset({"keys", "headers", "message_id", "deliver_at"})
_HEADER: Final = pa.struct([("name", pa.string()), ("value", pa.binary())])
_ARROW_TYPES: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "binary": pa.binary(),
    # As Spark names and types them, else it refuses the batch.
    "array<string>": pa.list_(pa.field("element", pa.string())),
    _HEADERS: pa.list_(pa.field("element", _HEADER)),
}


def log_ddl_of(columns: Sequence[str]) -> str:
    """Return the DDL of a scan's columns. Raises InvalidRequestError for an unknown one."""
    for name in columns:
        if name not in LOG_COLUMN_DDL:
            raise InvalidRequestError(
                f"there is no column {name}; known: {', '.join(LOG_COLUMN_DDL)}", field="columns"
            )
    return ", ".join(f"`{name}` {LOG_COLUMN_DDL[name]}" for name in columns)


def log_schema_of(columns: Sequence[str]) -> Any:
    """Return the Arrow schema of columns, as Spark names and types them."""
    return pa.schema([(name, _ARROW_TYPES[LOG_COLUMN_DDL[name]]) for name in columns])


def needs_extras(columns: Sequence[str]) -> bool:
    return not _OF_EXTRAS.isdisjoint(columns)


class MessageArrays:
    """Makes batches of one file's messages. Immutable."""

    def __init__(
        self, columns: Sequence[str], constants: dict[str, str], topics: Sequence[str]
    ) -> None:
        """`constants` has `node` and `file_id`; `topics` are the file's, by index."""
        self.schema = log_schema_of(columns)
        self._constants = dict(constants)
        self._topics = pa.array(topics, pa.string())
        if len(topics) == 1:
            self._constants["topic"] = topics[0]
        self._repeats: dict[str, Any] = {}

    def batch(
        self, columns: PageColumns, extras: ExtraColumns | None, place: dict[str, np.ndarray]
    ) -> pa.RecordBatch:
        """Return all messages; `place` has their topic (index, i4), queue_id (i4) and offset (i8)."""
        arrays = [self._array(name, columns, extras, place) for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(
        self, name: str, columns: PageColumns, extras: Any, place: dict[str, np.ndarray]
    ) -> Any:
        count = len(columns)
        if name in self._constants:
            return self._repeated(name, count)
        if name == "topic":
            return self._topics.take(pa.array(place["topic"]))
        if name in place:
            return pa.array(place[name])
        if name == "timestamp":
            return pa.array(columns.times)
        if name == "body":
            return _texts(pa.binary(), columns.body_ends, columns.bodies)
        if name == "size":
            return pa.array(np.diff(columns.body_ends))
        if name == "deliver_at":
            return pa.array(extras.deliver_at, mask=extras.deliver_at == np.iinfo(np.int64).min)
        if name == "message_id":
            ids: TextColumn = extras.message_ids
            valid = pa.array(extras.has_id).buffers()[1]
            return _texts(pa.string(), ids.ends, ids.data, valid)
        kind = self.schema.field(name).type
        if name == "keys":
            values = _texts(pa.string(), extras.keys.ends, extras.keys.data)
            return _lists(kind, extras.key_lists, values)
        names = _texts(pa.string(), extras.names.ends, extras.names.data)
        values = _texts(pa.binary(), extras.values.ends, extras.values.data)
        pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
        return _lists(kind, extras.header_lists, pairs)

    def _repeated(self, name: str, count: int) -> Any:
        """Return a constant so many times: a part of the longest array of it so far."""
        longest = self._repeats.get(name)
        if longest is None or len(longest) < count:
            longest = self._repeats[name] = pa.repeat(pa.scalar(self._constants[name]), count)
        return longest[:count]


def _texts(kind: Any, ends: np.ndarray, data: np.ndarray, valid: Any = None) -> Any:
    buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(ends) - 1, buffers)


def _lists(kind: Any, ends: np.ndarray, values: Any) -> Any:
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(ends)], children=[values])
