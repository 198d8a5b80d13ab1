"""Entries of an Arrow stream body, checked and passed on as columns.

Columns: `topic` string (or dictionary of strings), `keys` list of string, or `key` string,
`message_id` string, `queue_id`, `offset`, `size` any integer type, `timestamp` integer milliseconds
or an Arrow timestamp (one without a zone is UTC). Keys and message IDs may not be dictionaries: a
few bytes a row could unfold to any size.

Depends on numpy, pyarrow, arrow_stream and put_rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.app.http.codecs.arrow_stream import read_stream
from tierdex.app.http.codecs.put_rows import PutRows, check_names, rows_of_entries
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
    keys = columns.get("keys")
    if keys is None or not (pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type)):
        return PutRows(table.num_rows, columns)
    return _with_key_lists(table.num_rows, columns, limits)


def _one_array(column: Any) -> Any:
    if column.num_chunks == 1:
        return column.chunk(0)
    merged = column.combine_chunks()
    return pa.concat_arrays(merged.chunks) if isinstance(merged, pa.ChunkedArray) else merged


def _with_key_lists(count: int, columns: dict[str, Any], limits: Settings) -> PutRows:
    """Return one row a key."""
    keys = columns["keys"]
    lengths = pc.fill_null(pc.list_value_length(keys), 0)
    counts: np.ndarray = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    flat = keys.flatten()
    if flat.null_count:
        row = int(np.repeat(np.arange(count), counts)[pc.index(flat.is_null(), True).as_py()])
        raise InvalidRequestError("must not hold null", field=f"entries[{row}].keys")
    columns["keys"] = flat
    if (counts == 1).all():
        return PutRows(count, columns)
    entry_of_row, key_position, id_position = rows_of_entries(counts, limits)
    spread = {name: column.take(pa.array(entry_of_row)) for name, column in columns.items()
              if name not in ("keys", "message_id")}  # fmt: skip
    spread["keys"] = flat.take(key_position)
    if columns.get("message_id") is not None:
        spread["message_id"] = columns["message_id"].take(id_position)
    return PutRows(count, spread, entry_of_row)
