"""Columns for `put_batch`, made of the entries of a request. The index checks all before it applies any.

Depends on errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError, RequestTooLargeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.index_service.index import Index
    from tierdex.settings import Settings
    from tierdex.value_rules import Durability

REQUIRED = ("topic", "queue_id", "offset", "size", "timestamp")
OPTIONAL = ("keys", "key", "message_id")


@dataclass(frozen=True, slots=True)
class PutRows:
    """Columns of one length (lists or Arrow) by the name that `put_batch` gives them.

    `count` is the number of entries.
    """

    count: int
    columns: Mapping[str, Any]

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
            raise


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
