"""Arrow columns of texts, made of the parts of records.

Depends on errors, selectors, json_columns, records, value_block, numpy and pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError
from tierdex.following.json_columns import read_columns
from tierdex.following.selectors import (
    HeaderPart,
    JsonPart,
    KeyPart,
    Part,
    Selector,
    TracesPart,
    ValuePart,
    WordsPart,
)
from tierdex.following.value_block import BYTE_ORDER_MARK, ValueBlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tierdex.following.records import RecordBatch

pc: Any = pyarrow.compute


class Texts(NamedTuple):
    """Texts and the records that they are of: `column` Arrow strings without nulls, `rows` int64, rising."""

    column: Any
    rows: np.ndarray


class RecordTexts:
    """The texts that selectors find in one batch; each part of a record is decoded once."""

    def __init__(self, batch: RecordBatch, selectors: Sequence[Selector]) -> None:
        self._batch = batch
        self._values = _without_marks(batch.values or [])
        self.unreadable = np.zeros(
            len(batch), bool
        )  # a record with a part that is no text or no JSON
        parts = dict.fromkeys(part for selector in selectors for part in selector.sources)
        self._columns: dict[Part, Any] = {}
        self._several: dict[Part, Texts] = {}
        self._read_json([part for part in parts if isinstance(part, JsonPart)])
        for part in parts:
            if isinstance(part, WordsPart):
                self._several[part] = _words(self._decoded(self._bytes_of(part.whole)))
            elif isinstance(part, TracesPart):
                self._several[part] = self._trace_ids()
            elif not isinstance(part, JsonPart):
                self._columns[part] = self._decoded(self._bytes_of(part))

    def of(self, selector: Selector) -> Texts:
        """Return the selector's texts. An empty text is none."""
        first = selector.parts[0]
        if len(selector.parts) == 1 and first in self._several:
            return self._several[first]
        column = self.column(selector)
        if not column.null_count:
            return Texts(column, np.arange(len(column)))
        return Texts(column.drop_null(), np.flatnonzero(np.asarray(column.is_valid())))

    def column(self, selector: Selector) -> Any:
        """Return one text a record, null where there is none."""
        pieces = [each if isinstance(each, str) else self._columns[each] for each in selector.parts]
        if len(pieces) == 1 and not isinstance(pieces[0], str):
            return pieces[0]
        return pc.binary_join_element_wise(*pieces, "", null_handling="emit_null")

    def _read_json(self, paths: list[JsonPart]) -> None:
        if not paths:
            return
        columns, rows_of, unreadable = read_columns(self._values, paths)
        self.unreadable |= unreadable
        for path, texts, rows in zip(paths, columns, rows_of, strict=True):
            column = _without_empty(texts)
            if rows is None:
                self._columns[path] = column
            else:
                kept = np.flatnonzero(np.asarray(column.is_valid()))
                self._several[path] = Texts(column.drop_null(), rows[kept])

    def _bytes_of(self, part: Part) -> Sequence[bytes | None]:
        batch = self._batch
        if isinstance(part, KeyPart):
            return batch.keys or []
        if isinstance(part, ValuePart):
            return self._values
        assert isinstance(part, HeaderPart)
        name = part.name
        return [dict(each).get(name) if each else None for each in batch.headers or []]

    def _trace_ids(self) -> Texts:
        """Return the IDs of the traces in each value. Raises InvalidRequestError without the library."""
        try:
            from google.protobuf.message import DecodeError
            from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
        except ImportError as error:
            raise InvalidRequestError(
                f"pip install 'tierdex[traces]' ({error})", field="key"
            ) from error
        texts: list[str] = []
        rows: list[int] = []
        for row, value in enumerate(self._values):
            try:  # a request to a collector has the bytes of `TracesData`
                data = TracesData.FromString(value or b"")
            except DecodeError:
                self.unreadable[row] = True
                continue
            spans = (s for r in data.resource_spans for each in r.scope_spans for s in each.spans)
            found = dict.fromkeys(span.trace_id for span in spans)
            texts += [trace_id.hex() for trace_id in found]
            rows += [row] * len(found)
        return Texts(pa.array(texts, pa.string()), np.array(rows, np.int64))

    def _decoded(self, values: Sequence[bytes | None]) -> Any:
        """Return bytes as text; what is not UTF-8 is null, and its record marked."""
        raw = pa.array(list(values), pa.binary())
        try:
            return _without_empty(raw.cast(pa.string()))
        except pa.ArrowInvalid:
            texts = [_text(value) for value in values]
        column = pa.array(texts, pa.string())
        self.unreadable |= np.asarray(column.is_null()) & np.asarray(raw.is_valid())
        return _without_empty(column)


def _without_marks(values: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """Return bodies without the byte order mark that a producer put before them."""
    if isinstance(values, ValueBlock):
        return values.without_marks()
    if not any(each is not None and each.startswith(BYTE_ORDER_MARK) for each in values):
        return values
    return [None if each is None else each.removeprefix(BYTE_ORDER_MARK) for each in values]


def _without_empty(column: Any) -> Any:
    bounds = pc.min_max(pc.binary_length(column))
    if bounds["min"].as_py() != 0:
        return column
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _words(column: Any) -> Texts:
    """Return the words of each text."""
    words = pc.utf8_split_whitespace(column)
    texts, rows = pc.list_flatten(words), np.asarray(pc.list_parent_indices(words))
    is_word = pc.not_equal(texts, "")  # blanks before the first and behind the last
    return Texts(texts.filter(is_word), rows[np.asarray(is_word)])


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
