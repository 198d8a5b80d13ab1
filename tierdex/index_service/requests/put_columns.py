"""Checks a batch of entries by the rules of `entry_rules`: any mix of Arrow, numpy and list columns.

The whole batch is checked before any of it is written, so it is applied or refused as a whole. A refusal
names the first wrong row as the caller sees it: ``entries[17].offset``. Python looks at single rows only
to locate an error.

Depends on errors, entry_rules, columns, hashing, schema, settings, pyarrow and numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.index_service.requests.entry_rules import (
    INT64_MAX,
    INT64_MIN,
    check_integer,
    check_key,
    check_topic,
    missing,
    no_name,
    out_of_range,
    range_of,
    wrong_length,
)
from tierdex.indexfile.columns import StringColumn, is_plain_text
from tierdex.indexfile.hashing import plain_hashes, topic_seed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tierdex.indexfile.schema import Schema
    from tierdex.settings import Settings

_STRING, _LARGE_STRING = pa.string(), pa.large_string()


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """A checked batch of `count` entries.

    `topics` are the distinct topics, `topic_index` an int32 row -> topic column, or None when
    there is one topic. `keys` and `message_ids` are Arrow string arrays (nulls: the row has none)
    or None; `key_hashes` (u8) are the keys' hashes, when checking them gave these as well.
    `timestamp` is int64[count], `fields` the schema's location columns by name: numpy arrays, or for
    dictionary fields a pair (distinct strings, int32 indices).
    """

    count: int
    topics: list[str]
    topic_index: np.ndarray | None
    keys: Any | None
    message_ids: Any | None
    timestamp: np.ndarray
    fields: dict[str, Any]
    key_hashes: np.ndarray | None = None


def make_entry_columns(
    settings: Settings,
    schema: Schema,
    *,
    topic: object,
    keys: object,
    message_id: object,
    timestamp: object,
    fields: Mapping[str, object],
) -> EntryColumns:
    """Check one batch. Raises InvalidRequestError naming the first bad row and field."""
    count = _common_length(
        {"topic": topic, "key": keys, "message_id": message_id, "timestamp": timestamp, **fields}
    )
    if count > settings.max_batch_entries:
        raise RequestTooLargeError(
            f"{count} entries, at most {settings.max_batch_entries} in one call", field="entries"
        )
    wanted = schema.field_names
    if unknown := set(fields).difference(wanted):
        raise InvalidRequestError("there is no such field", field=min(unknown))
    for name in wanted:
        if fields.get(name) is None:
            raise missing(_row_field(0, name))
    key_column, key_hashes = _plain_keys(keys, topic, settings.max_key_bytes)
    if key_hashes is None:
        key_column = _strings(keys, "key", count)
        _check_texts(key_column, "key", settings.max_key_bytes)
    id_column = _strings(message_id, "message_id", count)
    _check_texts(id_column, "message_id", settings.max_key_bytes)
    _check_each_row_has_one(key_column, id_column, count)
    topics, topic_index = _topics(topic, count)
    return EntryColumns(
        count,
        topics,
        topic_index,
        key_column,
        id_column,
        _timestamps(timestamp, count),
        {f.name: _field(fields[f.name], f, count) for f in schema.fields},
        key_hashes,
    )


def _plain_keys(keys: Any, topic: object, max_bytes: int) -> tuple[Any, np.ndarray | None]:
    """Return Arrow strings as they are, and their hashes: one pass over the keys instead of four.

    Hashes are None unless the keys are of one topic, none null, each 1 to `max_bytes` bytes of ASCII;
    otherwise it takes the general path to check them, and to say what is wrong.
    """
    if isinstance(keys, pa.ChunkedArray) and keys.num_chunks == 1:
        keys = keys.chunk(0)
    if not isinstance(keys, pa.Array) or not isinstance(topic, str):
        return None, None
    if keys.type not in (_STRING, _LARGE_STRING) or not len(keys) or keys.null_count:
        return None, None
    try:
        return keys, plain_hashes(StringColumn.from_values(keys), topic_seed(topic), max_bytes)
    except (InvalidRequestError, UnicodeEncodeError):
        return None, None


def make_string_column(values: object, name: str, max_bytes: int, *, rows: str) -> Any:
    """Return an Arrow string column without nulls, every text legal. Raises InvalidRequestError."""
    try:
        column = _strings(values, name, 0)
        _check_texts(column, name, max_bytes)
        if column is not None and column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            raise missing(_row_field(row, name))
    except InvalidRequestError as error:
        raise _renamed(error, rows) from error
    return column


def make_topic_column(
    values: object, count: int, *, rows: str
) -> tuple[list[str], np.ndarray | None]:
    """Return the distinct topics and the row -> topic column. Raises InvalidRequestError."""
    try:
        return _topics(values, count)
    except InvalidRequestError as error:
        raise _renamed(error, rows) from error


def _renamed(error: InvalidRequestError, rows: str) -> InvalidRequestError:
    """Return the error with the rows called what the caller calls them."""
    field = None if error.field is None else error.field.replace("entries[", f"{rows}[", 1)
    return InvalidRequestError(error.detail, field=field)


def _row_field(row: int, name: str) -> str:
    return f"entries[{row}].{name}"


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bytes | int | float) or value is None or np.isscalar(value)


def _common_length(columns: Mapping[str, object]) -> int:
    """Return the one length that every column has; single values stand for every row."""
    count: int | None = None
    for name, column in columns.items():
        if _is_scalar(column):
            continue
        try:
            length = len(column)  # type: ignore[arg-type]
        except TypeError as error:
            raise InvalidRequestError(
                "must be an Arrow, numpy or list column, or one value", field=name
            ) from error
        if count is not None and length != count:
            raise InvalidRequestError(f"has {length} rows, another column has {count}", field=name)
        count = length
    return 1 if count is None else count


def _strings(values: object, name: str, count: int) -> Any | None:
    """Return an Arrow string or large_string array (or None), zero-copy where `values` allows it."""
    if values is None:
        return None
    if isinstance(values, str):
        values = [values] * count
    elif _is_scalar(values):
        raise InvalidRequestError("must be a string", field=_row_field(0, name))
    column = _arrow_strings(values, name)
    if pa.types.is_null(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise InvalidRequestError(f"must be strings, not {column.type}", field=_row_field(0, name))
    return column


def _arrow_strings(values: Any, name: str) -> Any:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return _strings_from_python(values, name)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    _check_sound(values, name)
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _check_sound(column: Any, name: str) -> None:
    """Refuse bytes that are no UTF-8 and indices that lead outside: an Arrow stream may hold any."""
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
        raise InvalidRequestError(
            f"is not sound: {error}", field=_first_bad_text(column, name)
        ) from error


def _first_bad_text(column: Any, name: str) -> str:
    """Return the field of the first text that is no UTF-8, or the column's name for other faults."""
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
            return _row_field(row, name)
    return name


