"""Rows of a Parquet file. The place of a row is its row group and its number in the group.

Depends on errors, files, rows, resolving and pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tierdex.app.load.rows import Rows, check_columns
from tierdex.errors import InvalidRequestError
from tierdex.files.parquet_file import open_parquet
from tierdex.files.row_templates import column_of, one_array
from tierdex.resolving.arrow_values import json_of_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tierdex.app.load.records import Mark

_BATCH_ROWS = 1 << 18


@dataclass(frozen=True)
class ParquetPiece:
    """Rows of one row group, from number `first` of it; the file has `done` of its rows behind them."""

    path: str
    batch: pa.RecordBatch
    group: int
    first: int
    done: float
    mark: Mark | None = None
    columns: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def parse(self) -> Rows:
        rows = np.arange(self.first, self.first + len(self), dtype=np.uint64)
        location = {"row_group": self.group, "row": rows}
        return Rows(pa.Table.from_batches([self.batch]), location, self.place_of)

    def part(self, first: int, end: int) -> ParquetPiece:
        batch = self.batch.slice(first, end - first)
        return ParquetPiece(self.path, batch, self.group, self.first + first, self.done)

    def place_of(self, row: int) -> str:
        return f"{self.path}: row group {self.group}, row {self.first + row}"

    def text(self, row: int) -> bytes:
        return json_of_row(pa.Table.from_batches([self.batch.slice(row, 1)]))


def read_parquet_pieces(
    file: Any, path: str, wanted: list[str], begin: Mark
) -> Iterator[ParquetPiece]:
    """Yield the rows of a file-like, with the columns `wanted`; location is `row_group` and `row`.

    `begin.position` rows are left out; marks count rows, and all have the digest of `begin`.
    Raises InvalidRequestError when it is not a Parquet file or lacks a column.
    """
    with open_parquet(file, path, "ms") as parquet:
        paths = {name: _path_of(name, parquet.schema_arrow) for name in wanted}
        check_columns([each[0] for each in paths.values()], parquet.schema_arrow.names, path)
        read = list(dict.fromkeys(".".join(each) for each in paths.values()))
        rows_all, done = max(parquet.metadata.num_rows, 1), 0
        for group in range(parquet.metadata.num_row_groups):
            first = 0
            if done + (rows := parquet.metadata.row_group(group).num_rows) <= begin.position:
                done += rows
                continue
            for batch in parquet.iter_batches(_BATCH_ROWS, row_groups=[group], columns=read):
                done += batch.num_rows
                if done > begin.position:
                    mark = begin._replace(position=done)
                    found = _columns(batch, paths)
                    yield ParquetPiece(path, found, group, first, done / rows_all, mark)
                first += batch.num_rows


def _path_of(name: str, schema: pa.Schema) -> list[str]:
    """Return the column of a name, or what leads into a struct: ``order.id``."""
    steps = name.split(".")
    if name in schema.names or len(steps) == 1 or steps[0] not in schema.names:
        return [name]
    kind = schema.field(steps[0]).type
    for step in steps[1:]:
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            raise InvalidRequestError(
                f"column {steps[0]} has no {name!r}: it holds {kind}", field=name
            )
        kind = kind.field(step).type
    return steps


def _columns(batch: pa.RecordBatch, paths: dict[str, list[str]]) -> pa.RecordBatch:
    table = pa.Table.from_batches([batch])
    columns = [one_array(column_of(table, ".".join(each))) for each in paths.values()]
    return pa.RecordBatch.from_arrays(columns, names=list(paths))
