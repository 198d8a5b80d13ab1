"""One row of a Parquet file, by its row group and its number in the group.

Depends on errors, object_file and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from tierdex.resolving.object_file import RangeFile


def read_parquet_row(file: RangeFile, row_group: int, row: int) -> Any:
    """Return one row, all columns. Raises InvalidRequestError when there is no such row."""
    try:
        with pyarrow.parquet.ParquetFile(pa.PythonFile(file, "r")) as parquet:
            if not 0 <= row_group < parquet.metadata.num_row_groups:
                raise InvalidRequestError(f"there is no row group {row_group}", field="row_group")
            table = parquet.read_row_group(row_group)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"it is no Parquet file: {error}", field="source") from error
    if not 0 <= row < table.num_rows:
        raise InvalidRequestError(f"row group {row_group} has no row {row}", field="row")
    return table.slice(row, 1)
