"""Delete files of Iceberg, brought to positions of rows.

Source: the Iceberg table specification ("Position Delete Files", "Equality Delete Files", "Deletion
Vectors"), and the Puffin specification ("deletion-vector-v1 blob type"): length (u32, big endian), magic,
bitmap, CRC-32 of magic and bitmap.

Depends on errors, files, deletion_vectors, numpy and pyarrow.
"""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import CorruptFileError, InvalidRequestError
from tierdex.files.parquet_file import open_parquet
from tierdex.following.tables.deletion_vectors import rows_of_bitmap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.files.table_columns import TableColumn, TableColumns

pc: Any = pyarrow.compute
_PUFFIN: Final = b"PFA1"
_VECTOR: Final = "deletion-vector-v1"
_VECTOR_MAGIC: Final = b"\xd1\xd3\x39\x64"


class DeleteFile(NamedTuple):
    """A delete file: `equality_ids` are the fields that it compares; none: it has positions."""

    path: str
    form: str
    sequence: int
    equality_ids: tuple[int, ...]
    spec_id: int
    partition: tuple[Any, ...]

    @property
    def mark(self) -> str:
        return f"{self.path}@{self.sequence}"


def rows_by_file(delete: DeleteFile, opened: Any) -> dict[str, np.ndarray]:
    """Return the deleted rows (u8, rising) by the address of their data file. Raises CorruptFileError."""
    if delete.form == "PUFFIN":
        return _rows_of_puffin(delete.path, opened.read())
    try:
        with open_parquet(opened, delete.path, "us") as parquet:
            table = parquet.read(columns=["file_path", "pos"])
    except (InvalidRequestError, pa.ArrowInvalid, KeyError) as error:
        raise CorruptFileError(delete.path, f"holds no positions: {error}") from error
    files = table.column("file_path").combine_chunks().dictionary_encode()
    if isinstance(files, pa.ChunkedArray):
        files = (
            files.chunk(0) if files.num_chunks else pa.array([], pa.string()).dictionary_encode()
        )
    numbers = files.indices.to_numpy()
    rows = table.column("pos").to_numpy().astype(np.uint64)
    return {
        path: np.unique(rows[numbers == number])
        for number, path in enumerate(files.dictionary.to_pylist())
    }


def _rows_of_puffin(path: str, data: bytes) -> dict[str, np.ndarray]:
    if data[:4] != _PUFFIN or data[-4:] != _PUFFIN:
        raise CorruptFileError(path, "is no Puffin file")
    length = int.from_bytes(data[-12:-8], "little")
    if data[-8] & 1:
        raise InvalidRequestError(f"{path} has a compressed footer, which is not read here")
    found = {}
    try:
        blobs = json.loads(data[len(data) - 12 - length : -12])["blobs"]
        places = [
            (int(b["offset"]), int(b["length"]), str(b["properties"]["referenced-data-file"]))
            for b in blobs if b["type"] == _VECTOR
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(path, f"has no footer of a Puffin file: {error}") from error
    for begin, size, file in places:
        part = data[begin : begin + size]
        count = int.from_bytes(part[:4], "big")
        own = part[4 : 4 + count]
        if len(own) != count or own[:4] != _VECTOR_MAGIC:
            raise CorruptFileError(path, f"has no deletion vector at {begin}")
        if zlib.crc32(own) != int.from_bytes(part[4 + count : 8 + count], "big"):
            raise CorruptFileError(path, f"the deletion vector at {begin} is damaged")
        found[file] = rows_of_bitmap(own[4:], path)
    return found


def rows_of_equality(
    delete: DeleteFile,
    columns: TableColumns,
    rows: Any,
    deleted: Any,
    partition: Mapping[str, str | None],
) -> np.ndarray:
    """Return the rows (u8, rising) of a data file that an equality delete file names by their values.

    `partition` has what the data file is partitioned by, and perhaps lacks. Two nulls are equal, and so are
    two NaNs. Raises InvalidRequestError for columns that are gone.
    """
    wanted = [_column_of(columns, number, delete.path) for number in delete.equality_ids]
    names = [
        _read(columns, wanted, deleted, delete.path, {}),
        _read(columns, wanted, rows, "data", partition),
    ]
    count = names[0].num_rows
    codes = []
    for column in wanted:
        both = pa.concat_arrays([_one(each.column(column.name)) for each in names])
        codes.append(both.dictionary_encode(null_encoding="encode").indices.to_numpy())
    stacked = np.ascontiguousarray(np.stack(codes, axis=1).astype(np.int32))
    whole = stacked.view(np.dtype((np.void, stacked.dtype.itemsize * len(codes)))).ravel()
    return np.flatnonzero(np.isin(whole[count:], whole[:count])).astype(np.uint64)


def _column_of(columns: TableColumns, number: int, path: str) -> TableColumn:
    found = next((each for each in columns.columns if each.id == number), None)
    if found is None:
        raise InvalidRequestError(
            f"{path} deletes by the field {number}, which is no column of the table (any more)",
            field="source",
        )
    return found


def _read(
    columns: TableColumns,
    wanted: Sequence[TableColumn],
    opened: Any,
    path: str,
    partition: Mapping[str, str | None],
) -> Any:
    with open_parquet(opened, path, "us") as parquet:
        roots = columns.roots(parquet.schema_arrow, wanted)
        there = [each for each in roots.values() if each is not None]
        table = parquet.read(columns=there) if there else None
        if table is None:
            table = pa.table({"\0": pa.nulls(parquet.metadata.num_rows)})
    return columns.logical(table, wanted, partition)


def _one(column: Any) -> Any:
    return (
        column.combine_chunks()
        if not isinstance(column, pa.ChunkedArray)
        else (pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type))
    )
