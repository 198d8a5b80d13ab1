"""Rows of a JSONL file: one object a line. `records` finds the lines, `following` reads their texts.

A column is a name in the object, ``id``, or a path into it: ``order.id`` (a member of just that name comes
first), ``$.items[0].sku`` as in `tierdex follow`. Every column is text, as `key_texts` says.

Depends on errors, following, records and rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.app.load.rows import Rows
from tierdex.errors import InvalidRequestError
from tierdex.following.json_columns import read_columns
from tierdex.following.json_paths import read_paths, written_document
from tierdex.following.selectors import JsonPart, Selector
from tierdex.following.value_block import ValueBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tierdex.app.load.records import Block, Mark

pc: Any = pyarrow.compute
_OPENING = ord("{")


@dataclass(frozen=True)
class JsonlPiece:
    """Lines of a JSONL file."""

    block: Block
    wanted: list[str]
    columns: tuple[str, ...] = ()

    @property
    def mark(self) -> Mark | None:
        return self.block.mark

    def __len__(self) -> int:
        return len(self.block.starts)

    def parse(self) -> Rows:
        return parse_jsonl_block(self.block, self.wanted)

    def part(self, first: int, end: int) -> JsonlPiece:
        return replace(self, block=self.block.part(first, end))

    def place_of(self, row: int) -> str:
        return self.block.place_of(row)

    def text(self, row: int) -> bytes:
        return self.block.text(row)


def read_jsonl_pieces(blocks: Iterable[Block], wanted: list[str]) -> Iterator[JsonlPiece]:
    """Yield the rows, of which columns `wanted` are read; location is `offset` and `size`.

    An absent field is null. A line that is not one JSON object, or whose wanted field is an object or a list,
    is refused when it is parsed. Raises InvalidRequestError for a column that gives several texts.
    """
    for name in wanted:
        _paths_of(name)
    for block in blocks:
        yield JsonlPiece(block, wanted)


def parse_jsonl_block(block: Block, wanted: list[str]) -> Rows:
    """Return the rows of one block. Raises InvalidRequestError naming file and line."""
    paths_of = {name: _paths_of(name) for name in wanted}
    paths = list(dict.fromkeys(path for paths in paths_of.values() for path in paths))
    values = ValueBlock(block.data, block.starts, block.ends)
    found, _, unreadable = read_columns(values, paths)
    unreadable = unreadable | ~_are_objects(values)
    if unreadable.any():
        row = int(np.argmax(unreadable))
        raise InvalidRequestError(_what_is_wrong(values[row], paths_of), field=block.place_of(row))
    texts = dict(zip(paths, found, strict=True))
    columns = [pc.coalesce(*(texts[path] for path in paths_of[name])) for name in wanted]
    table = pa.table([*columns, pa.nulls(len(values))], names=[*wanted, ""])
    return Rows(table, {"offset": block.offsets, "size": block.sizes}, block.place_of)


def _paths_of(name: str) -> list[JsonPart]:
    """Return where a column may stand in an object, the first one first."""
    if name.startswith("$"):
        part = Selector.parse(name, field="key").parts[0]
        assert isinstance(part, JsonPart)
        if part.gives_several:
            raise InvalidRequestError(f"{name!r} gives several texts a row", field="key")
        return [part]
    own = JsonPart((name,))
    return [own, JsonPart(tuple(name.split(".")))] if "." in name else [own]


def _are_objects(values: ValueBlock) -> np.ndarray:
    """Return which values begin as an object: bool[n]."""
    data = np.frombuffer(values.data, np.uint8)
    are_objects: np.ndarray = data[values.starts] == _OPENING
    for row in np.flatnonzero(~are_objects).tolist():
        are_objects[row] = values[row].lstrip(b" \t\r\n").startswith(b"{")
    return are_objects


def _what_is_wrong(line: bytes, paths_of: dict[str, list[JsonPart]]) -> str:
    try:
        document = written_document(line)
    except ValueError as error:
        return f"is not JSON: {error}"
    if not isinstance(document, dict):
        return "is not a JSON object"
    for name, paths in paths_of.items():
        if read_paths([line], paths).unreadable[0]:
            return f"{name} is not a plain value"
    return "cannot be read"
