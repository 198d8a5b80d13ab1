"""What a valid topic, key, integer is, for an index and a message log: single values, as callers give them.

Every refusal is an InvalidRequestError that names the field as the caller wrote it. Depends on errors only.
"""

from __future__ import annotations

from math import inf
from operator import index
from typing import Any, Final, Literal, SupportsFloat, SupportsIndex, get_args

from tierdex.errors import InvalidRequestError

INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
MAX_TOPIC_BYTES: Final = 255
SECONDS_BEGIN: Final = 1_000_000_000
SECONDS_END: Final = 10_000_000_000
SECONDS: Final = range(SECONDS_BEGIN, SECONDS_END)  # as milliseconds, days of 1970
Durability = Literal["received", "os", "disk", "remote"]
_LEVELS: Final[tuple[Durability, ...]] = get_args(Durability)
OnError = Literal["partial", "fail"]
ReadPolicyName = Literal["DISABLE", "NOT_IN_DISK", "NOT_IN_MEM", "FORCE"]
# A string is an iterable of strings too: with one of these types a checker refuses `keys="abc"`.
Keys = str | list[str] | tuple[str, ...] | set[str] | frozenset[str]


def check_durability(level: str) -> Durability:
    """Return a level by its name."""
    for known in _LEVELS:
        if level == known:
            return known
    raise InvalidRequestError(f"must be one of {', '.join(_LEVELS)}", field="durability")


def check_text(value: object, field: str) -> str:
    """Return a string that UTF-8 can say: one without lone surrogates."""
    if not isinstance(value, str):
        raise InvalidRequestError("must be a string", field=field)
    _encode(value, field)
    return value


def check_topic(topic: object, field: str) -> str:
    """Return a legal topic."""
    if not isinstance(topic, str):
        raise InvalidRequestError("must be a string", field=field)
    size = len(_encode(topic, field))
    if not 1 <= size <= MAX_TOPIC_BYTES:
        raise wrong_length(size, MAX_TOPIC_BYTES, field)
    # C0, DEL and C1; U+0000 besides is what keeps the message IDs' reserved topic out of reach
    if not topic.isprintable() and any(c < " " or "\x7f" <= c <= "\x9f" for c in topic):
        raise InvalidRequestError("must not contain control characters", field=field)
    return topic


def check_key(key: object, field: str, max_bytes: int) -> str:
    """Return a legal key or message ID."""
    if not isinstance(key, str):
        raise InvalidRequestError("must be a string", field=field)
    size = len(_encode(key, field))
    if not 1 <= size <= max_bytes:
        raise wrong_length(size, max_bytes, field)
    return key


def one_or_many(key: Any, keys: Any) -> Any:
    """Return the one of `key` and `keys` that is given, or None."""
    if key is None:
        return keys
    if keys is not None:
        raise InvalidRequestError("give either `key` or `keys`", field="key")
    return key


def check_integer(
    value: object, field: str, lowest: int = INT64_MIN, highest: int = INT64_MAX
) -> int:
    """Return an int in [lowest, highest]; bools and floats are refused."""
    if type(value) is int:  # nearly always; the look at a protocol below costs microseconds
        number = value
    elif isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise InvalidRequestError("must be an integer", field=field)
    else:
        number = index(value)  # numpy's integers too
    if not lowest <= number <= highest:
        raise out_of_range(number, lowest, highest, field)
    return number


def check_seconds(value: object, field: str, highest: float = inf) -> float:
    """Return seconds in [0, highest]; texts, bools and what is no number are refused."""
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise InvalidRequestError("must be a number of seconds", field=field)
    number = float(value)  # numpy's numbers too
    if not 0.0 <= number <= highest:  # nor NaN
        raise InvalidRequestError(f"must be 0 to {highest:.15g} seconds", field=field)
    return number


def check_time(value: object, field: str) -> int:
    """Return milliseconds. A number that is seconds since the epoch, as of 2001 to 2286, is refused."""
    number = check_integer(value, field)
    if number in SECONDS:
        raise like_seconds(number, field)
    return number


def wrong_length(size: int, max_bytes: int, field: str) -> InvalidRequestError:
    """Return the refusal of a text of `size` bytes."""
    return InvalidRequestError(f"must be 1 to {max_bytes} bytes of UTF-8, not {size}", field=field)


def out_of_range(number: int, lowest: int, highest: int, field: str) -> InvalidRequestError:
    """Return the refusal of a number."""
    return InvalidRequestError(f"must be between {lowest} and {highest}, not {number}", field=field)


def like_seconds(number: int, field: str) -> InvalidRequestError:
    """Return the refusal of a number that is meant as seconds, for all that can be told."""
    return InvalidRequestError(
        f"{number} looks like seconds: times are milliseconds ({number}000). A time of January to April 1970 "
        "is written as RFC 3339, or given as a datetime or a column of times",
        field=field,
    )


def missing(field: str) -> InvalidRequestError:
    """Return the refusal of an entry without a value that every entry has."""
    return InvalidRequestError("is required", field=field)


def _encode(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("is not valid Unicode (lone surrogate)", field=field) from error
