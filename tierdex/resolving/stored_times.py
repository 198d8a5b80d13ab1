"""Times as text, from the integers in which files and messages store them: whatever Python can hold or not.

Years beyond 9999 have a sign and all their digits, as in ISO 8601 (``+294247-01-10T04:00:54``). Nothing is
rounded: a time has six digits behind its seconds, nine where it needs them, and none where they are zero.

Depends on numpy.
"""

from __future__ import annotations

import datetime
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np

NS_OF: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_S: Final = 86_400
_YEAR_1_S: Final = -62_135_596_800
_YEAR_10000_S: Final = 253_402_300_800
_DAYS_MOST: Final = 10**15  # beyond, no calendar is of use


def is_in_calendar(value: int, unit: str) -> bool:
    """Return whether a time is of the years 1 to 9999, which every program knows."""
    return _YEAR_1_S <= value * NS_OF[unit] // 10**9 < _YEAR_10000_S


def timestamp_text(value: int, unit: str, zone: str | None = None) -> str:
    """Return a time since 1970, in ``s``, ``ms``, ``us`` or ``ns``; of `zone`, where one is named.

    A zone that is not known, or has no offset then, is told behind the time in UTC: ``…+00:00[Mars/Base]``.
    """
    seconds, fraction_ns = divmod(value * NS_OF[unit], 10**9)
    behind = ""
    if zone is not None:
        offset = _offset(zone, seconds)
        shift = offset or 0
        seconds += shift
        behind = _offset_text(shift) + ("" if offset is not None else f"[{zone}]")
    days, second = divmod(seconds, _DAY_S)
    return f"{date_text(days)}T{_clock_text(second, fraction_ns)}{behind}"


def date_text(days: int) -> str:
    """Return a date, given in days since 1970."""
    if abs(days) > _DAYS_MOST:
        return f"{days} days since 1970-01-01"
    text = str(np.datetime64(days, "D"))
    year, rest = text[:-6], text[-6:]
    if year.startswith("-"):
        return f"-{year[1:].zfill(4)}{rest}"
    return text if len(year) <= 4 else f"+{year}{rest}"


def clock_text(value: int, unit: str) -> str:
    """Return a time of day; a number that is none, with its unit."""
    second, fraction_ns = divmod(value * NS_OF[unit], 10**9)
    if not 0 <= second < _DAY_S:
        return f"{value} {unit}"
    return _clock_text(second, fraction_ns)


def duration_text(value: int, unit: str) -> str:
    """Return a duration, as Python writes one: ``1 day, 2:03:04.000005``."""
    seconds, fraction_ns = divmod(value * NS_OF[unit], 10**9)
    days, second = divmod(seconds, _DAY_S)
    before = "" if days == 0 else f"{days} day{'' if abs(days) == 1 else 's'}, "
    hours, rest = divmod(second, 3600)
    return f"{before}{hours}:{rest // 60:02}:{rest % 60:02}{_fraction_text(fraction_ns)}"


def _clock_text(second: int, fraction_ns: int) -> str:
    hours, rest = divmod(second, 3600)
    return f"{hours:02}:{rest // 60:02}:{rest % 60:02}{_fraction_text(fraction_ns)}"


def _fraction_text(fraction_ns: int) -> str:
    if fraction_ns == 0:
        return ""
    return f".{fraction_ns:09}" if fraction_ns % 1000 else f".{fraction_ns // 1000:06}"


def _offset(zone: str, seconds: int) -> int | None:
    """Return how far a zone is ahead of UTC at a time, in seconds; None: not known."""
    if zone.upper() in ("UTC", "Z"):
        return 0
    if zone[:1] in "+-":
        return _fixed(zone)
    if not _YEAR_1_S + _DAY_S <= seconds < _YEAR_10000_S - _DAY_S:
        return None
    try:
        known = ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # the first is ZoneInfoNotFoundError
        return None
    offset = datetime.datetime.fromtimestamp(seconds, known).utcoffset()
    return None if offset is None else round(offset.total_seconds())


def _fixed(zone: str) -> int | None:
    """Return the seconds of ``+02:00``."""
    hours, _, minutes = zone[1:].partition(":")
    if not (hours.isdecimal() and (minutes or "0").isdecimal()):
        return None
    seconds = int(hours) * 3600 + int(minutes or 0) * 60
    return (-seconds if zone[0] == "-" else seconds) if seconds < _DAY_S else None


def _offset_text(seconds: int) -> str:
    sign, whole = ("-" if seconds < 0 else "+"), abs(seconds)
    text = f"{sign}{whole // 3600:02}:{whole % 3600 // 60:02}"
    return text + (f":{whole % 60:02}" if whole % 60 else "")