def _strings_from_python(values: Any, name: str) -> Any:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    try:
        return pa.array(values, type=pa.string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, TypeError) as error:
        for row, value in enumerate(values):
            if value is not None:
                check_key(value, _row_field(row, name), INT64_MAX)
        raise InvalidRequestError(f"must be strings: {error}", field=name) from error


def _check_texts(column: Any | None, name: str, max_bytes: int) -> None:
    """Every text is 1 to `max_bytes` bytes of valid UTF-8; nulls pass."""
    if column is None or len(column) == column.null_count:
        return
    if not column.null_count and is_plain_text(StringColumn.from_values(column), max_bytes):
        return
    lengths = pc.binary_length(column)
    bounds = pc.min_max(lengths)
    if bounds["min"].as_py() >= 1 and bounds["max"].as_py() <= max_bytes:
        return
    bad = pc.or_(pc.less(lengths, 1), pc.greater(lengths, max_bytes))
    row = pc.index(bad, True).as_py()
    raise wrong_length(lengths[row].as_py(), max_bytes, _row_field(row, name))


def _check_each_row_has_one(keys: Any | None, ids: Any | None, count: int) -> None:
    if any(column is not None and column.null_count == 0 for column in (keys, ids)):
        return
    has_none = np.ones(count, bool)
    for column in (keys, ids):
        if column is not None:
            has_none &= np.asarray(column.is_null())
    if count and has_none.any():
        row = int(np.argmax(has_none))
        raise no_name(_row_field(row, "key"))


