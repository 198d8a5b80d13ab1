"""What a valid column is, for an index and a message log: Arrow, numpy or list, or one value for all rows.

The rules of a single value are `value_rules`'; here they are held against whole columns. A refusal names the
first wrong row as its caller sees it: ``entries[17].offset``. Python looks at single rows only to find it.

Depends on errors, text_times, times and value_rules; numpy and pyarrow.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError
from tierdex.times import written_times
from tierdex.value_rules import (
    INT64_MAX,
    INT64_MIN,
    SECONDS_BEGIN,
    SECONDS_END,
    check_integer,
    check_key,
    check_topic,
    like_seconds,
    missing,
    out_of_range,
)

_INT64: Final = np.dtype(np.int64)
_SINGLE: Final = (str, bytes, int, float, datetime)


class Rows(NamedTuple):
    """The rows of one call: what the caller calls them, and how many there are."""

    name: str
    row_count: int

    def field(self, row: int, column: str) -> str:
        return f"{self.name}[{row}].{column}"

    # -- texts -------------------------------------------------------------------------------------------

    def strings(self, values: Any, name: str) -> Any | None:
        """Return an Arrow string or large_string array (or None), zero-copy where `values` allows it.

        A null is a row without a value. Bytes that are not UTF-8 are refused, lengths are not looked at.
        """
        if values is None:
            return None
        if isinstance(values, str):
            values = [values] * self.row_count
        elif is_single(values):
            raise InvalidRequestError("must be a string", field=self.field(0, name))
        column = self._arrow_strings(values, name)
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise InvalidRequestError(
                f"must be strings, not {column.type}", field=self.field(0, name)
            )
        return column

    def topics(
        self, topic: Any, *, null_is: int | None = None
    ) -> tuple[list[str], np.ndarray | None]:
        """Return the distinct topics, and the row -> topic column (i4) when there are several.

        A null is refused, or is `null_is` in that column.
        """
        if isinstance(topic, str):
            return [check_topic(topic, "topic")], None
        if isinstance(topic, pa.ChunkedArray):
            topic = topic.combine_chunks()
        if isinstance(topic, pa.Array) and pa.types.is_dictionary(topic.type):
            self._check_sound(topic, "topic")
            encoded = topic
        else:
            column = self.strings(topic, "topic")
            if column is None:
                raise missing(self.field(0, "topic"))
            encoded = column.dictionary_encode()
        self._check_length(len(encoded), "topic")
        is_named = np.ones(len(encoded), bool)
        if null_is is not None and encoded.null_count:
            is_named = np.asarray(encoded.is_valid())
        else:
            self.check_no_nulls(encoded, "topic")
        index = np.asarray(encoded.indices.fill_null(0)).astype(np.int32, copy=False)
        names = encoded.dictionary.to_pylist()
        given = index[is_named]
        if len(given) and not 0 <= int(given.min()) <= int(given.max()) < len(names):
            raise InvalidRequestError("an index is outside the dictionary", field="topic")
        used = np.flatnonzero(np.bincount(given, minlength=len(names))).tolist()
        for number in used:
            try:
                check_topic(names[number], "topic")
            except InvalidRequestError as error:
                row = int(np.argmax((index == number) & is_named))
                raise InvalidRequestError(error.detail, field=self.field(row, "topic")) from error
        if len(used) == 1 and len(given) == len(index):
            return [names[used[0]]], None
        if len(used) < len(
            names
        ):  # a dictionary may hold what no row names, and that may be anything
            places = np.zeros(len(names), np.int32)
            places[used] = np.arange(len(used), dtype=np.int32)
            names = [names[number] for number in used]
            index = places[index] if len(places) else index
        return names, index if len(given) == len(index) else np.where(
            is_named, index, np.int32(null_is or 0)
        )

    # -- numbers -----------------------------------------------------------------------------------------

    def integers(
        self, values: Any, name: str, dtype: np.dtype, lowest: int, highest: int
    ) -> np.ndarray:
        """Return `values` as dtype[count], or one value as dtype[1]. Floats and bools are refused."""
        if values is None:
            raise missing(self.field(0, name))
        if is_single(values):
            return np.array([check_integer(values, self.field(0, name), lowest, highest)], dtype)
        array = self._integer_array(values, name, dtype, lowest, highest)
        self._check_length(len(array), name)
        limits = np.iinfo(dtype)
        if array.dtype != dtype or (lowest, highest) != (limits.min, limits.max):
            self._check_bounds(array, name, lowest, highest)
        return np.ascontiguousarray(array, dtype)

    def times(self, values: Any, name: str) -> np.ndarray:
        """Return times (int64 ms) as i8[count], or one as i8[1]. Finer ones are rounded down.

        A column of Arrow's or numpy's times, of integers, or a list that may have texts and datetimes, too.
        Integers of which the least or the greatest looks like seconds are refused.
        """
        is_number = False
        if isinstance(values, pa.ChunkedArray):
            values = _whole(values)
        if isinstance(values, pa.Array) and pa.types.is_timestamp(values.type):
            self.check_no_nulls(values, name)
            values = self._milliseconds(np.asarray(values.cast(pa.int64())), values.type.unit, name)
        elif isinstance(values, np.ndarray) and values.dtype.kind == "M":
            if np.isnat(values).any():
                row = int(np.argmax(np.isnat(values)))
                raise InvalidRequestError("is no time", field=self.field(row, name))
            values = values.astype("datetime64[ms]").astype(np.int64)
        else:
            written = written_times(values, lambda row: self.field(row, name))
            is_number, values = written is values, written
        times = self.integers(values, name, _INT64, INT64_MIN, INT64_MAX)
        if is_number:
            self._check_no_seconds(times, name)
        return times

    def check_no_nulls(self, column: Any, name: str) -> None:
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            raise missing(self.field(row, name))

    # -- private -----------------------------------------------------------------------------------------

    def _check_length(self, found: int, name: str) -> None:
        if found != self.row_count:
            raise InvalidRequestError(f"has {found} rows, there are {self.row_count}", field=name)

    def _arrow_strings(self, values: Any, name: str) -> Any:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            return self._strings_from_python(values, name)
        column = _whole(values)
        self._check_sound(column, name)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    def _check_sound(self, column: Any, name: str) -> None:
        """Refuse bytes that are no UTF-8 and indices that lead outside: an Arrow stream may hold any."""
        try:
            column.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise InvalidRequestError(
                f"is not sound: {error}", field=self._first_bad_text(column, name)
            ) from error

    def _first_bad_text(self, column: Any, name: str) -> str:
        """Return the field of the first text that is not UTF-8, or the column's name for other faults."""
        binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(column.type)
        if binary is None:
            return name
        raw = column.view(binary)
        try:
            raw.validate(full=True)
        except pa.ArrowInvalid:
            return name  # not even its offsets are sound: nothing of it may be read
        for row, text in enumerate(raw):
            try:
                (text.as_py() or b"").decode()
            except UnicodeDecodeError:
                return self.field(row, name)
        return name

    def _strings_from_python(self, values: Any, name: str) -> Any:
        if isinstance(values, np.ndarray):
            values = values.tolist()
        check_is_column(values, name)
        try:
            return pa.array(values, type=pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, TypeError) as error:
            for row, value in enumerate(values):
                if value is not None:
                    check_key(value, self.field(row, name), INT64_MAX)
            raise InvalidRequestError(f"must be strings: {error}", field=name) from error

    def _integer_array(
        self, values: Any, name: str, dtype: np.dtype, lowest: int, highest: int
    ) -> np.ndarray:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            column = _whole(values)
            self.check_no_nulls(column, name)
            if not pa.types.is_integer(column.type):
                raise InvalidRequestError(f"must be integers, not {column.type}", field=name)
            return np.asarray(column)
        if not isinstance(values, np.ndarray):
            check_is_column(values, name)
            try:
                array = pa.array(values, type=pa.int64())
                # Arrow takes True for 1 and 2.0 for 2: look at the types once more, in C
                if array.null_count == 0 and set(map(type, values)) <= {int}:
                    return np.asarray(array)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
                array = None
            checked = [
                check_integer(value, self.field(row, name), lowest, highest)
                for row, value in enumerate(values)
            ]
            return np.array(checked, dtype)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InvalidRequestError(f"must be integers, not {values.dtype}", field=name)
        return values

    def _milliseconds(self, ticks: np.ndarray, unit: str, name: str) -> np.ndarray:
        """Return int64 ticks of a unit (s, ms, us, ns) as milliseconds, rounded down."""
        from tierdex.text_times import RowError, ms_of_ticks

        try:
            return ms_of_ticks(ticks, unit)
        except RowError as error:
            raise InvalidRequestError(str(error), field=self.field(error.row, name)) from None

    def _check_no_seconds(self, times: np.ndarray, name: str) -> None:
        if not len(times):
            return
        for number in (int(times.max()), int(times.min())):
            if SECONDS_BEGIN <= number < SECONDS_END:
                row = int(np.argmax((times >= SECONDS_BEGIN) & (times < SECONDS_END)))
                raise like_seconds(int(times[row]), self.field(row, name))

    def _check_bounds(self, array: np.ndarray, name: str, lowest: int, highest: int) -> None:
        if not len(array) or (lowest <= int(array.min()) and int(array.max()) <= highest):
            return
        row = int(np.argmax((array < lowest) | (array > highest)))  # the first
        raise out_of_range(int(array[row]), lowest, highest, self.field(row, name))


def meant_times(times: Any) -> Any:
    """Return milliseconds (a list, int64) as a column of times, of which none looks like seconds."""
    return pa.array(times, pa.int64()).view(pa.timestamp("ms"))


def is_single(value: object) -> bool:
    """Return whether a value stands for every row."""
    return isinstance(value, _SINGLE) or value is None or bool(np.isscalar(value))


def check_is_column(values: Any, name: str) -> None:
    """Raise InvalidRequestError for what has no rows."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InvalidRequestError(
            "must be an Arrow, numpy or list column, or one value", field=name
        )


def _whole(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
