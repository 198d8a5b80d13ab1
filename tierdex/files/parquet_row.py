"""One row of a Parquet file, by its row group and its number in the group.

Columns come by their pages (parquet_pages.py), those of several leaves by their column chunks of the row's
group.

Depends on errors, object_file, page_map, parquet_file, parquet_pages and pyarrow.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.files.page_map import DictionaryMemory, KnownPages
from tierdex.files.parquet_file import columns_with_int96, finest_right, open_parquet
from tierdex.files.parquet_pages import read_columns, read_footer

if TYPE_CHECKING:
    from tierdex.files.object_file import RangeFile
    from tierdex.files.parquet_file import Unit


class KnownParquet:
    """What was read of a Parquet file besides its rows, to be kept: its footer, where pages are as it comes.

    Safe to share between threads: what two read at the same time is the same.
    """

    def __init__(self, file: RangeFile, dictionaries: DictionaryMemory | None = None) -> None:
        """Read the footer. Raises InvalidRequestError for what is no Parquet file."""
        with open_parquet(file, "it", "ns") as parquet:
            self.metadata = parquet.metadata
            self.with_int96 = columns_with_int96(parquet)
            sizes = [
                self.metadata.row_group(n).num_rows for n in range(self.metadata.num_row_groups)
            ]
        self._begins = [0, *accumulate(sizes)]
        footer = read_footer(file, self.metadata.serialized_size)
        self.pages = None if footer is None else KnownPages(footer, dictionaries)

    def place(self, position: int) -> tuple[int, int]:
        """Return the row group of a row of the file, and its number there. Raises InvalidRequestError."""
        if not 0 <= position < self._begins[-1]:
            raise InvalidRequestError(f"it has {self._begins[-1]} rows", field="position")
        group = bisect_right(self._begins, position) - 1
        return group, position - self._begins[group]


def read_parquet_row(
    file: RangeFile, row_group: int, row: int, known: KnownParquet | None = None
) -> Any:
    """Return one row, all columns. Raises InvalidRequestError when there is no such row."""
    try:
        own = KnownParquet(file) if known is None else known

        def read(unit: Unit) -> pa.Table:
            with open_parquet(file, "it", unit, own.metadata) as parquet:
                return _row(file, parquet, row_group, row, unit, own)

        if not 0 <= row_group < own.metadata.num_row_groups:
            raise InvalidRequestError(f"there is no row group {row_group}", field="row_group")
        if not 0 <= row < own.metadata.row_group(row_group).num_rows:
            raise InvalidRequestError(f"row group {row_group} has no row {row}", field="row")
        found = read("ns")
        tables = {"ns": found}
        for name in own.with_int96:
            column = finest_right(lambda unit: tables.setdefault(unit, read(unit)), name)
            found = found.set_column(found.column_names.index(name), name, column)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"it is not a Parquet file: {error}", field="source") from error
    return found


def _row(
    file: RangeFile, parquet: Any, row_group: int, row: int, unit: Unit, known: KnownParquet
) -> pa.Table:
    schema = parquet.schema_arrow
    of_pages: dict[str, Any] = {}
    if known.pages is not None and len(set(schema.names)) == len(schema):
        of_pages = read_columns(file, known.pages, schema, row_group, row, unit)
    rest = [name for name in schema.names if name not in of_pages]
    if not of_pages:
        return parquet.read_row_group(row_group).slice(row, 1)
    if rest:
        of_chunks = parquet.read_row_group(row_group, columns=rest).slice(row, 1)
        of_pages |= {name: of_chunks.column(name) for name in rest}
    return pa.table([of_pages[name] for name in schema.names], schema=schema)
