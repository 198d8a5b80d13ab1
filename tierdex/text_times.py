"""Texts as times: ISO 8601, or an epoch number whose size tells its unit.

A number is seconds below 10^11, milliseconds below 10^14, microseconds below 10^17, else nanoseconds. ISO
8601 without an offset is in the zone that the caller names. A local hour that occurs twice means the first
one; a local hour that a clock skips means the time after the jump.

A failure is a RowError with the row's number.

Depends on errors, pyarrow and numpy.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable

pc: Any = pyarrow.compute
Column: TypeAlias = Any  # an Arrow array: the stubs of pyarrow know less than pyarrow
_WHOLE = r"^[+-]?[0-9]{1,19}$"
_DECIMAL = r"^[+-]?[0-9]+\.[0-9]+$"
_ZONED = r"(?i)[T ][0-9]{2}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_ANY = ""
_QUARTER_US = 15 * 60 * 1_000_000  # zones change their offset at quarters of an hour
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's time, its zone is looked up


class RowError(ValueError):
    """One row of a block holds a value that cannot be used."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def check_timezone(name: str) -> None:
    """Raise InvalidRequestError when there is no such zone."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidRequestError(f"there is no time zone {name!r}", field="timezone") from error


def readable_times(texts: Column, timezone: str) -> tuple[np.ndarray, np.ndarray]:
    """Return times (int64 ms) and whether each text is one (bool); null is none."""
    stamps = np.zeros(len(texts), np.int64)
    is_time = np.asarray(texts.is_valid()).copy()
    texts = pc.utf8_trim_whitespace(texts)
    waiting = [np.flatnonzero(is_time)]
    while waiting:
        rows = waiting.pop()
        try:
            if len(rows):
                stamps[rows] = times_of_texts(texts.take(pa.array(rows)), timezone)
        except RowError:
            if len(rows) == 1:
                is_time[rows] = False
            else:
                waiting += [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return stamps, is_time


def times_of_texts(texts: Column, timezone: str | None) -> np.ndarray:
    """Group the texts by kind and convert each group at once; most files have one kind."""

    def of_wall_clock(part: Column) -> np.ndarray:
        stamps = located(part, "timestamp", lambda each: _stamps(each, None))
        return to_utc(stamps, zone_of(timezone, 0, part[0].as_py())) // 1000

    kinds: list[tuple[str, Callable[[Column], np.ndarray]]] = [
        (_WHOLE, lambda part: times_of_numbers(part.cast(pa.int64()).to_numpy())),
        (_DECIMAL, lambda part: times_of_floats(part.cast(pa.float64()).to_numpy())),
        (_ZONED, lambda part: _stamps(part, "UTC") // 1000),
        (_ANY, of_wall_clock),
    ]
    result = np.empty(len(texts), np.int64)
    left = np.arange(len(texts))  # the rows of `texts`, which are of no kind so far
    for pattern, convert in kinds:
        if not len(left):
            break
        is_kind = np.asarray(pc.match_substring_regex(texts, pattern))
        rows, part = left, texts
        if not is_kind.all():
            rows, part = left[is_kind], texts.filter(pa.array(is_kind))
        if len(rows):
            try:
                result[rows] = located(part, "timestamp", convert)
            except RowError as error:
                raise RowError(int(rows[error.row]), str(error)) from error
        left, texts = left[~is_kind], texts.filter(pa.array(~is_kind))
    return result


def _stamps(texts: Column, timezone: str | None) -> np.ndarray:
    """Parse ISO 8601 into microseconds; further digits are cut off."""
    texts = pc.ascii_upper(texts)  # RFC 3339 allows t and z, Arrow does not
    try:
        stamps = texts.cast(pa.timestamp("us", timezone))
    except pa.ArrowInvalid:
        cut = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
        stamps = cut.cast(pa.timestamp("us", timezone))
    microseconds: np.ndarray = stamps.cast(pa.int64()).to_numpy()
    return microseconds


def times_of_numbers(numbers: np.ndarray) -> np.ndarray:
    size = np.abs(numbers)
    result = np.where(size < 10**11, numbers * 1000, numbers)
    result = np.where(size >= 10**14, numbers // 1000, result)
    return np.where(size >= 10**17, numbers // 1_000_000, result)


def times_of_floats(numbers: np.ndarray) -> np.ndarray:
    wrong = ~np.isfinite(numbers) | (np.abs(numbers) > 2**63 - 1024)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise RowError(row, f"timestamp {numbers[row]} is no time")
    is_seconds = np.abs(numbers) < 1e11
    # numpy computes both branches: zeros stand where the other would overflow.
    return np.where(is_seconds, np.round(np.where(is_seconds, numbers, 0) * 1000), 0).astype(
        np.int64
    ) + np.where(is_seconds, 0, times_of_numbers(numbers.astype(np.int64)))


def zone_of(timezone: str | None, row: int, example: str) -> ZoneInfo:
    if timezone is None:
        raise RowError(row, f"timestamp {example!r} names no zone: say which with --timezone")
    return ZoneInfo(timezone)


def to_utc(stamps: np.ndarray, zone: ZoneInfo) -> np.ndarray:
    """Convert microseconds of a wall clock to UTC, with one offset look-up a quarter of an hour."""
    quarters, inverse = np.unique(stamps // _QUARTER_US, return_inverse=True)
    try:
        offsets = [
            (zone.utcoffset(_EPOCH + timedelta(minutes=15 * quarter)) or timedelta())
            // timedelta(microseconds=1)
            for quarter in quarters.tolist()
        ]
    except OverflowError as error:
        raise RowError(0, "timestamp lies beyond the years 1 to 9999") from error
    shifted: np.ndarray = stamps - np.array(offsets, np.int64)[inverse]
    return shifted


def located(texts: Column, what: str, convert: Callable[[Column], np.ndarray]) -> np.ndarray:
    """Convert all rows at once; when that fails, find the first row that cannot be converted."""
    try:
        return convert(texts)
    except pa.ArrowInvalid:
        first, count = 0, len(texts)
    while count > 1:  # the first failure lies in the `count` rows from `first`
        half = count // 2
        try:
            convert(texts.slice(first, half))
            first, count = first + half, count - half
        except pa.ArrowInvalid:
            count = half
    raise RowError(first, f"{what} {texts[first].as_py()!r} is not understood")
