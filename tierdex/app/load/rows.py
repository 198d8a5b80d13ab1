"""Blocks of rows, which the three readers yield: columns, and each row's place in the file.

Depends on pyarrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa


@dataclass(frozen=True)
class Rows:
    """A block of rows: `table` holds the wanted columns, `location` one value for each row and field.

    `place_of(row)` names a row for a reader, as in ``orders.csv:17``. `done_bytes` is how much of
    the file has been read once these rows are used.
    """

    table: pa.Table
    location: Mapping[str, Any]
    place_of: Callable[[int], str]
    done_bytes: int


def check_columns(wanted: list[str], present: list[str], path: Path) -> None:
    """Raise InvalidRequestError for a wanted column that the file has not, or has twice."""
    for name in wanted:
        if name not in present:
            listed = ", ".join(present[:50])
            raise InvalidRequestError(f"{path} has no column {name!r}; it has {listed}", field=name)
        if present.count(name) > 1:
            raise InvalidRequestError(f"{path} has several columns {name!r}", field=name)
