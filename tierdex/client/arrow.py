"""Arrow in requests and answers: the only client module that loads pyarrow, and only when needed.

Depends on errors, log_service.append.given_messages, times and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError
from tierdex.log_service.append.given_messages import body_of, headers_of
from tierdex.times import written_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def load_arrow() -> Any:
    """Return pyarrow. Raises InvalidRequestError that tells how to install it."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise InvalidRequestError(
            f"columns and tables need pyarrow: pip install 'tierdex-client[arrow]' ({error})"
        ) from error
    return pa


def arrow_body(table: Any) -> bytes:
    """Return a table as an Arrow stream."""
    pa = load_arrow()
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise InvalidRequestError(
            "must be a pyarrow Table; a list goes to `query_batch`", field="lookups"
        )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return bytes(sink.getvalue())


def read_table(body: bytes) -> Any:
    """Return the table of an Arrow stream."""
    pa = load_arrow()
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        return reader.read_all()


def entry_columns(columns: Mapping[str, Any]) -> Any:
    """Return columns of entries as an Arrow table; a single value stands for every row."""
    given = {name: value for name, value in columns.items() if value is not None}
    given["timestamp"] = _times(given.get("timestamp"), "entries[{}].timestamp")
    lengths = [len(value) for value in given.values() if not _is_single(value)]
    return _table(given, lengths[0] if lengths else 1, _entry_column)


def message_columns(given: Mapping[str, Any]) -> Any:
    """Return columns of messages as an Arrow table of the types that the service takes."""
    body = given["body"]
    if isinstance(body, bytes | str) or not hasattr(body, "__len__"):
        raise InvalidRequestError(
            "must be a column: Arrow binary, or a list of bytes", field="body"
        )
    columns = {name: value for name, value in given.items() if value is not None}
    for name in columns.keys() & {"timestamp", "deliver_at"}:
        columns[name] = _times(columns[name], f"messages[{{}}].{name}")
    return _table(columns, len(body), _message_column)


def _times(values: Any, field: str) -> Any:
    """Return times as the service takes them: what was written stays a time, numbers stay numbers."""
    written = written_times(values, field.format)
    if written is values:
        return values
    pa = load_arrow()
    make = pa.scalar if isinstance(written, int) else pa.array
    return make(written, pa.timestamp("ms", "UTC"))


def _table(
    columns: Mapping[str, Any], count: int, column_of: Callable[[str, Any, int], Any]
) -> Any:
    """Return columns of `count` rows as a table. Raises InvalidRequestError that names the column."""
    pa = load_arrow()
    arrays: dict[str, Any] = {}
    for name, value in columns.items():
        try:
            is_arrow = isinstance(value, pa.Array | pa.ChunkedArray)
            arrays[name] = value if is_arrow else column_of(name, value, count)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise InvalidRequestError(f"cannot be sent: {error}", field=name) from error
        if len(arrays[name]) != count:
            raise InvalidRequestError(
                f"has {len(arrays[name])} rows, another column has {count}", field=name
            )
    return pa.table(arrays)


def _is_single(value: Any) -> bool:
    return isinstance(value, str | int | float | bytes) or not hasattr(value, "__len__")


def _entry_column(_name: str, value: Any, count: int) -> Any:
    pa = load_arrow()
    return pa.repeat(value, count) if _is_single(value) else pa.array(value)


def _message_column(name: str, value: Any, count: int) -> Any:
    pa = load_arrow()
    text = pa.string()
    kind = {"topic": text, "message_id": text, "body": pa.large_binary()}.get(name)
    if _is_single(value):
        one = value if isinstance(value, pa.Scalar) else pa.scalar(value, kind)
        return pa.repeat(one, count)
    if name in ("key", "keys"):
        rows = [[row] if isinstance(row, str) else row for row in value]
        return pa.array(rows, pa.list_(text))
    if name == "headers":
        header = pa.struct([("name", text), ("value", pa.binary())])
        pairs = [
            None
            if row is None
            else [
                {"name": n, "value": v} for n, v in headers_of(row, f"messages[{number}].headers")
            ]
            for number, row in enumerate(value)
        ]
        return pa.array(pairs, pa.list_(header))
    if name == "body":
        value = [body_of(row, f"messages[{number}].body") for number, row in enumerate(value)]
    return pa.array(value, kind)
