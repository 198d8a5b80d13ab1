"""One row of a Parquet file, by its row group and its number in the group.

Columns come by their pages where the file has a page index (parquet_pages.py), the others by their column
chunks of the row's group.

Depends on errors, object_file, parquet_file, parquet_pages and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.files.parquet_file import columns_with_int96, finest_right, open_parquet
from tierdex.files.parquet_pages import read_columns, read_footer

if TYPE_CHECKING:
    from tierdex.files.object_file import RangeFile
    from tierdex.files.parquet_file import Unit


def read_parquet_row(file: RangeFile, row_group: int, row: int) -> Any:
    """Return one row, all columns. Raises InvalidRequestError when there is no such row."""

    def read(unit: Unit) -> pa.Table:
        with open_parquet(file, "it", unit) as parquet:
            return _row(file, parquet, row_group, row, unit)

    try:
        with open_parquet(file, "it", "ns") as parquet:
            if not 0 <= row_group < parquet.metadata.num_row_groups:
                raise InvalidRequestError(f"there is no row group {row_group}", field="row_group")
            if not 0 <= row < parquet.metadata.row_group(row_group).num_rows:
                raise InvalidRequestError(f"row group {row_group} has no row {row}", field="row")
            with_int96 = columns_with_int96(parquet)
            found = _row(file, parquet, row_group, row, "ns")
        tables = {"ns": found}
        for name in with_int96:
            column = finest_right(lambda unit: tables.setdefault(unit, read(unit)), name)
            found = found.set_column(found.column_names.index(name), name, column)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"it is not a Parquet file: {error}", field="source") from error
    return found


def _row(file: RangeFile, parquet: Any, row_group: int, row: int, unit: Unit) -> pa.Table:
    schema = parquet.schema_arrow
    group = parquet.metadata.row_group(row_group)
    of_pages: dict[str, Any] = {}
    names = set(schema.names)
    if len(names) == len(schema) and any(
        group.column(n).has_offset_index for n in range(group.num_columns)
    ):
        footer = read_footer(file, parquet.metadata.serialized_size)
        if footer is not None:
            of_pages = read_columns(file, footer, schema, row_group, row, unit)
    rest = [name for name in schema.names if name not in of_pages]
    if not of_pages:
        return parquet.read_row_group(row_group).slice(row, 1)
    if rest:
        of_chunks = parquet.read_row_group(row_group, columns=rest).slice(row, 1)
        of_pages |= {name: of_chunks.column(name) for name in rest}
    return pa.table([of_pages[name] for name in schema.names], schema=schema)
