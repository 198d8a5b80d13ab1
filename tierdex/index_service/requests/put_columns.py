"""Checks a batch of entries by the rules of `entry_rules`: any mix of Arrow, numpy and list columns.

The whole batch is checked before any of it is written, so it is applied or refused as a whole. A refusal
names the first wrong row as the caller sees it: ``entries[17].offset``. Columns are held to
`value_columns`, which a message log has in common.

Depends on errors, entry_rules, columns, hashing, schema, settings, value_columns, pyarrow and numpy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tierdex.errors import InvalidRequestError, RequestTooLargeError
from tierdex.index_service.requests.entry_rules import missing, no_name, range_of, wrong_length
from tierdex.indexfile.columns import StringColumn, is_plain_text
from tierdex.indexfile.hashing import plain_hashes, topic_seed
from tierdex.value_columns import Rows, check_is_column, is_single

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.indexfile.schema import Schema
    from tierdex.settings import Settings

_KEY = re.compile(r"key\[(\d+)\]")
_STRING, _LARGE_STRING = pa.string(), pa.large_string()


@dataclass(frozen=True, slots=True)
class EntryColumns:
    """A checked batch of `count` entries.

    `topics` are the distinct topics, `topic_index` an int32 row -> topic column, or None when
    there is one topic. `keys` and `message_ids` are Arrow string arrays (nulls: the row has none)
    or None; `key_hashes` (u8) are the keys' hashes, when checking them gave these as well. Where rows have
    lists of keys, row i has ``keys[key_offsets[i]:key_offsets[i + 1]]`` (i8[count + 1]), none of them null.
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
    key_offsets: np.ndarray | None = None

    @property
    def key_rows(self) -> np.ndarray | None:
        """The row of each key, i8[len(keys)], where rows have lists of keys; else key i is of row i."""
        if self.key_offsets is None:
            return None
        return np.repeat(np.arange(self.count), np.diff(self.key_offsets))

    def items_before(self) -> Sequence[int]:
        """Return how many items all rows before a row have at most: count + 1 numbers, ascending."""
        ids = self.message_ids is not None
        if self.key_offsets is not None:
            return self.key_offsets + ids * np.arange(self.count + 1)  # type: ignore[return-value]
        each = (self.keys is not None) + ids
        return range(0, (self.count + 1) * each, each)


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
    rows = Rows("entries", count)
    wanted = schema.field_names
    if unknown := set(fields).difference(wanted):
        raise InvalidRequestError("there is no such field", field=min(unknown))
    for name in wanted:
        if fields.get(name) is None:
            raise missing(rows.field(0, name))
    keys, key_offsets = _flat_keys(keys, rows, settings)
    key_column, key_hashes = _plain_keys(keys, topic, settings.max_key_bytes)
    if key_hashes is None:
        key_column = _checked_keys(keys, key_offsets, settings.max_key_bytes, rows)
    id_column = rows.strings(message_id, "message_id")
    _check_texts(id_column, "message_id", settings.max_key_bytes, rows)
    _check_each_row_has_one(key_column, key_offsets, id_column, rows)
    topics, topic_index = rows.topics(topic)
    return EntryColumns(
        count,
        topics,
        topic_index,
        key_column,
        id_column,
        _of_each(rows, rows.times(timestamp, "timestamp")),
        {f.name: _field(fields[f.name], f, rows) for f in schema.fields},
        key_hashes,
        key_offsets,
    )


def _flat_keys(keys: Any, rows: Rows, settings: Settings) -> tuple[Any, np.ndarray | None]:
    """Return (a column of keys, where those of each row begin) of lists of keys; else (`keys`, None).

    A row may have one string, a list, or none. Raises InvalidRequestError.
    """
    if isinstance(keys, pa.ChunkedArray) and pa.types.is_nested(keys.type):
        keys = keys.combine_chunks()
    if isinstance(keys, pa.Array):
        if not (pa.types.is_list(keys.type) or pa.types.is_large_list(keys.type)):
            return keys, None
        try:  # an Arrow stream may hold any offsets
            keys.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise InvalidRequestError(f"is not sound: {error}", field="keys") from error
        import pyarrow.compute as pc

        lengths = pc.fill_null(pc.list_value_length(keys), 0)
        counts: np.ndarray = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        flat: Any = keys.flatten()
    elif isinstance(keys, list | tuple) and any(isinstance(each, list | tuple) for each in keys):
        lists = [[] if k is None else k if isinstance(k, list | tuple) else [k] for k in keys]
        counts = np.fromiter(map(len, lists), np.int64, len(lists))
        flat = list(chain.from_iterable(lists))
    else:
        return keys, None
    if len(flat) > settings.max_batch_entries:
        raise RequestTooLargeError(
            f"{len(flat)} keys, at most {settings.max_batch_entries} in one call", field="entries"
        )
    most = int(counts.max(initial=0))
    if most >= settings.item_capacity:
        raise InvalidRequestError(
            f"{most} keys, fewer than {settings.item_capacity} in one entry (`item_capacity`)",
            field=rows.field(int(counts.argmax()), "keys"),
        )
    return flat, np.append(0, np.cumsum(counts))


