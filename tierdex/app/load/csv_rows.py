"""Rows of a CSV file, by the rule of `csv_text`; `records` finds their places.

The first record names the columns. Every wanted column is read as text, so that no key changes
(leading zeros, long numbers). Empty fields and `null_values` are null. The wanted columns are UTF-8, others
may hold any bytes.

Depends on errors, csv_text, fileparts, following, kernels, records, rows and pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.app.load.csv_text import split_record
from tierdex.app.load.rows import Rows, check_columns
from tierdex.errors import InvalidRequestError
from tierdex.fileparts.memory import address
from tierdex.following.value_block import gathered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.app.load.records import Block, Mark

pc: Any = pyarrow.compute
_FEW: Final = 64  # rows: a process that shows one need not load kernels


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
    is_checked = is_waiting = False
    for block in blocks:
        is_waiting = block.waiting is not None
        rows = block
        if form.columns is None and len(block.starts):
            form = replace(form, columns=_header(block, form.delimiter))
            rows = block.without_first()
        if form.columns is not None:
            if not is_checked:
                check_columns(wanted, list(form.columns), path)
                is_checked = True
            yield CsvPiece(rows, wanted, form)
        elif is_waiting:
            yield CsvPiece(rows, [], replace(form, columns=()))
    if form.columns is None and not may_be_empty and not is_waiting:
        raise InvalidRequestError(f"{path} has no header line", field="file")


def _header(block: Block, delimiter: str) -> tuple[str, ...]:
    try:
        return tuple(
            field.decode(errors="replace") for field in split_record(block.text(0), delimiter)
        )
    except ValueError as error:
        raise InvalidRequestError(f"the header: {error}", field=block.place_of(0)) from None


def parse_block(block: Block, columns: list[str], wanted: list[str], form: CsvFormat) -> Rows:
    """Return the rows of whole records. Raises InvalidRequestError naming the first wrong one."""
    numbers = [columns.index(name) for name in wanted]
    read = _read_singly if len(block.starts) < _FEW else _read_together
    texts = read(block, len(columns), numbers, form.delimiter)
    nulls = pa.array(form.null_values, pa.string())
    texts = [
        pc.if_else(pc.is_in(each, value_set=nulls), pa.scalar(None, pa.string()), each)
        for each in texts
    ]
    table = pa.table([*texts, pa.nulls(len(block.starts))], names=[*wanted, ""])
    return Rows(table, {"offset": block.offsets, "size": block.sizes}, block.place_of)


def _read_singly(block: Block, width: int, numbers: list[int], delimiter: str) -> list[Any]:
    rows = [_fields(block, row, width, numbers, delimiter) for row in range(len(block.starts))]
    return [pa.array([row[at] for row in rows], pa.string()) for at in range(len(numbers))]


def _read_together(block: Block, width: int, numbers: list[int], delimiter: str) -> list[Any]:
    from tierdex.app.load.kernels.csv_scan import ODD, PLAIN, find_fields

    count = len(block.starts)
    slots = np.full(width, -1)
    slots[numbers] = np.arange(len(numbers))
    places = np.full((len(numbers), count, 2), -1)
    counts, states = np.empty(count, np.int64), np.empty(count, np.uint8)
    find_fields(
        address(np.frombuffer(block.data, np.uint8)), block.starts, block.ends, ord(delimiter), slots,
        places, counts, states,
    )  # fmt: skip
    wrong = (counts != width) | (states > ODD)
    odd = np.flatnonzero((states != PLAIN) | wrong)
    if wrong.any():
        odd = odd[: np.searchsorted(odd, int(np.argmax(wrong))) + 1]
    read = [_fields(block, row, width, numbers, delimiter) for row in odd.tolist()]  # raises
    texts = []
    for at, each in enumerate(places):
        each[odd] = -1
        column = gathered(block.data, each)
        _refuse_bytes(column, block)
        if len(odd):
            replaced = pa.array([row[at] for row in read], pa.string())
            mask = np.zeros(count, bool)
            mask[odd] = True
            column = pc.replace_with_mask(column, pa.array(mask), replaced)
        texts.append(column)
    return texts


def _fields(block: Block, row: int, width: int, numbers: list[int], delimiter: str) -> list[str]:
    """Return the wanted fields of one row. Raises InvalidRequestError naming it."""
    place = block.place_of(row)
    try:
        fields = split_record(block.text(row), delimiter)
    except ValueError as error:
        raise InvalidRequestError(str(error), field=place) from None
    if len(fields) != width:
        raise InvalidRequestError(
            f"has {len(fields)} fields where the header has {width}", field=place
        )
    try:
        return [fields[number].decode() for number in numbers]
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"is not UTF-8: {error}", field=place) from None


def _refuse_bytes(column: Any, block: Block) -> None:
    """Raise InvalidRequestError naming the first row whose text is not UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for row, text in enumerate(column.view(pa.binary()).to_pylist()):
            try:
                (text or b"").decode()
            except UnicodeDecodeError as error:
                raise InvalidRequestError(
                    f"is not UTF-8: {error}", field=block.place_of(row)
                ) from None
        raise
