"""Entries of a request: one for `put`, or columns for `put_batch`. The index checks all, then applies any.

Depends on errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tierdex.errors import InvalidRequestError, RequestTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


@dataclass(frozen=True, slots=True)
class OneEntry:
    """The one entry of a request, as `PutRows` has several; its members are arguments of `put`."""

    entry: Mapping[str, Any]
    count = 1

    @property
    def columns(self) -> Mapping[str, Any]:
        return self.entry

    def begin(self, index: Index, durability: Durability) -> str | Callable[[], str]:
        """Put the entry if memory alone takes it, and return the level; else what puts it, on a thread."""
        begun: Any = index.begin_put(**self.entry, durability=durability)
        return partial(_named, begun) if callable(begun) else begun

    def put_into(self, index: Index, durability: Durability) -> str:
        """Put the entry; return the level reached. Raises InvalidRequestError."""
        return _named(partial(index.put, **self.entry, durability=durability))


def _named(put: Callable[[], str]) -> str:
    """Let a refusal name the field of the entry."""
    try:
        return put()
    except InvalidRequestError as error:
        name = (error.field or "").partition("[")[0]
        if name in REQUIRED or name in OPTIONAL:
            raise type(error)(error.detail, field=f"entries[0].{error.field}") from error
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
