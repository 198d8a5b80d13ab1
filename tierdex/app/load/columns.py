"""The columns of an entry, computed from a file's columns: templates, times, queues.

A template is a column's name, or text with columns in braces: ``{carrier}{flight}``. A column may
be padded with zeros (``{month:02}``) or cut (``{time_hour:.13}``). A template is null where any of
its columns is null or empty.

A time is ISO 8601, or an epoch number whose size tells its unit: below 10^11 seconds, below 10^14
milliseconds, below 10^17 microseconds, else nanoseconds. ISO 8601 without an offset is in
`timezone`. A local hour that occurs twice means the first one; a local hour that a clock skips
means the time after the jump.

A failure is a RowError with the row's number.

Depends on rows, errors, pyarrow and numpy.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.app.load.rows import Column, RowError
from tierdex.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pc: Any = pyarrow.compute
_SPEC = re.compile(r"(?:0(?P<width>\d{1,2}))?(?:\.(?P<cut>\d{1,3}))?")
_WHOLE = r"^[+-]?[0-9]{1,19}$"
_DECIMAL = r"^[+-]?[0-9]+\.[0-9]+$"
_ZONED = r"(?i)[T ][0-9]{2}.*(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$"
_QUARTER_US = 15 * 60 * 1_000_000  # zones change their offset at quarters of an hour
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall clock's time, its zone is looked up


@dataclass(frozen=True)
class Template:
    """The parts in order: (literal text before, column or None, zeros to pad to, characters to keep)."""

    text: str
    parts: tuple[tuple[str, str | None, int, int | None], ...]

    @classmethod
    def parse(cls, text: str, *, field: str) -> Template:
        """Return the template. Raises InvalidRequestError naming the option `field`."""
        if "{" not in text and "}" not in text:
            return cls(text, (("", text, 0, None),))
        parts = []
        try:
            for literal, name, spec, conversion in string.Formatter().parse(text):
                match = _SPEC.fullmatch(spec or "")
                if conversion or name == "" or match is None:
                    raise ValueError(f"{{{name}:{spec}}} cannot be parsed")
                parts.append(
                    (literal, name, int(match["width"] or 0), int(match["cut"] or 0) or None)
                )
        except ValueError as error:
            raise InvalidRequestError(f"{text!r} is no template: {error}", field=field) from error
        return cls(text, tuple(parts))

    @property
    def columns(self) -> list[str]:
        return [name for _, name, _, _ in self.parts if name is not None]

    def evaluate(self, table: pa.Table) -> Column:
        """Return the texts: string[n], null where a column is null or empty."""
        pieces: list[Any] = []
        for literal, name, width, cut in self.parts:
            if literal:
                pieces.append(literal)
            if name is not None:
                pieces.append(_adjusted(as_text(table.column(name), name), width, cut))
        if len(pieces) == 1 and not isinstance(pieces[0], str):
            return pieces[0]
        if not self.columns:
            return pa.array([self.text] * table.num_rows, pa.string())
        return pc.binary_join_element_wise(*pieces, "", null_handling="emit_null")


def one_array(column: Column) -> Column:
    """Return a chunked column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    return column


def as_text(column: Column, name: str) -> Column:
    """Return a column of plain values as text, empty ones as null. Raises InvalidRequestError."""
    array = one_array(column)
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    elif pa.types.is_nested(kind):
        raise InvalidRequestError(f"holds {kind}, not plain values", field=name)
    if array.type != pa.string():
        try:
            array = array.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidRequestError(f"is no text: {error}", field=name) from error
    return pc.if_else(pc.equal(array, ""), pa.scalar(None, pa.string()), array)


def queue_numbers(
    template: Template, table: pa.Table, names: Mapping[str, int] | None
) -> np.ndarray:
    """Return queue ids: int32[n], by `names` when given, else the texts as whole numbers."""
    texts = template.evaluate(table)
    _refuse_nulls(texts, "queue", template.text)
    if names is None:
        return _located(texts, "queue", lambda part: part.cast(pa.int32()).to_numpy())
    encoded: Any = texts.dictionary_encode()
    known = [names.get(text, -1) for text in encoded.dictionary.to_pylist()]
    numbers: np.ndarray = np.array(known, np.int32)[encoded.indices.to_numpy()]
    if (numbers < 0).any():
        row = int(np.argmax(numbers < 0))
        raise RowError(row, f"queue {texts[row].as_py()!r} has no number")
    return numbers


