"""Rows of a Parquet file. The place of a row is its row group and its number in the group.

Such rows are no messages: their entries have a schema of their own, whose `source` names the file.

Depends on rows, indexfile and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tierdex.app.load.rows import Rows, check_columns
from tierdex.errors import InvalidRequestError
from tierdex.indexfile.schema import Schema, SchemaField

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARQUET_SCHEMA: Final = Schema(
    (
        SchemaField("source", "<u4", dictionary=True),
        SchemaField("row_group", "<u4"),
        SchemaField("row", "<u8"),
    )
)
_BATCH_ROWS = 1 << 18


def read_parquet_rows(path: Path, wanted: list[str]) -> Iterator[Rows]:
    """Yield the rows with the columns `wanted`; location is `source`, `row_group` and `row`.

    Raises InvalidRequestError when the file is no Parquet file or lacks a column.
    """
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(f"{path} is not a Parquet file: {error}", field="file") from error
    with file:
        check_columns(wanted, file.schema_arrow.names, path)
        size, rows_all = path.stat().st_size, max(file.metadata.num_rows, 1)
        done = 0
        for group in range(file.metadata.num_row_groups):
            first = 0
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=[group], columns=wanted):
                done += batch.num_rows
                yield _make_rows(path, batch, group, first, size * done // rows_all)
                first += batch.num_rows


def _make_rows(path: Path, batch: pa.RecordBatch, group: int, first: int, done_bytes: int) -> Rows:
    location = {
        "source": str(path),
        "row_group": group,
        "row": np.arange(first, first + batch.num_rows, dtype=np.uint64),
    }
    return Rows(
        pa.Table.from_batches([batch]),
        location,
        lambda row: f"{path}: row group {group}, row {first + row}",
        done_bytes,
    )
