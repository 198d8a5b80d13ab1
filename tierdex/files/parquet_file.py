"""Opens Parquet files so that values are read as they are stored.

INT96, in which Spark and Impala write times, is a day and the nanoseconds of it. pyarrow makes 64-bit ticks
of it: nanoseconds reach from 1677 to 2262, microseconds over 292,000 years, and wrap beyond; milliseconds
hold every day. UUIDs keep their type, whatever program wrote the file.

Depends on errors and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

Unit = Literal["ns", "us", "ms"]
FINEST_FIRST: Final[tuple[Unit, ...]] = ("ns", "us", "ms")
_TICKS: Final = {"ns": 1_000_000, "us": 1000, "ms": 1}  # of a millisecond


def open_parquet(source: Any, name: str, int96: Unit, metadata: Any = None) -> Any:
    """Return pyarrow's `ParquetFile` of a file or a buffer, to be closed; INT96 is read in a unit.

    With `metadata`, pyarrow's of the same file, its footer is not read again.

    Raises InvalidRequestError for what is no Parquet file.
    """
    is_buffer = isinstance(source, bytes | pa.Buffer)
    opened = pa.BufferReader(source) if is_buffer else pa.PythonFile(source, "r")
    try:
        return pyarrow.parquet.ParquetFile(
            opened,
            metadata=metadata,
            coerce_int96_timestamp_unit=int96,
            arrow_extensions_enabled=True,
        )
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"{name} is not a Parquet file: {error}", field="file") from error


def columns_with_int96(parquet: Any) -> set[str]:
    """Return the columns that have INT96 in them."""
    leaves = (parquet.schema.column(number) for number in range(len(parquet.schema)))
    return {leaf.path.partition(".")[0] for leaf in leaves if leaf.physical_type == "INT96"}


def finest_right(read: Callable[[Unit], pa.Table], name: str) -> Any:
    """Return a column with INT96 in it, read in the finest unit in which no time wraps."""
    exact = read("ms").column(name)
    for unit in FINEST_FIRST[:-1]:
        column = read(unit).column(name)
        if all(map(np.array_equal, _ms_of(column), _ms_of(exact))):
            return column
    return exact


def _ms_of(column: Any) -> list[np.ndarray]:
    """Return the times of a column, those below it too, as milliseconds."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [column.drop_null().cast(pa.int64()).to_numpy() // _TICKS.get(kind.unit, 1)]
    if pa.types.is_struct(kind):
        return [each for part in column.flatten() for each in _ms_of(part)]
    if pa.types.is_map(kind):
        return _ms_of(column.keys) + _ms_of(column.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _ms_of(column.flatten())
    return []