def milliseconds(template: Template, table: pa.Table, timezone: str | None) -> np.ndarray:
    """Return times as epoch milliseconds: int64[n]."""
    if template.columns == [template.text]:
        column = one_array(table.column(template.text))
    else:
        column = template.evaluate(table)
    _refuse_nulls(column, "timestamp", template.text)
    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("ms"))
        kind = column.type
    if pa.types.is_timestamp(kind):
        stamps: np.ndarray = (
            column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64()).to_numpy()
        )
        return (stamps if kind.tz else _to_utc(stamps, _zone(timezone, 0, "the column"))) // 1000
    if pa.types.is_integer(kind):
        return _by_size(column.cast(pa.int64()).to_numpy())
    if pa.types.is_floating(kind):
        return _from_floats(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    texts = as_text(column, template.text)
    _refuse_nulls(texts, "timestamp", template.text)
    return _from_texts(pc.utf8_trim_whitespace(texts), timezone)


def check_timezone(name: str) -> None:
    """Raise InvalidRequestError when there is no such zone."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise InvalidRequestError(f"there is no time zone {name!r}", field="timezone") from error


def _adjusted(texts: Column, width: int, cut: int | None) -> Column:
    if cut is not None:
        texts = pc.utf8_slice_codeunits(texts, 0, cut)
    return pc.utf8_lpad(texts, width, "0") if width else texts


def _from_texts(texts: Column, timezone: str | None) -> np.ndarray:
    """Group the texts by kind and convert each group at once; most files have one kind."""
    whole = pc.match_substring_regex(texts, _WHOLE).to_numpy(zero_copy_only=False)
    decimal = pc.match_substring_regex(texts, _DECIMAL).to_numpy(zero_copy_only=False)
    zoned = pc.match_substring_regex(texts, _ZONED).to_numpy(zero_copy_only=False)
    naive = ~(whole | decimal | zoned)
    result = np.empty(len(texts), np.int64)

    kinds: list[tuple[np.ndarray, Callable[[Column], np.ndarray]]] = [
        (whole, lambda part: _by_size(part.cast(pa.int64()).to_numpy())),
        (decimal, lambda part: _from_floats(part.cast(pa.float64()).to_numpy())),
        (zoned, lambda part: _stamps(part, "UTC") // 1000),
        (naive, lambda part: _stamps(part, None)),
    ]
    for mask, convert in kinds:
        rows = np.flatnonzero(mask)
        if len(rows):
            part = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
            try:
                converted = _located(part, "timestamp", convert)
                if mask is naive:
                    converted = _to_utc(converted, _zone(timezone, 0, part[0].as_py())) // 1000
                result[rows] = converted
            except RowError as error:
                raise RowError(int(rows[error.row]), str(error)) from error
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


def _by_size(numbers: np.ndarray) -> np.ndarray:
    size = np.abs(numbers)
    result = np.where(size < 10**11, numbers * 1000, numbers)
    result = np.where(size >= 10**14, numbers // 1000, result)
    return np.where(size >= 10**17, numbers // 1_000_000, result)


def _from_floats(numbers: np.ndarray) -> np.ndarray:
    wrong = ~np.isfinite(numbers) | (np.abs(numbers) > 2**63 - 1024)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise RowError(row, f"timestamp {numbers[row]} is no time")
    is_seconds = np.abs(numbers) < 1e11
    # numpy computes both branches: zeros stand where the other would overflow.
    return np.where(is_seconds, np.round(np.where(is_seconds, numbers, 0) * 1000), 0).astype(
        np.int64
    ) + np.where(is_seconds, 0, _by_size(numbers.astype(np.int64)))


def _zone(timezone: str | None, row: int, example: str) -> ZoneInfo:
    if timezone is None:
        raise RowError(row, f"timestamp {example!r} names no zone: say which with --timezone")
    return ZoneInfo(timezone)


def _to_utc(stamps: np.ndarray, zone: ZoneInfo) -> np.ndarray:
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


def _refuse_nulls(column: Column, what: str, text: str) -> None:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise RowError(row, f"has no {what} ({text} is empty)")


def _located(texts: Column, what: str, convert: Callable[[Column], np.ndarray]) -> np.ndarray:
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
