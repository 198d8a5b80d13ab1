"""Columns that an append or a batch lookup takes: strings without Python objects, items by column.

`StringColumn` is Arrow's layout (offsets into one run of bytes), without a copy where the caller has
Arrow; `ItemColumns` is a batch by column; `ItemRows` a batch that was gathered row by row.

Sizes are checked at construction, since kernels trust them. Depends on schema, fileparts, errors
and layout; pyarrow is loaded when a list or an Arrow array comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tierdex.errors import InvalidRequestError
from tierdex.fileparts.memory import StringAddresses, address
from tierdex.indexfile import layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tierdex.indexfile.schema import Schema


class StringColumn:
    """A column of UTF-8 strings: row i is `data[offsets[j] : offsets[j + 1]]`, j = i or `indices[i]`.

    `offsets` i4 or i8, `data` u1, `indices` i8 or None, `valid` bool (one a row) or None for all.
    Borrows its buffers and keeps them alive. Immutable.
    """

    __slots__ = ("data", "indices", "offsets", "valid")

    def __init__(
        self,
        offsets: np.ndarray,
        data: np.ndarray,
        *,
        indices: np.ndarray | None = None,
        valid: np.ndarray | None = None,
    ) -> None:
        """Take the buffers. Raises InvalidRequestError when offsets or indices are out of bounds."""
        from tierdex.fileparts.kernels.hashing import bounds_are_sound

        assert offsets.dtype in (np.int32, np.int64), offsets.dtype
        assert offsets.flags.c_contiguous, "strided offsets"
        assert data.dtype == np.uint8, data.dtype
        assert data.flags.c_contiguous, "strided bytes"
        strings = len(offsets) - 1
        if strings < 0 or not bounds_are_sound(
            address(offsets), offsets.itemsize, strings, len(data)
        ):
            raise InvalidRequestError("string offsets are out of bounds", field="keys")
        if indices is not None:
            indices = np.ascontiguousarray(indices, np.int64)
            if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < strings:
                raise InvalidRequestError("dictionary indices are out of bounds", field="keys")
        self.offsets = offsets
        self.data = data
        self.indices = indices
        self.valid = valid
        assert valid is None or (valid.dtype == np.bool_ and len(valid) == len(self))

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self.indices is None else len(self.indices)

    @classmethod
    def from_values(cls, values: Any) -> StringColumn:
        """Return a column over an Arrow array, a numpy array or a list of str, bytes or None.

        Arrow strings and binaries are not copied. Raises InvalidRequestError for other types.
        """
        if isinstance(values, StringColumn):
            return values
        import pyarrow as pa

        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
            if isinstance(values, pa.ChunkedArray):  # no chunk at all
                values = (
                    pa.concat_arrays(values.chunks)
                    if values.num_chunks
                    else pa.array([], pa.string())
                )
        if not isinstance(values, pa.Array):
            values = _array_of(values)
        return cls._from_arrow(values)

    @classmethod
    def _from_arrow(cls, array: Any) -> StringColumn:
        import pyarrow as pa

        kind = array.type
        if pa.types.is_dictionary(kind):
            import pyarrow.compute as pc  # 30 ms, which a first put of plain strings need not wait for

            # A null in the indices, or an index of a null: both are rows without a string.
            valid = None
            if array.null_count or array.dictionary.null_count:
                valid = pc.is_valid(array.cast(kind.value_type)).to_numpy(zero_copy_only=False)
            strings = cls._from_arrow(array.dictionary)
            indices = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
            if not len(strings):
                strings = cls(np.zeros(2, np.int32), np.empty(0, np.uint8))
            return cls(strings.offsets, strings.data, indices=indices, valid=valid)
        if pa.types.is_null(kind):
            count = len(array)
            offsets = np.zeros(count + 1, np.int32)
            return cls(offsets, np.empty(0, np.uint8), valid=np.zeros(count, np.bool_))
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            offset_type: Any = np.int32
        elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            offset_type = np.int64
        elif kind in (pa.string_view(), pa.binary_view()):
            return cls._from_arrow(array.cast(pa.large_binary()))
        else:
            raise InvalidRequestError(f"holds {kind}, not strings", field="keys")
        _, offset_buffer, data_buffer = array.buffers()
        width = np.dtype(offset_type).itemsize
        if offset_buffer is None or not len(array):
            offsets = np.zeros(1, offset_type)
        elif offset_buffer.size < width * (array.offset + len(array) + 1):
            raise InvalidRequestError("string offsets are cut", field="keys")
        else:
            offsets = np.frombuffer(
                offset_buffer, offset_type, len(array) + 1, width * array.offset
            )
        data = (
            np.empty(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
        )
        valid = None
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        return cls(offsets, data, valid=valid)

    def addresses(self) -> StringAddresses:
        """Return where the buffers lie, for the kernels."""
        indices = address(self.indices) if self.indices is not None else 0
        return StringAddresses(
            address(self.offsets), self.offsets.itemsize, address(self.data), indices
        )

    def value(self, row: int) -> bytes:
        """Return the bytes of one row; for messages and tests."""
        place = row if self.indices is None else int(self.indices[row])
        return self.data[int(self.offsets[place]) : int(self.offsets[place + 1])].tobytes()

    def lengths(self) -> np.ndarray:
        """Return the bytes (i8) of each row's string."""
        lengths = np.diff(self.offsets).astype(np.int64)
        return lengths if self.indices is None else lengths[self.indices]


