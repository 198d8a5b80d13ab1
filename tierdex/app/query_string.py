"""The query string, read strictly: known names once each, UTF-8, whole numbers only.

Values are turned into the types of the call; what they may be is checked by the index. Depends on
errors.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from tierdex.app.times import parse_time
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def text(value: str, field: str) -> str:
    return value


def integer(value: str, field: str) -> int:
    """Return a whole number of at most 64 bits' digits. Raises InvalidRequestError."""
    if not _INTEGER.fullmatch(value):
        raise InvalidRequestError("must be a whole number", field=field)
    return int(value)


def time(value: str, field: str) -> int:
    return parse_time(value, field=field)


def boolean(value: str, field: str) -> bool:
    if value not in ("true", "false"):
        raise InvalidRequestError("must be true or false", field=field)
    return value == "true"


def choice(*allowed: str) -> Callable[[str, str], str]:
    """Return a reader that takes one of these words."""

    def read(value: str, field: str) -> str:
        if value not in allowed:
            raise InvalidRequestError(f"must be one of {', '.join(allowed)}", field=field)
        return value

    return read


def read_query(raw: bytes, readers: Mapping[str, Callable[[str, str], Any]]) -> dict[str, Any]:
    """Return the typed values that are there. Raises InvalidRequestError naming the parameter."""
    values: dict[str, Any] = {}
    for name, value in _pairs(raw):
        reader = readers.get(name)
        if reader is None:
            raise InvalidRequestError("there is no such parameter", field=name[:64])
        if name in values:
            raise InvalidRequestError("is there more than once", field=name)
        values[name] = reader(value, name)
    return values


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    if raw.isascii() and b"%" not in raw and b"+" not in raw:  # most: nothing to decode
        cut = [pair.partition("=") for pair in raw.decode().split("&") if pair]
        return [(name, value) for name, _, value in cut]
    pairs = []
    for pair in raw.split(b"&"):
        if pair:
            raw_name, _, raw_value = pair.partition(b"=")
            name = _decode(raw_name, "query")
            pairs.append((name, _decode(raw_value, name[:64])))
    return pairs


def _decode(raw: bytes, field: str) -> str:
    plain = raw.replace(b"+", b" ")
    try:
        return (unquote_to_bytes(plain) if b"%" in plain else plain).decode()
    except UnicodeDecodeError:
        raise InvalidRequestError("is not UTF-8", field=field) from None
