"""Rows of a CSV file. Arrow parses them; `records` finds their places.

The first record names the columns. Every wanted column is read as text, so that no key changes
(leading zeros, long numbers). Empty fields and `null_values` are null.

Depends on errors, records, rows and pyarrow.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv

from tierdex.app.load.rows import Rows, check_columns
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.app.load.records import Block, Mark

_csv: Any = pyarrow.csv


@dataclass(frozen=True)
class CsvFormat:
    """How to read the file; with `columns` None its first record names them."""

    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class CsvPiece:
    """Records of a CSV file; `form` has its columns."""

    block: Block
    wanted: list[str]
    form: CsvFormat

    @property
    def mark(self) -> Mark | None:
        return self.block.mark

    @property
    def columns(self) -> tuple[str, ...]:
        return self.form.columns or ()

    def __len__(self) -> int:
        return len(self.block.starts)

    def parse(self) -> Rows:
        return parse_block(self.block, list(self.columns), self.wanted, self.form)

    def part(self, first: int, end: int) -> CsvPiece:
        return replace(self, block=self.block.part(first, end))

    def place_of(self, row: int) -> str:
        return self.block.place_of(row)

    def text(self, row: int) -> bytes:
        return self.block.text(row)


def read_csv_pieces(
    blocks: Iterable[Block],
    path: str,
    wanted: list[str],
    form: CsvFormat,
    *,
    may_be_empty: bool = False,
) -> Iterator[CsvPiece]:
    """Yield the rows, whose columns `wanted` are read as text; location is `offset` and `size`.

    Raises InvalidRequestError for a file without a header (unless it `may_be_empty`: an empty one of many),
    or without one of the columns. Rows that have too many or
    too few fields, are not UTF-8 or have a quote that never closes are refused when they are parsed.
    """
    is_checked = False
    for block in blocks:
        rows = block
        if form.columns is None and len(block.starts):
            form = replace(form, columns=tuple(parse_record(block.text(0), form.delimiter)))
            rows = block.without_first()
        if form.columns is not None:
            if not is_checked:
                check_columns(wanted, list(form.columns), path)
                is_checked = True
            yield CsvPiece(rows, wanted, form)
    if form.columns is None and not may_be_empty:
        raise InvalidRequestError(f"{path} has no header line", field="file")


def parse_record(data: bytes, delimiter: str) -> list[str]:
    """Return the fields of one record."""
    text = data.decode(errors="replace")
    return next(
        csv.reader([text] if "\n" not in text else text.splitlines(True), delimiter=delimiter)
    )


def parse_block(block: Block, columns: list[str], wanted: list[str], form: CsvFormat) -> Rows:
    """Parse whole records in one call; columns go by number, since names may repeat."""
    bad: list[Any] = []

    def refuse(row: Any) -> str:
        bad.append(row)
        return "error"

    names = [str(number) for number in range(len(columns))]
    picked = [str(columns.index(name)) for name in wanted] or names[:1]
    begin = int(block.starts[0]) if len(block.starts) else len(block.data)
    data = pa.py_buffer(block.data)[begin:]
    try:
        table = _csv.read_csv(
            pa.BufferReader(data),
            # Serial: only then do errors know their row.
            read_options=_csv.ReadOptions(
                column_names=names, use_threads=False, block_size=max(len(block.data), 1)
            ),
            parse_options=_csv.ParseOptions(
                delimiter=form.delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=_csv.ConvertOptions(
                include_columns=picked,
                column_types=dict.fromkeys(picked, pa.string()),
                null_values=list(form.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _explain(block, bad, error) from error
    if table.num_rows != len(block.starts):
        raise InvalidRequestError(
            f"{len(block.starts)} lines from here on are parsed as {table.num_rows} rows: "
            "is the delimiter right, is every quote closed?",
            field=block.place_of(0),
        )
    table = table.rename_columns(wanted or ["0"])
    location = {"offset": block.offsets, "size": block.sizes}
    return Rows(table, location, block.place_of)


def _explain(block: Block, bad: list[Any], error: pa.ArrowInvalid) -> InvalidRequestError:
    """Return the error with the line that caused it."""
    if bad:
        row = bad[0]
        return InvalidRequestError(
            f"has {row.actual_columns} fields where the header has {row.expected_columns}",
            field=block.place_of((row.number or 1) - 1),
        )
    for record in range(len(block.starts)):
        try:
            block.text(record).decode()
        except UnicodeDecodeError as fault:
            return InvalidRequestError(f"is not UTF-8: {fault}", field=block.place_of(record))
    return InvalidRequestError(str(error), field=block.place_of(0))
