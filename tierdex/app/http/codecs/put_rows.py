"""Rows for `put_batch`, made of entries that may have several keys each.

An entry with k keys becomes k rows of one location; the first of them has the message ID. The index
checks all values before it applies any. A refusal's row number is turned back into the number of
the caller's entry.

Depends on errors, numpy and pyarrow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError, RequestTooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.index_service.index import Index
    from tierdex.settings import Settings
    from tierdex.value_rules import Durability

REQUIRED = ("topic", "queue_id", "offset", "size", "timestamp")
OPTIONAL = ("keys", "key", "message_id")
_ROW = re.compile(r"^entries\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class PutRows:
    """Columns of one length (lists or Arrow) by the name that `put_batch` gives them.

    `count` is the number of entries; `entry_of_row` is None while each has one row.
    """

    count: int
    columns: Mapping[str, Any]
    entry_of_row: np.ndarray | None = None

    def put_into(self, index: Index, durability: Durability) -> str:
        """Put all rows, or none; return the level reached. Raises InvalidRequestError.

        Without rows, bring earlier puts to the level.
        """
        if not self.count:
            return index.flush(durability)
        try:
            return index.put_batch(**self.columns, durability=durability)
        except InvalidRequestError as error:
            if error.field == "topic":  # given once, since it is the same in all entries
                raise type(error)(error.detail, field="entries[0].topic") from error
            if self.entry_of_row is None or not (row := _ROW.match(error.field or "")):
                raise
            entry = int(self.entry_of_row[int(row[1])])
            field = f"entries[{entry}]{(error.field or '')[row.end() :]}"
            raise type(error)(error.detail, field=field) from error


def rows_of_entries(counts: np.ndarray, limits: Settings) -> tuple[np.ndarray, Any, Any]:
    """Return (entry of each row, position of its key, position of its message ID).

    `counts[i]` is the number of keys of entry i; one without keys has one row all the same. The
    positions are Arrow integers with nulls, ready for `take` on the flat keys and on the entries.
    """
    rows_per_entry = np.maximum(counts, 1)
    refuse_too_many(int(rows_per_entry.sum()), limits)
    entry_of_row = np.repeat(np.arange(len(counts)), rows_per_entry)
    has_no_key = counts[entry_of_row] == 0
    is_later = np.zeros(len(entry_of_row), bool)
    is_later[1:] = entry_of_row[1:] == entry_of_row[:-1]
    key_position = pa.array(np.cumsum(~has_no_key) - 1, pa.int64(), mask=has_no_key)
    return entry_of_row, key_position, pa.array(entry_of_row, pa.int64(), mask=is_later)


def refuse_too_many(rows: int, limits: Settings) -> None:
    """Raise RequestTooLargeError above the index's limit for one batch."""
    if rows > limits.max_batch_entries:
        raise RequestTooLargeError(
            f"{rows} entries, at most {limits.max_batch_entries} in one call", field="entries"
        )


def check_names(names: list[str], field: str) -> None:
    """Refuse unknown, repeated and missing names of an entry's fields."""
    for name in names:
        if name not in REQUIRED and name not in OPTIONAL:
            raise InvalidRequestError("there is no such field", field=f"{field}.{name}")
        if names.count(name) > 1:
            raise InvalidRequestError("is there twice", field=f"{field}.{name}")
    for name in REQUIRED:
        if name not in names:
            raise InvalidRequestError("is required", field=f"{field}.{name}")
    if "key" in names and "keys" in names:
        raise InvalidRequestError("give either `key` or `keys`", field=f"{field}.key")
