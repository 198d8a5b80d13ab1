"""The types of columns and lookups, for checkers of users' programs. What is in them is checked at each call.

A column is a list (or another sequence), an array with `tolist` (numpy, pandas) or one with `to_pylist`
(Arrow); one value stands for every row, but for bodies. Depends on times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, SupportsIndex, TypedDict

from tierdex.times import Time


class ArrayColumn(Protocol):
    """A column of numpy or pandas."""

    def __len__(self) -> int: ...
    def tolist(self) -> Any: ...


class ArrowColumn(Protocol):
    """A column of Arrow."""

    def __len__(self) -> int: ...
    def to_pylist(self) -> list[Any]: ...


class Lookup(TypedDict, total=False):
    """One lookup of `query_batch`: `topic` and `key`, or `message_id`; times are inclusive."""

    topic: str | None
    key: str | None
    message_id: str | None
    begin: Time | None
    end: Time | None
    max_count: int | None


Texts = str | Sequence[str | None] | ArrayColumn | ArrowColumn
KeyLists = str | Sequence[str | Sequence[str] | None] | ArrayColumn | ArrowColumn
Integers = SupportsIndex | Sequence[SupportsIndex] | ArrayColumn | ArrowColumn
Times = Time | SupportsIndex | Sequence[Time | None] | ArrayColumn | ArrowColumn
Body = bytes | bytearray | memoryview | str
Headers = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]
# No Sequence: a single text would be one, of texts.
Bodies = list[bytes] | list[str] | list[Body] | tuple[Body, ...] | ArrowColumn
HeaderLists = Sequence[Headers | None] | ArrowColumn
