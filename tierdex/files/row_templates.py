"""The columns of an entry, computed from a file's columns: templates, times, queues.

A template is a column's name, or text with columns in braces: ``{carrier}{flight}``. A column may
be padded with zeros (``{month:02}``) or cut (``{time_hour:.13}``). A template is null where any of
its columns is null or empty.

Times are understood as `text_times` says, keys as `key_texts`. A failure is a RowError with the row's number.

Depends on key_texts, text_times, errors, pyarrow and numpy.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tierdex.errors import InvalidRequestError
from tierdex.key_texts import key_texts
from tierdex.text_times import Column, RowError, has_times, times_of_column, times_of_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pc: Any = pyarrow.compute
_SPEC = re.compile(r"(?:0(?P<width>\d{1,2}))?(?:\.(?P<cut>\d{1,3}))?")


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
            raise InvalidRequestError(
                f"{text!r} is not a template: {error}", field=field
            ) from error
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
                pieces.append(_adjusted(as_text(column_of(table, name), name), width, cut))
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


def column_of(table: pa.Table, name: str) -> Column:
    """Return a column by its name, or what a path into structs leads to: ``order.id``."""
    if name in table.column_names:
        return table.column(name)
    root, *steps = name.split(".")
    column = one_array(table.column(root))
    for step in steps:
        column = pc.struct_field(column, step)
    return column


def as_text(column: Column, name: str) -> Column:
    """Return a column of plain values as text, empty ones as null. Raises InvalidRequestError, RowError."""
    try:
        texts = key_texts(one_array(column))
    except TypeError as error:
        raise InvalidRequestError(str(error), field=name) from None
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


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
        column = one_array(column_of(table, template.text))
    else:
        column = template.evaluate(table)
    _refuse_nulls(column, "timestamp", template.text)
    if has_times(column.type):
        return times_of_column(column, timezone)
    texts = as_text(column, template.text)
    _refuse_nulls(texts, "timestamp", template.text)
    return times_of_texts(texts, timezone)


def _adjusted(texts: Column, width: int, cut: int | None) -> Column:
    if cut is not None:
        texts = pc.utf8_slice_codeunits(texts, 0, cut)
    return pc.utf8_lpad(texts, width, "0") if width else texts


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
