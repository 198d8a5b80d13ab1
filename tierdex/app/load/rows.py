"""Blocks of rows, which the three readers yield: pieces to be parsed, then columns with each row's place.

A piece is quickly read and can be parsed in any thread, whole or in parts: so a bad row is found by halves.

Depends on errors, records and pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from tierdex.app.load.records import Mark


@dataclass(frozen=True)
class Rows:
    """A block of rows: `table` holds the wanted columns, `location` one value for each row and field.

    `place_of(row)` names a row for a reader, as in ``orders.csv:17``.
    """

    table: pa.Table
    location: Mapping[str, Any]
    place_of: Callable[[int], str]


class Piece(Protocol):
    """Rows that are not parsed yet. `mark`: where a later load may go on, None for a part of a piece."""

    @property
    def mark(self) -> Mark | None: ...
    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns of the file where a later reader of one row needs them (CSV)."""
        ...

    def __len__(self) -> int: ...
    def parse(self) -> Rows:
        """Return the rows. Raises InvalidRequestError naming file and line, or row."""
        ...

    def part(self, first: int, end: int) -> Piece:
        """Return the rows [first, end) alone."""
        ...

    def place_of(self, row: int) -> str: ...
    def text(self, row: int) -> bytes:
        """Return a row as it stands in the file, or as JSON."""
        ...


def check_columns(wanted: list[str], present: list[str], path: str) -> None:
    """Raise InvalidRequestError for a wanted column that the file has not, or has twice."""
    for name in wanted:
        if name not in present:
            listed = ", ".join(present[:50])
            raise InvalidRequestError(f"{path} has no column {name!r}; it has {listed}", field=name)
        if present.count(name) > 1:
            raise InvalidRequestError(f"{path} has several columns {name!r}", field=name)