def _checked_keys(keys: Any, offsets: np.ndarray | None, max_bytes: int, rows: Rows) -> Any:
    """Return a column of keys as Arrow strings. Raises InvalidRequestError, naming the caller's row."""
    if offsets is None:
        column = rows.strings(keys, "key")
        _check_texts(column, "key", max_bytes, rows)
        return column
    flat = Rows("key", len(keys))
    try:
        column = flat.strings(keys, "key")
        flat.check_no_nulls(column, "key")
        _check_texts(column, "key", max_bytes, flat)
    except InvalidRequestError as error:
        if (found := _KEY.match(error.field or "")) is None:
            raise
        row = int(np.searchsorted(offsets, int(found[1]), side="right")) - 1
        place = rows.field(row, f"keys[{int(found[1]) - offsets[row]}]")
        raise type(error)(error.detail, field=place) from None
    return column


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


def make_string_column(values: object, name: str, max_bytes: int, rows: Rows) -> Any:
    """Return an Arrow string column without nulls, every text legal. Raises InvalidRequestError."""
    column = rows.strings(values, name)
    _check_texts(column, name, max_bytes, rows)
    if column is not None:
        rows.check_no_nulls(column, name)
    return column


def _common_length(columns: Mapping[str, object]) -> int:
    """Return the one length that every column has; single values stand for every row."""
    count: int | None = None
    for name, column in columns.items():
        if is_single(column):
            continue
        check_is_column(column, name)
        length = len(column)  # type: ignore[arg-type]
        if count is not None and length != count:
            raise InvalidRequestError(f"has {length} rows, another column has {count}", field=name)
        count = length
    return 1 if count is None else count


def _check_texts(column: Any | None, name: str, max_bytes: int, rows: Rows) -> None:
    """Every text is 1 to `max_bytes` bytes of valid UTF-8; nulls pass."""
    if column is None or len(column) == column.null_count:
        return
    if not column.null_count and is_plain_text(StringColumn.from_values(column), max_bytes):
        return
    import pyarrow.compute as pc  # 30 ms, which a first put of plain strings need not wait for

    lengths = pc.binary_length(column)
    bounds = pc.min_max(lengths)
    if bounds["min"].as_py() >= 1 and bounds["max"].as_py() <= max_bytes:
        return
    bad = pc.or_(pc.less(lengths, 1), pc.greater(lengths, max_bytes))
    row = pc.index(bad, True).as_py()
    raise wrong_length(lengths[row].as_py(), max_bytes, rows.field(row, name))


def _check_each_row_has_one(
    keys: Any | None, offsets: np.ndarray | None, ids: Any | None, rows: Rows
) -> None:
    columns = (keys, ids) if offsets is None else (ids,)
    if any(column is not None and column.null_count == 0 for column in columns):
        return
    has_none = np.ones(rows.row_count, bool) if offsets is None else np.diff(offsets) == 0
    for column in columns:
        if column is not None:
            has_none &= np.asarray(column.is_null())
    if has_none.any():
        name = "key" if offsets is None else "keys"
        raise no_name(rows.field(int(np.argmax(has_none)), name))


def _field(values: object, field: Any, rows: Rows) -> Any:
    """Return one location column, as its schema field wants it."""
    if field.dictionary:
        is_one = isinstance(values, str)  # for all rows: no string a row
        column = (Rows("entries", 1) if is_one else rows).strings(values, field.name)
        if column is None:
            raise missing(rows.field(0, field.name))
        rows.check_no_nulls(column, field.name)
        encoded = column.dictionary_encode()
        indices = np.asarray(encoded.indices).astype(np.uint32)
        return encoded.dictionary.to_pylist(), _of_each(rows, indices)
    return _of_each(rows, rows.integers(values, field.name, np.dtype(field.code), *range_of(field)))


def _of_each(rows: Rows, values: np.ndarray) -> np.ndarray:
    """Return a value for each row, where one was given for all."""
    return values if len(values) == rows.row_count else np.full(rows.row_count, values[0])
