"""The topics that the rows of a body name, in any form, to check them against the caller's rights.

Depends on errors and pyarrow.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tierdex.errors import InvalidRequestError


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
