"""`Call`: one request to a service, how its answer is read, and the texts of requests.

Pure. Depends on errors, value_rules and orjson.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import orjson

from tierdex.errors import InvalidRequestError
from tierdex.value_rules import check_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

T = TypeVar("T", covariant=True)
JSON: Final = "application/json"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `is_repeatable`: twice does what once does, so that a timeout is no end."""

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media_type: str = JSON
    is_repeatable: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    """So many seconds in which nothing is sent; the answer is the monotonic time then."""

    seconds: float = 0.0


if TYPE_CHECKING:
    # Calls and pauses of which each is answered before the next, and what they come to.
    Steps = Generator[Call[Any] | Pause, Any, T]
    Work = Call[T] | Steps[T]


_TEXTS: Final = frozenset({"topic", "key", "message_id", "cursor", "group", "id_time", "node"})


def json_body(document: Any) -> bytes:
    try:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:  # what JSON cannot say: a number beyond 64 bits, a lone surrogate
        raise InvalidRequestError(f"cannot be sent: {error}") from error


def query_string(**values: Any) -> dict[str, str]:
    """Return the values that are set, as text; False is the default of the one flag there is.

    Raises InvalidRequestError for a name that is no text: the service would look up what it is spelled as.
    """
    for name in _TEXTS & values.keys():
        if values[name] is not None:
            check_text(values[name], name)
    return {
        name: "true" if value is True else _text(value)
        for name, value in values.items()
        if value is not None and value is not False
    }


def _text(value: Any) -> str:
    return str(value) if not isinstance(value, datetime) else value.isoformat()