def _topics(topic: object, count: int) -> tuple[list[str], np.ndarray | None]:
    """Return the distinct topics, and the row -> topic column when there are several."""
    if isinstance(topic, str):
        return [check_topic(topic, "topic")], None
    if isinstance(topic, pa.ChunkedArray):
        topic = topic.combine_chunks()
    if isinstance(topic, pa.Array) and pa.types.is_dictionary(topic.type):
        _check_sound(topic, "topic")
        encoded = topic
    else:
        column = _strings(topic, "topic", count)
        if column is None:
            raise missing(_row_field(0, "topic"))
        encoded = column.dictionary_encode()
    if encoded.null_count:
        row = int(np.argmax(np.asarray(encoded.is_null())))
        raise missing(_row_field(row, "topic"))
    index = np.asarray(encoded.indices).astype(np.int32, copy=False)
    topics = encoded.dictionary.to_pylist()
    if len(topics) == 1 and not index.any():
        return [check_topic(topics[0], _row_field(0, "topic"))], None
    if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(topics):
        raise InvalidRequestError("an index is outside the dictionary", field="topic")
    for number in np.flatnonzero(np.bincount(index, minlength=len(topics))).tolist():
        try:
            check_topic(topics[number], "topic")
        except InvalidRequestError as error:
            row = int(np.argmax(index == number))
            raise InvalidRequestError(error.detail, field=_row_field(row, "topic")) from error
    return topics, index


def _timestamps(values: object, count: int) -> np.ndarray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array) and pa.types.is_timestamp(values.type):
        _check_no_nulls(values, "timestamp")
        unit = values.type.unit
        values = _milliseconds(np.asarray(values.cast(pa.int64())), unit)
    elif isinstance(values, np.ndarray) and values.dtype.kind == "M":
        if np.isnat(values).any():
            row = int(np.argmax(np.isnat(values)))
            raise InvalidRequestError("is no time", field=_row_field(row, "timestamp"))
        values = values.astype("datetime64[ms]").astype(np.int64)
    return _integers(values, "timestamp", count, np.dtype(np.int64), INT64_MIN, INT64_MAX)


def _milliseconds(ticks: np.ndarray, unit: str) -> np.ndarray:
    """Return int64 ticks of a unit (s, ms, us, ns) as milliseconds, rounded down."""
    if unit == "s":
        _check_bounds(ticks, "timestamp", INT64_MIN // 1000 + 1, INT64_MAX // 1000)
        return ticks * 1000
    return ticks // {"ms": 1, "us": 1000, "ns": 1_000_000}[unit]


def _field(values: object, field: Any, count: int) -> Any:
    """Return one location column, as its schema field wants it."""
    if field.dictionary:
        column = _strings(values, field.name, count)
        if column is None or column.null_count:
            row = 0 if column is None else int(np.argmax(np.asarray(column.is_null())))
            raise missing(_row_field(row, field.name))
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.uint32)
    return _integers(values, field.name, count, np.dtype(field.code), *range_of(field))


def _integers(
    values: object, name: str, count: int, dtype: np.dtype, lowest: int, highest: int
) -> np.ndarray:
    """Return `values` as dtype[count]; one value stands for every row. Floats and bools are refused."""
    if values is None:
        raise missing(_row_field(0, name))
    if _is_scalar(values):
        number = check_integer(values, _row_field(0, name), lowest, highest)
        return np.full(count, number, dtype)
    array = _integer_array(values, name, dtype, lowest, highest)
    limits = np.iinfo(dtype)
    any_value_fits = array.dtype == dtype and (lowest, highest) == (limits.min, limits.max)
    if count and not any_value_fits:
        _check_bounds(array, name, lowest, highest)
    return np.ascontiguousarray(array, dtype)


def _integer_array(
    values: Any, name: str, dtype: np.dtype, lowest: int, highest: int
) -> np.ndarray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        _check_no_nulls(values, name)
        if not pa.types.is_integer(values.type):
            raise InvalidRequestError(f"must be integers, not {values.type}", field=name)
        return np.asarray(values)
    if not isinstance(values, np.ndarray):
        try:
            array = pa.array(values, type=pa.int64())
            # Arrow takes True for 1 and 2.0 for 2: look at the types once more, in C
            if array.null_count == 0 and set(map(type, values)) <= {int}:
                return np.asarray(array)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
            array = None
        checked = [
            check_integer(value, _row_field(row, name), lowest, highest)
            for row, value in enumerate(values)
        ]
        return np.array(checked, dtype)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise InvalidRequestError(f"must be integers, not {values.dtype}", field=name)
    return values


def _check_no_nulls(column: Any, name: str) -> None:
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise missing(_row_field(row, name))


def _check_bounds(array: np.ndarray, name: str, lowest: int, highest: int) -> None:
    if not len(array) or (lowest <= int(array.min()) and int(array.max()) <= highest):
        return
    row = int(np.argmax((array < lowest) | (array > highest)))  # the first
    raise out_of_range(int(array[row]), lowest, highest, _row_field(row, name))
