"""Columns as times: what other programs wrote, in `tierdex load` and `tierdex follow` alike.

::

    a number                 an epoch: seconds below 10^11, milliseconds below 10^14, microseconds below
                             10^17, else nanoseconds
    20231114, 202311142213, 20231114221320, 20231114221320123     a date, a date and a time, of 1900 to 2199
    the last day of 9999     in seconds, ms or us: that day, which many systems write for "never"
    a text                   such a number, also with a fraction or an exponent, or `times.calendar_ms`
    Arrow's time or date     itself

A time without an offset is in the zone that the caller names. A local hour that occurs twice means the first
one; a local hour that a clock skips means the time after the jump. What is finer than a millisecond is cut
off. The least 64-bit integer is no time. Nothing else becomes one: a value that is not understood is told.

A failure is a RowError with the row's number. Depends on errors, times, value_rules, pyarrow and numpy.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, tzinfo
from decimal import ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError
from tierdex.times import NamelessZoneError, calendar_ms, compact_ms
from tierdex.value_rules import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Callable

pc: Any = pyarrow.compute
_is: Any = pa.types
Column: TypeAlias = Any  # an Arrow array: the stubs of pyarrow know less than pyarrow
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(?:\.[0-9]{0,400})?(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE: Final = r"^[0-9]{1,19}$"
_EXACT: Final = Context(prec=1300)  # more than the digits of any number that is looked at
_SECONDS: Final = r"^(?P<whole>[0-9]{9,10})\.(?P<fraction>[0-9]{1,3})[0-9]*$"
_CLOCK: Final = r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONED: Final = rf"^{_CLOCK}(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])$"
_LOCAL: Final = rf"^{_CLOCK}$"
_PLAINER: Final = (  # other spellings of the same, for the conversion of whole columns
    (r"(:[0-9]{2}),([0-9])", r"\1.\2"),
    (r"(\.[0-9]{6})[0-9]+", r"\1"),
    (r" *(?:Z|UTC|GMT)$", "Z"),
    (r" +([+-][0-9]{2}:?[0-9]{2})$", r"\1"),
)
_SHOWN: Final = 80  # characters of a wrong time in its refusal
_QUARTER_MS: Final = 15 * 60 * 1000  # zones change their offset at quarters of an hour
_MS_OF: Final = {"s": 1000, "ms": 1}
_TICKS_OF: Final = {"us": 1000, "ns": 1_000_000}  # of a millisecond
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's time, its zone is looked up
_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_10000_MS: Final = 253_402_300_800_000
_NEVER: Final = (  # the last day of 9999 in s, ms and us: its first number, its end, what makes ms of it
    (253_402_214_400, 253_402_300_800, Decimal(1000)),
    (253_402_214_400_000, 253_402_300_800_000, Decimal(1)),
    (253_402_214_400_000_000, 253_402_300_800_000_000, Decimal("0.001")),
)


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
    stamps, is_time = _read(texts, ZoneInfo(timezone))
    return stamps, is_time


def times_of_texts(texts: Column, timezone: str | None) -> np.ndarray:
    """Return times (int64 ms). Raises RowError for the first text that is none."""
    zone = None if timezone is None else ZoneInfo(timezone)
    stamps, is_time = _read(texts, zone)
    if not is_time.all():
        row = int(np.argmin(is_time))
        _time_of(str(texts[row].as_py()), zone, row)
        raise RowError(row, f"timestamp {str(texts[row].as_py())[:_SHOWN]!r} is not understood")
    return stamps


def has_times(kind: Any) -> bool:
    """Return whether a type of Arrow is of numbers, times or dates."""
    return bool(
        _is.is_date(kind) or _is.is_timestamp(kind) or _is.is_integer(kind) or _is.is_floating(kind)
    )


def times_of_column(column: Column, timezone: str | None) -> np.ndarray:
    """Return the times (int64 ms) of a column of Arrow's numbers, times or dates, without nulls.

    Its type has times. Raises RowError.
    """
    kind = column.type
    if _is.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
        kind = column.type
    if _is.is_timestamp(kind):
        stamps = ms_of_ticks(column.cast(pa.int64()).to_numpy(), kind.unit)
        return stamps if kind.tz else _to_utc(stamps, timezone)
    if _is.is_integer(kind):
        if _is.is_uint64(kind):
            _refuse(pc.greater(column, pa.scalar(INT64_MAX, kind)), column)
        return times_of_numbers(column.cast(pa.int64()).to_numpy(), timezone)
    return _times_of_floats(column.cast(pa.float64()).to_numpy(zero_copy_only=False), timezone)


def ms_of_ticks(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Return Arrow's s, ms, us or ns as milliseconds, what is finer cut off. Raises RowError."""
    wrong = ticks == INT64_MIN
    if unit == "s":
        wrong = (ticks > INT64_MAX // 1000) | (ticks < -(INT64_MAX // 1000))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise RowError(row, f"timestamp {ticks[row]} {unit} is no time")
    if unit in _MS_OF:
        return ticks * _MS_OF[unit]
    stamps: np.ndarray = ticks // _TICKS_OF[unit]
    return stamps


def times_of_numbers(numbers: np.ndarray, timezone: str | None) -> np.ndarray:
    """Return the times of integers, by their size. Raises RowError."""
    if (numbers == INT64_MIN).any():
        row = int(np.argmax(numbers == INT64_MIN))
        raise RowError(row, f"timestamp {INT64_MIN} is no time")
    stamps = _by_size(numbers)
    special = _is_special(numbers)
    if special.any():
        zone = None if timezone is None else ZoneInfo(timezone)
        distinct, first, inverse = np.unique(
            numbers[special], return_index=True, return_inverse=True
        )
        rows = np.flatnonzero(special)[first].tolist()
        pairs = zip(distinct.tolist(), rows, strict=True)
        stamps[special] = np.array([_time_of(str(n), zone, row) for n, row in pairs])[inverse]
    return stamps


def _times_of_floats(numbers: np.ndarray, timezone: str | None) -> np.ndarray:
    wrong = ~np.isfinite(numbers) | (np.abs(numbers) > 2**63 - 1024)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise RowError(row, f"timestamp {numbers[row]} is no time")
    is_seconds = np.abs(numbers) < 1e11
    seconds = np.where(is_seconds, numbers, 0)  # numpy computes both branches: none overflows
    near = np.rint(seconds * 1000)
    # A double whose shortest digits end at the millisecond lies beside it; any other one is cut.
    of_seconds = np.where(near / 1000 == seconds, near, np.floor(seconds * 1000))
    whole = np.where(is_seconds, 0, np.floor(numbers)).astype(np.int64)
    stamps = np.where(is_seconds, of_seconds.astype(np.int64), _by_size(whole))
    zone = None if timezone is None else ZoneInfo(timezone)
    for row in np.flatnonzero(_is_special(np.floor(numbers).astype(np.int64))).tolist():
        stamps[row] = _time_of(repr(float(numbers[row])), zone, row)
    return stamps


def _by_size(numbers: np.ndarray) -> np.ndarray:
    size = np.abs(numbers)
    stamps = np.where(size < 10**11, numbers, 0) * 1000
    stamps = np.where(size >= 10**11, numbers, stamps)
    stamps = np.where(size >= 10**14, numbers // 1000, stamps)
    return np.where(size >= 10**17, numbers // 1_000_000, stamps)


def _is_special(numbers: np.ndarray) -> np.ndarray:
    """Return which may be a date in digits, or the end of 9999: bool[n]."""
    special = np.zeros(len(numbers), bool)
    for digits in (8, 12, 14, 17):
        first = 19 * 10 ** (digits - 2)
        special |= (numbers >= first) & (numbers < 22 * 10 ** (digits - 2))
    for first, end, _ in _NEVER:
        special |= (numbers >= first) & (numbers <= end)
    return special


def _read(texts: Column, zone: tzinfo | None) -> tuple[np.ndarray, np.ndarray]:
    """Return times, and which texts are one: whole columns of the usual spellings, the rest one by one."""
    stamps = np.zeros(len(texts), np.int64)
    is_time = np.zeros(len(texts), bool)
    texts = pc.utf8_trim_whitespace(texts)
    left = np.flatnonzero(np.asarray(texts.is_valid()))
    texts = texts.drop_null()
    plainer: Any = None
    ways: list[tuple[str, Callable[[Column], np.ndarray | None]]] = [
        (_WHOLE, _whole_numbers),
        (_ZONED, lambda part: _moments(part, "UTC")),
        (_SECONDS, _decimal_seconds),
    ]
    if zone is not None:
        ways.append((_LOCAL, lambda part: _local_moments(part, zone)))
    for spelled_plainly in (False, True):
        if spelled_plainly:
            plainer = pc.ascii_upper(texts)
            for pattern, plain in _PLAINER:
                plainer = pc.replace_substring_regex(plainer, pattern, plain)
        for pattern, convert in ways[1:] if spelled_plainly else ways:
            if not len(left):
                return stamps, is_time
            looked_at = plainer if spelled_plainly else texts
            is_kind = np.asarray(pc.match_substring_regex(looked_at, pattern))
            if not is_kind.any():
                continue
            found = convert(looked_at.filter(pa.array(is_kind)))
            if found is None:
                continue
            stamps[left[is_kind]], is_time[left[is_kind]] = found, True
            others = pa.array(~is_kind)
            left, texts = left[~is_kind], texts.filter(others)
            plainer = plainer.filter(others) if spelled_plainly else None
    encoded = texts.dictionary_encode()
    words = encoded.dictionary.to_pylist()
    known = [_known_time(text, zone) for text in words]
    numbers = encoded.indices.to_numpy()
    is_known = np.array([each is not None for each in known], bool)[numbers]
    stamps[left] = np.array([each or 0 for each in known], np.int64)[numbers]
    is_time[left] = is_known
    return stamps, is_time


def _whole_numbers(texts: Column) -> np.ndarray | None:
    try:
        numbers = texts.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return None if _is_special(numbers).any() else _by_size(numbers)


def _decimal_seconds(texts: Column) -> np.ndarray | None:
    parts = pc.extract_regex(texts, _SECONDS)
    whole, fraction = parts.field("whole"), pc.utf8_rpad(parts.field("fraction"), 3, "0")
    stamps: np.ndarray = (
        whole.cast(pa.int64()).to_numpy() * 1000 + fraction.cast(pa.int64()).to_numpy()
    )
    return stamps


def _moments(texts: Column, zone: str | None) -> np.ndarray | None:
    """Return ISO 8601 as milliseconds; None where one of them is no time of the calendar."""
    try:
        ticks = texts.cast(pa.timestamp("us", zone)).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    stamps: np.ndarray = ticks // 1000
    return stamps


def _local_moments(texts: Column, zone: tzinfo) -> np.ndarray | None:
    stamps = _moments(texts, None)
    return None if stamps is None else stamps - _offsets(stamps, zone)


def _known_time(text: str, zone: tzinfo | None) -> int | None:
    try:
        return _time_of(text, zone, 0)
    except RowError:
        return None


def _time_of(text: str, zone: tzinfo | None, row: int) -> int:
    """Return the time of one text, the rule of all of them. Raises RowError."""
    text = text.strip()
    try:
        if not _NUMBER.fullmatch(text):
            return calendar_ms(text, zone)
        number = Decimal(text)
        found = None
        if 7 <= number.adjusted() <= 17:
            digits = format(number, "f")
            digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
            found = compact_ms(digits, zone)
        return _time_of_number(number) if found is None else found
    except NamelessZoneError:
        raise RowError(
            row, f"timestamp {text!r} names no zone: say which with --timezone"
        ) from None
    except ValueError as error:
        raise RowError(row, f"timestamp {text[:_SHOWN]!r} is not understood: {error}") from None


def _time_of_number(number: Decimal) -> int:
    """Return the time of a number of any spelling. Raises ValueError beyond 64 bits."""
    for first, end, factor in _NEVER:
        if first <= number <= end:
            return int(_EXACT.multiply(number, factor).to_integral_value(ROUND_FLOOR))
    if abs(number) >= 1 << 63:
        raise ValueError("it is beyond 64 bits")
    size = abs(number)
    if size < 10**11:
        return int(_EXACT.multiply(number, Decimal(1000)).to_integral_value(ROUND_FLOOR))
    whole = int(number.to_integral_value(ROUND_FLOOR))
    return whole if size < 10**14 else whole // (1000 if size < 10**17 else 1_000_000)


def _to_utc(stamps: np.ndarray, timezone: str | None) -> np.ndarray:
    """Return a wall clock's milliseconds in UTC."""
    if timezone is None:
        raise RowError(0, "timestamp of the column names no zone: say which with --timezone")
    if timezone == "UTC":
        return stamps
    wrong = (stamps < _YEAR_1_MS) | (stamps >= _YEAR_10000_MS)
    if wrong.any():
        raise RowError(int(np.argmax(wrong)), "timestamp lies beyond the years 1 to 9999")
    utc: np.ndarray = stamps - _offsets(stamps, ZoneInfo(timezone))
    return utc


def _offsets(stamps: np.ndarray, zone: tzinfo) -> np.ndarray:
    """Return the zone's offset (ms) at each time of a wall clock: one look-up a quarter of an hour."""
    quarters, inverse = np.unique(stamps // _QUARTER_MS, return_inverse=True)
    offsets = [
        (zone.utcoffset(_EPOCH + timedelta(minutes=15 * quarter)) or timedelta())
        // timedelta(milliseconds=1)
        for quarter in quarters.tolist()
    ]
    found: np.ndarray = np.array(offsets, np.int64)[inverse]
    return found


def _refuse(wrong: Any, column: Column) -> None:
    """Raise RowError for the first row that is wrong."""
    row = pc.index(wrong, True).as_py()
    if row >= 0:
        raise RowError(row, f"timestamp {column[row].as_py()} is no time")
