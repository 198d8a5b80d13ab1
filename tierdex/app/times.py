"""Times in text: int64 milliseconds since the epoch, or RFC 3339 with an offset.

``1700000000000`` and ``2023-11-14T22:13:20Z`` are the same time. A time without an offset is
refused, since its zone cannot be known. Fractions below a millisecond are cut off.

Depends on errors and value_rules.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tierdex.errors import InvalidRequestError
from tierdex.value_rules import check_time

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1

# The grammar of RFC 3339, section 5.6: what openapi.yaml says is what is accepted.
RFC3339_PATTERN = (
    r"^(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
    r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$"
)
MS_PATTERN = r"^-?\d{1,19}$"
_RFC3339 = re.compile(RFC3339_PATTERN.replace(r"\d", "[0-9]"))
_MS = re.compile(MS_PATTERN.replace(r"\d", "[0-9]"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_time(text: str, *, field: str) -> int:
    """Return the milliseconds that `text` means. Raises InvalidRequestError naming `field`."""
    if _MS.fullmatch(text):
        value = int(text)
        if MIN_INT64 <= value <= MAX_INT64:
            return check_time(value, field)
        raise InvalidRequestError("a time must fit 64 bits of milliseconds", field=field)
    if _RFC3339.fullmatch(text):
        try:
            moment = datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
        except ValueError as error:
            raise InvalidRequestError(f"not a time: {error}", field=field) from None
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    raise InvalidRequestError(
        "milliseconds since the epoch, or RFC 3339 with an offset, as in 2023-11-14T22:13:20Z",
        field=field,
    )


def format_time(milliseconds: int) -> str:
    """Return RFC 3339 in UTC; times beyond the calendar stay a number."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_duration(milliseconds: int) -> str:
    """Return a span of time in its two greatest units: ``250 ms``, ``3.5 s``, ``2 min 5 s``, ``4 d 3 h``."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".") + " s"
    rest = milliseconds // 1000
    parts: list[str] = []
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, seconds)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))
