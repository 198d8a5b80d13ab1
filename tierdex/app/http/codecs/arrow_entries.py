"""Entries of an Arrow stream body, checked and passed on as columns; the topics that a body names.

Columns: `topic` string (or dictionary of strings), `keys` list of string, or `key` string,
`message_id` string, `queue_id`, `offset`, `size` any integer type, `timestamp` integer milliseconds
or an Arrow timestamp (one without a zone is UTC). Keys and message IDs may not be dictionaries: a
few bytes a row could unfold to any size.

Depends on pyarrow, arrow_stream and put_rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from tierdex.app.http.codecs.arrow_stream import read_stream
from tierdex.app.http.codecs.put_rows import PutRows, check_names
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.settings import Settings


def rows_of_arrow(body: bytes | bytearray, limits: Settings) -> PutRows:
    """Return the rows of an Arrow stream of entries. Raises InvalidRequestError naming a column."""
    table = read_stream(body, max_rows=limits.max_batch_entries, field="entries")
    check_names(table.column_names, "entries")
    columns: dict[str, Any] = {name: _one_array(table.column(name)) for name in table.column_names}
    for name in columns.keys() & {"key", "keys", "message_id"}:
        if pa.types.is_dictionary(columns[name].type):
            raise InvalidRequestError("must be plain strings", field=f"entries.{name}")
    if "key" in columns:
        columns["keys"] = columns.pop("key")
    return PutRows(table.num_rows, columns)


def _one_array(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    merged = column.combine_chunks()
    return pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged


def topics_in(column: Any, field: str) -> set[str | None]:
    """Return the distinct topics of a string, a list, or an Arrow column; None: a row that names none.

    Raises InvalidRequestError for anything but strings.
    """
    if isinstance(column, str):
        return {column}
    if isinstance(column, pa.Array | pa.ChunkedArray):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        found: set[Any] = set().union(*map(_distinct, chunks))
    else:
        found = set(column)
    if not all(topic is None or isinstance(topic, str) for topic in found):
        raise InvalidRequestError("must be strings", field=f"{field}.topic")
    return found


def column_of(table: Any, name: str, field: str) -> Any | None:
    """Return a column of a table, None where it has none. Raises InvalidRequestError for two of the name."""
    count = table.column_names.count(name)
    if count > 1:
        raise InvalidRequestError("is there twice", field=f"{field}.{name}")
    return table.column(name) if count else None


def _distinct(chunk: Any) -> set[Any]:
    if pa.types.is_dictionary(chunk.type):  # chunks may have dictionaries of their own
        return set(chunk.dictionary.take(pc.unique(chunk.indices)).to_pylist())
    return set(pc.unique(chunk).to_pylist())
