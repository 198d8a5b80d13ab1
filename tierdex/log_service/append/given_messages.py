"""The columns of messages as a caller gave them, not checked yet: of the embedded log and of its clients.

Depends on errors only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tierdex.errors import InvalidRequestError


class GivenMessages(NamedTuple):
    """The columns of `append_batch`, or the values of `append`; a name is that of its argument."""

    topic: Any
    queue_id: Any
    body: Any
    keys: Any = None
    message_id: Any = None
    headers: Any = None
    timestamp: Any = None
    deliver_at: Any = None


def body_of(given: Any, field: str) -> bytes:
    """Return a body, or the value of a header, as bytes: a text is UTF-8."""
    if given.__class__ is bytes:
        found: bytes = given
        return found
    try:
        if isinstance(given, str):
            return given.encode()
        if isinstance(given, bytes | bytearray | memoryview):
            return bytes(given)
    except UnicodeEncodeError as error:
        raise InvalidRequestError("is not valid text (lone surrogate)", field=field) from error
    except ValueError as error:
        raise InvalidRequestError(f"cannot be read: {error}", field=field) from error
    raise InvalidRequestError("must be bytes or a string", field=field)


def headers_of(given: Any, field: str) -> list[tuple[str, bytes]]:
    """Return headers as pairs of a name and bytes: they are given so, or as a dict; a text is UTF-8."""
    if isinstance(given, Mapping):
        given = given.items()
    if given is None:
        return []
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise InvalidRequestError("must be pairs of a name and a value, or a dict", field=field)
    pairs = []
    for header in given:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise InvalidRequestError("must be pairs of a name and a value, or a dict", field=field)
        name, value = header
        if not isinstance(name, str) or not isinstance(value, bytes | str):
            raise InvalidRequestError(
                "must be a name, and bytes or a string as its value", field=field
            )
        pairs.append((name, body_of(value, field)))
    return pairs