def is_plain_text(column: StringColumn, max_bytes: int) -> bool:
    """Return whether every string is 1 to `max_bytes` bytes of ASCII, hence of UTF-8.

    False means that it takes a closer look; the column has no indices and no mask.
    """
    from tierdex.fileparts.kernels.text_scan import scan_texts

    assert column.indices is None
    assert column.valid is None
    offsets, offset_bytes, data, _ = column.addresses()
    if not len(column):
        return True
    least, greatest, is_ascii = scan_texts(offsets, offset_bytes, data, len(column))
    return bool(is_ascii and least >= 1 and greatest <= max_bytes)


def check_topic_index(topic_index: np.ndarray, count: int, topic_count: int) -> np.ndarray:
    """Return `topic_index` as contiguous i4, checked: kernels trust it."""
    result = np.ascontiguousarray(topic_index, np.int32)
    assert result.shape == (count,), (result.shape, count)
    if count and not 0 <= int(result.min()) <= int(result.max()) < topic_count:
        raise ValueError("topic index out of bounds")
    return result


def _array_of(values: Any) -> Any:
    """Return an Arrow array of a list or numpy array. Raises InvalidRequestError."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, UnicodeEncodeError, TypeError, ValueError) as error:
        raise InvalidRequestError(f"not a column of strings: {error}", field="keys") from error


@dataclass
class ItemColumns:
    """Items of one kind, by column; what `ChainedFile.append` takes.

    Exactly one of `strings` and `hashes` (u8) is given. `topics` is one topic, or distinct topics
    with `topic_index` (i4) a row. `timestamp` and each of `fields` is an array with one element a
    row, or a scalar. A field with a dictionary holds indexes into `dictionaries[field]`, a list of
    strings. Rows where `valid` (bool) or the strings' own mask is false are skipped.
    """

    topics: str | Sequence[str]
    timestamp: Any
    fields: Mapping[str, Any]
    strings: StringColumn | None = None
    hashes: np.ndarray | None = None
    kind: int = layout.KIND_KEY
    topic_index: np.ndarray | None = None
    dictionaries: Mapping[str, Sequence[str]] = field(default_factory=dict)
    valid: np.ndarray | None = None

    def __post_init__(self) -> None:
        assert (self.strings is None) != (self.hashes is None), "strings or hashes"
        assert self.kind in (layout.KIND_KEY, layout.KIND_MESSAGE_ID), self.kind
        if self.hashes is not None:
            self.hashes = np.ascontiguousarray(self.hashes, np.uint64)
        if self.topic_index is not None:
            self.topic_index = check_topic_index(
                self.topic_index, self.row_count, len(self.topic_list)
            )
        else:
            assert len(self.topic_list) == 1 or not self.row_count, "several topics need an index"

    @property
    def row_count(self) -> int:
        """Rows given, the skipped ones included."""
        source = self.strings if self.strings is not None else self.hashes
        assert source is not None
        return len(source)

    @property
    def topic_list(self) -> Sequence[str]:
        return [self.topics] if isinstance(self.topics, str) else self.topics

    def picked(self) -> np.ndarray | None:
        """Return the rows (i8) that are not skipped, None when all are taken."""
        valid = self.valid
        if self.strings is not None and self.strings.valid is not None:
            valid = self.strings.valid if valid is None else valid & self.strings.valid
        if valid is None or valid.all():
            return None
        assert valid.shape == (self.row_count,), valid.shape
        return np.flatnonzero(valid).astype(np.int64, copy=False)

    def column(self, name: str, code: str) -> tuple[np.ndarray, int]:
        """Return a column as its schema's dtype, and the bytes from row to row (0: a scalar).

        Raises InvalidRequestError when a value does not fit the dtype, or the length is wrong.
        """
        value = self.timestamp if name == "timestamp" else self.fields[name]
        array = _fit(name, value, np.dtype(code))
        if array.ndim == 0:
            return array, 0
        if array.shape != (self.row_count,):
            raise InvalidRequestError(
                f"has {array.shape} values, {self.row_count} rows", field=name
            )
        return array, array.strides[0]


def _fit(name: str, value: Any, dtype: np.dtype) -> np.ndarray:
    """Return `value` as an array of `dtype` without changing any number."""
    if hasattr(value, "to_numpy") and not isinstance(value, np.ndarray):  # Arrow
        if getattr(value, "null_count", 0):
            raise InvalidRequestError("holds nulls", field=name)
        value = (
            value.to_numpy(zero_copy_only=False) if hasattr(value, "buffers") else value.to_numpy()
        )
    array = np.asarray(value)
    if array.dtype == dtype:
        return array
    if array.size == 0:
        return np.empty(array.shape, dtype)
    if array.dtype.kind not in "iu":
        raise InvalidRequestError(f"holds {array.dtype}, not integers", field=name)
    bounds = np.iinfo(dtype)
    if int(array.min()) < bounds.min or int(array.max()) > bounds.max:
        raise InvalidRequestError(f"a value lies outside [{bounds.min}, {bounds.max}]", field=name)
    return array.astype(dtype)


@dataclass
class ItemRows:
    """Items gathered one by one: `rows` has the schema's dtype, key_hash and kind bit filled in.

    The topic bits of each `tag` are an index into `topics`; a field with a dictionary is an index into
    `dictionaries[field]`. `link` is ignored.
    """

    rows: np.ndarray
    topics: Sequence[str]
    dictionaries: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def check(self, schema: Schema) -> None:
        """Raise InvalidRequestError when an index is out of bounds."""
        assert self.rows.dtype == schema.dtype, "rows of another schema"
        if not len(self.rows):
            return
        if int((self.rows["tag"] & layout.TOPIC_MASK).max()) >= len(self.topics):
            raise InvalidRequestError("topic index out of bounds", field="topic")
        for name in schema.dictionary_names[1:]:
            if int(self.rows[name].max()) >= len(self.dictionaries.get(name, ())):
                raise InvalidRequestError("dictionary index out of bounds", field=name)
