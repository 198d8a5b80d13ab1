"""Rows of a JSONL file: one object a line. Arrow parses them; `records` finds their places.

Arrow needs one type a column, and the first lines tell it. A block in which a column has several
types (ids that are numbers here and strings there) is parsed line by line instead: slower, with the
same result, and with an exact error for a line that is no object. Numbers keep their digits; only a
time with a fraction passes through a float.

Depends on errors, records, rows and pyarrow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.json

from tierdex.app.load.records import Block
from tierdex.app.load.rows import Rows
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.app.load.records import Mark

_json: Any = pyarrow.json
_PROBED_LINES = 100
_TYPES: dict[type, Any] = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


@dataclass(frozen=True)
class JsonlPiece:
    """Lines of a JSONL file, and the types of their columns."""

    block: Block
    wanted: list[str]
    schema: pa.Schema
    columns: tuple[str, ...] = ()

    @property
    def mark(self) -> Mark | None:
        return self.block.mark

    def __len__(self) -> int:
        return len(self.block.starts)

    def parse(self) -> Rows:
        return _parse_block(self.block, self.wanted, self.schema)

    def part(self, first: int, end: int) -> JsonlPiece:
        return replace(self, block=self.block.part(first, end))

    def place_of(self, row: int) -> str:
        return self.block.place_of(row)

    def text(self, row: int) -> bytes:
        return self.block.text(row)


def read_jsonl_pieces(
    blocks: Iterable[Block], wanted: list[str], *, times: frozenset[str] = frozenset()
) -> Iterator[JsonlPiece]:
    """Yield the rows, of which columns `wanted` are read; location is `offset` and `size`.

    Columns in `times` may be read as floats, all others are exact. An absent field is null. A line that is
    not one JSON object, or whose wanted field is an object or a list, is refused when it is parsed.
    """
    schema: pa.Schema | None = None
    for block in blocks:
        if schema is None and len(block.starts):
            schema = _probe(block, wanted, times)
        yield JsonlPiece(block, wanted, schema or pa.schema([]))


def parse_jsonl_block(block: Block, wanted: list[str]) -> Rows:
    """Return the rows of one block, with column types from its own first lines."""
    return _parse_block(block, wanted, _probe(block, wanted, frozenset()))


def _parse_block(block: Block, wanted: list[str], schema: pa.Schema) -> Rows:
    table, rows = _parse_whole(block, schema), block
    if table is None:
        table, rows = _parse_lines(block, wanted)
    location = {"offset": rows.offsets, "size": rows.sizes}
    return Rows(table, location, rows.place_of)


def _probe(block: Block, wanted: list[str], times: frozenset[str]) -> pa.Schema:
    """Return the type of each column by its first value; text when the first lines have none."""
    types: dict[str, pa.DataType] = {}
    for record in range(min(len(block.starts), _PROBED_LINES)):
        try:
            row = _parse_line(block, record, exact=False) or {}
        except InvalidRequestError:
            continue  # refused when it is parsed
        for name in wanted:
            value = row.get(name)
            if value is not None and name not in types:
                types[name] = _TYPES.get(type(value), pa.string())
                if isinstance(value, float) and name in times:
                    types[name] = pa.float64()
    return pa.schema([(name, types.get(name, pa.string())) for name in wanted])


def _parse_whole(block: Block, schema: pa.Schema) -> pa.Table | None:
    """Parse the block in one call; None when it does not fit the types, or a line is not one row."""
    begin = int(block.starts[0])
    try:
        table = _json.read_json(
            pa.BufferReader(pa.py_buffer(block.data)[begin:]),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(block.data)),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
        )
    except pa.ArrowInvalid:
        return None
    return table if table.num_rows == len(block.starts) else None


def _parse_lines(block: Block, wanted: list[str]) -> tuple[pa.Table, Block]:
    """Parse line by line; any mix of plain values becomes text."""
    records: list[int] = []
    columns: list[list[str | None]] = [[] for _ in wanted]
    for record in range(len(block.starts)):
        row = _parse_line(block, record, exact=True)
        if row is None:
            continue
        records.append(record)
        for name, column in zip(wanted, columns, strict=True):
            column.append(_as_text(row.get(name), name, block, record))
    kept = np.array(records, np.int64)
    rows = Block(
        block.data,
        block.position,
        block.first_line,
        block.starts[kept],
        block.ends[kept],
        block.path,
    )
    return pa.table([pa.array(column, pa.string()) for column in columns], names=wanted), rows


def _parse_line(block: Block, record: int, *, exact: bool) -> dict[str, Any] | None:
    """Return the object of one line, None for a blank line. `exact`: numbers are text, as written."""
    text = block.text(record)
    if not text.strip():
        return None
    number = str if exact else None
    try:
        row = json.loads(
            text.decode(), parse_int=number, parse_float=number, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"is not JSON: {error}", field=block.place_of(record)) from error
    if not isinstance(row, dict):
        raise InvalidRequestError("is not a JSON object", field=block.place_of(record))
    return row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value")


def _as_text(value: Any, name: str, block: Block, record: int) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or (isinstance(value, str) and _is_unicode(value)):
        return value
    raise InvalidRequestError(f"{name} is not a plain value", field=block.place_of(record))


def _is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode the text: JSON can escape half a surrogate pair."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)
