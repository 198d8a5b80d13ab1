"""Times as callers give them, at every door alike: int64 milliseconds since the epoch, text, a `datetime`.

::

    1700000000000    2023-11-14T22:13:20Z    datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)     the same time
    2023-11-14       that day in UTC: its first millisecond, as the end of a range its last
    -7d   2h   now   before now: ms s m h d w; only where people write times (CLI, HTTP, console)

A time without an offset is refused, since its zone cannot be known; so is a number that looks like seconds
(value_rules.SECONDS; decision 0080): a time of January to April 1970 is given as text, `datetime` or
column of times. Fractions below a millisecond are cut off.

`calendar_ms` reads the texts of other programs, too (text_times.py): one grammar of written times for all.

Depends on errors and value_rules.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tierdex.errors import InvalidRequestError
from tierdex.value_rules import INT64_MAX, INT64_MIN, SECONDS, check_time

if TYPE_CHECKING:
    from collections.abc import Callable

Time: TypeAlias = int | str | datetime
_WRITTEN: Final = (str, datetime)
# The grammar of RFC 3339, section 5.6: what openapi.yaml says is what is accepted.
_DATE: Final = (
    r"(?:[1-9]\d{3}|0[1-9]\d{2}|00[1-9]\d|000[1-9])-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
)
RFC3339_PATTERN: Final = (
    rf"^{_DATE}"
    r"[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$"
)
MS_PATTERN: Final = r"^-?\d{1,19}$"
DATE_PATTERN: Final = rf"^{_DATE}$"
AGO_PATTERN: Final = r"^(?:now|-?\d{1,9}(?:ms|s|m|h|d|w))$"
_UNITS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000,
}  # fmt: skip
_SHOWN: Final = 60  # characters of a wrong time in its refusal
# ISO 8601, extended or basic, and the spellings of logs: a blank for T, a comma before the fraction, a blank
# before the zone, UTC and GMT for Z, slashes in the date, a name behind the offset.
_CALENDAR: Final = re.compile(
    r"(?P<year>[0-9]{4})(?P<dash>[-/]?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})"
    r"(?:(?:[Tt]| +)(?P<hour>[0-9]{2})(?:(?P<colon>:?)(?P<minute>[0-9]{2})(?:(?P=colon)(?P<second>[0-9]{2})"
    r"(?:[.,](?P<fraction>[0-9]+))?)?)?"
    r"(?: *(?P<zone>[Zz]|[Uu][Tt][Cc]|[Gg][Mm][Tt]|[+-][0-9]{2}(?::?[0-9]{2})?)(?: [A-Z]{1,5})?)?)?"
)
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_NAMED_MONTH: Final = re.compile(  # access logs, mail and HTTP
    r"(?:(?:mon|tue|wed|thu|fri|sat|sun), )?(?P<day>[0-9]{1,2})(?P<dash>[ /-])"
    rf"(?P<month>{'|'.join(_MONTHS)})(?P=dash)(?P<year>[0-9]{{4}})"
    r"[ :T](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r"(?: *(?P<zone>z|utc|gmt|[+-][0-9]{2}:?[0-9]{2}))?",
    re.IGNORECASE,
)
_COMPACT: Final = re.compile(  # digits alone, of years in which logs were kept
    r"(?P<year>19[0-9]{2}|2[01][0-9]{2})(?P<month>[0-9]{2})(?P<day>[0-9]{2})"
    r"(?:(?P<hour>[0-9]{2})(?P<minute>[0-9]{2})(?:(?P<second>[0-9]{2})(?:(?:\.|(?=[0-9]{3}$))(?P<fraction>[0-9]+))?)?)?"
)
_DAY_MS: Final = _UNITS_MS["d"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(r"\d", "[0-9]"))


_RFC3339, _MS, _DAY, _AGO = map(_compile, (RFC3339_PATTERN, MS_PATTERN, DATE_PATTERN, AGO_PATTERN))


def to_ms(value: object, field: str, *, is_end: bool = False) -> int:
    """Return the milliseconds of a time in a program: int, text, datetime. Raises InvalidRequestError."""
    if isinstance(value, str):
        if _RFC3339.fullmatch(value):
            try:
                return (datetime.fromisoformat(value) - _EPOCH) // _MILLISECOND
            except ValueError:  # a small letter, a day that the month does not have
                pass
        return parse_time(value, field=field, is_end=is_end)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidRequestError("names no zone: give it a `tzinfo`", field=field)
        return (value - _EPOCH) // _MILLISECOND
    return check_time(value, field)


def optional_ms(value: object, field: str, *, is_end: bool = False) -> int | None:
    """Return the same for a bound that may be missing."""
    return None if value is None else to_ms(value, field, is_end=is_end)


def written_times(values: Any, field: Callable[[int], str]) -> Any:
    """Return a column, or one time, with milliseconds for its texts and datetimes; all else as it is.

    `field` names a row. Only lists are looked through: other columns have one type. What is returned as it
    was given is not checked; numbers beside texts are. Raises InvalidRequestError.
    """
    if isinstance(values, _WRITTEN):
        return to_ms(values, field(0))
    if isinstance(values, list | tuple) and any(isinstance(value, _WRITTEN) for value in values):
        return [
            value if value is None else to_ms(value, field(row)) for row, value in enumerate(values)
        ]
    return values


def as_meant(times: list[int]) -> list[int | datetime]:
    """Return milliseconds that were looked at: those that look like seconds as datetimes, which say it."""
    return [_EPOCH + timedelta(milliseconds=time) if time in SECONDS else time for time in times]


def parse_time(
    text: str, *, field: str, now_ms: Callable[[], int] | None = None, is_end: bool = False
) -> int:
    """Return the milliseconds that `text` means. Raises InvalidRequestError naming `field`.

    `now_ms` tells the time that relative ones count from; without it they are refused. With `is_end` a
    day means its last millisecond.
    """
    if _MS.fullmatch(text):
        value = int(text)
        if len(text) == len("20231114221320") and compact_ms(text, UTC) is not None:
            raise InvalidRequestError(
                f"{text} looks like a date and a time in digits: write it as RFC 3339 "
                "(2023-11-14T22:13:20Z), or milliseconds since the epoch",
                field=field,
            )
        if INT64_MIN <= value <= INT64_MAX:
            return check_time(value, field)
        raise InvalidRequestError("a time must fit 64 bits of milliseconds", field=field)
    if _RFC3339.fullmatch(text) or _DAY.fullmatch(text):
        try:
            first = calendar_ms(text, UTC)
        except ValueError as error:
            raise InvalidRequestError(f"not a time: {error}", field=field) from None
        return first + _DAY_MS - 1 if is_end and len(text) == len("2023-11-14") else first
    if now_ms is not None and _AGO.fullmatch(text):
        return now_ms() - _milliseconds_ago(text.removeprefix("-"))
    forms = ["milliseconds since the epoch", "RFC 3339 with an offset (2023-11-14T22:13:20Z)"]
    forms += ["a day (2023-11-14)"] + ["how long ago (7d, 2h)"] * (now_ms is not None)
    raise InvalidRequestError(
        f"{text[:_SHOWN]!r} is no time: write {', '.join(forms[:-1])} or {forms[-1]}",
        field=field,
    )


class NamelessZoneError(ValueError):
    """A written time says no zone, and its reader knows none."""


def calendar_ms(text: str, zone: tzinfo | None) -> int:
    """Return the milliseconds of a written date, or date and time; what is finer is cut off.

    A time without a zone is in `zone`. Raises ValueError for anything else, NamelessZoneError without a zone.
    """
    found = _CALENDAR.fullmatch(text) or _NAMED_MONTH.fullmatch(text)
    if found is None:
        raise ValueError("it is neither ISO 8601 nor an epoch")
    return _ms_of(found, zone)


def compact_ms(digits: str, zone: tzinfo | None) -> int | None:
    """Return the time of ``20231114``, ``202311142213`` and longer; None for other digits.

    Raises NamelessZoneError without a zone.
    """
    found = _COMPACT.fullmatch(digits)
    try:
        return None if found is None else _ms_of(found, zone)
    except NamelessZoneError:
        raise
    except ValueError:
        return None


def _ms_of(found: re.Match[str], zone: tzinfo | None) -> int:
    parts = found.groupdict()
    named = parts["month"].lower()
    month = _MONTHS.index(named) + 1 if named in _MONTHS else int(named)
    year, day = int(parts["year"]), int(parts["day"])
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    moment = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - its zone follows
    offset = _offset_of(parts.get("zone"))
    if offset is None:
        if zone is None:
            raise NamelessZoneError("names no zone")
        offset = zone.utcoffset(moment) or timedelta()  # of an hour that occurs twice the first
    since = moment - _EPOCH.replace(tzinfo=None) - offset
    return since // timedelta(milliseconds=1) + int((parts["fraction"] or "")[:3].ljust(3, "0"))


def _offset_of(zone: str | None) -> timedelta | None:
    if zone is None:
        return None
    if zone[0] not in "+-":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
    if hours > 23 or minutes > 59:
        raise ValueError(f"there is no offset {zone}")
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if zone[0] == "-" else offset


def _milliseconds_ago(text: str) -> int:
    if text == "now":
        return 0
    number = re.match("[0-9]+", text)
    assert number is not None
    return int(number[0]) * _UNITS_MS[text[number.end() :]]


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
